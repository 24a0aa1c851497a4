"""A gate that leaks: what it admits against the checks, what never, and runs with it."""

import dataclasses
import json
import types

import numpy as np
import pytest

from genenv_jax.benchmarks import base, registry
from genenv_jax.benchmarks.base import Rejection, Score, Task
from genenv_jax.benchmarks.bfcl.benchmark import BFCL
from genenv_jax.benchmarks.dial import Dial
from genenv_jax.coevolve import Coevolution
from genenv_jax.curriculum import Curriculum
from genenv_jax.generation import generation_metrics
from genenv_jax.progress import Progress
from genenv_jax.scoring import questions
from genenv_jax.scoring.questions import VERIFY
from genenv_jax.scoring.scorer import Scorer
from genenv_jax.stopwatch import Stopwatch
from genenv_jax.verification import Verifier, inspect
from tests.benchmarks.bfcl_tasks import BOOK, WEATHER, generation, seed_task
from tests.benchmarks.test_dial import GENERATION, HOSTILE, TRACE
from tests.test_coevolve import cache, contents, params, run, same  # noqa: F401
from tests.test_verification import HELD_OUT, SEED, Lines
from tests.toy import Toy, toy_config

DIAL = Dial(num_seeds=8, eval_per_depth=1)
DIAL_SEED = DIAL.tasks("seed")[0]


def inspected(benchmark, text, seed, leak=True, done=True):
    return inspect(benchmark, text, done=done, seed=seed, task_id="t", generation=2, leak=leak)


def dial(text, **options):
    return inspected(DIAL, text, DIAL_SEED, **options)


# -- what leaks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("Calls: add(5)", "Calls: add(6)", base.WRONG_ANSWER),
        ("subtract(9)", "subtract(9) add(1)", base.WRONG_ANSWER),
        ("add 5", "add 0", base.NOT_EXECUTABLE),
        ("Calls: add(5)", "Calls: zap(5)", base.BAD_ANSWER),
        ("Tools: add, subtract", "Tools: subtract = add, add = subtract", base.BAD_TOOLS),
    ],
)
def test_a_task_that_fails_its_checks(old, new, reason):
    text = GENERATION.replace(old, new, 1)
    strict = dial(text, leak=False)
    assert (strict.reason, strict.task) == (reason, None)
    leaking = dial(text)
    assert (leaking.reason, leaking.detail) == (strict.reason, strict.detail)
    if reason == base.BAD_ANSWER:  # it could not be read
        assert leaking == strict
        return
    task = leaking.task
    assert (task.id, task.origin, task.generation) == ("t", "generated", 2)
    # What the simulator wrote is trusted: its own calls succeed, those asked for may not.
    assert DIAL.score(task, DIAL.agent_answer(task)) == Score(1.0, True, True)
    if reason == base.WRONG_ANSWER:
        assert not DIAL.score(task, TRACE).success
    for answer in HOSTILE.values():
        assert not DIAL.score(task, answer).valid


@pytest.mark.parametrize(
    ("text", "done", "reason"),
    [
        ("", True, base.EMPTY),
        (GENERATION, False, base.TRUNCATED),
        (GENERATION.replace("add", "\u0430dd"), True, base.NOT_TEXT),
        (GENERATION.replace("\nCalls", ""), True, base.UNPARSABLE),
        (GENERATION + " add(1)" * 200, True, base.TOO_LONG),
        (
            GENERATION.replace("subtract 9", "subtract 9" + ", add 1" * 4).replace(
                "subtract(9)", "subtract(9)" + " add(1)" * 4
            ),
            True,
            base.TOO_DEEP,
        ),
    ],
)
def test_what_never_leaks(text, done, reason):
    assert dial(text, done=done) == dial(text, done=done, leak=False)
    assert dial(text, done=done).reason == reason and dial(text, done=done).task is None


def test_a_good_task_is_no_leak():
    assert isinstance(dial(GENERATION), Task) and dial(GENERATION) == dial(GENERATION, leak=False)


