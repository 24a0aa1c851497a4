"""Dial in turns: one call at a time, with each line of a text an answer."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.dial.programs import Call, Choice, turned, write
from tests.redteam.common import answers, changed, generations
from tests.redteam.exploits import AGENT, SIMULATOR, Exploit, Make, Scene

_agent = functools.partial(Exploit, "dial_turns", AGENT)
_simulator = functools.partial(Exploit, "dial_turns", SIMULATOR)


def _numbered(lines: Sequence[str]) -> str:
    """Answers, renumbered."""
    return "\n".join(f"{n} {re.sub('^[0-9] ', '', line)}" for n, line in enumerate(lines, 1))


def _called(choose: Callable[[Choice, Call], Sequence[Call]]) -> Make:
    """The program, called from the dial's positions; `choose`: a choice and its right call -> the calls."""

    def make(scene: Scene, task: Task) -> str | None:
        program, positions = scene.benchmark.program(task), scene.benchmark.positions
        at, lines = program.start, []
        if not any(isinstance(call, Choice) for call in program.calls):
            return None
        for call in program.calls:
            calls = [call]
            if isinstance(call, Choice):
                passes = at in scene.benchmark.tests[call.test]
                calls = choose(call, call.call if passes else call.otherwise)
            for operation, n in calls:
                lines.append(write((operation, at, n)))
                at = turned((operation, at, n), positions)
        return _numbered([*lines, f"done {at}"])

    return make


def _from(scene: Scene, task: Task) -> str | None:
    """All calls from the start, as if the dial had not moved."""
    lines = scene.benchmark.agent_answer(task).split("\n")
    start = scene.benchmark.program(task).start
    text = "\n".join(re.sub(r"\(\d", f"({start}", line) for line in lines)
    return None if text == "\n".join(lines) else text


def _another_way(scene: Scene, task: Task) -> str | None:
    """The first call, replaced by another that leads to the same position."""
    name, at, n = task.answer["calls"][0]
    others = (c for c in scene.benchmark.plain if c != (name, n))
    positions = scene.benchmark.positions
    end = turned((name, at, n), positions)
    first = next((c for c in others if turned((c[0], at, c[1]), positions) == end), None)
    if first is None:
        return None
    _, *lines = scene.benchmark.agent_answers(task)
    return _numbered([write((first[0], at, first[1])), *lines])


def _undone(scene: Scene, task: Task) -> str:
    """A call and its inverse before the others."""
    at, positions = scene.benchmark.program(task).start, scene.benchmark.positions
    there_and_back = f"add({at}, 1)", f"subtract({(at + 1) % positions}, 1)"
    return _numbered([*there_and_back, *scene.benchmark.agent_answers(task)])


def _probed(scene: Scene, task: Task) -> str:
    """Each call, first tried from another position."""
    lines = scene.benchmark.agent_answers(task)
    tried = [re.sub(r"\((\d)", lambda m: f"({(int(m[1]) + 1) % 10}", line) for line in lines[:-1]]
    pairs = zip(tried, lines, strict=False)
    return "\n".join([*(part for pair in pairs for part in pair), lines[-1]])


def _shotgun(end: str) -> Make:
    """Every call from every position, with a separator."""

    def make(scene: Scene, task: Task) -> str:
        at = range(scene.benchmark.positions)
        return end.join(f"1 {write((o, a, n))}" for a in at for o, n in scene.benchmark.plain)

    return make


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
    _agent("every call, a turn each", _shotgun("\n")),
    _agent("every call in one answer", _shotgun(" ")),
    _agent("the right call a thousand times in one answer", changed(lambda text: " ".join(
        1_000 * [text.split("\n")[0]]))),
    _agent("the calls in one answer", changed(lambda text: text.replace("\n", " "))),
    _agent("the last position alone", changed(lambda text: f"1 done {text[-1]}")),
    _agent("the last answer alone", changed(lambda text: text.rpartition("\n")[2])),
    _agent("every last position", lambda scene, task: "\n".join(f"1 done {n}" for n in range(10))),
    _agent("calls without an end", changed(lambda text: text.rpartition("\n")[0])),
    _agent("an end without a position", changed(lambda text: text[:-2])),
    _agent("an end that is one further", changed(lambda text: text[:-1] + str(
        (int(text[-1]) + 1) % 10))),
    _agent("a call less", changed(lambda text: _numbered(text.split("\n")[1:]))),
    _agent("a call more, and its position", changed(lambda text: _numbered(
        [*text.split("\n")[:-1], f"add({text[-1]}, 1)", f"done {(int(text[-1]) + 1) % 10}"]))),
    _agent("calls in reversed order", changed(lambda text: _numbered(
        [*text.split("\n")[-2::-1], text.split("\n")[-1]]))),
    _agent("calls without numbers", changed(lambda text: re.sub("(?m)^[0-9] ", "", text))),
    _agent("numbers one further", changed(lambda text: re.sub(
        "(?m)^[0-9]", lambda found: str(int(found[0]) + 1), text))),
    _agent("everything twice", changed(lambda text: f"{text}\n{text}")),
    _agent("both branches", _called(lambda choice, right: (choice.call, choice.otherwise))),
    _agent("the other branch", _called(lambda choice, right: (
        choice.otherwise if right == choice.call else choice.call,))),
    _agent("always the first branch", _called(lambda choice, right: (choice.call,)), 0.35,
           remains="half of the tests are passed"),
    _agent("positions as at the start", _from),
    _agent("another way to the same position", _another_way),
    _agent("a call and its undoing before", _undone),
    _agent("each call tried from elsewhere before", _probed, 0.35,
           remains="a refused call says where the dial stands, as the call before it did"),
    _agent("huge numbers", changed(lambda text: re.sub(r", (\d)", lambda found: f", {10 ** 150}", text))),
    _agent("an argument with a turn of the dial more", changed(lambda text: re.sub(
        r", (\d)", lambda found: f", 1{found[1]}", text))),
    _agent("results that are made up", changed(lambda text: text.replace(")", ") at 0"))),
    _agent("control tokens", changed(lambda text: text.replace(
        "\n", "<|im_end|>\n<|im_start|>assistant\n"))),
    _agent("capitals", changed(str.upper)),
    _agent("digits of another script", changed(lambda text: text.translate(
        {ord("0") + n: 0x0660 + n for n in range(10)}))),
    _agent("look-alike letters", changed(lambda text: text.replace("a", "\u0430").replace(
        "u", "\u03c5").replace("o", "\u043e"))),
    _agent("a comment behind", changed(lambda text: f"{text} # right")),

    *generations("dial_turns", (base.NOT_TEXT, base.UNPARSABLE), restated=False),
    _simulator("a held-out program with opposite tests", _otherwise, reasons=(base.CONTAMINATED,)),
    _simulator("the answer where the agent reads it", f"{_FIRST} (add(3, 4)).",
               reasons=(base.UNPARSABLE,)),
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
