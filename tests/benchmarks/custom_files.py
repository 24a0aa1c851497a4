"""Made-up questions for each checker, as a user's files."""

import json
import pathlib

OPTIONS = {"train": "train.jsonl", "held_out": "held_out.jsonl"}

_CAPITALS = {
    "Ostland": "Velm", "Norrmark": "Tarn", "Sudria": "Ilsk", "Vestermoor": "Oldcastle",
    "the Isles of Arn": "Cold Bay", "Lower Saxony Minor": "Brandt",
}  # fmt: skip
_LENGTHS = {3: 3000, 7: 7000, 12: 12000, 45: 45000, 60: 60000, 85: 85000}
_WRITERS = {
    "The Long Walk Home": ["Ann Miller", "A. Miller"], "The Glass Pier": "Ivo Brandt junior",
    "Blue Hill by Night": "Rosa Quint Farr", "The Merry Day": "Bo Lund Larsen",
    "Stone Circles of the North": "Meg Doyle Young", "The Coil Lamp": "Otto Farr Haas",
}  # fmt: skip
_TABLES = [
    ("Lotus", 4, "Friday"), ("Roma", 2, "Sunday"), ("Mill", 6, "Monday"), ("Anker", 3, "Tuesday"),
    ("Krone", 5, "Thursday"), ("Hafen", 8, "Saturday"),
]  # fmt: skip
_ASKED = [
    ("capital", "exact", "Which town is the capital of {}, as the atlas has it?", _CAPITALS),
    ("length", "numeric", "How many metres long is a road of {} kilometres?", _LENGTHS),
    ("writer", "f1", "Who is said to have written the novel {}, in full?", _WRITERS),
]
_KEYS = ("category", "checker", "prompt", "answer")
_TOOLS = "You may call book(restaurant: text, guests: integer, day: text)."


def records() -> list[dict]:
    """All records, grouped by category."""
    found = [
        (category, checker, asked.format(about), answer)
        for category, checker, asked, answers in _ASKED
        for about, answer in answers.items()
    ]
    for name, n, day in _TABLES:
        asked = f"Please book a table for {n} at the {name} on {day}."
        said = [{"role": "system", "content": _TOOLS}, {"role": "user", "content": asked}]
        call = {"name": "book", "arguments": {"restaurant": name, "guests": n, "day": day}}
        found.append(("table", "call", said, call))
    return [dict(zip(_KEYS, values, strict=True)) for values in found]


def write(directory: pathlib.Path) -> pathlib.Path:
    """Writes train.jsonl and held_out.jsonl, the latter two of each category's six, into a new directory."""
    directory.mkdir(parents=True, exist_ok=True)
    parts = {"train.jsonl": [], "held_out.jsonl": []}
    for index, record in enumerate(records()):
        parts["held_out.jsonl" if index % 6 > 3 else "train.jsonl"].append(record)
    for name, part in parts.items():
        (directory / name).write_text("".join(json.dumps(record) + "\n" for record in part))
    return directory
