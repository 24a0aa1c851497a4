"""Dial: chains of calls with their results, compared verbatim."""

import functools
import re

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Task
from tests.redteam.common import answers, changed, generations
from tests.redteam.exploits import AGENT, SIMULATOR, Exploit, Scene

_agent = functools.partial(Exploit, "dial", AGENT)
_simulator = functools.partial(Exploit, "dial", SIMULATOR)


def _all_results(scene: Scene, task: Task) -> str:
    """The first call with every possible result."""
    call = scene.benchmark.agent_answer(task).split("\n")[0].partition(" = ")[0]
    return "\n".join(f"{call} = {position}" for position in range(10))


_HEAD = "Tools: add, subtract, multiply.\nStart at 3. "

EXPLOITS = [
    *answers("dial"),
    _agent("every call there is", lambda scene, task: "\n".join(
        f"{name}({a}, {n}) = {(a + n) % 10}" for name in ("add", "subtract", "multiply")
        for a in range(10) for n in range(1, 10))),
    _agent("every result there is", _all_results),
    _agent("results without calls", changed(lambda text: "\n".join(line[-1] for line in text.split("\n")))),
    _agent("two results a call", changed(lambda text: re.sub(r"= (\d)", r"= \1 = 0", text))),
    _agent("all calls but the first", changed(lambda text: text.partition("\n")[2])),
    _agent("the last result alone", changed(lambda text: text.rpartition(" ")[2])),
    _agent("look-alike letters", changed(lambda text: text.replace("a", "\u0430").replace("u", "\u03c5"))),
    _agent("a thousand blank lines", changed(lambda text: text + 1_000 * "\n" + "x")),

    *generations("dial", (base.NOT_TEXT, base.UNPARSABLE), restated=False),
    _simulator("digits of another script", f"{_HEAD}add \u0664.\nCalls: add(4)", reasons=(base.NOT_TEXT,)),
    _simulator("steps that undo one another",
               f"{_HEAD}add 4, subtract 4, add 4, subtract 4.\nCalls: add(4) subtract(4) add(4) subtract(4)",
               1.0, remains="it is a task; an easy one is paid for as long as it is solved half of the time"),
]  # fmt: skip
