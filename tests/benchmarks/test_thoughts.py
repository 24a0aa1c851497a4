"""Thoughts before an answer: where they end, and that no benchmark reads them as the answer."""

import contextlib

import pytest

from genenv_jax.benchmarks import registry, thoughts
from genenv_jax.benchmarks.base import Rejection
from genenv_jax.benchmarks.task import UNFINISHED_THOUGHT
from genenv_jax.benchmarks.thoughts import after_thoughts
from genenv_jax.scoring.verification import inspect
from tests.benchmarks import bfcl_classes, custom_files
from tests.benchmarks.small import ALL_WRITERS

OPEN = Rejection(UNFINISHED_THOUGHT)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("f(x=1)", "f(x=1)"),
        ("<think>g(x=2)</think>\n\nf(x=1)", "\n\nf(x=1)"),
        ("g(x=2)</think>f(x=1)", "f(x=1)"),  # opened outside the text
        ("a</think>b</think>c", "c"),
        (" \n<reasoning>a</reasoning><think>b</think>f(x=1)", "f(x=1)"),
        ("<think>a<think>b</think>c</think>f(x=1)", "f(x=1)"),
        ("<THINK>a</Think>f(x=1)", "f(x=1)"),
        # A quoted tag belongs to the answer, except in an open thought.
        ('[f(x="<think>")]', '[f(x="<think>")]'),
        ('[f(x="a</think>b")]', '[f(x="a</think>b")]'),
        ("<think>a</think>[f(x='</think>')]", "[f(x='</think>')]"),
        ('{"x": "a\\"</think>\\"b"}', '{"x": "a\\"</think>\\"b"}'),
        ('<think>Not "</think>" yet.\n</think>f(x=1)', "f(x=1)"),
        ('<think>"a</think>"b"', '"b"'),
        ("It's a.</think>It's b.", "It's b."),
        ("<think>f(x=1)", OPEN),
        ("<think>a</think><thinking>f(x=1)", OPEN),
        ("a</think><think>f(x=1)", OPEN),
        ("</think>", ""),
        (None, None),
    ],
)
def test_where_thoughts_end(text, want):
    assert after_thoughts(text) == want
    assert want == OPEN or after_thoughts(want) == want


@pytest.mark.parametrize(
    "piece",
    ["<think>", "</think>", "<think></think>", "</think> ", '"', '\\"', '"\\" ', " ' \"", "\\", "<"],
)  # fmt: skip
def test_any_text_takes_linear_time(bounded, piece):
    after_thoughts(piece * 100_000), after_thoughts(f'"{piece * 100_000}</think>')


def test_lengths():
    assert thoughts.lengths(["a", "bc"]) == {} == thoughts.lengths([])
    found = thoughts.lengths(["<think>a</think>bc", "</think>", "<think>", "d"])
    assert found == {"thought_chars_mean": (16 + 8 + 7) / 4, "answer_chars_mean": 3 / 4}


# Options of the benchmarks, with every kind of task: single answers, then episodes.
OPTIONS = {
    **{key: {} for key in ("bfcl", "api_bank", "alfworld", "travelplanner", "dial", "dial_turns")},
    "bamboogle": {"seed_fraction": 0.5},
    "custom": custom_files.OPTIONS,
    "custom, in the template": custom_files.OPTIONS,
    "dial_turns, in the template": {},
    "bfcl, conversations": {"multi_turn_rule": "conversation", "episodes": True},
    "alfworld, games": {"episodes": True, "eval_protocol": "episode", "played_on": "rules"},
    "bamboogle, search": {"mode": "search", "seed_fraction": 0.5},
}
LONG = "<think>" + "I call [f(x=1)]. " * 6_000 + "</think>"


@pytest.fixture(scope="module", params=OPTIONS)
def benchmark(request, tmp_path_factory):
    name, options = request.param.partition(",")[0], OPTIONS[request.param]
    if name in ALL_WRITERS:
        options = {**options, "data_dir": str(ALL_WRITERS[name](tmp_path_factory.mktemp(name)))}
    executes = "multi_turn_rule" in options
    with bfcl_classes.executing() if executes else contextlib.nullcontext():
        made = registry.make_benchmark(name, **options)
        if request.param.endswith("template"):
            made.use_template("<tool_call>")
        yield made


def attempted(benchmark, task, form):
    """The score of the reference answers, each in the form."""
    if not benchmark.is_interactive(task):
        return benchmark.score(task, form.replace("{}", benchmark.agent_answer(task)))
    return benchmark.episode(task).play(form.replace("{}", said) for said in benchmark.agent_answers(task))


def some_tasks(benchmark):
    """Two of each category."""
    seen, tasks = {}, [*benchmark.tasks("seed"), *benchmark.tasks("eval")]
    for task in tasks:
        seen.setdefault((task.category, task.origin), []).append(task)
    return [task for of in seen.values() for task in of[:2]]


@pytest.mark.parametrize(
    ("form", "outcome"),
    [
        ('<think>\nHm, {}? It\'s "so".\n</think>\n\n{}', "right"),
        ("Hm, [f(x=1)]!\n</think>\n{}", "right"),
        (" <reasoning>a</reasoning><think>b<think>c</think>d</think>{}", "right"),
        (LONG + "{}", "right"),
        ("<think>{}</think>", "nothing"),
        ("<think>\n{}", UNFINISHED_THOUGHT),
        ("<think>a</think><think>{}", UNFINISHED_THOUGHT),
    ],
)
def test_what_counts_follows_the_thoughts(benchmark, form, outcome):
    tasks = some_tasks(benchmark)
    assert tasks
    for task in tasks:
        score = attempted(benchmark, task, form)
        if outcome == "right":
            assert score == attempted(benchmark, task, "{}") and score.reward == 1.0, task.id
        elif outcome == "nothing":
            assert score.reward == 0.0 and score.reason
        else:
            assert (score.reward, score.valid, score.reason) == (0.0, False, outcome)
    for seed in benchmark.tasks("seed")[:3]:
        written = benchmark.simulator_answer(seed)
        text, about = form.replace("{}", written), {"seed": seed, "task_id": "g", "generation": 0}
        for done in (True, False):
            made = inspect(benchmark, text, done=done, **about)
            if outcome == "right":
                assert made == inspect(benchmark, written, done=done, **about)
            else:
                assert made.reason == ("empty" if outcome == "nothing" else outcome)
