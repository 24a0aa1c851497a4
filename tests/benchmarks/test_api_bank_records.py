"""Loading API-Bank's files: contents of small ones, and errors that name file and record."""

import json

import pytest

from genenv_jax.benchmarks.api_bank import tasks as records
from tests.benchmarks import api_bank_files

LEVEL_1 = records.SPLITS["level-1-api"].path
LEVEL_2 = records.SPLITS["level-2-api"].path
LEVEL_3 = records.SPLITS["level-3-batch-inf"].path
TRAINING = records.SPLITS["lv3-api-train"].path
DIALOGUE = "HEAD/lv1-lv2-samples/level-1-given-desc/Ada-level-1.jsonl"


@pytest.fixture
def directory(tmp_path):
    """Small files that a test may change."""
    return api_bank_files.write(tmp_path / "api-bank")


def test_calls_and_replies_of_three_levels(directory):
    splits = records.splits(directory)
    assert [len(splits[name]) for name in records.SPLITS] == [8, 16, 16, 8, 8, 8, 17, 8]
    ada = splits["level-1-api"][0]
    assert (ada.id, ada.answer["sample"]) == ("level-1-api:Ada-level-1:0", "Ada-level-1.jsonl")
    wish = "User: This is Ada, ada-0451. Forget that I water the fern at 0:00."
    assert ada.messages == ({"role": "user", "content": wish},)
    assert [tool["name"] for tool in ada.tools] == ["DeleteReminder", "BookTable"]
    # The database has the first reminder at another time, the second at the call's.
    exact = [task.answer.get("exact") for task in splits["level-1-api"][:3]]
    assert exact == [["content"], None, None]
    search, book = splits["level-2-api"][:2]
    assert search.answer["target"] == "BookTable" and search.answer["name"] == "ToolSearcher"
    # The conversation's search provides the types.
    kinds = {"guest": "str", "seats": "int", "dishes": "list(str)"}
    assert book.id.endswith(":2") and book.answer["types"] == kinds
    assert book.answer["parameters"]["dishes"] == "['soup', 'pie']"
    searched = "API-Request: [ToolSearcher(keywords='book a table')]->{'name'"
    assert searched in book.messages[0]["content"]
    last = splits["level-3-batch-inf"][-1]
    assert last.id == "level-3-batch-inf:7:1" and last.answer["parameters"]["seats"] == "9"
    assert last.tools[0]["name"] == "ToolSearcher" and last.answer["types"] == kinds
    assert splits["level-1-response"][0].answer["text"] == "It is done, Ada. Anything else?"
    assert splits["lv3-response-train"][0].answer["text"] == "Booked for Ada."
    assert splits["lv3-api-train"][15].answer["parameters"] == {"guest": "Hugo", "seats": "19"}
    for tasks in splits.values():
        for task in tasks:
            assert "Generate" not in task.messages[0]["content"]


def test_a_call_after_a_call_has_two_numbers(directory):
    """The dialogue's second call is also the turn after the first call."""
    path = directory / LEVEL_2
    record = json.loads(path.read_text())[1]
    path.write_text(json.dumps([record | {"id": number} for number in (0, 1, 2)]))
    names = [task.answer["name"] for task in records.load(directory, ["level-2-api"])]
    assert names == ["ToolSearcher", "BookTable", "BookTable"]


def test_an_entry_is_found_by_time_or_by_content():
    accounts = {"ann": {"token": "t1"}, "bob": {"token": "t2"}}
    entries = {
        "1": {"username": "bob", "content": "read", "time": "9:00"},
        "2": {"username": "ann", "content": "read", "time": "10:00"},
        "3": {"username": "ann", "content": "cook", "time": "11:00"},
    }

    def exact(token, content, time):
        parameters = {"token": token, "content": content, "time": time}
        return records.exact_parameters(parameters, accounts, entries)

    assert exact("t1", "read", "10:00") == []
    assert exact("t1", "read", "12:00") == ["content"]
    assert exact("t1", "read", "11:00") == ["content"]  # entry 2 comes first
    assert exact("t1", "swim", "11:00") == []
    assert exact("t1", "swim", "12:00") == []
    assert exact("t9", "read", "12:00") == []


@pytest.mark.parametrize(
    ("path", "change", "message"),
    [
        (LEVEL_1, {"id": 3}, r"record 1: dialogue Bert-level-1.jsonl has no API turn with the number 3"),
        (LEVEL_1, {"id": -1}, r"record 1: .* number -1"),
        (LEVEL_1, {"id": "0"}, r"record 1: 'id' is missing or not a int"),
        (LEVEL_1, {"file": "../d.jsonl"}, r"record 1: '../d.jsonl' is not the name"),
        (LEVEL_1, {"input": "User: Add 1."}, r"record 1: the input does not end"),
        (LEVEL_1, {"instruction": "Call."}, r"record 1: the instruction has no API descriptions"),
        (LEVEL_1, {"instruction": "API descriptions:\n{"}, r"record 1: an API description is not JSON"),
        (LEVEL_1, {"instruction": "API descriptions:\n{}"}, r"record 1: an API description lacks"),
        (LEVEL_3, {"sample_id": 99}, r"record 1: level-3.json has no call 1 of sample 99"),
        (LEVEL_3, {"api_id": True}, r"record 1: 'api_id' is missing or not a int"),
        (TRAINING, {"output": "none"}, r"record 1: the output is not a call: no_api_call"),
    ],
)  # fmt: skip
def test_a_malformed_record_is_named(directory, path, change, message):
    found = json.loads((directory / path).read_text())
    found[1] |= change
    (directory / path).write_text(json.dumps(found))
    name = next(name for name, split in records.SPLITS.items() if split.path == path)
    with pytest.raises(ValueError, match=message):
        records.load(directory, [name])


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        (LEVEL_1, "[", r"level-1-api.json: not JSON"),
        (LEVEL_1, "{}", r"level-1-api.json: expected a list of records"),
        (LEVEL_1, "[5]", r"level-1-api.json: record 0: expected an object"),
        (DIALOGUE, '{"role": "User"}\n{"role":', r"Ada-level-1.jsonl:2: not JSON"),
        (DIALOGUE, "\n\n[1]", r"Ada-level-1.jsonl:3: expected an object"),
        (records.ACCOUNTS, '{"Ada": 5}', r"Account.json: expected an object of objects"),
        (api_bank_files.LEVEL_3, '[{"apis": 5}]', r"level-3.json: record 0: 'apis' is missing"),
    ],
)
def test_a_malformed_file_is_named(directory, path, text, message):
    (directory / path).write_text(text)
    with pytest.raises(ValueError, match=message):
        records.splits(directory)
    (directory / path).unlink()
    with pytest.raises(FileNotFoundError, match=f"{(directory / path).name} is missing"):
        records.splits(directory)
