"""Exact match and F1 of made-up pairs as torchmetrics' SQuAD measure gives them.

    python -m tests.benchmarks.bamboogle_references          # or: make references

writes `bamboogle_references.json`, which the tests read.
"""

import json
import pathlib
import random

from genenv_jax.benchmarks.bamboogle.scoring import normalize

FILE = pathlib.Path(__file__).with_suffix(".json")
_COUNT = 100
_CLOSED = {"yes", "no", "noanswer"}  # SQuAD has no rule for these
_GOLDS = (
    "Port Albert", "ann miller", "1893", "the Tarn Water", "a yes-man", "U.S. Route 9", "Élan Valley",
    "an Oak, an Ash and the Elm", "24 May 1911", "Theatre of the Sea", "St. Anne's-on-Sea", "412 metres",
)  # fmt: skip
_NOISE = ("the", "a", "An", "of", "in", "1837", "...", "-", "U.S.", "É", "  ", "\t", "theatre")


def pairs() -> list[tuple[str, list[str]]]:
    """(prediction, golds) whose words often overlap, with articles, punctuation and odd spaces."""
    rng, found = random.Random(0), []
    while len(found) < _COUNT:
        golds = rng.sample(_GOLDS, rng.choice((1, 1, 2, 3)))
        words = rng.choice([*golds, _GOLDS[0]]).split() + rng.choices(_NOISE, k=rng.randrange(4))
        if rng.random() < 0.5:
            rng.shuffle(words)
        if rng.random() < 0.3:
            words = words[: rng.randrange(len(words)) + 1]
        text = rng.choice((" ", "  ", ", ")).join(words)
        text = rng.choice((text, text.upper(), text.title(), f"{text}.", f"({text})"))
        if not _CLOSED & {normalize(each) for each in (text, *golds)}:
            found.append((text, golds))
    return found


def squad(prediction: str, golds: list[str]) -> tuple[float, float]:
    """(exact match, F1), both in [0, 1]."""
    from torchmetrics.functional.text import squad as measure

    found = measure(
        {"prediction_text": prediction, "id": "1"},
        {"answers": {"answer_start": [0] * len(golds), "text": golds}, "id": "1"},
    )
    return float(found["exact_match"]) / 100, round(float(found["f1"]) / 100, 4)


def main() -> None:
    """Writes the file: [prediction, golds, exact match, F1] of each pair."""
    rows = [[text, golds, *squad(text, golds)] for text, golds in pairs()]
    lines = ",\n".join(json.dumps(row) for row in rows)
    FILE.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
