"""Tasks that a model behind a server writes: what is asked, paid for, kept and rejected."""

import collections
import json
import sys

import jax
import pytest

from bench.bad_answers.common import HOSTILE
from genenv_jax.benchmarks.bamboogle.benchmark import Bamboogle
from genenv_jax.benchmarks.base import SeedStatistics
from genenv_jax.coevolve import Coevolution
from genenv_jax.config import validate
from genenv_jax.players.endpoint import EndpointError
from genenv_jax.tasks.teacher import HOPELESS
from tests.evaluate.fake_server import completion, serve
from tests.runs import lines, params, run, same, toy_config
from tests.tasks.teachers import SEEDS, ask, good, hurried


def log(workdir):
    return json.loads((workdir / "teacher.json").read_text())


def verdicts(workdir):
    return [record["verdict"] for record in lines(workdir, "teacher_generations.jsonl")]


def ids(tasks):
    return [(task.id, task.seed_id, task.messages[-1]["content"]) for task in tasks]


def test_each_seed_is_varied_in_turn_until_there_are_enough(tmp_path):
    with serve(good) as (url, requests):
        tasks = ask(tmp_path, url, 8, too_long=("teacher-2",), concurrency=3)
    assert len(tasks) == 8 and len(requests) == 9
    assert [t.id for t in tasks] == [f"teacher-{i}" for i in range(9) if i != 2]
    assert all(t.origin == "generated" and t.generation == 0 for t in tasks)
    counts = collections.Counter(t.seed_id for t in tasks)
    assert sorted(counts.values()) == [2, 3, 3] and [t.seed_id for t in tasks[:2]] != SEEDS[:2]
    expected = [Bamboogle().simulator_messages(seed, SeedStatistics()) for seed in SEEDS]
    for request in requests:
        assert request["messages"] in expected and request["model"] == "m-72b"
        assert (request["temperature"], request["max_tokens"]) == (1.0, 1024)
    assert len({request["seed"] for request in requests}) == 9
    about = log(tmp_path)
    assert {k: about[k] for k in ("wanted", "generations", "accepted", "rejected")} == {
        "wanted": 8, "generations": 9, "accepted": 8, "rejected": {"too_long": 1},
    }  # fmt: skip
    assert (about["requests"], about["prompt_tokens"], about["completion_tokens"]) == (9, 63, 27)
    assert about["tasks_per_1k_tokens"] == pytest.approx(8 / 0.09)
    assert verdicts(tmp_path).count("accepted") == 8


def test_what_is_rejected_of_the_simulator_is_rejected_here(tmp_path):
    replies = {
        0: "New Task: Where is the held out city?\nNew Answer: Oslo",
        1: "New Task: Where was Bo Lund born?\nNew Answer: Port Albert",
        2: "no idea",
        3: "",
        4: (200, completion("New Task: Where is Rome?\nNew Answer: Italy", "length")),
        5: "New Task: Where is Lima?\nNew Answer: " + "x" * 20_000,  # more than 1,024 tokens hold
        6: (400, {"error": {"message": "filtered\x1b[2J"}}),
    }
    number = iter(range(1000))

    def reply(request):
        return replies.get(next(number), good(request))

    with serve(reply) as (url, _):
        tasks = ask(tmp_path, url, 2, concurrency=1)
    assert len(tasks) == 2
    assert log(tmp_path)["rejected"] == {
        "contaminated": 1, "duplicate": 1, "unparsable": 1, "empty": 1, "truncated": 2, "refused": 1,
    }  # fmt: skip


def test_an_interrupted_teacher_goes_on_and_pays_for_nothing_twice(tmp_path):
    with serve(good) as (url, _):
        whole = ask(tmp_path / "whole", url, 12)
    down = {"after": 5}

    def reply(request):
        down["after"] -= 1
        return good(request) if down["after"] >= 0 else (503, {"error": {"message": "gone"}})

    with serve(reply) as (url, requests):
        with pytest.raises(EndpointError, match=r"InternalServerError.*gone.* 5 of 12 tasks are") as e:
            ask(tmp_path / "parts", url, 12, concurrency=2)
        assert "the same command continues" in str(e.value)
        assert log(tmp_path / "parts")["requests"] == 5
        with (tmp_path / "parts" / "teacher_answers.jsonl").open("a") as file:
            file.write('{"request": "half')  # and it was killed while it wrote
        down["after"], before = 1000, len(requests)
        parts = ask(tmp_path / "parts", url, 12, concurrency=5)
        assert len(requests) - before == 7
        again = ask(tmp_path / "parts", url, 12)
        assert len(requests) - before == 7
    assert ids(whole) == ids(parts) == ids(again)
    assert log(tmp_path / "parts")["total_tokens"] == 120
    assert verdicts(tmp_path / "parts") == verdicts(tmp_path / "whole") == ["accepted"] * 12


