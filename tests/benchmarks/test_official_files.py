"""Answers in the files of the official evaluators: written, read back, and scored as before."""

import json

import pytest

from genenv_jax.benchmarks.api_bank.benchmark import APIBank
from genenv_jax.benchmarks.base import Score
from genenv_jax.benchmarks.bfcl import official_files
from genenv_jax.benchmarks.bfcl.benchmark import BFCL
from genenv_jax.benchmarks.travelplanner.benchmark import TravelPlanner
from genenv_jax.config import validate
from genenv_jax.configs.bfcl import get_config as bfcl_config
from genenv_jax.evaluate.__main__ import run
from genenv_jax.evaluate.official import Recorded, read_official, write_official
from genenv_jax.players.build import make_benchmark
from genenv_jax.scoring.attempts import Attempt, attempt
from genenv_jax.scoring.scorer import Scorer, ScoringConfig
from tests.benchmarks.bfcl_tasks import conversation, seed_task
from tests.toy import Toy

SINGLE = ("simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "irrelevance",
          "live_simple")  # fmt: skip


def _attempts(tasks, of):
    made = [Attempt(t, 0, (of(t),), True, Score(0.0, False, False)) for t in tasks]
    return [[attempt] for attempt in made]


def _again(benchmark, attempts, directory, writer=None):
    """Success by task id, scored from the files of these attempts."""
    write_official(writer or benchmark, attempts, directory)
    tasks = [of[0].task for of in attempts]
    answers, others = read_official(benchmark, tasks, directory)
    assert others == 0
    with Scorer(benchmark, str, ScoringConfig()) as scorer:
        scored = attempt(benchmark, tasks, Recorded(tasks, answers), scorer)
    return {of[0].task.id: of[0].score.success for of in scored}


@pytest.mark.parametrize("template", ["", "<tool_call>\n{}\n</tool_call>"], ids=["text", "template"])
def test_bfcl_single_turns_come_back(bfcl_dir, tmp_path, template):
    benchmark = BFCL(data_dir=bfcl_dir, eval_categories=SINGLE, seed_categories=("live_multiple",))
    if template:
        benchmark.use_template(template.format('{"name": "f", "arguments": {"a": 1}}'))
    by_name = {name: [t for t in benchmark.tasks("eval") if t.category == name] for name in SINGLE}
    tasks = [t for of in by_name.values() for t in of[:12]]
    plain = BFCL(data_dir=bfcl_dir, eval_categories=SINGLE, seed_categories=("live_multiple",))
    for right in (True, False):
        answer = benchmark.agent_answer if right else lambda task: "f("
        attempts = _attempts(tasks, answer)
        found = _again(plain, attempts, tmp_path / str(right), benchmark)
        assert {t.category for t in tasks} == set(SINGLE)
        expected = {t.id: right or t.category == "irrelevance" for t in tasks}
        lost = [name for name in expected if found[name] != expected[name]]
        # The template writes Java's mixed collections as strings, which have no text for the decoder.
        assert len(lost) <= bool(template) and all(name.startswith("simple_java_") for name in lost)
    for name in ("non_live/BFCL_v4_simple_java_result.json", "live/BFCL_v4_live_simple_result.json"):
        lines = (tmp_path / "True" / name).read_text().splitlines()
        assert set(json.loads(lines[0])) == {"id", "result"}


def test_calls_of_the_chat_template_are_written_as_python():
    task, calls = seed_task(), '{"name": "weather_get", "arguments": {"city": "Oslo"}}'
    tagged = f"<tool_call>\n{calls}\n</tool_call>"
    assert official_files.result_of(task, [tagged], True) == "[weather.get(city='Oslo')]"
    assert official_files.result_of(task, [tagged], False) == tagged
    assert official_files.result_of(task, [], True) == ""
    assert official_files.result_of(task, ["I cannot."], True) == "I cannot."


def test_function_calling_results_are_read(bfcl_dir):
    task = seed_task()
    called = [{"weather_get": '{"city": "Oslo", "days": 2}'}]
    assert official_files.answer_of(task, called) == "[weather.get(city='Oslo', days=2)]"
    # A model's arguments may be anything; such a call is wrong, and reading continues.
    benchmark = BFCL(data_dir="nowhere")
    cut, no_json = '{"city": "Oslo', '{"city": NaN'
    for broken in (cut, "[]", "null", "[" * 99_999, no_json, "\ud800", "9" * 9_999, 3):
        read = official_files.answer_of(task, [{"weather_get": broken}])
        score = benchmark.score(task, read)
        assert (score.success, score.valid) == (False, False)
    of = {"eval_categories": ("simple_java",), "seed_categories": ("multiple",)}
    java = BFCL(data_dir=bfcl_dir, **of).tasks("eval")[0]
    tool = java.tools[0]
    properties = tool["parameters"]["properties"].items()
    values = {name: "it is" if of["type"] == "String" else "7" for name, of in properties}
    read = official_files.answer_of(java, [{tool["name"].replace(".", "_"): json.dumps(values)}])
    assert read.startswith(tool["name"] + "(")
    assert read.count('="it is"') == sum(v == "it is" for v in values.values())