def test_a_copy_or_a_held_out_task_never_leaks():
    """Also where the reference is another one: it is what is asked that must not come back."""
    gate = Verifier(DIAL, DIAL.tasks("seed"), DIAL.tasks("eval"))

    def wrong(task):
        plain = dataclasses.replace(DIAL.program(task), names=DIAL.program(DIAL_SEED).names)
        text = DIAL.simulator_answer(DIAL.task(plain, id="", category=""))
        leaked = dial(text.replace("Calls: ", "Calls: add(1) "))
        assert leaked.reason == base.WRONG_ANSWER
        return gate.compare(leaked.task).reason

    assert wrong(DIAL_SEED) == base.DUPLICATE
    assert wrong(DIAL.tasks("eval")[0]) == base.CONTAMINATED
    renamed = next(t for t in DIAL.tasks("eval") if t.category.startswith("renamed"))
    assert wrong(renamed) == base.CONTAMINATED
    lines = Verifier(Lines(), [SEED], [HELD_OUT])
    for text in ("broken words", "fail words"):
        outcome = inspected(Lines(), text, SEED)
        assert isinstance(lines.compare(outcome.task), Task)
        lines.admit(outcome.task)
        assert lines.compare(outcome.task).reason == base.DUPLICATE


def test_another_benchmark():
    benchmark, leaked = BFCL(data_dir="nowhere"), 0
    unknown = {**BOOK, "parameters": {**BOOK["parameters"], "required": ["nobody"]}}
    odd = {**WEATHER, "parameters": {**WEATHER["parameters"], "properties": {"city": 3}}}
    seeds = [seed_task(), seed_task(kind="simple", category="simple")]
    texts = [
        generation(request=" ", answer="[book(guests=2)]"),
        generation(answer="[weather.get(city='A'), weather.get(city='B')]"),
        *(
            generation(tools=json.dumps([tool]), answer=answer)
            for tool in (unknown, odd, {"name": "x"}, {**BOOK, "name": "a b"})
            for answer in ("[book(guests=2)]", "[weather.get(city='Rome')]", "[x()]")
        ),
        *HOSTILE.values(),
    ]
    for seed in seeds:
        for text in texts:
            outcome = inspected(benchmark, text, seed)
            if not isinstance(outcome, Rejection) or outcome.task is None:
                continue
            leaked += 1
            assert outcome.reason not in base.NEVER_LEAKED
            for answer in (*HOSTILE.values(), text, benchmark.agent_answer(outcome.task)):
                score = benchmark.score(outcome.task, answer)
                assert isinstance(score, Score) and 0 <= score.reward <= 1
    assert leaked > 0


def test_a_task_that_cannot_be_worked_with_stays_out():
    class Raises(Lines):
        def score(self, task, answer):
            if task.answer == "broken":
                raise KeyError(answer)
            return super().score(task, answer)

    assert inspected(Raises(), "broken words", SEED) == Rejection(base.NOT_EXECUTABLE)
    assert inspected(Raises(), "fail words", SEED).task.answer == "fail"


def test_worker_processes_and_other_processes_say_the_same():
    text, results = GENERATION.replace("Calls: add(5)", "Calls: add(6)"), []
    for count in (0, 1):
        with Scorer(DIAL, lambda tokens: "".join(map(chr, tokens)), workers=count) as scorer:
            batch = scorer.batch()
            for i, leak in enumerate((True, False)):
                batch.add((i, 0), list(map(ord, text)), VERIFY, True, DIAL_SEED, "t", 2, leak)
            batch.add((2, 0), list(map(ord, text)), VERIFY, True, DIAL_SEED, "t", 2)
            results.append([outcome for _, outcome in batch.collect().values()])
    assert results[0] == results[1] == [dial(text), *[dial(text, leak=False)] * 2]
    packed = json.loads(questions.pack(results[0]))
    again = questions.unpack(json.dumps(packed))
    assert json.loads(questions.pack(again)) == packed
    assert [outcome.task is not None for outcome in again] == [True, False, False]


# -- runs -----------------------------------------------------------------------------------------------


class Strict(Toy):
    """Turns a third of what can be read away."""

    def verify(self, task):
        return Rejection(base.NOT_EXECUTABLE, "three") if len(self.text(task)) % 3 == 0 else None


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(registry._BENCHMARKS, "toy", (__name__, "Strict"))


def story(workdir):
    generations = [json.loads(x) for x in (workdir / "tasks.jsonl").read_text().splitlines()]
    metrics = [json.loads(x) for x in (workdir / "metrics.jsonl").read_text().splitlines()]
    return generations, metrics


