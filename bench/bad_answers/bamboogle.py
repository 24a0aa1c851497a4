"""Short answers to questions: tags that are right or broken, and the gold answer changed in one way."""

import random
import unicodedata
from collections.abc import Callable, Iterator, Mapping

from genenv_jax.benchmarks.base import Benchmark, Task

# What is put around the gold answer GOLD; QUESTION is the question.
_TAGGED = "<answer>GOLD</answer>"
FORMS: Mapping[str, tuple[str, ...]] = {
    "tagged": (_TAGGED, f"<think>Hm.</think>\n{_TAGGED}", f"{_TAGGED}\n", "<answer> GOLD </answer>",
        "<answer>\nGOLD\n</answer>"),
    "tag broken": ("<answer>GOLD", "GOLD</answer>", "<answer>GOLD<answer>", "<Answer>GOLD</Answer>",
        "<answer >GOLD</answer>", "< answer>GOLD</answer>"),
    "two tags": (f"<answer>no</answer>{_TAGGED}", f"{_TAGGED}<answer>no</answer>",
        f"{_TAGGED}<answer></answer>", f"{_TAGGED}{_TAGGED}"),
    "nested tags": (f"<answer>{_TAGGED}</answer>", f"<answer><answer>{_TAGGED}",
        "<answer>GO</answer>LD</answer>", f"<answer>no{_TAGGED}"),
    "plain": ("GOLD", "GOLD.", " GOLD\n", "The answer is GOLD.", "QUESTION GOLD", "\\boxed{GOLD}",
        "**GOLD**", "Answer: GOLD"),
    "words around it": ("<answer>The answer is GOLD.</answer>", "<answer>GOLD (probably)</answer>",
        "<answer>in GOLD</answer>", "<answer>GOLD or not</answer>"),
    "nothing": ("", "<answer></answer>", "<answer> </answer>", "<answer>.</answer>", "<answer>the</answer>",
        "<answer>?!</answer>", "QUESTION"),
    "refusal": ("<answer>unknown</answer>", "I do not know.", "<answer>yes</answer>", "<answer>no</answer>",
        "<answer>noanswer</answer>", "<answer>No answer</answer>"),
    "not text": (f"{_TAGGED}\x00", "<answer>GOLD\x07</answer>", "<answer>GOLD\ud800</answer>"),
    "beyond limits": (f"{'x ' * 5_000}{_TAGGED}", f"{_TAGGED}{' ' * 9_000}",
        f"<answer>{'GOLD ' * 3_000}</answer>"),
}  # fmt: skip


def _words(gold: str, rng: random.Random) -> str:
    words = gold.split(" ")
    at = rng.randrange(len(words))
    dropped, added = (
        words[:at] + words[at + 1 :],
        [*words[:at], rng.choice(("of", "big", "1900")), *words[at:]],
    )
    return " ".join(
        rng.choice((dropped, added, words[::-1], words + words[:1], rng.sample(words, len(words))))
    )


def _character(gold: str, rng: random.Random) -> str:
    at = rng.randrange(len(gold))
    return gold[:at] + rng.choice(("", "x", gold[at] * 2, "1", "é")) + gold[at + 1 :]


def _punctuation(gold: str, rng: random.Random) -> str:
    at = rng.randint(0, len(gold))
    return gold[:at] + rng.choice(",.-'\"!?;:()[]{}/\\|_*&^%$#@~`<>=+") + gold[at:]


def _articles(gold: str, rng: random.Random) -> str:
    return rng.choice(
        (
            f"the {gold}",
            f"A {gold}",
            f"{gold} an",
            f"the, {gold}",
            f"the-{gold}",
            gold.replace(" ", " the "),
            f"a{gold}",
            f"The a an {gold}",
        )
    )


def _unicode(gold: str, rng: random.Random) -> str:
    forms = (gold.replace("-", "–").replace("'", "’"), gold.replace(" ", "\u00a0"),
        unicodedata.normalize("NFD", gold), gold.replace("e", "é"),
             gold.replace("a", "а"), f"“{gold}”", f"{gold}。", gold.replace(" ", "\u200b "),
                 "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in gold),
             gold.replace("i", "İ"), gold.replace("s", "ſ"), gold.replace(" ", "\u3000"), gold.replace(" ",
                 "\x1f"), gold + "\u0301")  # fmt: skip
    return rng.choice(forms)


def _space(gold: str, rng: random.Random) -> str:
    return rng.choice(
        (
            gold.replace(" ", "  "),
            gold.replace(" ", "\t"),
            gold.replace(" ", "\n"),
            f"  {gold}",
            gold.replace(" ", ""),
            gold.replace(" ", "-"),
        )
    )


def _case(gold: str, rng: random.Random) -> str:
    return rng.choice((gold.upper(), gold.title(), gold.swapcase(), gold.capitalize()))


CHANGES: Mapping[str, Callable[[str, random.Random], str]] = {
    "case": _case, "punctuation": _punctuation, "articles": _articles, "Unicode": _unicode,
        "white space": _space,
    "other words": _words, "other characters": _character,
}  # fmt: skip
_REPEATS = 3


def answers(question: str, gold: str, other: str, rng: random.Random) -> Iterator[tuple[str, str]]:
    """(kind, text) of each kind, for one question; `other` is another question's answer."""
    for kind, forms in FORMS.items():
        for form in rng.sample(forms, min(2, len(forms))):
            yield kind, form.replace("GOLD", gold).replace("QUESTION", question)
    for kind, change in CHANGES.items():
        for _ in range(_REPEATS):
            text = change(gold, rng)
            yield kind, rng.choice((f"<answer>{text}</answer>", f"<answer>{text}</answer>", text))
    yield "another answer", f"<answer>{other}</answer>"


def of_task(benchmark: Benchmark, task: Task, rng: random.Random) -> Iterator[tuple[str, str]]:
    """See `bad_answers`."""
    question, gold = task.messages[-1]["content"], task.answer["answers"][0]
    yield from answers(question, gold, "something else", rng)
