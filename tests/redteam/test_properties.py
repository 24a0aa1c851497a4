"""No answer made without the reference earns more than a bound.

Echoes of the prompt, templates, shotguns of functions and commands, in subsets and supersets, in other cases
and scripts, padded, repeated, wrapped: drawn by Hypothesis, deterministically.
"""

import json

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bench.bad_answers import bfcl
from bench.bad_answers.common import WRAPPINGS
from bench.bad_answers.travelplanner import SLOTS
from genenv_jax.benchmarks.alfworld import commands
from genenv_jax.benchmarks.api_bank.calls import write_call
from tests.redteam.common import ANSWERS
from tests.redteam.exploits import verdict_on
from tests.redteam.scenes import scene
from tests.redteam.table import NAMES

# Maximum reward of any such answer.
BOUNDS = {name: 0.0 for name in NAMES} | {
    "bamboogle": 0.5,  # the F1 of some words among at least six
    "custom": 0.5,  # likewise
    "travelplanner_micro": 6 / 9,  # constraints that an empty plan cannot fail
}
_SETTINGS = {"derandomize": True, "deadline": None, "database": None, "suppress_health_check": [*HealthCheck]}
_ECHOES = ("echo of the request", "echo of the prompt", "echo of the instructions", "a refusal")
_VALUES = st.one_of(
    st.sampled_from(["", "value", "1", "true", "anything", "*", "None", "\u0435"]),
    st.text(max_size=8).filter(str.isprintable),
)
_WORDS = "the a of in born river town year John Smith London 1 2 1893 music green yes no".split()


def _echo(draw, opened, task):
    return ANSWERS[draw(st.sampled_from(_ECHOES))](opened, task)


def _calls(draw, opened, task):
    """Calls of some functions, possibly repeated, with one value for every text."""
    tools = draw(st.lists(st.sampled_from(task.tools), min_size=1, max_size=8))
    value = draw(_VALUES)
    return bfcl.write([bfcl.guess(tool, value) for tool in tools])


def _requests(draw, opened, task):
    tools = draw(st.lists(st.sampled_from(task.tools), min_size=1, max_size=4))
    value, end = draw(_VALUES), draw(st.sampled_from([", ", "\n"]))
    calls = (write_call(t["name"], dict.fromkeys(t["input_parameters"], value)) for t in tools)
    return end.join(calls)


def _actions(draw, opened, task):
    """At least two commands: one alone would be a guess."""
    listed = st.sampled_from(task.answer["admissible"])
    chosen = draw(st.lists(listed, min_size=2, max_size=40, unique=True))
    head, end = draw(st.sampled_from([("Action: ", "\n"), ("", ", "), ("<action>", "</action>\n")]))
    return "".join(f"{head}{command}{end}" for command in chosen)


def _moves(draw, opened, task):
    """A walk through a game's room: commands that need no knowledge of where things are."""
    places = st.sampled_from(sorted(task.answer["room"]["places"]))
    verbs = st.sampled_from(["go to {}", "open {}", "close {}", "examine {}", "look", "inventory"])
    chosen = draw(st.lists(st.builds(str.format, verbs, places), min_size=1, max_size=40))
    return "\n".join(f"Action: {command}" for command in chosen)


def _answer(draw, opened, task):
    chosen = draw(st.lists(st.sampled_from(_WORDS), min_size=12, max_size=60))
    return f"<answer>{' '.join(chosen)}</answer>"


def _days(draw, opened, task):
    """Days of a trip with the same entries every day, or none."""
    query = task.answer["query"]
    texts = st.sampled_from(
        ["-", "", "Mill, Ashton", "a, Ashton", f"Taxi, from {query['org']} to {query['dest']}",
         f"Teleport, from {query['org']} to {query['dest']}", query["dest"], query["org"]]
    )  # fmt: skip
    day = draw(st.fixed_dictionaries(dict.fromkeys(("current_city", *SLOTS), texts)))
    return json.dumps([{"days": n + 1, **day} for n in range(draw(st.integers(0, 9)))])


def _chain(draw, opened, task):
    """A chain that repeats one call with some result."""
    digit = st.integers(0, 9)
    name = draw(st.sampled_from(["add", "subtract", "multiply"]))
    line = f"{name}({draw(digit)}, {draw(digit)}) = {draw(digit)}"
    return "\n".join([line] * draw(st.integers(2, 9)))


def _turns(draw, opened, task):
    """One call, repeated, and some end."""
    digit = st.integers(0, 9)
    name = draw(st.sampled_from(["add", "subtract", "multiply"]))
    call, count = f"{name}({draw(digit)}, {draw(digit)})", draw(st.integers(2, 9))
    calls = [f"{number} {call}" for number in range(1, count + 1)]
    return "\n".join([*calls, f"{draw(digit)} done {draw(digit)}"])


MADE = {
    **dict.fromkeys((name for name in NAMES if name.startswith("bfcl")), _calls),
    "api_bank": _requests,
    "alfworld": _actions,
    "alfworld_games": _moves,
    **dict.fromkeys(("bamboogle", "custom"), _answer),
    **dict.fromkeys(("travelplanner", "travelplanner_micro"), _days),
    "dial": _chain,
    "dial_turns": _turns,
}


def _drawn(draw, opened, task):
    makes = [MADE[opened.name]]
    # Where no call is wanted, words are no exploit.
    makes += [] if opened.name == "bfcl_irrelevance" else [_echo]
    text = draw(st.sampled_from(makes))(draw, opened, task)
    for name in draw(st.lists(st.sampled_from(sorted(WRAPPINGS)), max_size=2)):
        if name not in ("first half", "backwards") or opened.name == "dial":
            text = WRAPPINGS[name](text)
    return text


@pytest.mark.parametrize("examples", [60, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_made_without_the_reference_earns_more(name, examples):
    if name == "bfcl_conversations":  # many steps each
        examples //= 5
    with scene(name) as opened:

        @settings(max_examples=examples, **_SETTINGS)
        @given(st.data())
        def holds(data):
            task = data.draw(st.sampled_from(opened.tasks), label="task")
            text = _drawn(data.draw, opened, task)
            if name == "alfworld":
                read = commands.parse(text)
                assume(not isinstance(read, list) or len(set(read)) != 1 or read[0] not in text)
            answers = [text] * 25 if name == "bfcl_conversations" else text
            score = verdict_on(opened, task, answers)
            assert 0 <= score.reward <= BOUNDS[name] + 1e-9, (task.id, score.reason, text)

        holds()


def test_the_property_can_fail():
    """If the reference is among the draws, it is found."""
    reference = {**MADE, "dial": lambda draw, opened, task: opened.benchmark.agent_answer(task)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.MADE", reference)
        with pytest.raises(AssertionError):
            test_nothing_made_without_the_reference_earns_more("dial", 60)
