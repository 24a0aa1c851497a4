"""API-Bank's scoring, prompts and generations."""

import collections
import dataclasses
import json

import pytest

from bench.bad_answers.common import HOSTILE
from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.api_bank import calls, rouge, scoring
from genenv_jax.benchmarks.api_bank import tasks as records
from genenv_jax.benchmarks.api_bank.benchmark import APIBank
from genenv_jax.benchmarks.base import Rejection, SeedStatistics, Task
from tests.benchmarks.test_calls import FORMS, in_form

TOOL = {
    "name": "AddReminder",
    "description": "Adds a reminder.",
    "input_parameters": {
        "content": {"type": "str", "description": "What of."},
        "count": {"type": "int", "description": "How many."},
        "people": {"type": "list(str)", "description": "Who."},
    },
    "output_parameters": {},
}
_ASKED = {"role": "user", "content": "User: Remind Ann and Bob twice to buy bread."}
_CALL = {
    "kind": "call", "level": 1, "sample": "d", "name": "AddReminder", "target": "",
    "parameters": {"content": "buy fresh bread", "count": "2", "people": "['Ann', 'Bob']"},
    "types": {"content": "str", "count": "int", "people": "list(str)"},
}  # fmt: skip
CALL = Task("c", "api_bank", "level-1-api", (_ASKED,), (TOOL,), _CALL)
HELD_OUT = dataclasses.replace(CALL, origin="eval")
_REPLY = {"kind": "response", "level": 1, "sample": "d", "text": "The reminder was added. Bye."}
REPLY = Task("r", "api_bank", "level-1-response", CALL.messages, (TOOL,), _REPLY)


def _gold(api, kind="str", **parameters):
    """A gold call; all parameters have the same type."""
    types = dict.fromkeys(parameters, kind)
    spec = {"kind": "call", "level": 1, "sample": "d", "target": ""}
    return {**spec, "name": api, "parameters": parameters, "types": types}


def _search(category, target, keywords, **fields):
    """A task whose gold call is a tool search."""
    spec = {**_gold("ToolSearcher", keywords=keywords), "level": 3, "target": target}
    return dataclasses.replace(CALL, category=category, answer=spec, **fields)


@pytest.fixture(scope="module")
def benchmark():
    """Needs no data: the tasks above are scored."""
    return APIBank()


@pytest.fixture(scope="module")
def loaded(api_bank_dir):
    """With made-up or real data."""
    return APIBank(data_dir=api_bank_dir)


@pytest.fixture(scope="module")
def splits(api_bank_dir):
    """All tasks of the data."""
    return records.splits(records.find_directory(api_bank_dir))


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("[A()]", {}),
        ("API-Request: [A(x='1')]", {"x": "1"}),
        ("First I look.\nAPI-Request: [A(x='1', y=\"2\")] Then I tell you.", {"x": "1", "y": "2"}),
        ("[A(x='['Ann', 'Bob']', y='1')]", {"x": "['Ann', 'Bob']", "y": "1"}),
        ("[A(x='[{'name': 'n', 'value': '1'}]')]", {"x": "[{'name': 'n', 'value': '1'}]"}),
        ("[A(x=['Ann', 'Bob'], y=1)]", {"x": "['Ann', 'Bob']", "y": "1"}),
        ("[A(x='Ann's book', y='b')]", {"x": "Ann's book", "y": "b"}),
        (r"[A(x='Ann\'s book')]", {"x": "Ann's book"}),
        ("[A(x='a, b', y='c=d')]", {"x": "a, b", "y": "c=d"}),
        ("[A(x=York, y=15, z=True)]", {"x": "York", "y": "15", "z": "True"}),
        ("[A( x = '1' ,y='2', )]", {"x": "1", "y": "2"}),
        ("[A(x='', y='2')]", {"x": "", "y": "2"}),
        ("[A(x='1', x='2')]", {"x": "2"}),
        ("[1, 2] [A(x='(5+6)*3')]", {"x": "(5+6)*3"}),
    ],
)
def test_calls_are_read_as_they_are_printed(text, arguments):
    call = calls.read_call(text, 1_000)
    assert isinstance(call, calls.Call), call
    assert call.name == "A" and dict(call.arguments) == arguments


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", calls.NO_API_CALL),
        ("A(x='1')", calls.NO_API_CALL),
        ("[A(x='1'", calls.NO_API_CALL),
        ("[A(\nx='1')]", calls.NO_API_CALL),
        ("[A(x='1)]", calls.FAILED_PARSE),
        ("[A('1')]", calls.FAILED_PARSE),
        ("[A(x: '1')]", calls.FAILED_PARSE),
        # The official regular expression reads `New`, nothing, `1`, `ann` and nothing.
        ("[A(x=New York)]", calls.FAILED_PARSE),
        ("[A(x=-1)]", calls.FAILED_PARSE),
        ("[A(x=1.5)]", calls.FAILED_PARSE),
        ("[A(x=ann@example.com)]", calls.FAILED_PARSE),
        ("[A(x=(5*6)/2)]", calls.FAILED_PARSE),
        ("[A(x='1'), B(y='2')]", calls.FAILED_PARSE),
        ("[A(" + "x='1', " * 3 + "y" + ")]", calls.FAILED_PARSE),
        ("[A(" + ", ".join(f"a{i}=1" for i in range(65)) + ")]", calls.FAILED_PARSE),
        ("[A(x='1')]\0", base.NOT_TEXT),
        ("[A(x='" + "1" * 1_000 + "')]", base.TOO_LONG),
    ],
)
def test_unreadable_calls_have_a_reason(text, reason):
    call = calls.read_call(text, 1_000)
    assert isinstance(call, Rejection) and call.reason == reason


