"""BFCL's published files: counts, splits, and that the official references are accepted."""

import collections
import dataclasses
import re

import numpy as np
import pytest

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.base import SeedStatistics
from genenv_jax.benchmarks.bfcl import backends, prompts
from genenv_jax.benchmarks.bfcl.benchmark import BFCL
from genenv_jax.benchmarks.bfcl.categories import MULTI_TURN, names
from genenv_jax.benchmarks.bfcl.files import find_directory
from genenv_jax.benchmarks.bfcl.tasks import load, splits
from genenv_jax.benchmarks.demonstrations import SIMULATOR, seed_demonstrations
from genenv_jax.benchmarks.safe_parse import parse_calls
from tests.benchmarks.bfcl_tasks import of_category

pytestmark = pytest.mark.data
needs_package = pytest.mark.skipif(not backends.is_installed(), reason=backends.INSTALL)

V3_NAMES = {"simple_java": "java", "simple_javascript": "javascript", "simple_python": "simple"}
V4 = {
    "simple_python": 400, "simple_java": 100, "simple_javascript": 50, "multiple": 200,
    "parallel": 200, "parallel_multiple": 200, "irrelevance": 240, "live_simple": 258,
    "live_multiple": 1053, "live_parallel": 16, "live_parallel_multiple": 24,
    "live_irrelevance": 884, "live_relevance": 16,
}  # fmt: skip
V3 = {V3_NAMES.get(name, name): count for name, count in V4.items()}
OFFICIAL = {"v4": V4, "v3": V3 | {"live_irrelevance": 882, "live_relevance": 18}}
TURNS = {"v4": (731, 730, 731, 731), "v3": (737, 741, 742, 742)}


@pytest.mark.parametrize("version", ["v3", "v4"])
def test_splits_have_the_official_numbers_of_tasks(data_dir, version):
    found = {name: len(tasks) for name, tasks in splits(data_dir, version).items()}
    turns = dict(zip((f"{name}_turns" for name in MULTI_TURN), TURNS[version], strict=True))
    assert found == OFFICIAL[version] | dict.fromkeys(MULTI_TURN, 200) | turns


@pytest.mark.parametrize("version", ["v3", "v4"])
def test_every_file_is_the_published_one(data_dir, version):
    tasks = load(version, names(version), data_dir, verify_files=True)
    assert len(tasks) > 5_000
    paths = [s.path for s in data_files.sources("bfcl") if s.path.startswith(version)]
    data_files.verify("bfcl", find_directory(version, data_dir).parent, paths)


# Reference answers that contradict their own task under the official rules, and the errors.
UNANSWERABLE = {
    "simple_java_36": "value_error_list_tuple",  # elements of an ArrayList of `any` stay text
    "simple_java_65": "value_error_list_tuple",  # the same
    "simple_java_64": "value_error_dict_value",  # the map's options are a string, not a list
    "parallel_multiple_26": "cannot_find_match",  # answers a parameter that the schema lacks
    "live_simple_106-63-0": "type_error_simple",  # no acceptable value for required parameters
    "live_simple_112-68-0": "type_error_simple",  # the same
    "live_multiple_862-181-3": "unexpected_param",  # answers a parameter that the schema lacks
    "live_multiple_964-207-0": "missing_required",  # leaves out a required parameter
}


@pytest.mark.parametrize("version", ["v3", "v4"])
def test_every_reference_answer_passes_its_own_task(data_dir, version):
    benchmark = BFCL(version=version, data_dir=data_dir)
    tasks = load(version, names(version), data_dir)
    failed = {}
    for task in tasks:
        score = benchmark.score(task, benchmark.agent_answer(task))
        if score.reward != 1.0:
            failed[task.id] = score.reason
    expected = UNANSWERABLE
    if version == "v3":
        expected = {}
        for task_id, reason in UNANSWERABLE.items():
            category, _, index = task_id.rpartition("_")
            expected[f"{V3_NAMES.get(category, category)}_{index}"] = reason
    assert failed == expected
    assert len(tasks) > 5000


@pytest.mark.slow
@needs_package
@pytest.mark.parametrize("category", MULTI_TURN)
def test_every_reference_turn_is_accepted_when_executed(data_dir, category):
    benchmark = of_category(data_dir, category, "turn_state")
    tasks = benchmark.tasks("eval")
    assert len(tasks) == dict(zip(MULTI_TURN, TURNS["v4"], strict=True))[category]
    some = tasks if category == "multi_turn_long_context" else tasks[::10]
    for task in some:
        assert benchmark.score(task, benchmark.agent_answer(task)).success, task.id
        assert not benchmark.score(task, "[]").success
    for task in tasks[::10]:
        shown = benchmark.simulator_messages(task, SeedStatistics(8, 3))
        for messages in (benchmark.agent_messages(task), shown):
            assert sum(len(m["content"]) for m in messages) <= prompts.MAX_CHARS


@needs_package
def test_verdicts_do_not_depend_on_what_ran_before(data_dir):
    # The official classes share module-level dictionaries: nothing may leak between tasks.
    benchmark = of_category(data_dir, "multi_turn_long_context", "conversation")
    tasks = benchmark.tasks("eval")[::4]
    for task in (*tasks, *reversed(tasks)):
        assert benchmark.score(task, benchmark.agent_answer(task)).success


def _first_changed(calls, change):
    """Calls with the first text changed that `change` alters."""
    calls = [(name, dict(arguments)) for name, arguments in calls]
    for _, arguments in calls:
        for key, value in arguments.items():
            if isinstance(value, str) and change(value) != value:
                arguments[key] = change(value)
                return calls
    return calls