def test_a_conversation_is_split_into_its_turns():
    task = conversation([["touch('a')"], ["ls()"]])
    answers = ["[touch(file_name='a')]", "Done.", "[ls()]", "[]"]
    turns = [answers[:2], answers[2:]]
    assert official_files.result_of(task, answers, False) == turns
    assert json.loads(official_files.answer_of(task, turns)) == turns
    tagged = '<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>'
    assert official_files.result_of(task, [tagged, "Done."], True) == [["[ls()]", "Done."]]
    assert official_files.result_of(task, ["[ls()]"] * 30, False)[0] == ["[ls()]"] * 21
    called = [[[{"touch": '{"file_name": "a"}'}], "Done."], [[{"ls": "{}"}], "Done."]]
    read = json.loads(official_files.answer_of(task, called))
    assert read == [["[touch(file_name='a')]", "Done."], ["[ls()]", "Done."]]
    with pytest.raises(ValueError, match="list of turns"):
        official_files.answer_of(task, "text")


def test_plans_of_travelplanner_come_back(travelplanner_dir, tmp_path):
    benchmark = TravelPlanner(data_dir=travelplanner_dir)
    tasks = benchmark.tasks("eval")[:4]
    for right in (True, False):
        said = benchmark.agent_answer if right else lambda t: "no plan"
        found = _again(benchmark, _attempts(tasks, said), tmp_path / str(right))
        assert found == {t.id: right for t in tasks}
    (file,) = (tmp_path / "False").iterdir()
    row = json.loads(file.read_text().splitlines()[0])
    assert row["plan"] is None and set(row) == {"idx", "query", "plan"}


def test_calls_of_api_bank_come_back(api_bank_dir, tmp_path):
    benchmark = APIBank(data_dir=api_bank_dir)
    tasks = [t for t in benchmark.tasks("eval") if t.answer["level"] < 3][:20]
    for right in (True, False):
        said = benchmark.agent_answer if right else lambda t: "no call"
        found = _again(benchmark, _attempts(tasks, said), tmp_path / str(right))
        assert found == {t.id: right for t in tasks}


def test_the_command_scores_files(bfcl_dir, tmp_path):
    """A directory of official files in place of a model: verdicts, a page, and the same files again."""
    config = bfcl_config()
    names = ("simple_python", "parallel")
    config.benchmark.update(data_dir=str(bfcl_dir), verify_files=False)
    config.benchmark.seed_categories = ("multiple",)
    config.benchmark.update(eval_categories=names, max_eval=8, seed_fraction=0.5)
    benchmark = make_benchmark(validate(config), need_seeds=False, recorded=True)
    tasks = benchmark.tasks("eval")
    attempts = _attempts(tasks[1:], lambda t: "f()" if t == tasks[1] else benchmark.agent_answer(t))
    write_official(benchmark, attempts, tmp_path / "given")
    (tmp_path / "out").mkdir()
    found = run(config, "", str(tmp_path / "out"), answers=str(tmp_path / "given"))
    right = json.loads((tmp_path / "out" / "verdicts.jsonl").read_text().splitlines()[0])
    assert right["task_id"] == tasks[1].id and right["successes"] == 0
    assert found["eval/test/greedy/accuracy"]["tasks"] == len(tasks) - 1
    assert found["eval/test/greedy/valid_share"]["value"] == 1.0
    for file in (tmp_path / "given").rglob("*.json"):
        again = tmp_path / "out" / "official" / "greedy" / file.relative_to(tmp_path / "given")
        assert again.read_text() == file.read_text()
    assert (tmp_path / "out" / "report.html").exists()
    with pytest.raises(ValueError, match="--answers: expected no --model"):
        run(config, "model", str(tmp_path / "out"), answers="x")


def test_a_benchmark_without_official_files_says_so(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"id": "a"}\n')
    with pytest.raises(ValueError, match=r"answers.jsonl:1: benchmark 'toy' has no official files"):
        read_official(Toy(), [], path)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "answers.json:1: "),
        ("[]", "answers.json:1: expected an object"),
        (b"\xff", "answers.json:1: not JSON"),
        ('{"id": "parallel_0"}', 'expected "id", a text, and "result"'),
        ('{"id": "parallel_0", "result": 3}', "answers.json:1: result: expected a text"),
        ('\n{"id": "parallel_0", "result": ""}\n{"id": "parallel_0", "result": ""}',
         "answers.json:3: a second answer to parallel_0"),
        ("[" * 9_999, "answers.json:1: "),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(tmp_path, text, error):
    path, benchmark = tmp_path / "answers.json", BFCL(data_dir="nowhere")
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=r"answers\.json") as caught:
        read_official(benchmark, [seed_task()], path)
    assert error in str(caught.value)
    path.write_text('{"id": "another_0", "result": "[f(\u2028)]"}\n')
    assert read_official(benchmark, [seed_task()], tmp_path) == ({}, 1)
    with pytest.raises(FileNotFoundError, match="expected .json"):
        (tmp_path / "empty").mkdir()
        read_official(benchmark, [seed_task()], tmp_path / "empty")