def test_training_records_may_lack_the_brackets():
    assert calls.read_gold("API-Request: A(x=New York)").arguments == {"x": "New York"}
    assert isinstance(calls.read_gold("API-Request: none"), Rejection)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, ""),
        ({"count": "02"}, ""),
        ({"count": "2.0"}, scoring.INPUT_MISMATCH),
        ({"content": "Buy bread Fresh"}, ""),  # more than half of the words, in any order and case
        ({"content": "buy white bread"}, scoring.INPUT_MISMATCH),  # exactly half
        ({"people": '["Ann", "Bob"]'}, ""),
        ({"people": "('Ann', 'Bob')"}, ""),
        ({"people": "['Bob', 'Ann']"}, scoring.INPUT_MISMATCH),
        ({"people": "Ann, Bob"}, scoring.INPUT_MISMATCH),
        ({"people": None}, scoring.MISSING_PARAMETER),
        ({"priority": "1"}, scoring.INVALID_PARAMETER),
    ],
)
def test_parameters_are_compared_by_the_rules_of_their_api(benchmark, arguments, reason):
    merged = {**CALL.answer["parameters"], **arguments}
    text = calls.write_call("AddReminder", {k: v for k, v in merged.items() if v is not None})
    score = benchmark.score(HELD_OUT, f"API-Request: {text}")
    assert (score.reason, score.success, score.valid) == (reason, not reason, True)
    in_training = benchmark.score(CALL, f"API-Request: {text}")
    reordered = arguments.get("content") == "Buy bread Fresh"
    assert in_training.success == (not reason and not reordered)
    assert score.reward == in_training.reward == float(in_training.success)


@pytest.mark.parametrize(
    ("answer", "sixths"),
    [
        ("[AddReminder(content='buy fresh bread', count='2', people='['Ann', 'Bob']')]", 6),
        ("[AddReminder(content='buy fresh bread', count='3', people='['Ann', 'Bob']')]", 2 + 2 / 3),
        ("[AddReminder(content='fresh bread buy', count='2', people='['Ann', 'Bob']')]", 2 + 2 / 3),
        ("[AddReminder(content='buy fresh bread', count='2')]", 1 + 2 / 3 + 2 / 3),
        ("[AddReminder(content='x', count='x', people='x', priority='1')]", 1 + 3 / 4),
        ("[AddReminder()]", 1),
        ("[DeleteReminder(content='buy fresh bread', count='2', people='['Ann', 'Bob']')]", 0),
        ("[AddReminder(count='2'), AddReminder(count='3')]", 0),
        ("[]", 0),
        ("I will remind you.", 0),
        ("", 0),
    ],
)
def test_a_graded_reward_counts_names_arguments_and_values(benchmark, answer, sixths):
    exact, graded = benchmark.score(CALL, answer), APIBank(reward="graded").score(CALL, answer)
    assert graded == dataclasses.replace(exact, reward=pytest.approx(sixths / 6))
    assert APIBank(reward="graded").score(HELD_OUT, answer) == benchmark.score(HELD_OUT, answer)


