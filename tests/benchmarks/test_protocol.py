"""What every benchmark implements (`genenv_jax.benchmarks.base`), on small files and on the real ones."""

import collections
import dataclasses
import itertools
import json
import pickle
import re

import numpy as np
import pytest

from bench.bad_answers.common import HOSTILE
from genenv_jax.benchmarks import base, registry
from genenv_jax.benchmarks.base import Rejection, SeedStatistics, Task
from genenv_jax.benchmarks.demonstrations import endless, seed_demonstrations, split_seeds
from tests.benchmarks import custom_files
from tests.benchmarks.published import published
from tests.benchmarks.small import ALL_WRITERS, WRITERS

_DOORS = {"env": "tests.benchmarks.text_environments:Doors", "instruction": "Open doors."}
# Options with which the small files have seeds and held-out tasks.
OPTIONS = {
    "bamboogle": {"seed_fraction": 0.5},
    "custom": custom_files.OPTIONS,
    "gymnasium": _DOORS | {"held_out_tasks": 8, "train_tasks": 40},
}
PROMPT_CHARS = 14_100  # 4,096 tokens of a Qwen tokenizer
_TOOLS = (
    "New Tools: {0}\nNew Task: User: x\nNew Answer: [f(a=1)]",
    "New Tools: same\nNew Task: User: {0}\nNew Answer: [f(a=1)]",
    "New Tools: same\nNew Task: User: x\nNew Answer: {0}",
)
_STEP = "New Task: {}\nNew Observations: {}\nNew Commands: {}\nNew Action: {}"
_DIAL = "Tools: add, subtract, multiply.\n"
# Where hostile text may occur in answers and generations.
AROUND = {
    "alfworld": (
        "Action: {0}",
        *(_STEP.format(*("{0}" if i == j else "look" for j in range(4))) for i in range(4)),
    ),
    "api_bank": (*_TOOLS, "[BookTable(dishes={0})]", "[BookTable(guest='{0}')]"),
    "bamboogle": ("<answer>{0}</answer>", "New Task: {0}\nNew Steps: {0}\nNew Answer: {0}"),
    "bfcl": _TOOLS,
    "custom": (
        "<answer>{0}</answer>",
        "\\boxed{{{0}}}",
        '{{"prompt": "{0}", "answer": "Velm"}}',
        '{{"prompt": "Which town is it?", "answer": {0}}}',
    ),
    "dial": ("add({0}, 5) = 8", _DIAL + "Start at {0}. add 5.", _DIAL + "Start at 3. add 5.\nCalls: {0}"),
    "dial_turns": ("1 add(3, 4)\n{0}", _DIAL + "{0}", _DIAL + "Start at 3. 1 add 4 [{0}]."),
    "gymnasium": ("open 1\n{0}", '{{"options": {{"doors": [{0}]}}}}', '{{"options": {0}}}'),
    "travelplanner": ('[{{"current_city": "{0}"}}]', '{{"query": "{0}"}}'),
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((name, data), marks=[pytest.mark.data] if data == "real" else [])
        for name in (*ALL_WRITERS, "dial", "dial_turns", "gymnasium")
        for data in ("small", "real")[: 1 + (name in WRITERS)]
    ],
    ids=lambda param: "-".join(param),
)
def make(request, tmp_path_factory):
    """A function from options to a benchmark."""
    name, data = request.param
    options = dict(OPTIONS.get(name, {}))
    if data == "real":
        options["data_dir"] = str(request.getfixturevalue("data_dir"))
    elif name in ALL_WRITERS:
        options["data_dir"] = str(ALL_WRITERS[name](tmp_path_factory.mktemp(name)))
    return lambda **more: registry.make_benchmark(name, **options, **more)


@pytest.fixture(scope="module")
def benchmark(make):
    return make()


def test_seeds_and_held_out_tasks_are_apart(benchmark):
    assert isinstance(benchmark, base.Benchmark)
    assert all(isinstance(value, str) and value for value in benchmark.about().values())
    seeds, held_out = benchmark.tasks("seed"), benchmark.tasks("eval")
    assert seeds and held_out
    assert len({task.id for task in (*seeds, *held_out)}) == len(seeds) + len(held_out)
    known = {benchmark.canonical(task) for task in held_out}
    assert not known & {benchmark.canonical(task) for task in seeds}
    for split, tasks in (("seed", seeds), ("eval", held_out)):
        for task in tasks:
            assert (task.origin, task.benchmark) == (split, benchmark.name)
            assert Task.from_json(json.loads(json.dumps(task.to_json()))) == task
            assert benchmark.text(task)
    with pytest.raises(ValueError, match="split 'test': expected 'seed' or 'eval'"):
        benchmark.tasks("test")


