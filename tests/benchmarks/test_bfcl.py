"""The BFCL benchmark object: splits, prompts, scores, aggregates."""

import dataclasses
import itertools
import json

import pytest

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Score, SeedStatistics
from genenv_jax.benchmarks.bfcl import fitting, prompts
from genenv_jax.benchmarks.bfcl.benchmark import BFCL
from genenv_jax.benchmarks.bfcl.turns import NO_REFUSAL
from tests.benchmarks.bfcl_tasks import WEATHER, generation, seed_task
from tests.redteam.bfcl_irrelevance import BROKEN


@pytest.fixture
def benchmark():
    """A benchmark whose data is never read."""
    return BFCL(data_dir="nowhere")


def _parse(benchmark, text, seed=None):
    return benchmark.parse(text, seed or seed_task(), "g0", 3)


def _held_out(task):
    return dataclasses.replace(task, origin="eval")


@pytest.mark.parametrize(
    ("answer", "reason", "valid"),
    [
        ("[weather.get(city='oslo', days=2)]", "", True),
        ("[weather.get(city='Oslo')]", "", True),
        ("weather.get(city='Oslo')", "", True),
        ("[weather.get(city='Bergen')]", "value_error_string", True),
        ("[weather.get(city='Oslo', days='2')]", "type_error_simple", True),
        ("[weather.get(city='Oslo', days=3)]", "value_error_others", True),
        ("[weather.get(city='Oslo', unit='C')]", "unexpected_param", True),
        ("[weather.get(days=2)]", "missing_required", True),
        ("[weather(city='Oslo')]", "wrong_func_name", True),
        ("[weather.get(city='Oslo')] * 2", "decoder_failed", False),
        ("[]", "wrong_count", True),
        ("I cannot help.", "decoder_failed", False),
        ("", "empty", False),
        ("\0", "not_text", False),
        ("[weather.get(city='" + "a" * 20_000 + "')]", "too_long", False),
        ("[weather.get('Oslo')]", "missing_required", True),
    ],
)
def test_scores_carry_the_official_reason(benchmark, answer, reason, valid):
    score = benchmark.score(seed_task("simple"), answer)
    assert score == Score(float(not reason), not reason, valid, reason)


_OSLO = {"weather.get": {"city": ["Oslo"], "days": [2, ""]}}
_ROME = {"weather.get": {"city": ["Rome"]}}


@pytest.mark.parametrize(
    ("truth", "answer", "sixths"),
    [
        ([_OSLO], "[weather.get(city='Oslo')]", 6),
        ([_OSLO], "[weather.get(city='Bergen')]", 1 + 1 + 0),
        ([_OSLO], "[weather.get(city='Bergen', days=2)]", 1 + 1 + 1 / 2),
        ([_OSLO], "[weather.get(days=2)]", 1 + 1 / 2 + 1 / 2),
        ([_OSLO], "[weather.get(city='Oslo', unit='C')]", 1 + 1 / 2 + 1 / 2),
        ([_OSLO], "[weather.get(city=['Oslo', 'Rome'], days=float('nan'))]", 1 + 1 + 0),
        ([_OSLO], "[weather.get()]", 1),
        ([_OSLO], "[weather(city='Oslo', days=2)]", 0),
        ([_OSLO], "[weather.get(city='Oslo'), book(guests=1)]", 3 / 2),
        ([_OSLO], f"[{', '.join(['weather.get()'] * 128)}]", 1 / 128),
        ([_OSLO], f"[{', '.join(['weather.get()'] * 129)}]", 0),
        ([_OSLO], f"[{', '.join(['weather.get()'] * 10_000)}]", 0),
        ([_OSLO, _ROME], "[weather.get(city='Oslo')]", 3 / 2),
        ([_OSLO, _ROME], "[weather.get(city='Bergen'), weather.get(city='Oslo')]", (2 + 3) / 2),
        ([{"book": {"guests": [2]}}, _ROME], "[weather.get(city='Rome')]", 3 / 2),
        ([_OSLO], "[]", 0),
        ([_OSLO], "weather.get in Oslo", 0),
        ([_OSLO], "", 0),
    ],
)
@pytest.mark.parametrize("rule", ["ast", "static_match"])
def test_a_graded_reward_counts_names_arguments_and_values(benchmark, rule, truth, answer, sixths):
    task = seed_task("simple" if len(truth) == 1 else "parallel", rule, truth=truth)
    exact, graded = benchmark.score(task, answer), BFCL(reward="graded").score(task, answer)
    assert graded == dataclasses.replace(exact, reward=pytest.approx(sixths / 6))
    held_out = _held_out(task)
    assert BFCL(reward="graded").score(held_out, answer) == benchmark.score(held_out, answer)