@pytest.mark.parametrize(
    ("api", "parameter", "gold", "same", "other"),
    [
        ("QueryHistoryToday", "date", "10-06", "2023-10-6", "10-07"),
        ("QueryHistoryToday", "date", "02-29", "2-29", "02-28"),
        ("QueryHistoryToday", "date", "today", "today", "10-06"),
        ("QueryStock", "date", "2022-03-04", " 2022-3-4 ", "2022-03-05"),
        ("QueryStock", "stock_code", "SQ", "sq ", "S Q"),
        ("TimedSwitch", "time", "2022-03-01 22:00:00", "2022-3-1 22:0:0", "2022-03-01"),
        ("TimedSwitch", "device_id", "a1", "A1", "a2"),
        ("Calculator", "formula", "(5+6)*3", "(5 + 6) * 3", "3*(5+6)"),
        ("Translate", "tgt_lang", "fr", "French", "German"),
        ("Translate", "tgt_lang", "zh-cn", "Chinese", "Traditional Chinese"),
        ("Dictionary", "keyword", "ice cream", "Ice_cream", "ice"),
        ("AddScene", "name", "Movie", "movie ", "film"),
        (
            "AddScene",
            "devices",
            "[{'name': 'TV', 'description': 'on'}, {'name': 'lamp', 'description': 'off'}]",
            "[{'name': 'Lamp', 'description': 'off '}, {'name': 'tv', 'description': 'on'}]",
            "[{'name': 'tv', 'description': 'on'}]",
        ),
        ("AddScene", "devices", "[{'name': 'TV'}]", "[{'name': 'tv'}]", "['tv']"),
        ("RecordHealthData", "health_data", "[{'name': 'a'}]", "[{'name': 'b'}]", "none"),
        (
            "RecordHealthData",
            "health_data",
            "[{'name': 'pulse', 'value': '70'}]",
            "[{'name': 'pulse', 'value': '99'}]",  # officially not compared
            "[{'name': 'pulse'}, {'name': 'pulse'}]",
        ),
        ("SendEmail", "receiver", "ann@example.com", "ann@EXAMPLE.com", "ANN@example.com"),
        ("EmailReminder", "content", "Come.", "Do come!", None),
        ("DeleteReminder", "content", "a", "b", None),
        ("AddAgenda", "content", "a b c", "c b a", "A B C"),
        ("GetUserToken", "password", "Ann1", "Ann1", "ann1"),
    ],
)
def test_official_relaxations(api, parameter, gold, same, other):
    spec = _gold(api, **{parameter: gold})
    for value, reason in ((gold, ""), (same, ""), (other, scoring.INPUT_MISMATCH)):
        if value is not None:
            call = calls.Call(api, {parameter: value})
            assert scoring.mismatch(call, spec) == reason, value
    assert scoring.mismatch(calls.Call(api, {}), spec) == scoring.MISSING_PARAMETER


@pytest.mark.parametrize(
    ("kind", "gold", "same", "other"),
    [
        ("float", "74.0060", "74.006", "74.0061"),
        ("float", "-74", "-74.0", "74"),
        ("bool", "True", "True", "true"),
        ("bool", "False", "off", "True"),
        ("str", "1", "1", "1.0"),
        ("list", "[1, 'a']", "['1', 'a']", "[1]"),
        ("list(dict)", "[{'a': 1}]", "[{'a': '1'}]", "[{'a': 2}]"),
    ],
)
def test_types_are_cast_as_officially(kind, gold, same, other):
    spec = _gold("A", kind, x=gold)
    assert scoring.mismatch(calls.Call("A", {"x": same}), spec) == ""
    assert scoring.mismatch(calls.Call("A", {"x": other}), spec) == scoring.INPUT_MISMATCH


def test_renamed_parameter_has_two_names():
    spec = _gold("TimedSwitch", device_id="7")
    for name, same in (("name", True), ("device_id", True), ("id", False)):
        reason = scoring.mismatch(calls.Call("TimedSwitch", {name: "7"}), spec)
        assert (not reason) == same