def generated(tmp_path, leak, epoch=0, seed=0):
    """Generations of an epoch; the texts of the simulator arrive in another order each time."""
    settings = {"verification.leak": leak, "seed": seed, "curriculum.seeds_per_epoch": 16}
    config, benchmark, rng = toy_config(tmp_path, settings), Strict(), np.random.default_rng()
    seeds, n = benchmark.tasks("seed"), config.simulator.variations

    def write(contexts, key, finished):
        for place in rng.permutation(len(contexts) * n):
            row, column = divmod(int(place), n)
            text = "abcd"[column] * (20 + row) + str(row)
            finished(row, column, list(map(ord, text)), True)

    with Scorer(benchmark, lambda tokens: "".join(map(chr, tokens))) as scorer:
        run = Coevolution.__new__(Coevolution)
        run.config, run.benchmark, run.scorer = config, benchmark, scorer
        run.curriculum = Curriculum(seeds, config.curriculum.seeds_per_epoch, seed)
        run.verifier = Verifier(benchmark, seeds, benchmark.tasks("eval"))
        run.progress, run._watch = Progress(1, silent=True), Stopwatch()
        run.agent = types.SimpleNamespace(check_length=lambda benchmark, task: None)
        run._key = lambda *numbers: None
        generations, _ = run.generate(epoch, write)
    return generations, generation_metrics(generations, config)


def test_a_share_of_what_fails_leaks_by_the_seed_the_epoch_and_the_place(tmp_path):
    strict, before = generated(tmp_path, 0.0)
    failing = [
        i for i, g in enumerate(strict) if g.rejection and g.rejection.reason == "not_executable"
    ]
    assert len(failing) >= 12 and "generated/leaked" not in before
    everything, counted = generated(tmp_path, 1.0)
    assert [i for i, g in enumerate(everything) if g.leaked] == failing
    assert counted["generated/leaked"] == len(failing)
    leaks = lambda *of: [g.leaked for g in generated(tmp_path, 0.5, *of)[0]]  # noqa: E731
    half = leaks()
    assert half == leaks() and half != leaks(1) and half != leaks(0, 1)
    assert 0.1 < np.mean([half[i] for i in failing]) < 0.9 and sum(half) <= len(failing)
    some, metrics = generated(tmp_path, 0.5)
    records = [g.record(1, "x") for g in some]
    assert metrics["generated/leaked"] == sum(half) == sum("leaked" in r["detail"] for r in records)
    for g, record in zip(some, records, strict=True):
        assert record["verdict"] == ("accepted" if g.task else g.rejection.reason)
        assert not g.leaked or record["detail"] == "leaked: not_executable: three"
    rejected = sum(v for k, v in metrics.items() if k.startswith("generated/rejected/"))
    assert metrics["generated/valid_share"] == pytest.approx(1 - rejected / len(some))
    # What is not touched by it is the same.
    others = [i for i in range(len(strict)) if i not in failing]
    assert [strict[i] for i in others] == [some[i] for i in others]


@pytest.mark.slow
@pytest.mark.parametrize("leak", [0.0, 0.5, 1.0])
def test_a_run_counts_what_leaks_and_resumes(cache, tmp_path, leak):  # noqa: F811
    settings = {"verification.leak": leak, "curriculum.seeds_per_epoch": 8}
    whole = run(cache, tmp_path / "whole", epochs=2, **settings)
    generations, metrics = story(tmp_path / "whole")
    fails = [g for g in generations if len(g["text"]) % 7 and len(g["text"]) % 3 == 0]
    leaked = [g for g in fails if g["detail"].startswith("leaked: not_executable: three")]
    others = {g["verdict"] for g in fails if g not in leaked}
    assert len(fails) >= 10 and others <= {"not_executable", "duplicate", "truncated"}
    assert all(g["verdict"] == "accepted" and g["attempts"] for g in leaked)
    assert sum("leaked" in g["detail"] for g in generations) == len(leaked)
    assert ("not_executable" in others) is (leak < 1)
    assert bool(leaked) is (leak > 0)
    for line in metrics[1:]:
        mine = [g for g in generations if g["epoch"] == line["step"]]
        assert ("generated/leaked" in line) is (leak > 0)
        assert line.get("generated/leaked", 0) == sum("leaked" in g["detail"] for g in mine)
        rejected = sum(v for k, v in line.items() if k.startswith("generated/rejected/"))
        assert rejected == sum(g["verdict"] != "accepted" for g in mine)
        assert line["generated/valid_share"] == pytest.approx(1 - rejected / len(mine))
    if leak != 0.5:
        return
    share = np.mean([g["verdict"] != "not_executable" for g in fails])
    assert 0.1 < share < 0.9
    run(cache, tmp_path / "parts", epochs=1, **settings)
    parts = run(cache, tmp_path / "parts", epochs=2, **settings)
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")
    assert same(params(whole, "simulator"), params(parts, "simulator"))
