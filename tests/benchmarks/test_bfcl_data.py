"""Loading BFCL files: counts of the real data, and readable errors for broken data."""

import json

import pytest

from genenv_jax.benchmarks import choice
from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.bfcl import records

COUNTS = {
    "v4": {
        "simple_python": 400, "simple_java": 100, "simple_javascript": 50, "multiple": 200,
        "parallel": 200, "parallel_multiple": 200, "live_simple": 258, "live_multiple": 1053,
        "live_parallel": 16, "live_parallel_multiple": 24, "irrelevance": 240,
        "live_irrelevance": 884, "live_relevance": 16, "multi_turn_long_context": 731,
        "multi_turn_base": 731,
    },
    "v3": {
        "simple": 400, "java": 100, "javascript": 50, "multiple": 200, "parallel": 200,
        "parallel_multiple": 200, "live_simple": 258, "live_multiple": 1053, "live_parallel": 16,
        "live_parallel_multiple": 24, "irrelevance": 240, "live_irrelevance": 882,
        "live_relevance": 18,
    },
}  # fmt: skip


@pytest.mark.parametrize("version", ["v3", "v4"])
def test_real_files_have_the_official_number_of_tasks(data_dir, version):
    for category, count in COUNTS[version].items():
        tasks = records.load(version, [category], data_dir)
        assert len(tasks) == count, category
        assert len({task.id for task in tasks}) == count
        for task in tasks:
            assert task.category == category and task.id.startswith(category)
            assert Task.from_json(json.loads(json.dumps(task.to_json()))) == task


def test_data_directory_may_be_given_at_three_levels(data_dir):
    found = {
        records.find_directory("v4", place).resolve()
        for place in (data_dir, data_dir / "bfcl", data_dir / "bfcl" / "v4")
    }
    assert len(found) == 1


def test_turns_carry_history_and_their_own_reference(data_dir):
    tasks = records.load("v4", ["multi_turn_long_context"], data_dir)
    turns = [task for task in tasks if task.id.startswith("multi_turn_long_context_0:")]
    assert [task.id.split(":")[1] for task in turns] == ["turn0", "turn1", "turn2", "turn3"]
    for index, task in enumerate(turns):
        assert [m["role"] for m in task.messages] == ["user", "assistant"] * index + ["user"]
        assert task.answer["rule"] == records.STATIC_MATCH
    # A later turn shows the earlier requests and calls, and not its own calls.
    assert turns[1].messages[:1] == turns[0].messages
    assert sum(len(task.answer["ground_truth"]) for task in tasks) == 1203


def test_positional_reference_arguments_are_named(data_dir):
    path = data_dir / "bfcl" / "v4" / "possible_answer" / "BFCL_v4_multi_turn_long_context.json"
    first = json.loads(path.read_text().splitlines()[0])
    assert first["ground_truth"][2][0].startswith("sort('")  # positional in the file
    tasks = records.load("v4", ["multi_turn_long_context"], data_dir)
    truth = next(t for t in tasks if t.id == "multi_turn_long_context_0:turn2").answer
    assert list(truth["ground_truth"][0]["sort"]) == ["file_name"]


def test_derived_turns_agree_with_the_loader(data_dir):
    path = data_dir / "bfcl" / "DERIVED" / "multi_turn_long_context_turns.jsonl"
    if not path.is_file():
        pytest.skip("no independently parsed turns in the data directory")
    tasks = {t.id: t for t in records.load("v4", ["multi_turn_long_context"], data_dir)}
    seen = 0
    for line in path.read_text().splitlines():
        row = json.loads(line)
        task = tasks.get(f"{row['id']}:turn{row['turn']}")
        assert (task is None) == (not row["gold_parsed"])
        if task is None:
            continue
        seen += 1
        for call, expected in zip(task.answer["ground_truth"], row["gold_parsed"], strict=True):
            name, options = next(iter(call.items()))
            given = {
                key: o[0]
                for key, o in options.items()
                if o[0] != "" or key in expected["parameters"]
            }
            assert name == expected["name"]
            assert {k: _first(v) for k, v in given.items()} == expected["parameters"]
    assert seen == 731