@pytest.mark.parametrize(
    ("keywords", "exact", "words"),
    [
        ("QueryMeeting", True, True), ("query meeting", True, True), (" Query  Meeting", True, True),
        ("query meeting tool", False, True),
        ("meeting finder", False, True),  # the tool's name
        ("hotel", False, False), ("", False, False),
    ],
)  # fmt: skip
def test_keywords_of_a_tool_search(benchmark, keywords, exact, words):
    task = _search("level-3-batch-inf", "MeetingFinder", "QueryMeeting", origin="eval")
    text = f"[ToolSearcher(keywords='{keywords}')]"
    score = benchmark.score(task, text)
    assert (score.success, score.detail["tool_search_words"]) == (exact, words)
    assert APIBank(tool_search="words").score(task, text).success == words


@pytest.mark.parametrize(
    ("keywords", "pays"),
    [
        ("book restaurant table", True),
        ("Table Restaurant book", True),  # as sets of words
        ("table", False),  # a third
        ("restaurant table", True),
        ("book restaurant table bread", True),  # one word of the conversation
        ("book restaurant table zebra", False),
        ("book restaurant table bread twice", False),
        ("book restaurant table table", False),
        ("book restaurant table book restaurant table", False),
    ],
)
def test_a_tool_search_is_not_padded(keywords, pays):
    """CALL's conversation contains "bread" and "twice"; the gold search found `ReserveRestaurantTable`."""
    task = _search("lv3-api-train", "ReserveRestaurantTable", "book restaurant table")
    score = APIBank(tool_search="words").score(task, f"[ToolSearcher(keywords='{keywords}')]")
    assert (score.reward == 1.0, score.success) == (pays, pays)


# Where the official rules are loose: (API, parameter, type, gold, what they accept, what is also rewarded).
_OPEN = [
    ("AddReminder", "content", "str", "buy fresh bread", "buy fresh bread zebra umbrella", None),
    ("AddReminder", "content", "str", "buy fresh bread", "buy fresh", None),
    ("AddMeeting", "meeting_topic", "str", "two new hires today", "two new hires", "2 new hires today"),
    ("DeleteAgenda", "location", "str", "Room 5", "nowhere", "room five"),
    ("DeleteMeeting", "attendees", "list(str)", "['Ann', 'Bob']", "[]", '["Ann", "Bob"]'),
    ("EmailReminder", "content", "str", "Come.", "Anything at all", "come"),
    ("RecordHealthData", "health_data", "list(dict)", "[{'name': 'pulse', 'value': '70'}]",
     "[{'name': 'invented'}]", '[{"value": 70, "name": "pulse"}]'),
    ("TimedSwitch", "on", "bool", "False", "banana", "false"),
    ("Translate", "tgt_lang", "str", "Chinese", "chinese banana", "zh-cn"),
    ("Translate", "tgt_lang", "str", "zh-tw", "notchinese traditional", "Traditional Chinese"),
]  # fmt: skip


@pytest.mark.parametrize(("api", "parameter", "kind", "gold", "accepted", "paid"), _OPEN)
def test_what_the_official_rules_leave_open_is_not_paid(
    benchmark, api, parameter, kind, gold, accepted, paid
):
    spec = _gold(api, kind, **{parameter: gold})
    for origin in ("eval", "seed", "generated"):
        task = dataclasses.replace(CALL, answer=spec, origin=origin)
        held_out = origin == "eval"
        score = benchmark.score(task, calls.write_call(api, {parameter: accepted}))
        assert (score.reward, score.success, score.valid) == (0.0, held_out, True)
        assert score.reason == ("" if held_out else scoring.INPUT_MISMATCH)
        for value in filter(None, (gold, paid)):
            score = benchmark.score(task, calls.write_call(api, {parameter: value}))
            assert score.reward == 1.0, value
            assert score.success or (held_out and value == paid)


