"""Right, nearly right and wrong plays of whole BFCL conversations, made by seeded changes.

A play is what an agent could have written: the answers of each turn.  All but a turn's last contain calls;
the last contains none.
"""

import copy
import random
from collections.abc import Iterator, Mapping
from typing import Any

from bench.bad_answers.values import Source, changed
from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.bfcl import backends, multi_turn

Play = list[list[str]]
Calls = list[tuple[str, dict[str, Any]]]
_ENDS = ("Done.", "", "[]", "I cannot do that.", "[f(", "```\n```", "The balance is [12].")

_FORMS = (
    "one call an answer",
    "too many steps",
    "a turn less",
    "a turn more",
    "answers reversed",
    "calls in fences",
)


def plays(task: Task, rng: random.Random, count: int) -> Iterator[tuple[str, Play]]:
    """(kind, play): the reference, and `count` - 1 others, each of a different kind."""
    made = backends.Backends(task.answer["scenario"])
    reference = reference_turns(task, made.parameter_order())
    yield "reference", write_play(reference, rng, plain=True)
    for kind in rng.sample([*CHANGES, *_FORMS], count - 1):
        turns = copy.deepcopy(reference)
        if kind in CHANGES:
            CHANGES[kind](turns, sorted_tools(task), rng)
            yield kind, write_play(turns, rng)
        else:
            yield kind, _formed(kind, turns, task, rng)


def _formed(kind: str, turns: list[Calls], task: Task, rng: random.Random) -> Play:
    play = write_play(turns, rng, plain=True)
    match kind:
        case "one call an answer":
            return [
                [a for call in calls for a in write_play([[call]], rng, True)[0][:-1]] + ["Done."]
                for calls in turns
            ]
        case "too many steps":
            return too_many_steps(play, task, rng)
        case "a turn less":
            return play[:-1]
        case "a turn more":
            return [*play, rng.choice(play)]
        case "answers reversed":
            return [answers[::-1] for answers in play]
    form = rng.choice(
        (
            "```python\n{}\n```",
            "```\n{}\n```",
            "Sure: {}",
            "{}  # done",
            "{};",
            "<tool_call>{}</tool_call>",
        )
    )
    return [[*(form.replace("{}", answer) for answer in answers[:-1]), answers[-1]] for answers in play]


def reference_turns(task: Task, order: Mapping[str, Any]) -> list[Calls]:
    """The reference calls of each turn, every argument named; see `plays`."""
    return [
        [(call.name, dict(call.arguments)) for call in backends.reference(turn, order)]
        for turn in task.answer["calls"]
    ]


def sorted_tools(task: Task) -> list[Mapping[str, Any]]:
    """The functions of a conversation by name."""
    return sorted(task.tools, key=lambda tool: tool["name"])


def _text(name: str, arguments: Mapping[str, Any]) -> str:
    """A call; an argument whose name begins with "*" is written by position."""
    positional = [repr(value) for key, value in arguments.items() if key.startswith("*")]
    named = [f"{key}={value!r}" for key, value in arguments.items() if not key.startswith("*")]
    return f"{name}({', '.join(positional + named)})"


def write_play(turns: list[Calls], rng: random.Random, plain: bool = False) -> Play:
    """Calls written out, a turn's in one answer or in several; `plain`: as the reference's are."""
    play = []
    for calls in turns:
        texts = [_text(name, arguments) for name, arguments in calls]
        answers = [texts] if texts else []
        if not plain and len(texts) > 1 and rng.random() < 0.5:
            cut = rng.randrange(1, len(texts))
            answers = [texts[:cut], texts[cut:]]
        form = "[{}]" if plain else rng.choice(("[{}]", "[{}]", "{}", "```\n[{}]\n```"))
        end = "Done." if plain else rng.choice(_ENDS)
        play.append([*(form.format(", ".join(answer)) for answer in answers), end])
    return play


def too_many_steps(play: Play, task: Task, rng: random.Random) -> Play:
    """One turn with as many executed answers as the official loop allows, or one more."""
    turn = rng.randrange(len(play))
    harmless = _harmless(sorted_tools(task), rng)
    steps = multi_turn.MAX_STEPS + rng.choice((0, 1))
    if steps <= multi_turn.MAX_STEPS:
        answers = play[turn][:-1]
        answers += [f"[{harmless}]"] * (steps - len(answers))
        return [*play[:turn], [*answers, play[turn][-1]], *play[turn + 1 :]]
    return [*play[:turn], [f"[{harmless}]"] * steps]


def _harmless(tools: list[Mapping[str, Any]], rng: random.Random) -> str:
    names = [tool["name"] for tool in tools if not tool["parameters"]["required"]]
    return f"{rng.choice(names)}()" if names else "nothing()"


