"""Loading API-Bank's files: counts of the real data, and readable errors for broken data."""

import json
import pathlib
import shutil

import pytest

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.api_bank import calls, lookups, records, rules
from genenv_jax.benchmarks.base import Task

COUNTS = {
    "level-1-api": 399,
    "level-2-api": 135,
    "level-3-batch-inf": 245,
    "level-1-response": 375,
    "level-2-response": 103,
    "level-3-batch-inf-response": 50,
    "lv3-api-train": 907,
    "lv3-response-train": 338,
}


@pytest.fixture(scope="module")
def splits(data_dir):
    """All tasks of the real files."""
    return records.splits(records.find_directory(data_dir))


def test_splits_have_the_official_number_of_tasks(splits):
    assert {name: len(tasks) for name, tasks in splits.items()} == COUNTS
    for name, tasks in splits.items():
        assert len({task.id for task in tasks}) == len(tasks)
        for task in tasks:
            assert task.category == name
            assert Task.from_json(json.loads(json.dumps(task.to_json()))) == task


def test_levels_hold_the_official_number_of_tool_searches_and_samples(splits):
    searches = {
        name: sum(task.answer["name"] == rules.TOOL_SEARCHER for task in splits[name])
        for name in ("level-1-api", "level-2-api", "level-3-batch-inf")
    }
    assert searches == {"level-1-api": 0, "level-2-api": 45, "level-3-batch-inf": 114}
    assert len({task.answer["sample"] for task in splits["level-3-batch-inf"]}) == 50
    called = {task.answer["name"] for task in splits["level-1-api"]}
    assert len(called) == 49


def test_gold_parameters_are_the_dialogues_and_agree_with_what_is_printed(splits, data_dir):
    # Our reader gets from the printed call what the dialogue holds, quoted lists included.
    directory = records.find_directory(data_dir)
    lists = 0
    for name in ("level-1-api", "level-2-api"):
        printed = json.loads((directory / records.SPLITS[name].path).read_text())
        for record, task in zip(printed, splits[name], strict=True):
            call = calls.read_call(record["expected_output"], 4096)
            assert (call.name, dict(call.arguments)) == (
                task.answer["name"],
                task.answer["parameters"],
            )
            lists += any(value.startswith("[") for value in call.arguments.values())
    assert lists == 41


def test_conversations_end_before_the_call(splits):
    for tasks in splits.values():
        for task in tasks:
            text = task.messages[0]["content"]
            assert text.startswith("User:") and "Generate API Request" not in text
            assert "Generate AI Response" not in text


def test_found_apis_bring_their_parameters_types(splits):
    task = splits["level-3-batch-inf"][3]
    assert task.answer["types"]["time"] == "str"
    weather = [t for t in splits["level-3-batch-inf"] if "latitude" in t.answer["parameters"]]
    assert weather and all(t.answer["types"]["latitude"] == "float" for t in weather)
    targets = [
        t.answer["target"]
        for t in splits["level-3-batch-inf"]
        if t.answer["name"] == rules.TOOL_SEARCHER
    ]
    assert len(targets) == 114 and all(targets)


def test_contents_that_must_be_equal_are_few(splits):
    exact = [task.id for tasks in splits.values() for task in tasks if task.answer.get("exact")]
    # Found by content: the data base has another time than the call.
    assert len(exact) == 12
    assert all("Agenda" in task_id or "Reminder" in task_id for task_id in exact)


def test_an_entry_is_found_by_time_or_by_content():
    accounts = {"ann": {"token": "t1"}, "bob": {"token": "t2"}}
    entries = {
        "1": {"username": "bob", "content": "read", "time": "9:00"},
        "2": {"username": "ann", "content": "read", "time": "10:00"},
        "3": {"username": "ann", "content": "cook", "time": "11:00"},
    }

    def exact(api, token, content, time):
        parameters = {"token": token, "content": content, "time": time}
        return lookups.exact_parameters(api, parameters, accounts, entries)

    assert exact("DeleteReminder", "t1", "read", "10:00") == []
    assert exact("DeleteReminder", "t1", "read", "12:00") == ["content"]
    assert exact("DeleteReminder", "t1", "read", "11:00") == ["content"]  # entry 2 comes first
    assert exact("DeleteReminder", "t1", "swim", "11:00") == []
    assert exact("DeleteReminder", "t1", "swim", "12:00") == []
    assert exact("DeleteReminder", "t9", "read", "12:00") == []
    assert exact("AddReminder", "t1", "read", "12:00") == []