@pytest.mark.data
def test_held_out_calls_with_what_nobody_asked_for_earn_nothing(data_dir):
    """All calls of the three levels: the score accepts most of these changes, the reward rejects all."""
    counts = collections.Counter()
    benchmark = APIBank(data_dir=data_dir, tool_search="words")
    for task in benchmark.tasks("eval"):
        spec = task.answer
        for parameter, gold in spec["parameters"].items():
            changes = {
                "invented": "[{'name': 'invented', 'value': 'nothing'}]",
                "never compared": "something else",
                "banana": "banana",
                "padding": f"{gold} zebra",
                "padded search": f"{gold} zebra umbrella",
            }
            rule = scoring.rule_of(spec["name"], parameter)
            kind = {scoring.health_data: "invented", scoring.given: "never compared"}.get(rule)
            if rule in (scoring.most_words, scoring.most_folded_words):
                kind = "padding"
            elif spec["name"] == records.TOOL_SEARCHER and parameter == "keywords":
                kind = "padded search"
            elif spec["types"].get(parameter) in ("bool", "boolean"):
                kind = "banana"
            if kind:
                changed = {**spec["parameters"], parameter: changes[kind]}
                score = benchmark.score(task, calls.write_call(spec["name"], changed))
                counts[kind, "accepted"] += score.success
                counts[kind, "paid"] += score.reward
    assert {kind: counts[kind, "accepted"] for kind, _ in counts} == {
        "invented": 22, "never compared": 27, "padding": 54, "padded search": 44, "banana": 1,
    }  # fmt: skip
    assert not any(count for (_, what), count in counts.items() if what == "paid")