def _first(option):
    return {k: v[0] for k, v in option.items()} if isinstance(option, dict) else option


def _write(directory, records, answers):
    (directory / "possible_answer").mkdir(parents=True, exist_ok=True)
    for path, rows in (
        (directory / "BFCL_v4_multiple.json", records),
        (directory / "possible_answer" / "BFCL_v4_multiple.json", answers),
    ):
        path.write_text("".join(r if isinstance(r, str) else json.dumps(r) + "\n" for r in rows))


def _record(**changes):
    function = {
        "name": "f", "description": "",
        "parameters": {"type": "dict", "properties": {}, "required": []},
    }  # fmt: skip
    record = {
        "id": "multiple_0", "question": [[{"role": "user", "content": "Do it."}]],
        "function": [function],
    }  # fmt: skip
    return record | changes


ANSWER = {"id": "multiple_0", "ground_truth": [{"f": {}}]}


def test_a_small_file_loads(tmp_path):
    _write(tmp_path, [_record(), "\n"], [ANSWER])
    (task,) = records.load("v4", ["multiple"], tmp_path, origin="eval")
    assert task.messages == ({"role": "user", "content": "Do it."},)
    assert task.answer["ground_truth"] == [{"f": {}}] and task.origin == "eval"


@pytest.mark.parametrize(
    ("lines", "answers", "message"),
    [
        ([_record(), "{not json\n"], [ANSWER], r"BFCL_v4_multiple.json:2: not JSON"),
        (["[]\n"], [ANSWER], r":1: expected an object"),
        ([_record(id=3)], [ANSWER], r":1: 'id' is missing"),
        ([_record(question="x")], [ANSWER], r":1: 'question' is missing or not a list"),
        ([_record(question=[["x"]])], [ANSWER], r":1: a turn of 'question'"),
        ([_record(question=[[], []])], [ANSWER], r":1: expected one turn, found 2"),
        ([_record(function=[{}])], [ANSWER], r":1: a function has no name"),
        ([_record(function=[{"name": "f"}])], [ANSWER], r"f has no parameters.properties"),
        ([_record()], [], r":1: no possible_answer for multiple_0"),
        ([_record()], [{"id": "multiple_0"}], r"possible_answer.*:1: 'ground_truth'"),
        ([_record()], [ANSWER | {"ground_truth": ["f"]}], r"a call is not an object"),
        (
            [_record()],
            [ANSWER | {"ground_truth": [{"f": {"a": 1}}]}],
            r"expected a list of options",
        ),
    ],
)
def test_malformed_records_are_named_by_file_and_line(tmp_path, lines, answers, message):
    _write(tmp_path, lines, answers)
    with pytest.raises(ValueError, match=message):
        records.load("v4", ["multiple"], tmp_path)


def test_missing_places_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="GENENV_DATA"):
        records.load("v4", ["multiple"], tmp_path / "nowhere")
    _write(tmp_path, [_record()], [ANSWER])
    with pytest.raises(FileNotFoundError, match="BFCL_v4_parallel.json"):
        records.load("v4", ["parallel"], tmp_path)
    (tmp_path / "possible_answer" / "BFCL_v4_multiple.json").unlink()
    with pytest.raises(FileNotFoundError, match="possible_answer"):
        records.load("v4", ["multiple"], tmp_path)


def test_unknown_names_list_what_is_known(tmp_path):
    with pytest.raises(ValueError, match="simple_python"):
        records.load("v4", ["simple"], tmp_path)
    with pytest.raises(ValueError, match="v3, v4"):
        records.categories("v5")


def test_split_is_stable_and_keeps_conversations_together():
    keys = {records.split_key(f"multi_turn_{kind}_7:turn{turn}")
            for kind in ("base", "long_context") for turn in range(3)}  # fmt: skip
    assert keys == {"multi_turn_7"}
    assert records.split_key("live_simple_0-1-2") == "live_simple_0-1-2"
    # Fixed forever: changing it would move evaluation tasks into training.
    assert choice.position("multi_turn_7") == pytest.approx(0.4297, abs=1e-4)