def test_one_budget_for_all_starts(tmp_path):
    with serve(good) as (url, requests):
        for _ in range(2):  # restarting does not evade the budget
            with pytest.raises(EndpointError, match="50 tokens are spent, the limit is 45") as error:
                ask(tmp_path, url, 9, budget=45, concurrency=1)
            assert "5 of 9 tasks are written" in str(error.value)
            assert "the same command with a larger budget continues" in str(error.value)
            assert len(requests) == 5
        assert len(ask(tmp_path, url, 9, budget=90, concurrency=1)) == 9
        assert len(requests) == 9


def test_nonsense_ends_after_a_bounded_number_of_requests(tmp_path):
    texts = [text[:20_000] for text in HOSTILE.values()] + ["\x1b[2J", "\ud800", "lorem ipsum"]

    def reply(request):
        return texts[request["seed"] % len(texts)]

    with serve(reply) as (url, requests):
        with pytest.raises(EndpointError, match=f"0 of 500 tasks .* in {HOPELESS} gener") as error:
            ask(tmp_path, url, 500)
        assert len(requests) == HOPELESS
        message = str(error.value)
        assert "expected a model that follows" in message and message.isprintable()
        with pytest.raises(EndpointError):  # repeating it costs nothing
            ask(tmp_path, url, 500)
        assert len(requests) == HOPELESS
    about = log(tmp_path)
    assert sum(about["rejected"].values()) == HOPELESS == about["generations"]
    assert about["accepted"] == about["tasks_per_1k_tokens"] == 0


def test_copies_of_one_task_end_by_the_attempts(tmp_path):
    same_task = "New Task: In which town did Zoe grow up?\nNew Answer: Lima"
    with serve(lambda _: same_task) as (url, requests):
        with pytest.raises(EndpointError, match=r"1 of 4 tasks .*duplicate 11.*expected a smaller"):
            ask(tmp_path, url, 4, attempts=3)
        assert len(requests) == 12
    with serve(good) as (url, requests):  # another server: nothing of it is stored
        assert len(ask(tmp_path, url, 4, attempts=3)) == 4


def test_a_server_that_refuses_everything_is_given_up(tmp_path):
    with serve(lambda _: (400, {"error": {"message": "no such option"}})) as (url, requests):
        with pytest.raises(EndpointError, match=r"refused 64; .*no such option"):
            ask(tmp_path, url, 100)
        assert len(requests) == HOPELESS


@pytest.mark.slow
def test_a_run_on_a_teachers_tasks(cache, tmp_path, monkeypatch):
    up = {"left": 4}

    def reply(request):
        up["left"] -= 1
        if up["left"] < 0:
            return 503, {"error": {"message": "gone"}}
        text = f"red {request['seed']}"
        return text + " x" * (len(text) % 7 == 0)  # a length that the toy rejects

    with hurried(), serve(reply) as (url, requests):
        teacher = {"url": url, "model": "m", "per_seed": 0.15}
        options = {f"tasks.teacher.{name}": value for name, value in teacher.items()}
        options |= {"tasks.source": "teacher", "compile_ahead": False}
        workdir = tmp_path / "run"
        with pytest.raises(EndpointError, match="4 of 10 tasks are written"):
            Coevolution(validate(toy_config(cache, options)), workdir)
        up["left"] = 1000
        # How it is asked may change; what is asked may not.
        options["tasks.teacher.budget"] = 10_000
        with pytest.raises(ValueError, match=r"tasks\.teacher\.max_tokens"):
            Coevolution(validate(toy_config(cache, options | {"tasks.teacher.max_tokens": 9})), workdir)
        first = run(cache, workdir, epochs=1, **options)
        asked = len(requests)
    # Once the tasks exist, neither a server nor the client is needed.
    monkeypatch.setitem(sys.modules, "openai", None)
    second = run(cache, workdir, epochs=2, **options)
    assert len(requests) == asked
    fixed = lines(workdir, "fixed_tasks.jsonl")
    trained = [record["task"] for record in lines(workdir, "tasks.jsonl")]
    assert len(fixed) == 10 and all(task in fixed for task in trained) and len(trained) == 32
    assert not same(params(second, "agent"), jax.device_get(first.agent.reference.params))
    assert not second.simulator.trained