def test_rouge_l_equals_the_package(splits):
    package = pytest.importorskip("rouge").Rouge()
    of_replies = [name for name in splits if records.SPLITS[name].kind == records.RESPONSE]
    replies = [task.answer["text"] for name in of_replies for task in splits[name]]
    shifted = replies[7:] + replies[:7]
    pairs = list(zip(replies, shifted, strict=True))
    pairs += [(text, text.lower()[: len(text) // 2] + ".  . x") for text in replies]
    pairs += [(text, " ".join(reversed(text.split()))) for text in replies]
    pairs += [("a b. c d", "c d. a b. e"), ("a a b", "a b b"), ("Hi.", " "), ("a.b.c", "b.a")]
    nonzero = 0
    for reference, prediction in pairs:
        expected = package.get_scores(prediction, reference)[0]["rouge-l"]["f"]
        assert rouge.rouge_l(reference, prediction) == pytest.approx(expected, abs=1e-12)
        nonzero += expected > 0
    assert nonzero > 0.6 * len(pairs)


def test_rouge_l_of_nothing_is_zero():
    # The package raises an error; the official evaluators count an empty prediction as 0.
    assert rouge.rouge_l("a", "") == rouge.rouge_l("a", "...") == rouge.rouge_l("", "a") == 0.0


def test_an_empty_value_at_the_end_is_officially_passed_over(benchmark):
    answer = benchmark.agent_answer(HELD_OUT).replace(")]", ", note='')]")
    assert benchmark.score(HELD_OUT, answer).success and not benchmark.score(CALL, answer).success
    assert not benchmark.score(HELD_OUT, answer.replace("''", "'x'")).success


def test_replies_are_scored_by_rouge_l(benchmark):
    score = benchmark.score(REPLY, benchmark.agent_answer(REPLY))
    assert score.reward == 1.0 and score.success and score.detail == {"rouge_l": 1.0}
    half = benchmark.score(REPLY, "The reminder was lost.")
    assert 0 < half.reward < 1 and half.detail["rouge_l"] == half.reward
    assert benchmark.score(REPLY, "AI: Nothing at all").reason == "low_rouge_l"
    assert not benchmark.score(REPLY, "").valid
    # Only the level-3 evaluator strips the speaker's name.
    third = Task("r", "api_bank", "x", CALL.messages, (TOOL,), {**REPLY.answer, "level": 3})
    text = "AI: " + REPLY.answer["text"]
    assert benchmark.score(third, text).reward == 1.0 > benchmark.score(REPLY, text).reward


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_replies_in_bounded_time(bounded, benchmark, name):
    text = HOSTILE[name]
    score = benchmark.score(REPLY, text)
    assert not score.success and score.reward < 0.5 and score.reason
    searched = f"User: x\nAPI-Request: [ToolSearcher(keywords='x')]->{text}"
    task = benchmark.parse(_generation(task=searched, answer="[A(x='1')]"), CALL, "g", 0)
    assert isinstance(task, Rejection) or benchmark.verify(task) is not None


@pytest.mark.parametrize(
    "text",
    [
        "[A(" + "x=' , " * 2_000 + ")]", "[A(x='" + "' " * 4_000 + ")]",
        "[A(x='" + "', a" * 1_600 + ")]", "[A(x=" + ", " * 4_000 + ")]",
        "[A(x=" + "[" * 8_000 + ")]", "[A(" * 2_600 + ")]", "[A(x='1'" + " " * 8_000 + ")]",
        "\n" * 4_000 + "[a" * 2_000,
    ],
)  # fmt: skip
def test_repetition_costs_no_more_than_its_length(bounded, benchmark, text):
    assert not benchmark.score(CALL, text).success


@pytest.mark.parametrize(
    ("reference", "prediction"),
    [
        ("a " * 512, "b " * 4_000),
        ("a " * 512, "a b " * 2_000),
        ("a b. " * 200, "a. " * 2_700),
        ("".join(f"{i}a. " for i in range(180)), "".join(f"a {i}. " for i in range(1_000))),
        ("".join(f"a {i}. " for i in range(150)), "".join(f"{i} a. " for i in range(1_000))),
    ],
)
def test_the_longest_reply_is_scored_in_time(bounded, benchmark, reference, prediction):
    spec = {**REPLY.answer, "text": reference}
    long = Task("r", "api_bank", "x", CALL.messages, (TOOL,), spec)
    assert len(reference) <= 1_024 and 6_000 < len(prediction) <= 8_192
    assert benchmark.score(long, prediction).valid


def test_gold_answers_earn_full_reward_and_come_back_from_their_text(loaded, splits):
    for name, tasks in splits.items():
        results = [(task, loaded.score(task, loaded.agent_answer(task))) for task in tasks]
        assert all(score.reward == 1.0 for _, score in results), name
        found = loaded.aggregate(results)
        assert found["accuracy"] == 1.0
        if records.SPLITS[name].kind == records.RESPONSE:
            assert found["rouge_l"] == pytest.approx(1.0)
        elif name == "level-3-batch-inf":
            assert found["sample_accuracy"] == 1.0 and found["tool_search_errors"] == 0.0
        for task in tasks:
            written = loaded.parse(loaded.simulator_answer(task), task, "g", 3)
            assert (written.messages, written.tools) == (task.messages, task.tools)
            for key in ("kind", "level", "name", "parameters", "types", "text"):
                assert written.answer.get(key) == task.answer.get(key)


def test_a_level_on_both_sides_is_divided_by_dialogue(api_bank_dir):
    of = {"seed_splits": ["level-1-api", "level-1-response"], "eval_splits": ["level-1-api"]}
    benchmark = APIBank(data_dir=api_bank_dir, **of)
    seeds, held_out = benchmark.tasks("seed"), benchmark.tasks("eval")
    shown = {task.answer["sample"] for task in held_out}
    assert {task.answer["sample"] for task in seeds}.isdisjoint(shown)
    assert len(seeds) > len(held_out) > 0


def test_prompts_state_what_is_needed(loaded):
    seeds = loaded.tasks("seed")
    assert len({loaded.canonical(task) for task in seeds}) == len(seeds)
    for task in (*seeds, *loaded.tasks("eval")):
        agent = loaded.agent_messages(task)
        assert task.messages[0]["content"] in agent[1]["content"]
        assert all(tool["name"] in agent[0]["content"] for tool in task.tools)
        assert ("2023" in agent[0]["content"]) == (task.answer["level"] < 3)
    assert "ToolSearcher" not in loaded.agent_messages(CALL)[0]["content"]
    _, given, seed, asked = loaded.simulator_messages(REPLY, SeedStatistics())
    assert json.dumps([TOOL]) in given["content"] and "has not tried" in asked["content"]
    assert seed["role"] == "assistant"
    assert seed["content"].endswith(f"New Answer: {REPLY.answer['text']}")


# -- tools in the chat template -----------------------------------------------------------------------------

ARGUMENTS = '{"content": "buy fresh bread", "count": 2, "people": ["Ann", "Bob"]}'
RIGHT = f'{{"name": "AddReminder", "arguments": {ARGUMENTS}}}'
OWN = "[AddReminder(content='buy fresh bread', count='2', people='['Ann', 'Bob']')]"


@pytest.fixture(scope="module")
def in_template():
    return in_form(APIBank(), "hermes")


def _shown(task):
    tools, *others = in_form(APIBank(), "hermes").agent_messages(task)
    return [entry["function"] for entry in json.loads(tools["content"])], others


def test_the_template_shows_the_apis_and_the_conversation(in_template):
    (tool,), (system, request) = _shown(CALL)
    assert tool["name"] == "AddReminder"
    types = {name: of["type"] for name, of in tool["parameters"]["properties"].items()}
    assert types == {"content": "string", "count": "integer", "people": "array"}
    assert tool["parameters"]["properties"]["people"]["items"] == {"type": "string"}
    assert "2023" in system["content"] and "ApiName" not in system["content"]
    assert CALL.messages[0]["content"] in request["content"]
    assert in_template.agent_messages(REPLY) == APIBank().agent_messages(REPLY)


def test_the_template_shows_what_a_search_found(in_template):
    found = {"name": "Run", "input_parameters": {"far": {"type": "int", "description": None}}}
    dialogue = f"User: Run.\nAPI-Request: [ToolSearcher(keywords='run')]->{[found]}"
    messages = ({"role": "user", "content": dialogue},)
    answer = {**_gold("Run", "int", far="3"), "level": 3}
    searched = dataclasses.replace(CALL, messages=messages, answer=answer)
    tools, (system, _) = _shown(searched)
    assert [tool["name"] for tool in tools] == ["AddReminder", "Run"]
    assert tools[1]["parameters"]["properties"]["far"]["type"] == "integer"
    assert "ToolSearcher" in system["content"] and "2023" not in system["content"]
    bare = "<function=Run><parameter=far>3</parameter></function>"
    assert in_template.score(searched, bare).reward == 1.0


@pytest.mark.parametrize("kind", ["list(list(int))", "list(", "?", "", 5, None, "datetime"])
def test_any_type_is_shown_as_some_schema(kind):
    tool = {**TOOL, "input_parameters": {"x": {"type": kind, "description": ["?"]}}}
    (shown,), _ = _shown(dataclasses.replace(CALL, tools=(tool,)))
    assert shown["parameters"]["properties"]["x"]["type"] in ("string", "array")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (f"<tool_call>\n{RIGHT}\n</tool_call>", ""),
        (RIGHT.replace('["Ann", "Bob"]', "\"['Ann', 'Bob']\"").replace("2", '"2"'), ""),
        ("[AddReminder(content='buy fresh bread', count=2, people=['Ann', 'Bob'])]", ""),
        (OWN, ""),
        (f"API-Request: {OWN}", ""),
        (RIGHT.replace("2", "2.5"), scoring.INPUT_MISMATCH),
        (RIGHT.replace("2", "null"), scoring.INPUT_MISMATCH),
        (RIGHT.replace("count", "number"), scoring.INVALID_PARAMETER),
        (RIGHT.replace("AddReminder", "AddReminders"), scoring.NAME_MISMATCH),
        (RIGHT.replace("AddReminder", "Add.Reminder"), calls.NO_API_CALL),
        (f"{RIGHT}\n{RIGHT}", calls.FAILED_PARSE),
        (f"<tool_call>{RIGHT}</tool_call>\n<tool_call>{RIGHT[:-1]}", calls.NO_API_CALL),
        (RIGHT[:-1], calls.NO_API_CALL),
        ("[]", calls.NO_API_CALL),
        (f"[A(x={'9' * 3_000})]", scoring.NAME_MISMATCH),
        (f"[A(x=0x{'f' * 5_000})]", scoring.NAME_MISMATCH),
        ("I cannot help.", calls.NO_API_CALL),
        (RIGHT + "\0", base.NOT_TEXT),
        (f"{RIGHT}\n" * 10_000, base.TOO_LONG),
    ],
)
def test_calls_as_the_template_asks_for_them(in_template, answer, reason):
    score = in_template.score(HELD_OUT, answer)
    assert (score.reason, score.success) == (reason, not reason)
    assert score.valid == (not reason or "match" in reason or "parameter" in reason)


@pytest.mark.parametrize("form", FORMS)
def test_references_in_the_templates_form_earn_full_reward(form, api_bank_dir):
    made, text = in_form(APIBank(data_dir=api_bank_dir), form), APIBank(data_dir=api_bank_dir)
    for split in ("seed", "eval"):
        assert made.tasks(split) == text.tasks(split)
        for task in made.tasks(split):
            answer = made.agent_answer(task)
            assert made.score(task, answer).reward == 1.0, answer
            assert answer != text.agent_answer(task)
            assert made.simulator_answer(task) == text.simulator_answer(task)
    assert made.score(CALL, made.agent_answer(CALL)).reward == 1.0


def _generation(tools="same", task="User: Remind me to run.\nAI: Of what?\nUser: Of running.",
                answer="[AddReminder(content='run', count='1')]"):  # fmt: skip
    return f"New Tools: {tools}\nNew Task: {task}\nNew Answer: {answer}"


def test_a_good_generation_becomes_a_task(benchmark):
    task = benchmark.parse(_generation(), CALL, "g", 1)
    assert isinstance(task, Task) and benchmark.verify(task) is None
    assert benchmark.score(task, "[AddReminder(count='1', content='run')]").reward == 1.0
    new = [{**TOOL, "name": "Remind"}]
    text = _generation(json.dumps(new), answer="API-Request: [Remind(content='run')]")
    task = benchmark.parse(text, CALL, "g", 1)
    assert benchmark.verify(task) is None and task.tools == tuple(new)
    assert benchmark.parse(benchmark.simulator_answer(task), CALL, "g", 1) == task


def test_a_found_api_may_be_called(benchmark):
    found = {"name": "Run", "description": "Runs.", "input_parameters": {"far": {"type": "int"}}}
    dialogue = (
        "User: Run.\nAPI-Request: [AddReminder(content='run')]->{}\n"
        f"API-Request: [ToolSearcher(keywords='run')]->{found}"
    )
    task = benchmark.parse(_generation(task=dialogue, answer="[Run(far='3')]"), CALL, "g", 1)
    assert benchmark.verify(task) is None and task.answer["types"] == {"far": "int"}
    assert "->" not in benchmark.text(task)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tools": "none"}, base.BAD_TOOLS),
        ({"tools": "[]"}, base.BAD_TOOLS),
        ({"tools": '[{"name": "x"}]'}, base.BAD_TOOLS),
        ({"tools": '[{"name": "a b", "input_parameters": {}}]'}, base.BAD_TOOLS),
        ({"tools": json.dumps([TOOL, TOOL])}, base.BAD_TOOLS),
        ({"task": "Remind me."}, base.UNPARSABLE),
        ({"task": "User: " + "a" * 9_000}, base.TOO_LONG),
        ({"task": "User: x\nNew Task: y"}, base.UNPARSABLE),
        ({"answer": "AddReminder"}, base.BAD_ANSWER),
        ({"answer": "[Other(content='run')]"}, base.BAD_TOOLS),
        ({"answer": "[AddReminder(when='now')]"}, base.BAD_ANSWER),
        ({"answer": "[AddReminder(content='')]"}, base.BAD_ANSWER),
    ],
)
def test_bad_generations_have_a_reason(benchmark, change, reason):
    found = benchmark.parse(_generation(**change), CALL, "g", 1)
    if isinstance(found, Task):
        found = benchmark.verify(found)
    assert isinstance(found, Rejection) and found.reason == reason


