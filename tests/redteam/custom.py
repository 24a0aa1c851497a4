"""A user's own questions from files: a checker for each, and tasks as one JSON object."""

import functools
import json
from collections.abc import Callable
from typing import Any

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.custom import calls
from tests.redteam.common import ENCODINGS, answers, generations
from tests.redteam.exploits import AGENT, SIMULATOR, Exploit, Make, Scene

_agent = functools.partial(Exploit, "custom", AGENT)
_simulator = functools.partial(Exploit, "custom", SIMULATOR)
_F1 = "the F1 of words that an answer shares with the right one"
_TRUE = "whether an answer is true takes a source, or a `check` of one's own"


def _of(checker: str, make: Callable[[Task], str]) -> Make:
    """An answer to the tasks of a checker."""
    return lambda scene, task: make(task) if task.answer["checker"] == checker else None


def _every_answer(scene: Scene, task: Task) -> str | None:
    alike = [t.answer["reference"] for t in scene.tasks if t.category == task.category]
    if task.answer["checker"] == "call":
        return calls.write([call for made in alike for call in made])
    return f"<answer>{'; '.join(str(one) for one in alike)}</answer>"


def _other_tags(scene: Scene, task: Task) -> str | None:
    """All answers, each in its own tags: the last one counts."""
    alike = [t for t in scene.tasks if t.category == task.category and t is not task]
    if task.answer["checker"] == "call":
        return None
    return " ".join(map(scene.benchmark.agent_answer, [task, *alike]))


def generation(prompt: Any = None, answer: Any = None, **more: Any) -> Make:
    """A generation: a prompt, or a function of the seed's; an answer, or the seed's."""

    def make(scene: Scene, seed: Task) -> str:
        own = json.loads(scene.benchmark.simulator_answer(seed))
        own["prompt"] = prompt(seed, own) if callable(prompt) else prompt or own["prompt"]
        given = own["answer"] if answer is None else answer
        own["answer"] = given(seed) if callable(given) else given
        return json.dumps(own | more)

    return make


def _only(checker: str, make: Make, only: bool = True) -> Make:
    """A generation from a checker's seeds, or from all others."""

    def of(scene: Scene, seed: Task) -> str | None:
        return make(scene, seed) if (seed.answer["checker"] == checker) is only else None

    return of


def _answer(seed: Task) -> str:
    """A seed's answer as a prompt may contain it."""
    reference = seed.answer["reference"]
    if seed.answer["checker"] == "call":
        return calls.write(reference)
    return str(reference[0] if isinstance(reference, list) else reference)


def _told(seed: Task, own: dict[str, Any]) -> str:
    return f"Somebody wants to know a thing of another sort now. Hint: it is {_answer(seed)}."


_ASKED = "Tell me about another thing that nobody has asked about so far"
_DEEP = "__DEEP__"

EXPLOITS = [
    *answers("custom"),
    _agent("all answers at once", _every_answer, 0.2, remains=_F1),
    _agent("the right answer before others", _other_tags),
    _agent("infinity", _of("numeric", lambda t: "<answer>1e999</answer>")),
    _agent("a number in words", _of("numeric", lambda t: "<answer>nan</answer>")),
    _agent("a formula", _of("numeric", lambda t: f"<answer>{t.answer['reference'] // 1000} * 1000</answer>")),
    _agent("the same call twice", _of("call", lambda t: calls.write(t.answer["reference"] * 2))),
    _agent("JSON of a call with a key more", _of("call", lambda t: (
        '<tool_call>{"name": "book", "arguments": {}, "score": 1}</tool_call>'))),
    *generations("custom", also=(base.BAD_ANSWER,)),  # of a held-out task with another checker
    _simulator("a key more", generation(reward=1.0), reasons=(base.UNPARSABLE,)),
    _simulator("JSON that is deep", lambda scene, seed: json.dumps(
        {"prompt": _ASKED, "answer": _DEEP}).replace(f'"{_DEEP}"', "[" * 200 + "]" * 200),
        reasons=(base.TOO_DEEP,)),
    _simulator("a number of a thousand digits", lambda scene, seed: json.dumps(
        {"prompt": _ASKED, "answer": _DEEP}).replace(f'"{_DEEP}"', "9" * 1_000), reasons=(base.UNPARSABLE,)),
    _simulator("a prompt that is a list", generation([_ASKED]), reasons=(base.UNPARSABLE,)),
    _simulator("an answer of ten thousand characters", generation(_ASKED, "x" * 10_000),
               reasons=(base.TOO_LONG,)),
    _simulator("an empty answer", generation(_ASKED, " "), reasons=(base.BAD_ANSWER,)),
    _simulator("many answers", _only("call", generation(_ASKED, ["yes", "no"]), False),
               reasons=(base.BAD_ANSWER,)),
    _simulator("a task with its answer", generation(_told), reasons=(base.GIVEN_AWAY,)),
    *(
        _simulator(f"a task with its answer {how}", _only("exact", generation(functools.partial(
            lambda encode, seed, own: f"{_ASKED}. {encode(_answer(seed))}", encode))),
            reasons=(base.GIVEN_AWAY,))
        for how, encode in ENCODINGS.items()
    ),
    _simulator("a task whose lines begin with its answer", _only("exact", generation(
        lambda seed, own: "\n".join(f"{letter} is a letter." for letter in _answer(seed)))),
        reasons=(base.GIVEN_AWAY,)),
    _simulator("a task with its answer in letters of another script", _only("exact", generation(
        lambda seed, own: _told(seed, own).replace("e", "\u0435"))), reasons=(base.GIVEN_AWAY,)),
    _simulator("a task with its answer in invisible letters", _only("exact", generation(
        lambda seed, own: _told(seed, own).replace(
            _answer(seed), "\u200b".join(_answer(seed))))), reasons=(base.GIVEN_AWAY,)),
    _simulator("a call that nobody has asked for", _only("call", generation(_ASKED)),
               reasons=(base.NOT_ASKED,)),
    _simulator("a call without a name", _only("call", generation(_ASKED, {"name": "", "arguments": {}})),
               reasons=(base.BAD_ANSWER, base.WRONG_ANSWER)),
    _simulator("an answer that is made up", _only("call", generation(
        "Which of the towns by the lake is the most beautiful one?", lambda seed: (
            77 if seed.answer["checker"] == "numeric" else "Velm by the Water")), False), 1.0, remains=_TRUE),
]  # fmt: skip
