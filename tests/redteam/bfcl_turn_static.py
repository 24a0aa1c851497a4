"""Turns of BFCL's conversations on their own, compared with the reference calls as they stand."""

from __future__ import annotations

import functools

from bench.bad_answers import bfcl_calls as calls
from bench.bad_answers.bfcl_calls import changed, generation, strings, values
from genenv_jax.benchmarks import base
from tests.redteam.common import answers, generations
from tests.redteam.exploits import AGENT, GIVEN_AWAY, NOT_ASKED, SIMULATOR, Exploit

_agent = functools.partial(Exploit, "bfcl_turn_static", AGENT)
_simulator = functools.partial(Exploit, "bfcl_turn_static", SIMULATOR)
_STATE = "a turn's values may be known from its conversation alone"

EXPLOITS = [
    *answers("bfcl_turn_static"),
    _agent("no call", lambda scene, task: "[]"),
    _agent("a call of every function", calls.shotgun),
    _agent("every function that needs no argument", lambda scene, task: calls.write(calls.free(task)),
           records=0.05, remains="right where the only such function is asked for"),
    _agent("the reference, and every function that needs no argument", lambda scene, task: calls.write(
        [*calls.reference(scene, task), *calls.free(task)])),
    _agent("names alone", changed(lambda of: [(name, {}) for name, _ in of]), records=0.05),
    _agent("the first of several calls", changed(lambda of: of[:1])),
    _agent("all calls but the first", changed(lambda of: of[1:])),
    _agent("the reference twice", changed(lambda of: of * 2)),
    _agent("calls in reversed order", changed(lambda of: of[::-1])),
    _agent("texts in capitals", strings(str.upper)),
    _agent("texts in small letters", strings(str.lower)),
    _agent("texts without punctuation", strings(
        lambda v: "".join(c for c in v if c.isalnum()))),
    _agent("texts with a space behind", strings(lambda v: f"{v} ")),
    _agent("texts with look-alike letters", strings(
        lambda v: v.replace("e", "\u0435").replace("o", "\u043e"))),
    _agent("texts with an invisible letter", strings(lambda v: f"{v}\u200b")),
    _agent("several values for one", values(lambda v: [v, v])),
    _agent("an argument too many", changed(lambda of: [(n, {**a, "note": 1}) for n, a in of])),
    _agent("another class's name before the function", changed(
        lambda of: [(f"files.{n}", a) for n, a in of])),

    *generations("bfcl_turn_static", (base.BAD_ANSWER, base.BAD_TOOLS, NOT_ASKED), few_words=0.4),
    _simulator("something useful", generation("Do something useful."),
               reasons=(NOT_ASKED,), records=0.05),
    _simulator("the call in the request", generation(lambda scene, seed, of: f"The answer is {of}"),
               reasons=(GIVEN_AWAY,)),
    _simulator("the call as JSON in the request", generation(
        lambda scene, seed, of: f"Answer: {calls.as_json(scene, seed)}"),
        records=0.3, reasons=(GIVEN_AWAY,),
        remains="calls without arguments, of which only the name is there"),
    _simulator("no call to make", generation("Tell me a joke.", "[]"), reasons=(base.BAD_ANSWER,)),
    _simulator("a function that there is not", generation("Look around.", "[nothing(a=1)]"),
               reasons=(base.BAD_ANSWER,)),
    _simulator("a call without its arguments", generation(
        "Pick a number.", "[pick()]", [calls.PICK]), reasons=(base.BAD_ANSWER, base.WRONG_ANSWER)),
    _simulator("a number that is hidden", generation(
        "Pick the number that I think of.", "[pick(number=7)]", [calls.PICK]), 1.0, remains=_STATE),
    _simulator("the toss of a coin", generation(
        "Toss a coin and set it to heads or tails.", "[set_coin(side='heads')]", [calls.COIN]),
        1.0, remains="both values are in the request; which is meant takes reading"),
]  # fmt: skip
