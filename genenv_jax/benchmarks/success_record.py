"""The agent's success statistics in the simulator's prompt."""

from __future__ import annotations

import dataclasses

OWN, ALIKE, RECENT, ASKED = "own", "alike", "recent", "asked"


@dataclasses.dataclass(frozen=True)
class SeedStatistics:
    """The agent's record that the simulator reads beside a seed.

    Attributes:
      attempts, successes: how often the agent attempted and solved the tasks of `at`.
      at: OWN: the seed and its variations; ALIKE: recent tasks that need one of the seed's skills; RECENT:
        all recent tasks; ASKED: the variation that the simulator is to write.
      difficulty: what the prompt asks for instead (`Benchmark.askable`), or None.
    """

    attempts: int = 0
    successes: int = 0
    at: str = OWN
    difficulty: int | None = None

    @property
    def success_rate(self) -> float | None:
        """Share of attempts that succeeded, or None without attempts."""
        return self.successes / self.attempts if self.attempts else None

    @classmethod
    def asked(cls, rate: float) -> SeedStatistics:
        """Asks for a task that the agent solves at `rate`, in tenths."""
        return cls(10, round(10 * rate), ASKED)


LONGEST = SeedStatistics(99_999, 99_999, ALIKE)  # no record takes more words or digits
_KEEP = (0.4, 0.6)  # success rates at which the difficulty is right


def success_record(statistics: SeedStatistics, who: str = "agent", what: str = "task") -> str:
    """The agent's success statistics in words, with what they call for in the next task.

    `who` and `what` are the prompt's words for the agent and a task.
    """
    rate = statistics.success_rate
    if rate is None:
        return (
            f"The {who} has not tried this {what} or variations of it yet; "
            f"aim at a {what} that it would solve about half of the time."
        )
    if statistics.at == ASKED:
        wanted = f"{statistics.successes} of {statistics.attempts}"
        return f"Write a {what} of which the {who} would solve {wanted} attempts."
    wish = "keep the difficulty"
    if rate < _KEEP[0]:
        wish = f"write an easier {what}"
    elif rate > _KEEP[1]:
        wish = f"write a harder {what}"
    at = {
        OWN: f"this {what} or variations of it",
        ALIKE: f"recent {what}s that need the same skills",
        RECENT: f"recent {what}s",
    }[statistics.at]
    return (
        f"The {who} solved {statistics.successes} of {statistics.attempts} attempts at {at}; "
        f"aim at {what}s solved about half of the time, so {wish}."
    )