def test_data_directory_may_be_given_at_two_levels(data_dir):
    found = {records.find_directory(place).resolve() for place in (data_dir, data_dir / "api-bank")}
    assert len(found) == 1


def test_published_files_pass_and_a_changed_one_does_not(data_dir, tmp_path):
    directory = records.find_directory(data_dir)
    listed = {source.path for source in data_files.sources("api_bank")}
    assert {split.path for split in records.SPLITS.values()} <= listed
    assert set(lookups.PATHS) <= listed
    assert len(records.load(directory, list(COUNTS), verify_files=True)) == sum(COUNTS.values())
    copy = tmp_path / "api-bank"
    shutil.copytree(directory, copy)
    for path in copy.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    path = copy / records.SPLITS["lv3-api-train"].path
    text = path.read_text()
    path.write_text(text.replace("User", "Used", 1))
    with pytest.raises(ValueError, match=r"lv3-api-train.json has SHA-256"):
        records.load(copy, ["lv3-api-train"], verify_files=True)
    path.write_text(text[: len(text) // 2])
    with pytest.raises(ValueError, match="bytes, expected"):
        records.load(copy, ["lv3-api-train"], verify_files=True)
    with pytest.raises(ValueError, match=r"lv3-api-train.json: not JSON"):
        records.load(copy, ["lv3-api-train"])


_TOOL = json.dumps({"name": "Add", "description": "", "input_parameters": {"a": {"type": "int"}}})
_TURNS = [
    {"role": "User", "text": "Add 1."},
    {"role": "API", "api_name": "Add", "param_dict": {"a": "1"}, "result": {"output": 1}},
    {"role": "API", "api_name": "Add", "param_dict": {"a": "2"}, "result": {"output": 3}},
    {"role": "AI", "text": "3"},
]


def _record(**changes):
    return {
        "file": "d.jsonl",
        "id": 0,
        "instruction": f"Call.\nAPI descriptions:\n{_TOOL}",
        "input": "User: Add 1.\nGenerate API Request:\n",
        "expected_output": "API-Request: [Add(a='1')]",
    } | changes


def _write(root: pathlib.Path, *entries, turns=_TURNS) -> pathlib.Path:
    path = root / records.SPLITS["level-1-api"].path
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(entries))
    dialogue = root / "HEAD/lv1-lv2-samples/level-1-given-desc/d.jsonl"
    dialogue.parent.mkdir(parents=True)
    dialogue.write_text("\n".join(json.dumps(turn) for turn in turns))
    return root


def test_a_call_after_a_call_has_two_numbers(tmp_path):
    root = _write(tmp_path, *[_record(id=number) for number in (0, 1, 2)])
    tasks = records.load(root, ["level-1-api"])
    assert [task.answer["parameters"]["a"] for task in tasks] == ["1", "2", "2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": 3}, r"record 1: dialogue d.jsonl has no API turn with the number 3"),
        ({"id": -1}, r"record 1: .* number -1"),
        ({"id": "0"}, r"record 1: 'id' is missing or not a int"),
        ({"file": "../d.jsonl"}, r"record 1: '../d.jsonl' is not the name"),
        ({"input": "User: Add 1."}, r"record 1: the input does not end"),
        ({"instruction": "Call."}, r"record 1: the instruction has no API descriptions"),
        ({"instruction": "API descriptions:\n{"}, r"record 1: an API description is not JSON"),
        ({"instruction": "API descriptions:\n{}"}, r"record 1: an API description lacks"),
    ],
)
def test_a_malformed_record_is_named(tmp_path, change, message):
    root = _write(tmp_path, _record(), _record(**change))
    with pytest.raises(ValueError, match=message):
        records.load(root, ["level-1-api"])


def test_a_malformed_dialogue_is_named_with_its_line(tmp_path):
    root = _write(tmp_path, _record())
    path = root / "HEAD/lv1-lv2-samples/level-1-given-desc/d.jsonl"
    path.write_text('{"role": "User"}\n{"role":')
    with pytest.raises(ValueError, match=r"d.jsonl:2: not JSON"):
        records.load(root, ["level-1-api"])
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"d.jsonl is missing"):
        records.load(root, ["level-1-api"])


def test_a_missing_directory_is_named_with_the_remedy(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"genenv_jax.datasets --name=api_bank"):
        records.find_directory(tmp_path)
    with pytest.raises(ValueError, match=r"split 'level-4': expected one of level-1-api"):
        records.load(tmp_path, ["level-4"])
