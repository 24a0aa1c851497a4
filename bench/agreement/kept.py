"""Official verdicts, kept so that tests need no official code; they contain no text of a benchmark."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterable

from bench.agreement.tally import Case, Judge, Verdict

_DIRECTORY = pathlib.Path(__file__).with_name("verdicts")
SUITES = ("bfcl", "handlers", "conversations", "travelplanner", "api_bank")


def path(suite: str) -> pathlib.Path:
    """The file of a suite."""
    return _DIRECTORY / f"{suite}.json"


def digest(cases: Iterable[Case]) -> str:
    """A hash, equal for equal lists of cases."""
    found = hashlib.sha256()
    for case in cases:
        found.update(f"{case.kind}\0{case.task.id}\0{case.text}\0".encode("utf-8", "replace"))
    return found.hexdigest()


def write(suite: str, cases: Iterable[Case], official: Judge, seed: int, share: float) -> str:
    """Judges the cases and keeps the verdicts; returns a line about them."""
    cases = list(cases)
    verdicts: dict[str, list[int]] = {}
    kinds: dict[Verdict, int] = {}
    for case in cases:
        index = kinds.setdefault(official(case), len(kinds))
        verdicts.setdefault(case.task.id, []).append(index)
    kept = {
        "seed": seed, "share": share, "cases": digest(cases),
        "kinds": [dataclasses.astuple(verdict) for verdict in kinds], "verdicts": verdicts,
    }  # fmt: skip
    _DIRECTORY.mkdir(exist_ok=True)
    path(suite).write_text(json.dumps(kept, separators=(",", ":")) + "\n")
    return f"{len(cases)} verdicts of {len(kinds)} kinds on {len(verdicts)} tasks"


class Kept:
    """The verdicts of a suite, to be asked for in the order of its cases.

    Attributes:
      seed, share: how the cases were made.
      cases: their digest.
    """

    def __init__(self, suite: str):
        found = json.loads(path(suite).read_text())
        self.seed, self.share, self.cases = found["seed"], found["share"], found["cases"]
        kinds = [Verdict(*fields) for fields in found["kinds"]]
        self._left = {name: iter([kinds[i] for i in of]) for name, of in found["verdicts"].items()}

    def judge(self, case: Case) -> Verdict:
        """The official verdict on the next case of its task."""
        return next(self._left[case.task.id])