@needs_package
def test_what_the_two_rules_of_turns_reward(data_dir):
    rules = ("turn_static", "turn_state")
    static, executed = (BFCL(data_dir=data_dir, multi_turn_rule=rule) for rule in rules)
    counts = collections.Counter()
    in_full = 0
    for one, other in zip(static.tasks("eval"), executed.tasks("eval"), strict=True):
        assert one.id == other.id
        parsed = parse_calls(executed.agent_answer(other))
        calls = [(name, arguments) for call in parsed for name, arguments in call.items()]
        everything = [(t["name"], {}) for t in one.tools if not t["parameters"]["required"]]
        changed = {
            "capitals": _first_changed(calls, str.upper),
            # The form that the AST checker compares.
            "letters": _first_changed(calls, lambda text: re.sub(r"[ ,./\-_*^]", "", text)),
            "reversed": calls[::-1],
        }
        answers = {kind: changed[kind] for kind in changed if changed[kind] != calls}
        answers |= {"reference": calls, "everything": everything, "both": calls + everything}
        for kind, written in answers.items():
            told = [(name, [f"{k}={v!r}" for k, v in of.items()]) for name, of in written]
            text = ", ".join(f"{name}({', '.join(of)})" for name, of in told)
            first, second = static.score(one, f"[{text}]"), executed.score(other, f"[{text}]")
            # Answers rewarded without execution are right when executed.
            assert first.reward == float(first.success) <= second.reward
            in_full += kind == "reference" and first.reward == second.reward == 1.0
            counts[kind, "answers"] += 1
            counts[kind, "right"] += second.success
            counts[kind, "static"] += first.success
            counts[kind, "state"] += second.reward > 0
    found = {kind: tuple(counts[kind, of] for of in ("answers", "right", "static", "state"))
             for kind, _ in counts}  # fmt: skip
    assert in_full == 191
    assert found == {
        "reference": (191, 191, 191, 191), "capitals": (130, 3, 0, 3), "letters": (105, 14, 0, 14),
        "reversed": (72, 35, 0, 35), "everything": (191, 5, 0, 0), "both": (191, 117, 0, 2),
    }  # fmt: skip


def test_what_irrelevance_rewards(data_dir):
    names = ("irrelevance", "live_irrelevance")
    tasks = load("v4", names, data_dir)
    benchmark = BFCL(data_dir=data_dir, seed_categories=(), eval_categories=names)
    as_json = '```json\n{"name": "NAME", "arguments": {"x": 1}}\n```'
    answers = dict.fromkeys(("[]", "None of the functions can do that."), (1.0, True, True))
    broken = ("x", "(((", "[NAME(x=1", "NAME('Oslo', 2 and more", as_json)
    answers |= dict.fromkeys(broken, (0.0, True, False))
    answers |= dict.fromkeys(("[NAME()]", "[NAME(x=10**100)]"), (0.0, False, True))
    assert len(tasks) == 1_124
    for task in tasks:
        for answer, expected in answers.items():
            name = task.tools[0]["name"] if task.tools else "answer"
            both = (dataclasses.replace(task, origin=origin) for origin in ("seed", "eval"))
            seed, held_out = (benchmark.score(of, answer.replace("NAME", name)) for of in both)
            found = held_out.reward, held_out.success, held_out.valid
            assert found == expected, (task.id, answer)
            assert (seed.reward, seed.success) == (expected[0], expected[0] == 1.0)


def test_the_default_split(data_dir):
    benchmark = BFCL(data_dir=data_dir)
    assert (len(benchmark.tasks("seed")), len(benchmark.tasks("eval"))) == (539, 191)


def test_a_part_of_the_tasks_is_a_fair_sample_of_the_categories(data_dir):
    names = ("simple_python", "multi_turn_long_context")
    whole = BFCL(data_dir=data_dir, seed_categories=names, eval_categories=names)
    of = {"seed_categories": names, "eval_categories": names}
    part = BFCL(data_dir=data_dir, max_seeds=200, max_eval=100, **of)
    for split in ("seed", "eval"):
        categories_of = [[task.category for task in of.tasks(split)] for of in (whole, part)]
        shares = [of.count("simple_python") / len(of) for of in categories_of]
        assert abs(shares[0] - shares[1]) < 0.1


@pytest.mark.parametrize("version", ["v3", "v4"])
def test_pairs_of_the_data_demonstrate_each_other(data_dir, version):
    names = ("simple" if version == "v3" else "simple_python", "multiple", "parallel", "parallel_multiple")
    of = {"seed_categories": names, "eval_categories": (), "pair_functions": True}
    benchmark = BFCL(version=version, data_dir=data_dir, **of)
    seeds = benchmark.tasks("seed")
    by_functions = collections.defaultdict(list)
    for seed in seeds:
        by_functions[str(seed.tools)].append(seed)
    made = seed_demonstrations(benchmark, seeds, 1, np.random.default_rng(0))
    written = [d.completions[0] for d in made if d.role == SIMULATOR]
    assert len(seeds) == len(written) > 100
    alone = 0  # an official answer that violates its declared types cannot be demonstrated
    for seed, text in zip(seeds, written, strict=True):
        partners = [other for other in by_functions[str(seed.tools)] if other is not seed]
        texts = [benchmark.simulator_answer(other, seed) for other in partners]
        alone += text not in texts
        assert text in (*texts, benchmark.simulator_answer(seed, seed))
    assert alone <= 0.02 * len(seeds)
