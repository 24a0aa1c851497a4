"""One attempt at a task of Dial in turns."""

import re
from collections.abc import Sequence

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import STEP_LIMIT, Episode, Message, Score
from genenv_jax.benchmarks.dial.programs import Made, turned
from genenv_jax.benchmarks.dial.tasks import OPERATIONS, read_lines

# Why a call is refused, and what the agent then reads; base.EMPTY and base.UNPARSABLE are reasons too.
OTHER_NUMBER, UNKNOWN_TOOL = "other_number", "unknown_tool"
OTHER_POSITION, UNKNOWN_ARGUMENT = "other_position", "unknown_argument"
SEVERAL_CALLS = "several_calls"
OBSERVATIONS = {
    base.EMPTY: "no call, at {}",
    base.UNPARSABLE: "no call, at {}",
    SEVERAL_CALLS: "one call at a time, at {}",
    OTHER_NUMBER: "not next, at {}",
    UNKNOWN_TOOL: "no such tool, at {}",
    OTHER_POSITION: "not there, at {}",
    UNKNOWN_ARGUMENT: "no such argument, at {}",
    "": "at {}",
}
ANSWER_CHARS = 200  # a longer answer ends its episode

# Not \d, which matches the digits of every script.
_ANSWER = re.compile(r"([1-9]) (?:([a-z_]{1,16})\(([0-9]), ([0-9])\)|done ([0-9]))")


class DialEpisode(Episode):
    """One attempt at a task, call by call; it ends after `turns` answers.

    `calls`: those to make, in order; `in_template`: whether answers are calls of tools in a chat template,
    and replies their results.
    """

    def __init__(
        self,
        opening: Sequence[Message],
        start: int,
        positions: int,
        calls: Sequence[Made],
        turns: int,
        in_template: bool = False,
    ):
        super().__init__(opening, turns)
        self._at, self._positions, self._in_template = start, positions, in_template
        self._calls = list(calls)
        self._made: list[Made] = []
        self._refused: list[str] = []

    def take(self, answer: str) -> Score | list[Message]:
        lines = read_lines(answer) if self._in_template else []
        if lines:
            answer = f"{len(self._made) + 1} {lines[0]}"
        if len(answer) > ANSWER_CHARS:
            return self._end(False, base.TOO_LONG)
        said = _ANSWER.fullmatch(answer.strip())
        refusal = self._refusal(said) if said else base.UNPARSABLE if answer.strip() else base.EMPTY
        if len(lines) > 1:
            refusal = SEVERAL_CALLS
        if refusal:
            self._refused.append(refusal)
        elif said[5]:
            return self._end(True, self._fault(int(said[5])))
        else:
            self._made.append((said[2], self._at, int(said[4])))
            self._at = turned(self._made[-1], self._positions)
        role = "tool" if lines else "user"
        return [{"role": role, "content": OBSERVATIONS[refusal].format(self._at)}]

    def stop(self) -> Score:
        """No success; invalid without a single call, which is not worth learning from."""
        return self._end(bool(self._made), STEP_LIMIT if self._made else self._refused[-1])

    def _refusal(self, said: re.Match[str]) -> str:
        """Why a call is refused, or ""."""
        if int(said[1]) != len(self._made) + 1:
            return OTHER_NUMBER
        if said[5]:
            return ""
        if said[2] not in OPERATIONS:
            return UNKNOWN_TOOL
        if int(said[3]) != self._at:
            return OTHER_POSITION
        return "" if 1 <= int(said[4]) < self._positions else UNKNOWN_ARGUMENT

    def _fault(self, final: int) -> str:
        """What is wrong with the calls or the last position, or ""."""
        if any(made != call for made, call in zip(self._made, self._calls, strict=False)):
            return "wrong_call"
        if len(self._made) != len(self._calls):
            return "wrong_number_of_calls"
        return "" if final == self._at else "wrong_result"

    def _end(self, valid: bool, reason: str) -> Score:
        detail = {"calls": len(self._made), "refused": len(self._refused)}
        return Score(float(not reason), not reason, valid, reason, detail)
