"""Turns of BFCL's conversations on their own, executed: state and results count, needless calls cost."""

from __future__ import annotations

import functools

from bench.bad_answers import bfcl_calls as calls
from bench.bad_answers.bfcl_calls import changed, generation, strings, values
from genenv_jax.benchmarks import base
from tests.redteam.common import COPIES, answers, generations
from tests.redteam.exploits import AGENT, GIVEN_AWAY, NOT_ASKED, SIMULATOR, Exploit

_agent = functools.partial(Exploit, "bfcl_turn_state", AGENT)
_simulator = functools.partial(Exploit, "bfcl_turn_state", SIMULATOR)
_SPARED = "of n calls where r are needed each needless one costs 1 / (r + 1)"
_RIGHT = "right where the calls do not depend on it, which executing shows"
_OWN = (base.NOT_EXECUTABLE,)


def _often(scene, task):
    return calls.write(10 * calls.free(task))


def _untold(scene, seed, of):
    """What the first function that is called does, and none of its values."""
    name = of.strip("[").partition("(")[0]
    said = next(tool["description"] for tool in seed.tools if tool["name"] == name)
    return f"{said.partition('.')[0]}, as I think of it."


EXPLOITS = [
    *answers("bfcl_turn_state"),
    _agent("no call", lambda scene, task: "[]"),
    _agent("a call of every function", calls.shotgun),
    _agent("every function that needs no argument", lambda scene, task: calls.write(calls.free(task)),
           records=0.05),
    _agent("every function that needs no argument, ten times", _often),
    _agent("the reference, and every function that needs no argument", lambda scene, task: calls.write(
        [*calls.reference(scene, task), *calls.free(task)]), 0.67, records=0.1, remains=_SPARED),
    _agent("the reference, and a call that fails", changed(lambda of: [*of, ("nothing", {})]), 0.67,
           remains=_SPARED),
    _agent("the reference, and ten calls that fail", changed(lambda of: [*of, *10 * [("nothing", {})]])),
    _agent("the reference twice", changed(lambda of: of * 2), 0.5, remains=_SPARED),
    _agent("the reference ten times", changed(lambda of: of * 10)),
    _agent("the first of several calls", changed(lambda of: of[:1])),
    _agent("all calls but the first", changed(lambda of: of[1:]), records=0.2, remains=_RIGHT),
    _agent("calls in reversed order", changed(lambda of: of[::-1]), records=0.6, remains=_RIGHT),
    _agent("texts in capitals", strings(str.upper), records=0.1, remains=_RIGHT),
    _agent("texts without punctuation", strings(lambda v: "".join(c for c in v if c.isalnum())),
           records=0.3, remains=_RIGHT),
    _agent("texts with a space behind", strings(lambda v: f"{v} "), records=0.2, remains=_RIGHT),
    _agent("texts with look-alike letters", strings(
        lambda v: v.replace("e", "\u0435").replace("o", "\u043e")), records=0.1, remains=_RIGHT),
    _agent("several values for one", values(lambda v: [v, v]), records=0.1, remains=_RIGHT),
    _agent("names alone", changed(lambda of: [(name, {}) for name, _ in of]), records=0.05),

    *generations("bfcl_turn_state", (base.BAD_ANSWER, *_OWN), few_words=0.4),
    _simulator("something useful", generation("Do something useful."),
               reasons=(NOT_ASKED,), records=0.05),
    _simulator("the call in the request", generation(lambda scene, seed, of: f"The answer is {of}"),
               reasons=(GIVEN_AWAY,)),
    _simulator("functions of its own", generation("Pick the number 5.", "[pick(number=5)]", [calls.PICK]),
               reasons=_OWN),
    _simulator("a call that fails", generation(
        lambda scene, seed, of: f"{scene.benchmark.text(seed)} Look at the lost one.",
        lambda scene, seed, of: f"{of[:-1]}, cat(file_name='lost')]"), reasons=(base.BAD_ANSWER, *_OWN)),
    _simulator("no call to make", generation("Tell me a joke.", "[]"), reasons=(base.BAD_ANSWER,)),
    _simulator("a function that there is not", generation("Look around.", "[nothing(a=1)]"),
               reasons=(base.BAD_ANSWER, *_OWN)),
    _simulator("Python instead of a call", generation(
        "Look around.", "[__import__('os').system('true')]"), reasons=(base.BAD_ANSWER, *_OWN)),
    _simulator("values that nobody told", generation(_untold), 1.0,
               reasons=(*COPIES, base.CONTAMINATED, NOT_ASKED),
               remains="a turn's values may be known from its conversation alone"),
]  # fmt: skip