def test_a_graded_reward_compares_values_as_the_rule_does():
    graded, answer = BFCL(reward="graded"), "[weather.get(city='oslo', unit='C')]"
    assert graded.score(seed_task(), answer).reward == pytest.approx(1 / 3)
    assert graded.score(seed_task(rule="static_match"), answer).reward == pytest.approx(1 / 4)


@pytest.mark.parametrize("kind", ["irrelevance", "relevance"])
def test_where_no_call_is_compared_nothing_is_graded(benchmark, kind):
    task = seed_task(kind, truth=[])
    for answer in ("[weather.get()]", "[]", "[weather.get("):
        assert BFCL(reward="graded").score(task, answer) == benchmark.score(task, answer)


_IRRELEVANT = seed_task("irrelevance", category="irrelevance", truth=[])
_RELEVANT = seed_task("relevance", category="live_relevance", truth=[])


def test_irrelevance_and_relevance(benchmark):
    call = "[weather.get(city='Oslo')]"
    assert benchmark.score(_RELEVANT, "No.") == Score(0.0, False, False, "decoder_failed")
    assert not benchmark.score(_RELEVANT, "[]").success
    for task, answer, wrong in ((_IRRELEVANT, "[]", call), (_RELEVANT, call, "[]")):
        assert benchmark.verify(task) is None
        made = _parse(benchmark, generation(answer=answer), task)
        assert benchmark.verify(made) is None
        assert _parse(benchmark, generation(answer=wrong), task).reason == base.BAD_ANSWER


_WRONG, _OFFICIALLY_RIGHT = Score(0.0, False, False, NO_REFUSAL), Score(0.0, True, False, NO_REFUSAL)
_CALLED = Score(0.0, False, True, "decoder_success")


@pytest.mark.parametrize(
    ("answer", "trained", "held_out"),
    [
        *((answer, Score(1.0, True, True), Score(1.0, True, True)) for answer in (
            "I cannot help.", "None of the functions can do that.", "Sorry, I can't.",
            "I could call weather.get, but the city (a required value) is missing.",
            "The function(s) listed do not help here: days = 2 is unknown.",
            "```\nNo function fits.\n```", "[None of them fits.]", "(No function fits.)",
            "None fits; `weather.get()` does not either.", "weather.get() is for the weather alone.",
            "我无法回答这个问题。", "[]",
        )),
        # What is no call only because it is broken, or prose that is not read: officially correct.
        *((form.format("weather.get"), _WRONG, _OFFICIALLY_RIGHT) for form in ("", *BROKEN.values())),
        ('To boil it:\nx = weather.get(1)\nprint(f"{x} minutes")', _WRONG, _OFFICIALLY_RIGHT),
        ('<tool_call>\n{"name": "weather.get"}\n</tool_call>\n' * 130, _WRONG, _OFFICIALLY_RIGHT),
        ("I can run weather.get(1)" + " and that" * 200 + " or -1" * 300, _WRONG, _OFFICIALLY_RIGHT),
        # What is not evaluated does not hide a call: officially, it decodes.
        *((f"[weather.get(city={value})]", _WRONG, _WRONG) for value in (
            "len('a') + 1", "b'x' + b'y'", "'%s' % 'a'", "{1} | {2}", "str(f'{1}')", "['a'][0] + 'b'",
            "[" * 70 + "]" * 70, "f'{x}'", "-" * 300 + "1",
        )),
        ("weather.get(x=1 if y else f'{x}')", _WRONG, _WRONG),
        ("[weather.get(days=10**100)]", _CALLED, _CALLED),
        # Officially also a call; we do not compute its value.
        ("[weather.get(days=10**1000)]", *[Score(0.0, False, False, base.TOO_LONG)] * 2),
    ],
)  # fmt: skip
def test_where_no_call_is_wanted_words_are_right_and_nothing_hides_a_call(
    benchmark, answer, trained, held_out
):
    assert benchmark.score(_IRRELEVANT, answer) == trained
    assert benchmark.score(_held_out(_IRRELEVANT), answer) == held_out


