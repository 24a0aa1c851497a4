"""Scoring beside sampling: in a thread, in worker processes, and what no text may do to a run."""

import os
import pathlib
import random
import threading
import time

import pytest

from genenv_jax.benchmarks.base import Rejection, Score
from genenv_jax.benchmarks.dial.chains import Dial
from genenv_jax.sampling.sampler import Completion
from genenv_jax.scoring import requests
from genenv_jax.scoring.requests import SCORE, VERIFY
from genenv_jax.scoring.scorer import Scorer, ScoringConfig, worker_count
from genenv_jax.scoring.worker import NoAnswer, Worker
from tests.commands import printed
from tests.scoring import benchmarks
from tests.scoring.benchmarks import Complete, Dangerous, make_task

TASK = make_task()


def decode(tokens):
    return "".join(map(chr, tokens))


def said(i, j, text):
    return Completion(i, j, list(map(ord, text)), True)


def alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(params=[0, 2], ids=["thread", "processes"])
def scorer(request):
    with Scorer(Complete(), decode, ScoringConfig(request.param, timeout=30.0)) as scorer:
        yield scorer


@pytest.fixture(scope="module")
def workers():
    """Two worker processes that answer within three seconds, in a quarter of a GiB."""
    with Scorer(Complete(), decode, ScoringConfig(2, timeout=3.0, memory=0.25)) as scorer:
        yield scorer


def outcomes(scorer, texts, question=SCORE, arguments=(TASK,)):
    batch = scorer.batch()
    for i, text in enumerate(texts):
        batch.add(said(i, 0, text), question, *arguments)
    return [outcome for _, outcome in batch.collect()]


def test_scores_come_in_the_order_of_the_keys_whatever_the_order_of_arrival(scorer):
    tasks = [make_task(task_id=f"t{i}") for i in range(6)]
    texts = {(i, j): f"text \ud800{'x' * (i + 7 * j)}" for i in range(6) for j in range(3)}
    want = [
        (Completion(i, j, text, True), Complete().score(tasks[i], text))
        for (i, j), text in sorted(texts.items())
    ]
    for seed in range(3):
        batch = scorer.batch()
        for key in random.Random(seed).sample(list(texts), len(texts)):
            batch.add(said(*key, texts[key]), SCORE, tasks[key[0]])
        assert batch.collect() == want
    assert scorer.batch().collect() == []


def test_generations_are_inspected(scorer):
    seed = make_task(task_id="s")
    texts = ["a task", "bad one", " ", "raise"]
    batch = scorer.batch()
    for i, text in enumerate(texts):
        batch.add(said(0, i, text), VERIFY, True, seed, f"g{i}", 4, "proven")
    batch.add(said(1, 0, "cut off"), VERIFY, False, seed, "g", 4, "proven")
    task, *rejections = [outcome for _, outcome in batch.collect()]
    assert (task.id, task.seed_id, task.generation) == ("g0", "s", 4)
    reasons = ["unparsable", "empty", "verify_crash", "truncated"]
    assert [r.reason for r in rejections] == reasons
    assert "KeyError: 'what a text can do'" in rejections[2].detail


def test_outcomes_survive_the_way_to_other_processes():
    task = make_task("text", "id")
    score = Score(1 / 3, True, False, "r", {"f1": [0.5, None]})
    given = [score, Rejection("a", "b\ud800\0"), task, Score(0, False, True)]
    assert requests.unpack(requests.pack(given)) == given


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("loop", "timeout"),
        ("sleep 600", "timeout"),
        ("stop", "timeout"),
        *((text, "crash") for text in ("exit", "segfault", "leave", "memory", "recurse", "raise", "lambda")),
    ],
)  # fmt: skip
def test_one_text_fails_alone(workers, text, how):
    """The others are scored, also those after it, in whichever worker."""
    texts = ["fine " * 3, text, *["fine too " * 2] * 8]
    scores = outcomes(workers, texts)
    assert scores[1] == Score(0.0, False, False, f"score_{how}")
    assert scores[1].reason in requests.FAILED_SCORES
    for i, score in enumerate(scores):
        if i != 1:
            assert score == Complete().score(TASK, texts[i])
    if text != "lambda":
        (rejection,) = outcomes(workers, [text], VERIFY, (True, TASK, "new", 0, "proven"))
        assert rejection.reason == f"verify_{how}"
        wanted = {"exit": "exit code 3", "segfault": "SIGSEGV", "memory": "MemoryError"}
        wanted |= {"recurse": "RecursionError", "raise": "KeyError", "leave": "SystemExit"}
        assert wanted.get(text, "no answer within 3 s") in rejection.detail


