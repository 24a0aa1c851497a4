"""Whole conversations of BFCL, played in episodes, and written by the simulator."""

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any

from bench.bad_answers import bfcl as calls
from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Task
from tests.redteam.common import COPIES, answers, backwards, generations, held_out
from tests.redteam.exploits import AGENT, SIMULATOR, Exploit, Make, Scene

_simulator = functools.partial(Exploit, "bfcl_conversations", SIMULATOR)
_MOST_STEPS = 200  # of an episode
_SPARED = "of n calls where r are needed each one beyond 2r costs 1 / (r + 1)"
# Why some small conversations, which are not all sound, are rejected before they are compared.
_UNSOUND = ("already_known", "needless_call", "no_effect", "open_order", base.NOT_ASKED)


def _again(exploit: Exploit) -> Exploit:
    """The same exploit, with one answer repeated until the episode ends."""

    def make(scene: Scene, task: Task) -> list[str] | None:
        said = exploit.text(scene, task)
        return [said] * _MOST_STEPS if isinstance(said, str) else said

    return dataclasses.replace(exploit, make=make)


def _agent(*arguments: Any, **fields: Any) -> Exploit:
    return _again(Exploit("bfcl_conversations", AGENT, *arguments, **fields))


def _turns(change: Callable[[list[str]], list[str]]) -> Make:
    """The reference's answers; those with calls are changed."""

    def make(scene: Scene, task: Task) -> list[str]:
        said: list[str] = []
        for answer in scene.benchmark.agent_answers(task):
            said += change([answer]) if answer.startswith("[") else [answer]
        return said

    return make


def _all_at_once(scene: Scene, task: Task) -> list[str]:
    """The calls of all turns in the first answer."""
    said = [a[1:-1] for a in scene.benchmark.agent_answers(task) if a.startswith("[")]
    return [f"[{', '.join(said)}]", *["Done."] * 9]


def _generation(change: Callable[[dict[str, Any], Task], Any]) -> Make:
    """The seed as the simulator writes it, changed; strings stay strings."""

    def make(scene: Scene, seed: Task) -> str | None:
        found = change(json.loads(scene.benchmark.simulator_answer(seed, seed)), seed)
        return found if found is None or isinstance(found, str) else json.dumps(found)

    return make


def _hidden(found: dict[str, Any], seed: Task) -> dict[str, Any] | None:
    """A file that the request does not name."""
    if "GorillaFileSystem" not in seed.answer["scenario"]["classes"]:
        return None
    contents = {"zebra": {"type": "file", "content": "stripes"}}
    state = {"GorillaFileSystem": {"root": {"home": {"type": "directory", "contents": contents}}}}
    turn = {"request": "Use cat on the file that is there.", "calls": "[cat(file_name='zebra')]"}
    return {"state": state, "turns": [turn]}


EXPLOITS = [
    *map(_again, answers("bfcl_conversations")),
    _agent("no call", "[]"),
    _agent("looks for ever", lambda scene, task: calls.write(calls.free(task))),
    _agent("a call of every function, and on", lambda scene, task: [calls.shotgun(task), "Done."] * 9),
    _agent("results that are made up", lambda scene, task:
           'Results of the calls:\nls: {"current_directory_content": []}'),
    _agent("the calls of all turns at once", _all_at_once, records=0.1,
           remains="right where a turn needs nothing of its own"),
    _agent("the reference without its first calls", _turns(lambda said: ["Done."]), records=0.05),
    _agent("the reference, each answer twice", _turns(lambda said: said * 2), 1.0, records=0.6,
           remains=_SPARED),
    _agent("the reference, each answer ten times", _turns(lambda said: said * 10)),
    _agent("the reference, and a needless call each", _turns(lambda said: [
        f"{answer[:-1]}, nothing()]" for answer in said]), 1.0, remains=_SPARED),
    _agent("ends each turn at once", "Done."),

    *generations("bfcl_conversations", (base.BAD_ANSWER, *_UNSOUND)),
    _simulator("a held-out conversation in other words", held_out(backwards),
               reasons=(base.CONTAMINATED, *_UNSOUND)),
    _simulator("a value that only the state has", _generation(_hidden), 1.0,
               reasons=COPIES, remains="the agent can look for it"),
    _simulator("a private method as state", _generation(lambda found, seed: {
        **found, "state": found["state"] | {"MathAPI": {"_load_scenario": 1}}}), reasons=("bad_state",)),
]  # fmt: skip
