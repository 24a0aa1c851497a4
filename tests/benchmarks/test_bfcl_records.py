"""Loading BFCL files: contents of small ones, and errors that name file and line."""

import json

import pytest

from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.bfcl.categories import CONVERSATION, MULTI_TURN, STATIC_MATCH, names
from genenv_jax.benchmarks.bfcl.files import find_directory
from genenv_jax.benchmarks.bfcl.tasks import load, split_key, splits
from genenv_jax.benchmarks.subsets import stable_position
from tests.benchmarks import bfcl_tasks
from tests.benchmarks.published import published


@pytest.mark.parametrize("version", ["v3", "v4"])
def test_every_category_of_a_version(tmp_path, version):
    found = splits(bfcl_tasks.write(tmp_path, version), version)
    assert set(found) == {*names(version), *(f"{name}_turns" for name in MULTI_TURN)}
    for name, tasks in found.items():
        assert len(tasks) == bfcl_tasks.COUNT * (3 if name.endswith("_turns") else 1)
        assert len({task.id for task in tasks}) == len(tasks)
        for task in tasks:
            assert task.category == name.removesuffix("_turns")
            assert task.id.startswith(task.category)
            assert Task.from_json(json.loads(json.dumps(task.to_json()))) == task


def test_data_directory_may_be_given_at_three_levels(tmp_path):
    bfcl_tasks.write(tmp_path)
    places = (tmp_path, tmp_path / "bfcl", tmp_path / "bfcl" / "v4")
    assert len({find_directory("v4", place).resolve() for place in places}) == 1


def test_turns_carry_history_and_their_own_reference(tmp_path):
    tasks = load("v4", ["multi_turn_long_context"], bfcl_tasks.write(tmp_path))
    turns = [task for task in tasks if task.id.startswith("multi_turn_long_context_0:")]
    assert [task.id.split(":")[1] for task in turns] == ["turn0", "turn1", "turn2"]
    for index, task in enumerate(turns):
        assert [m["role"] for m in task.messages] == ["user", "assistant"] * index + ["user"]
        assert task.answer["rule"] == STATIC_MATCH
    # A later turn shows the earlier requests and calls, not its own calls.
    assert turns[1].messages[:1] == turns[0].messages
    assert turns[1].messages[1]["content"] == "[touch('Oslo')]"
    # Positional arguments in the file become named.
    assert turns[2].answer["ground_truth"] == [
        {"cd": {"folder": [".."]}}, {"cat": {"file_name": ["notes"]}},
    ]  # fmt: skip


def test_withheld_functions_are_announced_at_their_turn(bfcl_dir):
    tasks = load("v4", ["multi_turn_miss_func"], bfcl_dir, "eval", CONVERSATION)
    for task in tasks:
        known = {tool["name"] for tool in task.tools}
        first, *turns = [[m["content"] for m in messages] for messages in task.answer["turns"]]
        assert not [said for said in first if "From now on" in said]
        (announced,) = (said for of in turns for said in of if "From now on" in said)
        names = {json.loads(line)["name"] for line in announced.splitlines()[:-1]}
        assert names and not names & known


def test_a_record_and_its_answer(tmp_path):
    first = load("v4", ["multiple"], bfcl_tasks.write(tmp_path), origin="eval")[0]
    request = "What is the weather in Oslo for 2 days?"
    assert first.messages == ({"role": "user", "content": request},)
    assert first.answer == {
        "kind": "multiple", "language": "python", "rule": "ast", "same_tools": True,
        "ground_truth": [{"weather.get": {"city": ["Oslo", "OSLO"], "days": [2, ""]}}],
    }  # fmt: skip
    assert first.origin == "eval"
    assert [tool["name"] for tool in first.tools] == ["book", "weather.get"]


def _edit(directory, path, number, changes):
    """Changes fields of one record of a file, or replaces it by a text."""
    file = directory / "bfcl" / "v4" / path
    lines = file.read_text().splitlines()
    if isinstance(changes, dict):
        changes = json.dumps(json.loads(lines[number]) | changes)
    lines[number] = changes
    file.write_text("\n".join(lines))


SINGLE, MULTI = "BFCL_v4_multiple.json", "BFCL_v4_multi_turn_base.json"
ANSWERS, MULTI_ANSWERS = f"possible_answer/{SINGLE}", f"possible_answer/{MULTI}"
NO_REQUIRED = {"name": "f", "parameters": {"properties": {}, "required": 1}}