def test_a_refusal_where_there_are_no_functions(benchmark):
    toolless = dataclasses.replace(_IRRELEVANT, tools=())
    assert benchmark.score(toolless, "(((").reason == NO_REFUSAL
    assert benchmark.score(toolless, "There is no function (not one).").reward == 1.0


def test_relevance_pays_for_a_call_of_a_listed_function(benchmark):
    for call in ("[x()]", "print()", "[weather.get()]", "[weather.get(city='Oslo', x=1)]"):
        assert benchmark.score(_RELEVANT, call) == Score(0.0, False, True, "no_such_call")
        assert benchmark.score(_held_out(_RELEVANT), call) == Score(0.0, True, True)
    assert benchmark.score(_RELEVANT, "[weather.get(city='Oslo')]").reward == 1.0


def test_static_match_takes_positional_arguments_and_defaults(benchmark):
    truth = [{"weather.get": {"city": ["Oslo"], "days": ["", 1]}}, {"book": {"guests": [2]}}]
    task = seed_task(rule="static_match", category="multi_turn_long_context", truth=truth)
    for written in ("weather.get('Oslo'), book(2)", "weather.get('Oslo', days=1), book(guests=2)"):
        assert benchmark.score(task, f"[{written}]") == Score(1.0, True, True)
    assert not benchmark.score(task, "[weather.get('Oslo', 2), book(2)]").success
    assert benchmark.score(task, "[weather.get('Oslo')]").reason == "wrong_count"
    many = benchmark.score(task, "[weather.get('Oslo', 1, 'C', 4), book(2)]")
    assert many.reason == "decoder_failed"
    made = _parse(benchmark, generation(answer="[weather.get('Rome'), book(3)]"), task)
    assert benchmark.verify(made) is None
    assert made.answer["ground_truth"][0]["weather.get"] == {"city": ["Rome"], "days": ["", 1]}
    made = _parse(benchmark, generation(answer="[weather.get('Rome', 1)]"), task)
    assert made.answer["ground_truth"][0]["weather.get"] == {"city": ["Rome"], "days": [1, ""]}


def test_agent_prompt_shows_every_tool_and_the_tasks_system_message(benchmark):
    seed = seed_task()
    system = {"role": "system", "content": "Speak kindly."}
    asked = dataclasses.replace(seed, messages=(system, *seed.messages))
    messages = benchmark.agent_messages(asked)
    assert [m["role"] for m in messages] == ["system", "user"]
    text = messages[0]["content"]
    assert text.endswith("Speak kindly.") and messages[1] == seed.messages[0]
    for expected in ('"weather.get"', "string, required. The city.", "integer, default 1",
                     "string in ['C', 'F']", "array of string"):  # fmt: skip
        assert expected in text


def test_signatures_shrink_to_the_space_there_is():
    full = prompts.tool_text([WEATHER], 10_000)
    short = prompts.tool_text([WEATHER], len(full) - 1)
    least = prompts.tool_text([WEATHER], 0)
    assert len(full) > len(short) > len(least)
    assert "It needs a city." in full and "It needs a city." not in short
    for text in (full, short, least):
        parameters = json.loads(text)["parameters"]
        assert list(parameters) == ["city", "days", "unit"]
        assert parameters["city"].startswith("string, required")
        assert "default 1" in parameters["days"] and "['C', 'F']" in parameters["unit"]


