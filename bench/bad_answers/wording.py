"""Changes of a text that leave what it says: a held-out request is told again, an answer dressed up."""

from __future__ import annotations

import random
from collections.abc import Callable


def word_in_five(text: str) -> str:
    """A needless word after every fifth one."""
    spoken, rng = text.split(" "), random.Random(0)
    for place in range(len(spoken) - len(spoken) % 5, 0, -5):
        spoken.insert(place, rng.choice(("really", "please", "perhaps", "kindly")))
    return " ".join(spoken)


RESTATEMENTS: dict[str, Callable[[str], str]] = {
    "word_in_five": word_in_five,
    "cyrillic": lambda text: text.replace("e", "\u0435"),
    "upper_case": str.upper,
    "invisible": lambda text: "\u200b".join(text),
    "sentence_after": lambda text: text + " Please take your time and tell me what you find.",
    "sentence_before": lambda text: "User: I have a question for you.\n" + text,
    "all": lambda text: RESTATEMENTS["cyrillic"](
        RESTATEMENTS["sentence_before"](word_in_five(text))
    ),
}

WRAPPINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "upper case": str.upper,
    "lower case": str.lower,
    "in a fence": lambda text: f"```\n{text}\n```",
    "in quotes": lambda text: f'"{text}"',
    "in brackets": lambda text: f"[{text}]",
    "in answer tags": lambda text: f"<answer>{text}</answer>",
    "as an action": lambda text: f"Action: {text}",
    "as a request": lambda text: f"API-Request: [{text}]",
    "in words": lambda text: f"Sure, here it is: {text} That is all.",
    "twice": lambda text: f"{text}\n{text}",
    "ten times": lambda text: f"{text} " * 10,
    "padded": lambda text: f"\n\n  {text}  \n\n" + "ok " * 50,
    "look-alikes": RESTATEMENTS["cyrillic"],
    "full width": lambda text: "".join(
        chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text
    ),
    "invisible": RESTATEMENTS["invisible"],
    "backwards": lambda text: text[::-1],
    "first half": lambda text: text[: len(text) // 2],
}
