"""Cases, verdicts and their counts."""

import collections
import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any

from bench.tables import markdown
from genenv_jax.benchmarks.base import Task

BOTH, NEITHER = "both accept", "both refuse"
OFFICIAL, OURS, OTHER = "only officially accepted", "only accepted here", "otherwise different"
_SHOWN = 160  # characters of an example


@dataclasses.dataclass(frozen=True)
class Case:
    """An answer to judge.

    Attributes:
      kind: how it was made.
      task: what it answers.
      text: what is scored here.
      given: what the official code is given, if not text.
    """

    kind: str
    task: Task
    text: str
    given: Any = None


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A judgement.

    Attributes:
      accepted: whether the answer is right.
      reason: why not.
      value: all that is compared, if more than `accepted`.
    """

    accepted: bool
    reason: str = ""
    value: Any = None


Judge = Callable[[Case], Verdict]


class Tally:
    """Counts of a comparison.

    Attributes:
      kinds: for each kind of answer how many of each outcome.
      classes: for each (outcome, official reason, our reason) that differs, how many of each kind.
      examples: the first case of each class and kind.
      seconds: CPU seconds of the two judges, ours first.
    """

    def __init__(self) -> None:
        self.kinds: dict[str, collections.Counter[str]] = {}
        self.classes: dict[tuple[str, str, str], collections.Counter[str]] = {}
        self.examples: dict[tuple[tuple[str, str, str], str], Case] = {}
        self.seconds = [0.0, 0.0]

    def run(self, cases: Iterable[Case], ours: Judge, official: Judge) -> None:
        """Judges every case twice."""
        for case in cases:
            begin = time.process_time()
            here = ours(case)
            middle = time.process_time()
            there = official(case)
            self.seconds[0] += middle - begin
            self.seconds[1] += time.process_time() - middle
            self.add(case, here, there)

    def add(self, case: Case, here: Verdict, there: Verdict) -> None:
        """Counts one case."""
        if here.accepted != there.accepted:
            outcome = OURS if here.accepted else OFFICIAL
        elif here.value != there.value:
            outcome = OTHER
        else:
            outcome = BOTH if here.accepted else NEITHER
        self.kinds.setdefault(case.kind, collections.Counter())[outcome] += 1
        if outcome in (OURS, OFFICIAL, OTHER):
            name = (outcome, there.reason, here.reason)
            self.classes.setdefault(name, collections.Counter())[case.kind] += 1
            self.examples.setdefault((name, case.kind), case)

    def total(self, *outcomes: str) -> int:
        """Cases of these outcomes; of all if none is named."""
        counts = sum(self.kinds.values(), collections.Counter())
        return sum(counts[outcome] for outcome in outcomes or counts)

    def table(self) -> str:
        """All counts as Markdown: kinds, then differences with an example each."""
        outcomes = (BOTH, NEITHER, OFFICIAL, OURS, OTHER)
        rows = [
            [kind, counts.total(), *(counts[outcome] for outcome in outcomes)]
            for kind, counts in sorted(self.kinds.items())
        ]
        rows.append(["all", self.total(), *map(self.total, outcomes)])
        cells = ([kind, *(f"{count:,}" for count in counts)] for kind, *counts in rows)
        lines = [markdown(("kind", "answers", *outcomes), cells)]
        for (outcome, there, here), kinds in sorted(self.classes.items()):
            title = f"{outcome}; official: {there or 'accepted'}; here: {here or 'accepted'}"
            lines += ["", f"{title}: {kinds.total()}"]
            for kind, count in kinds.most_common():
                case = self.examples[(outcome, there, here), kind]
                lines.append(f"  {kind}: {count}, as {case.task.id}: {case.text[:_SHOWN]!r}")
        return "\n".join(lines)

    def speed(self) -> str:
        """Verdicts per CPU second of both sides."""
        rates = [self.total() / each if each else float("inf") for each in self.seconds]
        return f"verdicts a CPU second: {rates[0]:,.0f} here, {rates[1]:,.0f} officially"