def test_nested_types_are_written_in_a_few_levels():
    schema = {"type": "string"}
    for _ in range(6):
        schema = {"type": "array", "items": schema}
    person = {"name": {"type": "string"}, "age": {"type": "integer"}}
    properties = {
        "deep": schema,
        "who": {"type": "dict", "properties": person, "required": ["name"]},
        "any": {"type": "array", "items": "none"},
        "odd": {"type": "dict", "properties": person, "required": 5},
    }
    tool = WEATHER | {"parameters": {"type": "dict", "properties": properties, "required": []}}
    parameters = json.loads(prompts.signature(tool))["parameters"]
    assert parameters == {
        "deep": " of ".join(["array"] * 5 + ["any"]),
        "who": "dict {name: string, age?: integer}",
        "any": "array of any",
        "odd": "dict {name: string, age: integer}",
    }


def test_the_oldest_messages_are_left_out_of_a_long_conversation(monkeypatch):
    def shown(log, space):
        monkeypatch.setattr(prompts, "MAX_CHARS", space)
        return prompts.agent_messages(seed_task(), log)

    def message(role, number):
        return {"role": role, "content": f"{role} {number} " + "word " * 100}

    pairs = [message(role, number) for number in range(20) for role in ("user", "assistant")]
    fitted = shown([*pairs, message("user", 20)], 6_000)
    assert sum(len(m["content"]) for m in fitted) <= 6_000
    assert "user 20" in fitted[-1]["content"] and len(fitted) > 4
    # Within the latest request, the oldest answers are dropped; the request stays.
    log = [message("user", 0), *(message("assistant", number) for number in range(20))]
    text = "".join(m["content"] for m in shown(log, 6_000))
    assert "user 0" in text and "assistant 19" in text and "assistant 0" not in text
    # The minimum may exceed the space.
    assert len(shown(log, 100)) == 3


def test_results_are_shortened_by_what_they_are_in_tokens():
    def shown(symbols):
        results = fitting.results_message(["get_watchlist"], [str(symbols)])
        log = [{"role": "user", "content": "Which?"}, results]
        return prompts.agent_messages(seed_task(), log)[-1]["content"]

    # Made-up symbols have about two letters per token, words about six.
    symbols = ["QXZVK", "WJHGB"] * 400
    capitals, small = shown(symbols), shown([symbol.lower() for symbol in symbols])
    assert len(capitals) < len(small) < prompts.MAX_CHARS


@pytest.mark.parametrize(
    ("attempts", "successes", "words"),
    [(0, 0, "has not tried"), (8, 3, "3 of 8 attempts"), (8, 1, "easier"), (8, 8, "harder"),
     (8, 4, "keep the difficulty")],
)  # fmt: skip
def test_simulator_prompt_carries_task_and_record(benchmark, attempts, successes, words):
    seed = seed_task()
    messages = benchmark.simulator_messages(seed, SeedStatistics(attempts, successes))
    system, given, first, asked = messages
    assert words in asked["content"] and first["role"] == "assistant"
    task = f"\nNew Task: {seed.messages[0]['content']}"
    assert first["content"].startswith("New Tools: same\nNew Answer: [weather.get(")
    assert first["content"].endswith(task)
    for expected in ('"days": {"type": "integer"', '"dict"'):
        assert expected in given["content"]
    for header in ("New Tools:", "New Task:", "New Answer:"):
        assert header in system["content"]


def _results(counts, rule="ast"):
    return [
        (seed_task(category=category, rule=rule), Score(float(success), success, True))
        for category, (passed, total) in counts.items()
        for success in (index < passed for index in range(total))
    ]


_COUNTS = {  # passed and total
    "multiple": (1, 1), "parallel": (0, 1), "parallel_multiple": (1, 2), "live_simple": (1, 1),
    "live_multiple": (1, 3), "live_parallel": (0, 1), "live_parallel_multiple": (0, 1),
    "irrelevance": (1, 1), "live_irrelevance": (1, 4),
}  # fmt: skip