@pytest.mark.parametrize(
    ("path", "changes", "message"),
    [
        (SINGLE, "{not json", r"BFCL_v4_multiple.json:2: not JSON"),
        (SINGLE, "[]", r":2: expected an object"),
        (SINGLE, {"id": 3}, r":2: 'id' is missing or not a str"),
        (SINGLE, {"id": "x"}, r":2: no possible_answer for x"),
        (SINGLE, {"question": "x"}, r":2: 'question' is missing or not a list"),
        (SINGLE, {"question": [["x"]]}, r":2: a turn of 'question' is not a list of messages"),
        (SINGLE, {"question": [[{"role": "user", "content": "Go."}], []]}, r":2: expected one turn, found 2"),
        *(
            (kind, {"question": question}, r":2: the first turn of 'question' has no request")
            for kind in (SINGLE, MULTI)
            for question in ([], [[]], [[{"role": "user", "content": " "}]])
        ),
        (SINGLE, {"function": [{}]}, r":2: a function has no name"),
        (SINGLE, {"function": [{"name": "f"}]}, r":2: function f has no parameters.properties"),
        (SINGLE, {"function": [NO_REQUIRED]}, r":2: function f: 'required' is not a list"),
        (ANSWERS, {"ground_truth": 1}, r"answer.*:2: 'ground_truth' is missing or not a list"),
        (ANSWERS, {"ground_truth": ["f"]}, r"answer.*:2: a call is not an object with one key"),
        (ANSWERS, {"ground_truth": [{"f": {"a": 1}}]}, r"answer.*:2: f: expected a list of options"),
        (MULTI, {"involved_classes": ["Robot"]}, r":2: unknown class 'Robot'"),
        (MULTI, {"initial_config": []}, r":2: 'initial_config' is missing or not a dict"),
        (MULTI, {"missed_function": {"9": ["ls"]}}, r":2: 'missed_function' is not an object"),
        (MULTI_ANSWERS, {"ground_truth": [[1]]}, r"answer.*:2: expected a list of call strings"),
        (MULTI_ANSWERS, {"ground_truth": [["ls("], [], []]}, r"answer.*:2.* calls do not parse"),
        (MULTI_ANSWERS, {"ground_truth": [["ls(a=1)"], [], []]}, r"answer.*:2, turn 0: ls: unknown"),
        ("multi_turn_func_doc/gorilla_file_system.json", {"name": 3}, r":2: a function has no name"),
    ],
)  # fmt: skip
def test_malformed_records_are_named_by_file_and_line(tmp_path, path, changes, message):
    directory = bfcl_tasks.write(tmp_path)
    _edit(directory, path, 1, changes)
    name = "multiple" if path in (SINGLE, ANSWERS) else "multi_turn_base"
    with pytest.raises(ValueError, match=message):
        load("v4", [name], directory)


def test_turns_that_do_not_fit_their_answer_are_left_out(tmp_path):
    """The number of turns differs, or a function is offered only later."""
    directory = bfcl_tasks.write(tmp_path)
    _edit(directory, MULTI_ANSWERS, 1, {"ground_truth": [["ls()"]]})
    assert len(load("v4", ["multi_turn_base"], directory)) == 3 * (bfcl_tasks.COUNT - 1)
    name = "multi_turn_miss_func"
    truth = [["cat('notes')"], [], [], ["cat('notes')"]]
    _edit(directory, f"possible_answer/BFCL_v4_{name}.json", 1, {"ground_truth": truth})
    ids = [task.id for task in load("v4", [name], directory, rule=STATIC_MATCH)]
    assert [task_id for task_id in ids if "_1:" in task_id] == [f"{name}_1:turn3"]


def test_a_file_that_was_not_published_is_rejected(tmp_path):
    directory = bfcl_tasks.write(tmp_path)
    with published("bfcl", tmp_path), pytest.raises(ValueError, match="no upstream file 'v4/"):
        load("v4", ["irrelevance"], directory, verify_files=True)


def test_missing_places_are_named(tmp_path):
    directory = bfcl_tasks.write(tmp_path)
    for path in (ANSWERS, SINGLE):
        (directory / "bfcl" / "v4" / path).unlink()
        with pytest.raises(FileNotFoundError, match=f"{path} is missing"):
            load("v4", ["multiple"], directory)


def test_split_is_stable_and_keeps_conversations_together():
    keys = {split_key(f"multi_turn_{kind}_7:turn{turn}")
            for kind in ("base", "long_context") for turn in range(3)}  # fmt: skip
    assert keys == {"multi_turn_7"}
    assert split_key("live_simple_0-1-2") == "live_simple_0-1-2"
    # Fixed: a different value would move evaluation tasks into training.
    assert stable_position("multi_turn_7") == pytest.approx(0.4297, abs=1e-4)