def test_what_is_generated_is_bounded(benchmark):
    task = benchmark.parse(_generation(answer="Done."), REPLY, "g", 1)
    assert benchmark.verify(task) is None
    task = benchmark.parse(_generation(answer="a " * 600), REPLY, "g", 1)
    assert benchmark.verify(task).reason == base.TOO_LONG
    long = dataclasses.replace(CALL, messages=({"role": "user", "content": "x" * 13_000},))
    assert benchmark.verify(long).reason == base.TOO_LONG


def test_metrics_have_the_official_names(loaded):
    tasks = loaded.tasks("eval")
    level_3 = [task for task in tasks if task.category == "level-3-batch-inf"]
    wrong = level_3[0]
    results = [(t, loaded.score(t, "" if t is wrong else loaded.agent_answer(t))) for t in tasks]
    found = loaded.aggregate(results)
    assert next(iter(found)) == "level-1-api/accuracy"
    assert found["level-1-api/accuracy"] == found["level-2-api/accuracy"] == 1.0
    samples = {task.answer["sample"] for task in level_3}
    assert found["level-3-batch-inf/accuracy"] == pytest.approx(1 - 1 / len(level_3))
    assert found["level-3-batch-inf/sample_accuracy"] == pytest.approx(1 - 1 / len(samples))
    assert found["calls/accuracy"] == pytest.approx(1 - 1 / len(tasks))
    # A bootstrap sample may contain a task twice.
    twice = {"accuracy": 1.0, "accuracy_executed": 1.0}
    assert loaded.aggregate([results[0], results[0]]) == twice
    assert loaded.aggregate([]) == {"accuracy": 0.0}