def test_fewer_tasks_are_a_part_of_all(make, benchmark):
    few = make(max_seeds=3, max_eval=2)
    for split, count in (("seed", 3), ("eval", 2)):
        ids = [task.id for task in few.tasks(split)]
        assert len(ids) == count
        assert ids == [task.id for task in benchmark.tasks(split) if task.id in ids]


def test_reference_answers_earn_full_reward(benchmark):
    tasks = [*benchmark.tasks("seed"), *benchmark.tasks("eval")]
    results = [(task, benchmark.score(task, benchmark.agent_answer(task))) for task in tasks]
    for task, score in results:
        found = score.reward, score.success, score.valid, score.reason
        assert found == (1.0, True, True, ""), task.id
    numbers = benchmark.aggregate(results)
    assert next(value for key, value in numbers.items() if key.endswith("accuracy")) == 1.0
    assert benchmark.aggregate(results + results) == pytest.approx(numbers)  # repeated tasks are allowed
    assert benchmark.aggregate([]).get("accuracy", 0.0) == 0.0


def test_prompts_fit_and_hold_the_task(benchmark):
    for task in (*benchmark.tasks("seed"), *benchmark.tasks("eval")):
        agent = benchmark.agent_messages(task)
        simulator = benchmark.simulator_messages(task, SeedStatistics(attempts=10, successes=9))
        for messages in (agent, simulator):
            assert messages[0]["role"] == "system" and messages[-1]["role"] == "user"
            assert sum(len(message["content"]) for message in messages) < PROMPT_CHARS
        said = simulator[-1]["content"]
        assert "9 of 10" in said and ("harder" in said or "dial" in benchmark.name)
        asked = benchmark.simulator_messages(task, SeedStatistics.asked(0.9))[-1]["content"]
        assert "9 of 10" in asked and asked != said and len(asked) <= len(said) + 1


def test_tasks_are_of_kinds(benchmark):
    """Several kinds, at most one per task; a restated task keeps its kind."""
    seeds = benchmark.tasks("seed")
    kinds = collections.Counter(benchmark.signature(seed) for seed in seeds)
    assert 1 < len(kinds) <= len(seeds)
    assert all(benchmark.difficulty(seed) >= 0 for seed in seeds)
    asked = [base.skills(benchmark, seed) for seed in seeds]
    assert all(len(set(of)) == len(of) > 0 and of == sorted(of) for of in asked)
    if type(benchmark).skills is not base.Benchmark.skills:  # not just kinds
        assert len(set().union(*asked)) > 1 and any(len(of) > 1 for of in asked)
    for seed in seeds[:20]:
        again = benchmark.parse(benchmark.simulator_answer(seed), seed, "g", 0)
        assert benchmark.signature(again) == benchmark.signature(seed)
        assert benchmark.difficulty(again) == benchmark.difficulty(seed)


def test_what_was_made_of_a_seed_can_be_varied_in_turn(benchmark):
    for seed in benchmark.tasks("seed")[:20]:
        made = benchmark.parse(benchmark.simulator_answer(seed), seed, "made", 0)
        record = SeedStatistics(10, 9)
        of_made, of_seed = (benchmark.simulator_messages(t, record)[-1] for t in (made, seed))
        assert of_made["content"].split() == of_seed["content"].split()
        again = benchmark.parse(benchmark.simulator_answer(made, made), made, "again", 1)
        assert isinstance(again, Task) and benchmark.verify(again) is None
        assert (again.seed_id, again.category) == ("made", seed.category)
        assert benchmark.canonical(again) == benchmark.canonical(seed)


def test_seeds_are_sound_and_come_back_from_their_text(benchmark):
    for seed in benchmark.tasks("seed"):
        assert benchmark.verify(seed) is None
        task = benchmark.parse(benchmark.simulator_answer(seed), seed, "g", 3)
        assert isinstance(task, Task), task
        assert (task.id, task.origin) == ("g", "generated")
        assert (task.generation, task.seed_id) == (3, seed.id)
        assert (task.category, task.tools) == (seed.category, seed.tools)
        assert benchmark.canonical(task) == benchmark.canonical(seed)
        assert benchmark.verify(task) is None
        assert benchmark.score(task, benchmark.agent_answer(seed)).success


