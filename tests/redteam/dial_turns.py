"""Dial in turns: one call at a time, with each line of a text an answer."""

import functools
import re
from collections.abc import Sequence

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.dial.programs import Choice, turned, write
from tests.redteam.common import answers, changed, generations
from tests.redteam.exploits import AGENT, SIMULATOR, Exploit, Scene

_agent = functools.partial(Exploit, "dial_turns", AGENT)
_simulator = functools.partial(Exploit, "dial_turns", SIMULATOR)


def _numbered(lines: Sequence[str]) -> str:
    """Answers, renumbered."""
    return "\n".join(f"{n} {re.sub('^[0-9] ', '', line)}" for n, line in enumerate(lines, 1))


def _first_branches(scene: Scene, task: Task) -> str | None:
    """The program, called from the dial's positions, with each choice's first call."""
    program, positions = scene.benchmark.program(task), scene.benchmark.positions
    at, lines = program.start, []
    if not any(isinstance(call, Choice) for call in program.calls):
        return None
    for call in program.calls:
        operation, n = call.call if isinstance(call, Choice) else call
        lines.append(write((operation, at, n)))
        at = turned((operation, at, n), positions)
    return _numbered([*lines, f"done {at}"])


def _probed(scene: Scene, task: Task) -> str:
    """Each call, first tried from another position."""
    lines = scene.benchmark.agent_answers(task)
    tried = [re.sub(r"\((\d)", lambda m: f"({(int(m[1]) + 1) % 10}", line) for line in lines[:-1]]
    pairs = zip(tried, lines, strict=False)
    return "\n".join([*(part for pair in pairs for part in pair), lines[-1]])


def _shotgun(scene: Scene, task: Task) -> str:
    """Every call from every position."""
    at = range(scene.benchmark.positions)
    return "\n".join(f"1 {write((o, a, n))}" for a in at for o, n in scene.benchmark.plain)


def _otherwise(scene: Scene, seed: Task) -> str | None:
    """A held-out program with its choices' tests negated and branches exchanged."""

    def opposite(found: re.Match[str]) -> str:
        test, n = found[1], int(found[2] or 0)
        tests = {"even": "odd", "odd": "even", "above": f"below {n + 1}", "below": f"above {n - 1}"}
        return f"if {tests[test]} {found[4]} else {found[3]}"

    choice = re.compile(r"if (even|odd|above|below)(?: (\d))? (\w+ \d) else (\w+ \d)")
    texts = (scene.benchmark.simulator_answer(task) for task in scene.held_out)
    changed = [text for text in texts if choice.search(text)]
    text = changed[scene.tasks.index(seed) % len(changed)] if changed else None
    return text and choice.sub(opposite, text)


_HEAD = "Tools: add, subtract, multiply.\nStart at 3. "
_FIRST = f"{_HEAD}1 add 4 [add(3, 4) at 7]"

EXPLOITS = [
    *answers("dial_turns"),
    _agent("every call, a turn each", _shotgun),
    _agent("calls in reversed order", changed(lambda text: _numbered(
        [*text.split("\n")[-2::-1], text.split("\n")[-1]]))),
    _agent("always the first branch", _first_branches, 0.35, remains="half of the tests are passed"),
    _agent("each call tried from elsewhere before", _probed, 0.35,
           remains="a refused call says where the dial stands, as the call before it did"),
    _agent("huge numbers", changed(lambda text: re.sub(r", (\d)", lambda found: f", {10 ** 150}", text))),
    _agent("an argument with a turn of the dial more", changed(lambda text: re.sub(
        r", (\d)", lambda found: f", 1{found[1]}", text))),
    _agent("digits of another script", changed(lambda text: text.translate(
        {ord("0") + n: 0x0660 + n for n in range(10)}))),
    _agent("look-alike letters", changed(lambda text: text.replace("a", "\u0430").replace(
        "u", "\u03c5").replace("o", "\u043e"))),

    *generations("dial_turns", (base.NOT_TEXT, base.UNPARSABLE), restated=False),
    _simulator("a held-out program with opposite tests", _otherwise, reasons=(base.CONTAMINATED,)),
    _simulator("the answer where the agent reads it", f"{_FIRST} (add(3, 4)).", reasons=(base.UNPARSABLE,)),
    _simulator("the answer inside of the answer",
               f"{_HEAD}1 add 4 [[add(3, 4) at 7]].", reasons=(base.UNPARSABLE,)),
    _simulator("digits of another script",
               f"{_HEAD}1 add \u0664 [add(3, 4) at 7].", reasons=(base.NOT_TEXT,)),
    _simulator("a choice by the start, which is told",
               f"{_HEAD}1 if odd add 4 else add 1 [add(3, 4) at 7].", 1.0,
        remains="it is a task, if one that needs no result"),
    _simulator("steps that undo one another",
               f"{_FIRST}, 2 subtract 4 [subtract(7, 4) at 3], 3 add 4 [add(3, 4) at 7].",
               1.0, remains="it is a task; an easy one is paid for as long as it is solved half of the time"),
]  # fmt: skip
