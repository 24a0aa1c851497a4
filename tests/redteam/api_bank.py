"""API-Bank's calls: where the official rules are loose, and conversations that lead to no call."""

import functools
import itertools
from collections.abc import Callable

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.api_bank.calls import Call, read_call, write_call
from genenv_jax.benchmarks.base import Task
from tests.redteam.common import ENCODINGS, answers, backwards, generation, generations, held_out
from tests.redteam.exploits import AGENT, SIMULATOR, Exploit, Make, Scene

_agent = functools.partial(Exploit, "api_bank", AGENT)
_simulator = functools.partial(Exploit, "api_bank", SIMULATOR)


def _made(number: int, request: str, name: str, **parameters: tuple[str, str]) -> Task:
    """A call with (type, value) of each parameter."""
    kinds = {key: kind for key, (kind, _) in parameters.items()}
    inputs = {key: {"type": kind, "description": f"The {key}."} for key, kind in kinds.items()}
    tool = {"name": name, "description": f"Does {name}.", "input_parameters": inputs}
    spec = {
        "kind": "call", "level": 1, "sample": f"made-{number}", "name": name, "target": "",
        "parameters": {key: value for key, (_, value) in parameters.items()},
        "types": kinds,
    }  # fmt: skip
    message = {"role": "user", "content": f"User: {request}"}
    return Task(f"made-{number}", "api_bank", "level-1-api", (message,), (tool,), spec)


# Calls with parameters that the official rules compare loosely or not at all.
TASKS = [
    _made(0, "I am u1; at 9:00 on 2023-03-05 I weighed 70.", "RecordHealthData", user_id=("str", "u1"),
          time=("str", "2023-03-05 09:00:00"), health_data=("list", "[{'name': 'weight', 'value': '70'}]")),
    _made(1, "Token t1: put lunch with all my old friends on 2023-03-05.", "AddAgenda", token=("str", "t1"),
          content=("str", "lunch with all my old friends"), time=("str", "2023-03-05")),
]  # fmt: skip


def changed(change: Callable[[str, dict[str, str]], str | None]) -> Make:
    """The reference with (name, arguments) changed, if that makes a difference."""

    def make(scene: Scene, task: Task) -> str | None:
        call = read_call(scene.benchmark.agent_answer(task), 100_000)
        if not isinstance(call, Call):
            return None
        text = change(call.name, dict(call.arguments))
        return None if text == write_call(call.name, call.arguments) else text

    return make


def every(change: Callable[[str], str]) -> Make:
    """The reference with each value changed."""
    return changed(lambda name, a: write_call(name, {k: change(v) for k, v in a.items()}))


def one(choose: Callable[[Task, str], bool], value: str) -> Make:
    """The reference with the first parameter that `choose` accepts replaced."""

    def make(scene: Scene, task: Task) -> str | None:
        spec = task.answer
        for key in spec["parameters"]:
            if choose(task, key):
                return write_call(spec["name"], {**spec["parameters"], key: value})
        return None

    return make


def _shotgun(scene: Scene, task: Task) -> str:
    of = {t["name"]: dict.fromkeys(t.get("input_parameters", {}), "1") for t in task.tools}
    return "API-Request: " + ", ".join(itertools.starmap(write_call, of.items()))


_SIDE = {"side": {"type": "str", "description": "Heads or tails."}}
_COIN = [{"name": "SetCoin", "description": "Sets a coin.", "input_parameters": _SIDE}]
_ALSO = (base.BAD_TOOLS, base.BAD_ANSWER)  # a held-out call may contradict its own or the seed's tools
EXPLOITS = [
    *answers("api_bank", echo_of_the_request={
        "records": 0.02, "remains": "a call that was made before is right again"}),
    _agent("a call of every API", _shotgun),
    _agent("the name alone", changed(lambda name, a: f"[{name}()]")),
    _agent("all arguments but one", changed(lambda name, a: write_call(name, dict(list(a.items())[1:])))),
    _agent("an argument too many", changed(lambda name, a: write_call(name, {**a, "note": "1"}))),
    _agent("a look-alike letter in the name", changed(
        lambda name, a: write_call(name.replace("e", "\u0435").replace("o", "\u043e"), a)
        if set("eo") & set(name) else None)),
    _agent("every value anything", every(lambda value: "anything")),
    _agent("every value with a word more", every(lambda value: f"{value} zebra")),
    _agent("records that are made up", one(
        lambda task, key: key == "health_data", "[{'name': 'invented', 'value': '1'}]")),
    _agent("a wrong call before the right one", lambda scene, task: (
        f"[Nothing(a='1')]\n{scene.benchmark.agent_answer(task)}")),
    _agent("calls on further lines", lambda scene, task: (
        f"{scene.benchmark.agent_answer(task)}\n{_shotgun(scene, task)}"), 1.0,
        remains="as officially the first call counts"),

    *generations("api_bank", (*_ALSO, base.NOT_ASKED, base.GIVEN_AWAY), few_words=0.2),
    _simulator("the call in a line of the assistant", generation(
        lambda scene, seed, of: f"{scene.benchmark.text(seed)}\nAI: I will call {of}"),
        reasons=(base.GIVEN_AWAY, base.BAD_TOOLS)),
    *(
        _simulator(f"the call {how}", generation(functools.partial(
            lambda encode, scene, seed, of: f"{scene.benchmark.text(seed)}\nAI: {encode(of)}", encode)),
            reasons=(base.GIVEN_AWAY, base.BAD_TOOLS, base.NOT_ASKED))
        for how, encode in ENCODINGS.items()
    ),
    _simulator("the call in letters of another script", generation(
        lambda scene, seed, of: "User: It is " + of.replace("e", "\u0435").replace("a", "\u0430")),
        reasons=(base.GIVEN_AWAY, base.BAD_TOOLS)),
    _simulator("a held-out conversation in other words", held_out(backwards), records=0.01,
               remains="a call without arguments is known by its wording alone",
               reasons=(base.CONTAMINATED, base.NOT_ASKED, *_ALSO, base.UNPARSABLE, base.GIVEN_AWAY)),
    _simulator("a value that is hidden", generation(
        "User: Set the coin as I think.", "[SetCoin(side='tails')]", _COIN), reasons=(base.NOT_ASKED,)),
    _simulator("the toss of a coin", generation(
        "User: Toss a coin, heads or tails.", "[SetCoin(side='heads')]", _COIN),
        1.0, remains="both values are in the request; which is meant takes reading"),
]  # fmt: skip