def test_it_can_be_sent_to_a_worker(benchmark):
    task = benchmark.tasks("eval")[0]
    data = pickle.dumps(benchmark)
    assert len(data) < 10_000 or "dial" in benchmark.name  # pickled without tasks
    copy = pickle.loads(data)
    assert copy.tasks("eval") == benchmark.tasks("eval")
    assert copy.score(task, benchmark.agent_answer(task)).success


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_has_a_verdict_in_bounded_time(bounded, benchmark, name):
    seed = benchmark.tasks("seed")[0]
    for around in ("{0}", *AROUND[benchmark.name]):
        text = around.format(HOSTILE[name])
        score = benchmark.score(seed, text)
        assert not score.success and 0 <= score.reward < 1
        assert score.reason.replace("_", "").isalpha() and len(score.reason) < 60
        made = benchmark.parse(text, seed, "g", 0)
        if isinstance(made, Task):
            json.dumps(made.to_json()).encode()
            benchmark.canonical(made), benchmark.agent_messages(made)
            made = benchmark.verify(made)
        if made is not None:
            assert made.reason.replace("_", "").isalpha() and len(made.detail) < 400


@pytest.mark.parametrize("answer", [None, {}, [], {"kind": "call"}, {"query": None}])
def test_a_malformed_task_has_a_verdict(benchmark, answer):
    broken = dataclasses.replace(benchmark.tasks("seed")[0], answer=answer)
    score = benchmark.score(broken, "[f(a=1)]")
    assert not score.success and not score.valid
    assert isinstance(benchmark.verify(broken), Rejection)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("alfworld", {"grammar": "old"}, "grammar = 'old': expected one of games, put_in_on, move_to"),
        ("alfworld", {"eval_protocol": "x"}, "eval_protocol = 'x': expected one of step, episode"),
        ("alfworld", {"eval_splits": ("train",)}, "eval_splits = ('train',): expected a list of names among"),
        ("alfworld", {"eval_splits": "valid_unseen"}, "eval_splits = 'valid_unseen': expected a list"),
        ("alfworld", {"eval_splits": ()}, "eval_splits = (): expected some of"),
        ("alfworld", {"max_steps": 0}, "max_steps = 0: expected an integer of at least 1"),
        ("alfworld", {"train_steps": 0}, "train_steps = 0: expected an integer of at least 1"),
        ("alfworld", {"episodes": "yes"}, "episodes = 'yes': expected True or False"),
        ("alfworld", {"played_on": "paper"}, "played_on = 'paper': expected one of auto, engine, rules"),
        ("api_bank", {"seed_splits": ("level-4",)}, "seed_splits = ('level-4',): expected a list of names"),
        ("api_bank", {"eval_splits": "level-1-api"}, "eval_splits = 'level-1-api': expected a list"),
        ("api_bank", {"tool_search": "fuzzy"}, "tool_search = 'fuzzy': expected one of exact, words"),
        ("bamboogle", {"mode": "open"}, "mode = 'open': expected one of closed_book, search"),
        ("bamboogle", {"reward": "judge"}, "reward = 'judge': expected one of em, f1, sub_em"),
        ("bamboogle", {"seed_fraction": -0.1}, "seed_fraction = -0.1: expected a number in [0, 1]"),
        ("bamboogle", {"max_eval": -2}, "max_eval = -2: expected"),
        ("bamboogle", {"judge_url": "http://x"}, "judge_model = '': expected the judge's name"),
        ("bamboogle", {"judge_url": "http://a:b@x", "judge_model": "m"}, "without a key"),
        ("bfcl", {"seed_categories": ("simple",)}, "'simple',): expected a list of names among simple_"),
        ("bfcl", {"version": "v5"}, "BFCL version 'v5': expected one of v3, v4"),
        ("bfcl", {"multi_turn_rule": "turns"}, "multi_turn_rule = 'turns': expected one of conversation"),
        ("bfcl", {"seed_fraction": 1.5}, "seed_fraction = 1.5: expected a number"),
        ("bfcl", {"reward": "f1"}, "reward = 'f1': expected one of exact, graded"),
        ("bfcl", {"reward": "graded", "multi_turn_rule": "turn_state"},
         "reward = 'graded': expected seeds whose calls are not executed"),
        ("travelplanner", {"eval": "test"}, "eval = 'test': expected one of held_out, validation"),
        ("travelplanner", {"reward": "macro"}, "reward = 'macro': expected one of final, micro"),
        ("travelplanner", {"seed_fraction": "half"}, "seed_fraction = 'half': expected a number in [0, 1]"),
        ("travelplanner", {"max_seeds": 1.5}, "max_seeds = 1.5: expected an integer of at least 0"),
        ("travelplanner", {"prompt_chars": 100}, "prompt_chars = 100: expected an integer of at least 6000"),
    ],
)  # fmt: skip
def test_bad_options_are_named(name, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        registry.make_benchmark(name, **options)


@pytest.mark.parametrize("name", WRITERS)
def test_files_are_found_and_compared_with_the_published_ones(name, tmp_path, monkeypatch):
    directory = WRITERS[name](tmp_path / "data")
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    monkeypatch.setenv("GENENV_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "nothing"))
    missing = f"files of {name} are missing: `genenv datasets --name={name}`"
    with pytest.raises(FileNotFoundError, match=missing):
        registry.make_benchmark(name).tasks("eval")
    monkeypatch.setenv("GENENV_DATA", str(directory))
    root = next(path for path in (directory / name, directory) if path.is_dir())
    with published(name, root):
        options = {"verify_files": True, **OPTIONS.get(name, {})}
        assert registry.make_benchmark(name, **options).tasks("seed")
        for path in [path for path in root.rglob("*") if path.is_file()]:
            path.write_bytes(path.read_bytes() + b"\n")
        with pytest.raises(ValueError, match=r"bytes, expected \d+: delete it"):
            registry.make_benchmark(name, **options).tasks("seed")


def test_demonstrations_are_of_the_seeds_alone(benchmark, monkeypatch):
    """Each role sees each seed; the simulator's texts are valid, and none is held out."""
    seeds = list(benchmark.tasks("seed"))[:40]
    held_out = {benchmark.canonical(task) for task in benchmark.tasks("eval")}
    monkeypatch.setattr(type(benchmark), "tasks", None)  # nothing else is read
    found = seed_demonstrations(benchmark, seeds, 3, np.random.default_rng(0))
    of_agent = [d for d in found if d.role == "agent"]
    of_simulator = [d for d in found if d.role == "simulator"]
    assert len(of_agent) == len(of_simulator) == len(seeds)
    own = {benchmark.canonical(seed) for seed in seeds}
    for seed, agent, simulator in zip(seeds, of_agent, of_simulator, strict=True):
        assert agent.messages == benchmark.agent_messages(seed)
        (answer,) = agent.completions
        answer = answer if isinstance(answer, str) else "\n".join(answer.answers)
        assert benchmark.score(seed, answer).reward == 1.0
        written = [benchmark.parse(text, seed, "g", 0) for text in simulator.completions]
        assert all(benchmark.verify(task) is None for task in written)
        texts = {benchmark.canonical(task) for task in written}
        assert texts <= own - held_out and 1 <= len(texts) == len(written) <= 3
        assert benchmark.canonical(seed) not in texts or len(texts) == 1
    if max(collections.Counter(seed.category for seed in seeds).values()) > 3:
        assert max(len(d.completions) for d in of_simulator) == 3


@pytest.mark.parametrize("make", [("bfcl", "small"), ("api_bank", "small")], indirect=True)
def test_endless_demonstrations_write_each_seed_out_once(benchmark, monkeypatch):
    """For both roles; the draws depend on the generator alone.  Prompts state success rates."""
    seeds, counts = list(benchmark.tasks("seed"))[:3], collections.Counter()
    monkeypatch.setattr(type(benchmark), "tasks", lambda self, split: seeds)

    def pairs():
        return list(itertools.islice(endless(benchmark, np.random.default_rng(0)), 60))

    found = pairs()
    answered = [(benchmark.agent_messages(seed), benchmark.agent_answer(seed)) for seed in seeds]
    written = {benchmark.simulator_answer(seed): seed for seed in seeds}
    untried = {seed.id: benchmark.simulator_messages(seed, SeedStatistics()) for seed in seeds}
    for agent, (asked, text) in zip(found[::2], found[1::2], strict=True):
        seed, other = seeds[answered.index(agent)], written[text]
        assert other.category == seed.category
        assert asked[0] == untried[seed.id][0]
    assert any(asked not in untried.values() for asked, _ in found[1::2])
    for name in ("agent_messages", "simulator_messages"):
        write = getattr(benchmark, name)

        def counted(*arguments, name=name, write=write):
            counts[name] += 1
            return write(*arguments)

        monkeypatch.setattr(benchmark, name, counted)
    assert pairs() == found
    assert set(counts.values()) == {len({id(messages) for messages, _ in found[::2]})}


def test_a_records_tasks_are_validated_on_together(benchmark):
    """No conversation or game is in both training and validation."""
    seeds = benchmark.tasks("seed")
    sides = split_seeds(benchmark, 0.4)
    assert sorted(s.id for side in sides for s in side) == sorted(s.id for s in seeds)
    training, validation = ({benchmark.source(s) for s in side} for side in sides)
    assert not training & validation


@pytest.mark.parametrize("shots", [1, 2])
def test_worked_examples_are_seeds_of_other_records(make, benchmark, shots):
    """They precede the task as turns with right answers, and a result names them."""
    shown = make(shots=shots)
    seeds = {seed.id for seed in shown.tasks("seed")}
    assert seeds == {seed.id for seed in benchmark.tasks("seed")}
    some = [*shown.tasks("seed")[:5], *shown.tasks("eval")[:5]]
    generated = dataclasses.replace(some[0], id="g", seed_id=some[0].id, origin="generated")
    for task in (*some, generated):
        examples, own = shown.examples(task), benchmark.agent_messages(task)
        own_record = shown.source(some[0] if task is generated else task)
        others = [s for s in shown.tasks("seed") if shown.source(s) != own_record]
        if shown.is_interactive(task):
            assert shown.agent_messages(task) == own and not examples
            continue
        assert len(examples) == min(shots, len(others))
        assert all(e.id in seeds and shown.source(e) != own_record for e in examples)
        messages = shown.agent_messages(task)
        systems = [m for m in own if m["role"] == "system"]
        assert messages[: len(systems)] == systems
        assert messages[len(messages) - len(own) + len(systems) :] == own[len(systems) :]
        turns = messages[len(systems) : len(messages) - len(own) + len(systems)]
        assert [m["role"] for m in turns] == ["user", "assistant"] * len(examples)
        for example, question, answer in zip(examples, turns[::2], turns[1::2], strict=True):
            assert benchmark.score(example, answer["content"]).reward == 1.0
            assert benchmark.text(example).split("\n")[-1][-40:] in question["content"]
    assert "shots" not in benchmark.about()
    assert str(shots) in shown.about()["shots"]


def test_worked_examples_need_seeds(make):
    shown = make(shots=1)
    task = next((t for t in shown.tasks("eval") if not shown.is_interactive(t)), None)
    if task is None:
        return
    shown.tasks("seed")
    shown._loaded["seed"] = ()
    with pytest.raises(ValueError, match="shots = 1: expected seeds"):
        shown.agent_messages(task)


class _Sums(base.Benchmark):
    """Sums, whose answers the benchmark computes."""

    name = "sums"

    def load(self, origin):
        return []

    def verdict(self, task, answer):
        right = answer.strip() == task.answer
        return base.Score(float(right), right, True)

    def solve(self, prompt):
        if not prompt.replace("+", "").isdigit():
            raise ValueError(f"{prompt!r}: expected numbers and plus signs")
        return str(sum(map(int, prompt.split("+"))))


def test_a_benchmark_that_solves_lets_the_simulator_write_prompts_alone():
    sums = _Sums()
    seed = Task("s", "sums", "sum", ({"role": "user", "content": "1+1"},), (), "2")
    system, _ = (m["content"] for m in sums.simulator_messages(seed, SeedStatistics()))
    assert system.endswith('{"prompt": the task}') and "with its answer" not in system
    assert sums.simulator_answer(seed) == '{"prompt": "1+1"}'
    made = sums.parse('{"prompt": "17+25 "}', seed, "g", 1)
    assert (made.answer, made.messages[-1]["content"]) == ("42", "17+25")
    assert sums.verify(made) is None
    refused = sums.parse('{"prompt": "17+x"}', seed, "g", 1)
    assert refused == Rejection(base.BAD_ANSWER, "'17+x': expected numbers and plus signs")
    answered = sums.parse('{"prompt": "1+2", "answer": "3"}', seed, "g", 1)
    assert answered == Rejection(base.UNPARSABLE, "expected an object with prompt, and nothing else")
