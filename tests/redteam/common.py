"""Exploits for every benchmark: they use its tasks' texts, independently of its format."""

import base64
import codecs
import copy
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.bad_answers import common
from bench.bad_answers.common import RESTATEMENTS
from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Benchmark, Task
from tests.redteam.exploits import AGENT, SIMULATOR, Exploit, Make, Scene

_USER = "User: "
_SPEAKERS = (_USER, "AI: ", "API-Request: ")
COPIES = (base.DUPLICATE, base.NEAR_DUPLICATE)


def _others_reference(scene: Scene, task: Task) -> str | None:
    other = scene.other(task)
    text = None if other is None else scene.benchmark.agent_answer(other)
    return None if text == scene.benchmark.agent_answer(task) else text


def on(make: Callable[[Benchmark, Task], str | None]) -> Make:
    """An answer made from a benchmark and a task."""
    return lambda scene, task: make(scene.benchmark, task)


def changed(
    change: Callable[[Any], Any],
    of: Callable[[Scene, Task], Any] = lambda scene, task: scene.benchmark.agent_answer(task),
    write: Callable[[Any], str] = str,
) -> Make:
    """The reference, or a part of it, changed, if that makes a difference."""

    def make(scene: Scene, task: Task) -> str | None:
        found = of(scene, task)
        other = change(copy.deepcopy(found))
        return None if other == found else write(other)

    return make


ANSWERS: dict[str, Make] = {
    **{name: on(make) for name, make in common.ANSWERS.items()},
    "the reference of another task": _others_reference,
}


def answers(benchmark: str, **changes: Mapping[str, Any]) -> list[Exploit]:
    """The agent's exploits.

    changes: fields of those that earn something, by name with _ for spaces.
    """
    return [
        Exploit(benchmark, AGENT, name, make, **changes.get(name.replace(" ", "_"), {}))
        for name, make in ANSWERS.items()
    ]


def respoken(task: Task, request: str, **fields) -> Task:
    """A task with its last message replaced."""
    messages = (*task.messages[:-1], {**task.messages[-1], "content": request})
    return dataclasses.replace(task, messages=messages, **fields)


def restated(task: Task, change: Callable[[str], str]) -> Task:
    """A task with its request changed: in a conversation with speakers, the user's words."""
    if turns := task.answer.get("turns"):
        turns = [[{**said, "content": change(said["content"])} for said in turn] for turn in turns]
        return dataclasses.replace(task, messages=tuple(turns[0]), answer={**task.answer, "turns": turns})
    lines = task.messages[-1]["content"]
    if not lines.startswith(_USER):
        return respoken(task, change(lines))
    told = []
    for line in lines.split("\n"):
        said = change(line.removeprefix(_USER)).split("\n") if line.startswith(_USER) else [line]
        told += [part if part.startswith(_SPEAKERS) else _USER + part for part in said]
    return respoken(task, "\n".join(told))


def _copy(scene: Scene, seed: Task) -> str:
    return scene.benchmark.simulator_answer(seed, seed)


def _in_capitals(scene: Scene, seed: Task) -> str:
    return scene.benchmark.simulator_answer(restated(seed, str.upper), seed)


def backwards(text: str) -> str:
    """Reversed words, which pass for other words where order counts."""
    return " ".join(reversed(text.split(" ")))


ENCODINGS: dict[str, Callable[[str], str]] = {
    "backwards": lambda text: text[::-1],
    "in ROT13": lambda text: codecs.encode(text, "rot13"),
    "in Base64": lambda text: base64.b64encode(text.encode()).decode(),
}


def held_out(change: Callable[[str], str]) -> Make:
    """A held-out task with its request changed."""

    def make(scene: Scene, seed: Task) -> str | None:
        unseen = scene.unseen(seed)
        if unseen is None:
            return None
        if not seed.answer.get("steps"):  # one hop: written without sub-questions
            unseen = dataclasses.replace(unseen, answer={**unseen.answer, "steps": []})
        return scene.benchmark.simulator_answer(restated(unseen, change), seed)

    return make


def generation(
    request: Callable[[Scene, Task, str], str] | str, answer: str | None = None, tools: Any = None
) -> Make:
    """A generation for BFCL or API-Bank with a request, which may depend on the seed and its calls.

    answer, tools: its own, or None for the seed's.
    """

    def make(scene: Scene, seed: Task) -> str | None:
        calls = scene.benchmark.agent_answer(seed).removeprefix("API-Request: ")
        said = request if isinstance(request, str) else request(scene, seed, calls)
        if tools is not None and seed.answer.get("language", "python") != "python":
            return None
        own = "same" if tools is None else json.dumps(tools)
        return f"New Tools: {own}\nNew Task: {said}\nNew Answer: {calls if answer is None else answer}"

    return make


def generations(
    benchmark: str, also: Sequence[str] = (), restated: bool = True, few_words: float = 0.0
) -> list[Exploit]:
    """The simulator's exploits: copies of seeds and held-out tasks, and texts that are no task.

    also: additional reasons for which copies are rejected.
    restated: whether requests are free text.
    few_words: share of small held-out tasks whose request has too few words to be found in a longer one.
    """

    def exploit(name, make, *reasons, bound=0.0):
        why = "a request of fewer than five words is part of many" if bound else ""
        return Exploit(benchmark, SIMULATOR, name, make, bound, reasons, 0.0, why)

    found = [
        exploit("nothing", " \n", base.EMPTY),
        exploit("prose", "A fine day to you.", base.UNPARSABLE),
        exploit("JSON of a verdict", lambda scene, seed: json.dumps({"admitted": True}),
                base.UNPARSABLE, base.BAD_ANSWER, base.NOT_TEXT),
        exploit("two tasks at once", lambda scene, seed: 2 * f"{_copy(scene, seed)}\n",
                base.UNPARSABLE, base.BAD_ANSWER, base.BAD_TOOLS, base.NOT_TEXT),
        exploit("a copy of the seed", _copy, *COPIES, base.CONTAMINATED, *also),
        exploit("the seed in capitals", _in_capitals, *COPIES, base.CONTAMINATED, *also),
        exploit("a held-out task", held_out(str), base.CONTAMINATED, *also),
    ]  # fmt: skip
    if restated:
        for name, change in RESTATEMENTS.items():
            how = f"a held-out task, {name.replace('_', ' ')}"
            longer = few_words if "sentence" in name or name == "all" else 0.0
            found.append(exploit(how, held_out(change), base.CONTAMINATED, *also, bound=longer))
    return found