def test_aggregate_follows_the_leaderboard(benchmark):
    simple = {"simple_python": (1, 2), "simple_java": (1, 1), "simple_javascript": (0, 1)}
    metrics = benchmark.aggregate(_results(simple | _COUNTS))
    assert metrics["simple"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert metrics["non_live"] == pytest.approx((0.5 + 1 + 0 + 0.5) / 4)
    assert metrics["live"] == pytest.approx(2 / 6)
    assert metrics["irrelevance_overall"] == pytest.approx((1 + 0.25) / 2)
    assert metrics["overall"] == pytest.approx(0.1 * (0.5 + 2 / 6 + 0.625))
    assert metrics["accuracy"] == pytest.approx(8 / 19)
    assert metrics["live_multiple"] == pytest.approx(1 / 3)


def test_aggregate_of_v3_counts_relevance_in_both_means():
    others = {"simple": (1, 2), "java": (1, 1), "javascript": (0, 1), "live_relevance": (1, 1)}
    v3 = BFCL(version="v3", seed_categories=(), eval_categories=())
    metrics = v3.aggregate(_results(others | _COUNTS))
    assert metrics["simple"] == 0.5 and metrics["simple_ast"] == pytest.approx(0.5)
    assert metrics["non_live"] == pytest.approx((0.5 + 1 + 0 + 0.5 + 1) / 5)
    assert metrics["live"] == pytest.approx(4 / 11)
    assert metrics["overall"] == pytest.approx((0.6 + 4 / 11) / 3)


def test_static_match_is_named_and_stays_out_of_official_aggregates(benchmark):
    results = _results({"multi_turn_long_context": (1, 4)}, rule="static_match")
    expected = {"multi_turn_long_context_static_match": 0.25, "accuracy": 0.25}
    assert benchmark.aggregate(results) == expected
    assert benchmark.aggregate([]) == {"accuracy": 0.0}


def test_base_and_long_context_conversations_share_a_side(bfcl_dir):
    benchmark = BFCL(data_dir=bfcl_dir, seed_categories=("multi_turn_base",))
    ids = ([task.id.split(":")[0] for task in benchmark.tasks(split)] for split in ("seed", "eval"))
    seeds, held_out = ({task_id.rsplit("_", 1)[1] for task_id in of} for of in ids)
    assert seeds and held_out and not seeds & held_out


# -- tools in the chat template -----------------------------------------------------------------------------

HERMES = '<tool_call>{"name": "probe_tool", "arguments": {"x": 1}}</tool_call>'
RIGHT = '{"name": "weather.get", "arguments": {"city": "Oslo", "days": 2}}'


@pytest.fixture
def shown_in_template(benchmark):
    benchmark.use_template(HERMES)
    return benchmark


def test_tools_in_the_template(shown_in_template):
    tools, system, request = shown_in_template.agent_messages(seed_task())
    first, second = (tool["function"] for tool in json.loads(tools["content"]))
    assert (tools["role"], first["name"], second["name"]) == ("tools", "weather.get", "book")
    assert first["parameters"]["type"] == "object"
    assert second["parameters"]["properties"]["contact"]["type"] == "object"
    assert system["role"] == "system" and "[name(" not in system["content"]
    assert request == seed_task().messages[0]
    assert shown_in_template.about()["tools"].startswith("in the chat template")
    assert BFCL().about()["tools"] == "as text"


@pytest.mark.parametrize(
    ("answer", "reason", "valid"),
    [
        (f"<tool_call>{RIGHT}</tool_call>", "", True),
        (f"```json\n{RIGHT}\n```", "", True),
        (RIGHT, "", True),
        ("[weather.get(city='Oslo', days=2)]", "", True),
        (RIGHT.replace("weather.get", "weather_get"), "", True),
        (RIGHT.replace("Oslo", "Bergen"), "cannot_find_match", True),
        (f"{RIGHT}\n{RIGHT}", "wrong_count", True),
        (RIGHT[:-1], "decoder_failed", False),
        ("I cannot help.", "decoder_failed", False),
        (RIGHT + "\0", "not_text", False),
    ],
)
def test_calls_as_the_template_asks_for_them(shown_in_template, answer, reason, valid):
    score = shown_in_template.score(seed_task(), answer)
    assert (score.reason, score.valid, score.success) == (reason, valid, not reason)


def test_a_refusal_and_a_call_where_none_fits(shown_in_template):
    for refusal in (shown_in_template.agent_answer(_IRRELEVANT), "[]"):
        assert shown_in_template.score(_IRRELEVANT, refusal).reward == 1
    called = shown_in_template.score(_IRRELEVANT, f"<tool_call>{RIGHT}</tool_call>")
    assert called.reward == 0 and not called.success


@pytest.mark.parametrize("call", [HERMES, '[TOOL_CALLS][{"name": "probe_tool"}]', '{"parameters": {"x": 1}}'])
@pytest.mark.parametrize("rule", ["ast", "static_match"])
def test_the_reference_is_written_in_the_templates_form(benchmark, call, rule):
    benchmark.use_template(call)
    task = seed_task(rule=rule)
    answer = benchmark.agent_answer(task)
    assert json.dumps("Oslo") in answer and not answer.startswith("[weather")
    assert benchmark.score(task, answer).reward == 1
    assert benchmark.fault(task) is None


def test_java_values_are_strings(shown_in_template):
    """The official handlers give them to the checker so; quotes are part of a value."""
    pytest.importorskip("tree_sitter")
    truth = [{"weather.get": {"city": ['Oslo, "N"'], "days": [2]}}]
    tool = {**WEATHER, "parameters": {**WEATHER["parameters"], "properties": {
        "city": {"type": "String", "description": "The city."},
        "days": {"type": "integer", "description": "Days."},
    }}}  # fmt: skip
    task = seed_task("simple", language="java", category="simple_java", truth=truth)
    task = dataclasses.replace(task, tools=(tool,))
    shown = json.loads(shown_in_template.agent_messages(task)[0]["content"])[0]["function"]
    days = shown["parameters"]["properties"]["days"]
    assert days == {"type": "string", "description": "Days. A java integer, written as a string."}
    for city, given, reason in (
        ("Oslo, \"N\"", "2", ""), ("\"Oslo, \"N\"\"", "2", "value_error_string"),
        ("Oslo, \"N\"", 2, "type_error_java"), ("Oslo, \"N\"", "3", "value_error_others"),
    ):  # fmt: skip
        call = {"name": "weather.get", "arguments": {"city": city, "days": given}}
        assert shown_in_template.score(task, json.dumps(call)).reason == reason


def test_earlier_answers_are_shown_in_the_templates_form(shown_in_template):
    task = seed_task()
    booked = '<tool_call>\n{"name": "book", "arguments": {"guests": 2}}\n</tool_call>'
    for said, shown in (
        ("[book(guests=2)]", booked),
        ("[book(guests={2})]", "[book(guests={2})]"),  # a set, which JSON does not have
        ("Done.", "Done."),
    ):
        history = ({"role": "user", "content": "a"}, {"role": "assistant", "content": said})
        asked = dataclasses.replace(task, messages=(*history, *task.messages))
        assert shown_in_template.agent_messages(asked)[3]["content"] == shown


def test_functions_that_do_not_fit_the_template_stand_in_the_text(shown_in_template):
    many = [{**WEATHER, "name": f"weather.get{n}"} for n in range(60)]
    task = dataclasses.replace(seed_task(), tools=tuple(many))
    roles = [message["role"] for message in shown_in_template.agent_messages(task)]
    assert roles == ["system", "user"]


def test_a_conversation_in_the_template_is_shortened_to_fit():
    """Results first, then the oldest messages; a result never stands without its call."""
    task = seed_task(rule="conversation")
    results = fitting.tool_messages(["word " * 400] * 60)
    assert len(results) == 40 and sum(len(m["content"]) for m in results) <= 8_000
    step = [{"role": "assistant", "content": "call " * 60}, *results]
    for turns, steps in ((1, 1), (1, 9), (30, 1), (3, 3)):
        log = [{"role": "user", "content": f"Request {0}."}, *step * steps] * turns
        tools, system, *said = prompts.template_messages(task, "hermes", log)
        assert len(json.loads(tools["content"])) == 2 and system["role"] == "system"
        assert fitting.size_of([tools, system, *said]) <= prompts.MAX_CHARS
        assert said[-1]["role"] == "tool" and {"role": "user", "content": "Request 0."} in said
        for before, message in itertools.pairwise(said):
            assert message["role"] != "tool" or before["role"] in ("assistant", "tool")


def test_a_template_without_tools():
    benchmark = BFCL(tools_in="template")
    with pytest.raises(ValueError, match="takes no tools; expected 'text' or 'auto'"):
        benchmark.use_template("")
    text = BFCL(tools_in="text")
    text.use_template(HERMES)
    assert not text.call_form