def test_in_a_thread_what_a_benchmark_raises_concerns_one_text_and_is_not_logged_for_ever(caplog):
    with Scorer(Complete(), decode) as scorer:
        scores = outcomes(scorer, ["fine", *["raise", "recurse"] * 20, "fine"])
    reasons = ["t", *["score_crash"] * 40, "t"]
    assert [score.reason for score in scores] == reasons
    lines = [r.getMessage() for r in caplog.records if "score_crash" in r.getMessage()]
    assert len(lines) == 5
    assert "KeyError" in lines[0] and "not said again" in lines[-1]


def test_a_worker_that_died_while_idle_costs_no_text(workers):
    for _ in range(3):
        (who,) = outcomes(workers, ["who"])
        os.kill(int(who.reason), 9)
        wait_until(lambda pid=int(who.reason): not alive(pid))
        assert [s.valid for s in outcomes(workers, ["fine"] * 4)] == [True] * 4


def test_no_benchmark_imports_jax_or_an_engine():
    code = (
        "import sys\nfrom genenv_jax.benchmarks import registry\nfrom genenv_jax.scoring import worker\n"
        "for module, _ in registry._BENCHMARKS.values(): __import__(module)\n"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    engines = {"textworld", "alfworld", "bfcl_eval", "gymnasium"}
    assert not {"jax", "jaxlib", "flax", *engines} & set(printed(code).split())


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("Unpicklable", ValueError, "'dangerous' cannot be scored in worker processes: .*pickle"),
        ("Unopenable", ValueError, "OSError: the engine's files are not here"),
        ("ImportsJax", ValueError, "it imports JAX"),
        ("DiesAtBirth", RuntimeError, "does not start: the process ended with exit code 7"),
    ],
)
def test_a_benchmark_that_workers_cannot_open_is_named_at_the_start(name, error, message):
    make = getattr(benchmarks, name)
    with pytest.raises(error, match=message):
        Scorer(make(), decode, ScoringConfig(2))
    Scorer(make(), decode).close()  # no worker, nothing to open


def test_isolated_benchmarks_get_workers_by_themselves():
    assert worker_count(Dangerous(), 0) == 0
    assert worker_count(Dangerous(), 3) == 3
    assert worker_count(Dangerous(isolated=True), 3) == 3
    assert 1 <= worker_count(Dangerous(isolated=True), 0) <= 16
    assert worker_count(Dial(num_seeds=2, eval_per_depth=1), 0) == 0
    with Scorer(Dangerous(isolated=True), decode) as scorer:
        (who,) = outcomes(scorer, ["who"])
    assert int(who.reason) != os.getpid()


def test_closing_ends_what_is_running(caplog):
    before = set(threading.enumerate())
    scorer = Scorer(Complete(), decode, ScoringConfig(2, timeout=600.0))
    pids = [int(score.reason) for score in outcomes(scorer, ["who"])]
    batch = scorer.batch()
    for i in range(20):
        batch.add(said(i, 0, "loop"), SCORE, TASK)
    time.sleep(0.1)
    began = time.monotonic()
    scorer.close()
    scorer.close()  # closing again does nothing
    wait_until(lambda: not any(map(alive, pids)))
    wait_until(lambda: set(threading.enumerate()) <= before)
    assert time.monotonic() - began < 60
    assert not caplog.records  # these are not crashes


def test_a_worker_by_itself():
    worker = Worker(Complete(), timeout=0.3)
    assert worker.pid is None
    assert worker.ask(SCORE, (TASK, "fine")).valid
    first = worker.pid
    with pytest.raises(NoAnswer, match="within 0.3 s"):
        worker.ask(SCORE, (TASK, "loop"))
    assert worker.pid is None and not alive(first)
    assert worker.ask(SCORE, (TASK, "fine")).valid and worker.pid != first
    worker.close()
    assert worker.pid is None
    with pytest.raises(RuntimeError):
        worker.ask(SCORE, (TASK, "fine"))


def test_workers_score_side_by_side_and_while_nobody_collects():
    with Scorer(Complete(), decode, ScoringConfig(3, timeout=5.0)) as scorer:
        outcomes(scorer, ["sleep 0.2"] * 3)  # they start
        batch, began = scorer.batch(), time.monotonic()
        for i in range(6):
            batch.add(said(i, 0, "sleep 1"), SCORE, TASK)
        futures = list(batch._futures.values())
        wait_until(lambda: all(future.done() for future in futures))
        assert time.monotonic() - began < 5  # 6 s one after the other
        assert all(score.valid for _, score in batch.collect())
        (score,) = outcomes(scorer, ["sleep 1.2"])  # not cut off early
        assert score.valid