def _some(turns: list[Calls], rng: random.Random) -> tuple[int, int] | None:
    places = [(t, c) for t, calls in enumerate(turns) for c in range(len(calls))]
    return rng.choice(places) if places else None


def _drop(turns: list[Calls], tools: list[Mapping[str, Any]], rng: random.Random) -> None:
    if place := _some(turns, rng):
        del turns[place[0]][place[1]]


def _harmless_call(turns: list[Calls], tools: list, rng: random.Random) -> None:
    turn = rng.choice(turns)
    name = _harmless(tools, rng).removesuffix("()")
    turn.insert(rng.randint(0, len(turn)), (name, {}))


def _repeat(turns: list[Calls], tools: list, rng: random.Random) -> None:
    if place := _some(turns, rng):
        name, arguments = turns[place[0]][place[1]]
        turns[place[0]].append((name, dict(arguments)))


def _value(turns: list[Calls], tools: list, rng: random.Random) -> None:
    if place := _some(turns, rng):
        arguments = turns[place[0]][place[1]][1]
        if arguments:
            key = rng.choice(sorted(arguments))
            arguments[key] = _other(arguments[key], rng)


def _other(value: Any, rng: random.Random) -> Any:
    return value if isinstance(value, Source) else changed(value, rng)


def _argument(turns: list[Calls], tools: list, rng: random.Random) -> None:
    if place := _some(turns, rng):
        arguments = turns[place[0]][place[1]][1]
        if arguments and rng.random() < 0.5:
            del arguments[rng.choice(sorted(arguments))]
        else:
            arguments[rng.choice(("extra", "name", "value"))] = rng.choice((1, "x", None))


def _order(turns: list[Calls], tools: list, rng: random.Random) -> None:
    rng.shuffle(rng.choice(turns))


def _other_turn(turns: list[Calls], tools: list, rng: random.Random) -> None:
    if place := _some(turns, rng):
        rng.choice(turns).append(turns[place[0]].pop(place[1]))


def _empty(turns: list[Calls], tools: list, rng: random.Random) -> None:
    rng.choice(turns).clear()


def _name(turns: list[Calls], tools: list, rng: random.Random) -> None:
    if place := _some(turns, rng):
        name, arguments = turns[place[0]][place[1]]
        others = (name.upper(), f"api.{name}", "unknown", "kill", rng.choice(tools)["name"])
        turns[place[0]][place[1]] = (rng.choice(others), arguments)


def _wrong_start(turns: list[Calls], tools: list, rng: random.Random) -> None:
    """A wrong call before the right one, as if an agent tried again."""
    if place := _some(turns, rng):
        name, arguments = turns[place[0]][place[1]]
        wrong = {key: _other(value, rng) for key, value in arguments.items()}
        turns[place[0]].insert(place[1], (name, wrong))


def _spelling(turns: list[Calls], tools: list, rng: random.Random) -> None:
    """An argument written in another way, which the official decoder may or may not read as the same."""
    place = _some(turns, rng)
    if not place or not turns[place[0]][place[1]][1]:
        return
    name, arguments = turns[place[0]][place[1]]
    key = rng.choice(sorted(arguments))
    value = arguments[key]
    if rng.random() < 0.3:
        turns[place[0]][place[1]] = (
            name,
            {f"*{k}" if k == key else k: v for k, v in arguments.items()},
        )
    elif rng.random() < 0.3:
        inner = rng.choice(tools)["name"]
        forms = (
            f"{inner}({key}={value!r})",
            f"{inner}()",
            f"{{'{inner}': {{'{key}': {value!r}}}}}",
        )
        arguments[key] = Source(rng.choice(forms))
    elif isinstance(value, str):
        forms = [f"{value!r} + ''", f"({value!r})", f"{value!r} * 1"]
        arguments[key] = Source(value if value.isidentifier() else rng.choice(forms))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        arguments[key] = Source(rng.choice((f"{value} + 0", f"+{value}", f"-{value}", f"({value})")))
    elif isinstance(value, list):
        arguments[key] = rng.choice((tuple(value), {"values": value}, Source(f"{{{str(value)[1:-1]}}}")))
    else:
        arguments[key] = Source(str(value).lower())


# Each changes the calls of turns in place: (turns, sorted tools, rng) -> None.
CHANGES = {
    change.__name__.strip("_").replace("_", " "): change
    for change in (
        *(_drop, _harmless_call, _repeat, _value, _argument, _order, _other_turn, _empty, _name),
        *(_wrong_start, _spelling),
    )
}
