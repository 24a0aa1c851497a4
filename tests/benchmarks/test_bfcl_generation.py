"""The simulator's texts: parsed, verified, rejected for a reason, compared."""

import dataclasses
import json

import numpy as np
import pytest

from bench.bad_answers.common import HOSTILE
from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Rejection, Score, SeedStatistics, Task
from genenv_jax.benchmarks.bfcl import ast_checker, categories, schemas
from genenv_jax.benchmarks.bfcl.benchmark import BFCL
from genenv_jax.benchmarks.bfcl.pairs import PAIRED, paired
from genenv_jax.benchmarks.bfcl.turns import NO_REFUSAL
from genenv_jax.benchmarks.demonstrations import SIMULATOR, seed_demonstrations
from tests.benchmarks.bfcl_tasks import BOOK, WEATHER, function, generation, seed_task


@pytest.fixture
def benchmark():
    """A benchmark whose data is never read."""
    return BFCL(data_dir="nowhere")


def _parse(benchmark, text, seed=None):
    return benchmark.parse(text, seed or seed_task(), "g0", 3)


def _asking(request, tool, truth, **fields):
    """A task with one function."""
    messages = ({"role": "user", "content": request},)
    return dataclasses.replace(seed_task("simple", truth=truth), messages=messages, tools=(tool,), **fields)


def test_a_generation_becomes_a_verified_task(benchmark):
    task = _parse(benchmark, generation())
    assert task.messages == ({"role": "user", "content": "Weather in Rome?"},)
    assert task.answer["ground_truth"] == [{"weather.get": {"city": ["Rome"], "days": ["", 1]}}]
    assert (task.seed_id, task.origin, task.generation) == ("parallel_0", "generated", 3)
    assert benchmark.verify(task) is None
    assert benchmark.score(task, benchmark.agent_answer(task)) == Score(1.0, True, True)
    assert benchmark.score(task, "[weather.get(city='Paris')]").reason == "value_error_string"
    assert Task.from_json(json.loads(json.dumps(task.to_json()))) == task


def test_an_optional_argument_at_its_default_may_be_left_out(benchmark):
    """As in BFCL's own answers; the default is in the schema or in the description."""
    optional = {
        "days": {"type": "integer", "default": 3},
        "unit": {"type": "string", "description": "Unit, 'm' or 'km'. Default is 'km'."},
        "rate": {"type": "float", "description": "Defaults to 0.05."},
        "full": {"type": "boolean", "description": "All of it, default is False"},
        "area": {"type": "string", "description": "Where (default is km/h if not given)."},
        "odd": {"type": "dict", "default": 3, "properties": {}},  # a faulty default is none
    }
    tool = json.dumps([function("go", {"city": {"type": "string"}} | optional, ["city"])])
    answer = "[go(city='Rome', days=3, unit='m')]"
    task = _parse(benchmark, generation(tool, "To Rome in m.", answer))
    assert task.answer["ground_truth"] == [{"go": {
        "city": ["Rome"], "days": [3, ""], "unit": ["m"], "rate": ["", 0.05], "full": ["", False],
        "area": ["", "km/h"],
    }}]  # fmt: skip
    assert benchmark.verify(task) is None
    for right in ("city='Rome', unit='m'", "city='Rome', unit='m', days=3, rate=0.05, full=False"):
        assert benchmark.score(task, f"[go({right})]").success
    for wrong in ("city='Rome'", "city='Rome', unit='m', rate=0.1", "city='Rome', unit='m', full=True"):
        assert not benchmark.score(task, f"[go({wrong})]").success


@pytest.mark.parametrize("between", [" ", "\n", ", ", ""])
def test_a_list_for_each_call_is_one_list(benchmark, between):
    one, other = "weather.get(city='Rome')", "book(guests=2, dishes=['a'])"
    task = _parse(benchmark, generation(request="Rome for 2, a.", answer=f"[{one}]{between}[{other}]"))
    assert task.answer["reference"] == f"[{one}, {other}]" and benchmark.verify(task) is None
    assert benchmark.score(task, f"[{other}, {one}]").success


def test_a_call_made_twice_is_no_reference(benchmark):
    """No request needs it; of BFCL's own answers one in 3,000 has such calls."""
    one, other = "weather.get(city='Rome')", "weather.get(city='Oslo')"
    found = _parse(benchmark, generation(answer=f"[{one}, {other}, {one}]"))
    assert found == Rejection(base.BAD_ANSWER, "the same call twice")
    tool = dict(WEATHER, parameters=json.loads(json.dumps(WEATHER["parameters"])))
    tool["parameters"]["properties"]["unit"] = {"type": "string", "default": "C"}
    for answer, repeated in (
        (f"[{one}, weather.get(unit='C', city='Rome')]", True),
        (f"[{one}, weather.get(unit='F', city='Rome')]", False),
    ):
        found = _parse(benchmark, generation(json.dumps([tool]), answer=answer))
        assert isinstance(found, Rejection) == repeated, found
    assert not isinstance(_parse(benchmark, generation(answer=f"[{one}, {other}]")), Rejection)


def test_seeds_in_pairs_share_their_functions():
    """The simulator sees both's, is shown how one becomes the other, and cannot bring its own."""
    cases = [
        ("Rome's weather?", WEATHER, [{"weather.get": {"city": ["Rome"]}}]),
        ("For 2, and for 3.", BOOK, [{"book": {"guests": [2]}}, {"book": {"guests": [3]}}]),
    ]
    one, other = (_asking(*case, id=f"simple_python_{case[1]['name']}") for case in cases)
    refusal = dataclasses.replace(seed_task("irrelevance", truth=[]), id="irrelevance_0", tools=(BOOK,))
    again = dataclasses.replace(one, id="simple_python_2")  # both possible partners are taken
    two = paired([one, other, refusal])
    assert len(paired([one, other, again, refusal])) == 2 and paired([one, again]) == []
    misnamed = dataclasses.replace(other, answer={**other.answer, "ground_truth": [{"order": {}}]})
    assert paired([one, misnamed]) == []
    assert len(two) == 2 and two[0].tools == two[1].tools and len(two[0].tools) == 2
    assert {task.category for task in two} == {"multiple", "parallel_multiple"}
    assert all(task.answer["kind"] in ("multiple", "parallel") for task in two)
    benchmark = BFCL(
        data_dir="nowhere", seed_categories=("simple_python",), eval_categories=("simple_python",),
        pair_functions=True,
    )  # fmt: skip
    benchmark.tasks = lambda split: two if split == "seed" else []
    assert benchmark.source(two[0]) == benchmark.source(two[1])  # both train, or both validate
    made = seed_demonstrations(benchmark, two, 4, np.random.default_rng(0))
    written = [text for d in made if d.role == SIMULATOR for text in d.completions]
    # No seed has three calls: both requests in one task show them.
    pairs = list(zip(two, two[::-1], strict=True))
    tasks = [(seed, task) for seed, other in pairs for task in (other, benchmark.joined(other, seed))]
    assert written == [benchmark.simulator_answer(task, seed) for seed, task in tasks]
    assert all(text.startswith("New Tools: same\n") for text in written)
    asked = [d.messages[-1]["content"].split(".")[0][-7:] for d in made if d.role == SIMULATOR]
    assert asked == ["2 calls", "3 calls", " 1 call", "3 calls"]
    both = tasks[1][1]
    assert benchmark.text(both) == "For 2, and for 3. Rome's weather?"
    assert both.category == "parallel_multiple" and benchmark.difficulty(both) == 3
    assert benchmark.score(both, benchmark.agent_answer(both)).success
    dated = dataclasses.replace(two[0], messages=({"role": "system", "content": "2024"}, *two[0].messages))
    assert benchmark.joined(two[1], dated) is None and benchmark.joined(two[0], one) is None
    quoted = dataclasses.replace(two[0], messages=({"role": "user", "content": 'Say "now."'},))
    assert benchmark.text(benchmark.joined(quoted, two[1])).startswith('Say "now." ')
    asked_otherwise = ({"role": "user", "content": "Rome, and two tables."},)
    three = dataclasses.replace(both, id="p_3", tools=both.tools[::-1], messages=asked_otherwise)
    made = seed_demonstrations(benchmark, [*two, three], 4, np.random.default_rng(0))
    assert not {*written[1::2]} & {text for d in made for text in d.completions}
    task = _parse(benchmark, written[0], two[0])
    assert PAIRED in task.answer and task.category == two[1].category
    text = benchmark.simulator_messages(two[0], SeedStatistics(difficulty=3))
    assert benchmark.askable(two[0]) == (1, 2, 3) and not benchmark.askable(one)
    assert "how many calls the next one needs" in text[0]["content"]
    assert text[-1]["content"].startswith("Write a task that needs 3 calls.\n")
    assert "comes only the word same." in text[0]["content"]
    rate = benchmark.simulator_messages(two[0], SeedStatistics.asked(0.5))  # no number is promised
    assert "how well the agent does" in rate[0]["content"] and "how often" in rate[0]["content"]
    assert all(tool["name"] in text[1]["content"] for tool in (WEATHER, BOOK))
    found = _parse(benchmark, generation(json.dumps([BOOK]), "A table for 2.", "[book(guests=2)]"), two[0])
    assert found == Rejection(base.BAD_TOOLS, "expected the seed's functions")


def test_a_limit_on_seeds_parts_no_pair(monkeypatch):
    names = ("simple_python",)
    benchmark = BFCL(
        data_dir="nowhere", seed_categories=names, eval_categories=names, pair_functions=True, max_seeds=10
    )
    cases = [(tool, f"{tool['name']} {i}?") for i in range(20) for tool in (WEATHER, BOOK)]
    seeds = [
        _asking(request, tool, [{tool["name"]: {}}], id=f"simple_python_{i}")
        for i, (tool, request) in enumerate(cases)
    ]
    monkeypatch.setattr(benchmark, "_load", lambda split: seeds if split == "seed" else [])
    monkeypatch.setattr(benchmark, "verify", lambda task: None)
    sources = [benchmark.source(seed) for seed in benchmark.tasks("seed")]
    assert 0 < len(sources) <= 10 and {sources.count(source) for source in sources} == {2}


@pytest.mark.parametrize("category", ["multi_turn_base", "simple_java", "irrelevance"])
def test_pairs_need_python_calls_in_single_turns(category):
    names = ("simple_python", category)
    with pytest.raises(ValueError, match=f"expected seed categories of single .*, got {category}$"):
        BFCL(data_dir="nowhere", seed_categories=names, pair_functions=True)


@pytest.mark.parametrize(
    ("kind", "text", "want"),
    [
        ("string", 'Default is "it\'s".', "it's"),
        ("string", "Default is 10:00 AM.", "10:00 AM"),
        ("string", "Default: 2024-01-01", "2024-01-01"),
        ("string", "Defaults to 3.5.1.", "3.5.1"),
        ("string", "**Default**: km", "km"),
        ("string", "Default is `km`", "km"),
        ("string", "The default timezone for the request.", None),
        ("string", "Default is the user's location", None),
        ("string", "If no default is given, all.", "given"),
        ("integer", "Default is 1,000", None),
        ("integer", "Default is 10 inches if not given.", 10),
        ("integer", "Default is 5-10", None),
        ("integer", f"Default is {'9' * 5000}", None),
        ("float", "Default is 1.5 million", None),
        ("float", "default 0.05.", 0.05),
        ("float", "Default is 5%", None),
        ("boolean", "Default is False.", False),
        ("array", "Default is ['a']", None),
    ],
)
def test_defaults_in_words(kind, text, want):
    assert schemas.default_of({"type": kind, "description": text}) == want


def test_defaults_that_are_no_values():
    assert schemas.default_of({"type": "integer", "default": "None"}) is None
    assert schemas.default_of({"type": "string", "default": "x" * 10_000}) is None
    huge = {"type": "integer", "default": 16**5_000}  # has no decimal text
    long = {"type": "string", "description": "defaults a " * 100_000}
    for properties, count in (({"n": huge}, 1), (dict.fromkeys(map("p{}".format, range(60)), long), 5_000)):
        calls = [{"f": {}}] * count
        assert schemas.ground_truth_of(calls, [function("f", properties)], "python", True) == calls


def test_functions_beside_those_called_do_not_hide_a_held_out_task(benchmark):
    """Neither the same request nor, in other words, the same calls."""
    truth = [{"weather.get": {"city": ["Rome"]}}]
    held_out = _asking("How warm is Rome?", WEATHER, truth, id="simple_9", origin="eval")
    seed = seed_task()  # has two functions
    for request in ("How warm is Rome?", "The weather of Rome, please"):
        task = _parse(benchmark, generation(request=request, answer="[weather.get(city='Rome')]"), seed)
        keys = {benchmark.canonical(task), *benchmark.meanings(task)}
        assert not keys.isdisjoint({benchmark.canonical(held_out), *benchmark.meanings(held_out)})
        assert benchmark.sound([task], [held_out]) == []


def test_new_tools_replace_the_seeds(benchmark):
    text = generation(json.dumps([BOOK], indent=1), "A table for 2.", "[book(guests=2)]")
    task = _parse(benchmark, text)
    assert task.tools == (BOOK,) and benchmark.verify(task) is None
    assert _parse(benchmark, benchmark.simulator_answer(task)) == task


def test_structured_reference_values_are_checked_as_bfcl_checks_them(benchmark):
    answer = "[book(guests=2, dishes=['Soup', 'fish'], contact={'name': 'Ann'})]"
    task = _parse(benchmark, generation(answer=answer, request="Book."))
    assert task.answer["ground_truth"][0]["book"]["contact"] == [{"name": ["Ann"]}]
    assert benchmark.verify(task) is None
    near = "[book(guests=2, dishes=['soup', 'FISH'], contact={'name': 'ann'})]"
    assert benchmark.score(task, near).success
    for wrong in (near.replace("2", "3"), near.replace("'soup', 'FISH'", "'FISH', 'soup'"),
                  near.replace("ann", "bob"), near.replace("2", "2.0")):  # fmt: skip
        assert not benchmark.score(task, wrong).success


def test_elements_of_arrays_are_checked_one_by_one(benchmark):
    properties = {"price": {"type": "float"}, "people": {"type": "array", "items": {"type": "dict"}}}
    tool = json.dumps([function("order", properties, ["price"])])
    answer = "[order(price=5, people=[{'name': 'Ann'}, me])]"
    task = _parse(benchmark, generation(tool, "Order.", answer))
    people = [{"name": ["Ann"]}, "me"]
    assert task.answer["ground_truth"] == [{"order": {"price": [5], "people": [people]}}]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", base.EMPTY),
        (" \n ", base.EMPTY),
        ("\0", base.NOT_TEXT),
        ("x" * 40_000, base.TOO_LONG),
        ("Sure! " + generation(), base.UNPARSABLE),
        (generation()[:30], base.UNPARSABLE),
        (generation().replace("New Answer:", "Answer:"), base.UNPARSABLE),
        (generation() + "\n" + generation(), base.UNPARSABLE),
        (generation() + "\nNew Answer: []", base.UNPARSABLE),
        (generation(request="Weather in Rome?\n\nNote: this needs one call."), base.UNPARSABLE),
        (generation(request="Weather in Rome?\nUser: Weather in Oslo?\nWrite the next"), base.UNPARSABLE),
        (generation() + "\nnew answer: []", base.UNPARSABLE),
        (generation() + "\n\n**Explanation:** Rome.", base.UNPARSABLE),
        ("New Task: a\nNew Tools: same\nNew Answer: [book(guests=1)]", base.UNPARSABLE),
        (generation(request=" "), base.UNPARSABLE),
        (generation(request="x" * 13_000), base.TOO_LONG),
        *((generation(tools=tools), base.BAD_TOOLS) for tools in (
            "none", "[]", "{}", "[" * 200, json.dumps([BOOK, BOOK]), json.dumps([{}] * 65),
        )),
        *((generation(answer=answer), base.BAD_ANSWER) for answer in (
            "none", "[]", "[unknown(a=1)]", "[weather.get(days=1)]", "[weather.get(city='Rome', wind=1)]",
            "[weather.get(city=b'Rome')]", "[book(guests=1e999)]", "[book(guests=2.5)]",
            "[book(guests=True)]", "[book(guests='two people')]", "[book(guests=None)]",
            "[book(guests=2, dishes=[1])]", "[book(guests=2, dishes='soup and fish')]",
            "[book(guests=1, contact={1: 2})]", "[weather.get(city='Rome', city='Oslo')]",
            "[weather.get(" + "(" * 90,
        )),
    ],
)  # fmt: skip
def test_generations_are_rejected_for_a_counted_reason(benchmark, text, reason):
    result = _parse(benchmark, text)
    assert isinstance(result, Rejection) and result.reason == reason


def test_the_sections_are_read_in_either_order(benchmark):
    tools, answer, request = generation().split("\n")
    found = _parse(benchmark, "\n".join([tools, request, answer]))
    assert found == _parse(benchmark, generation()) and found.messages[-1]["content"] == "Weather in Rome?"


def _tool(**changes):
    return BOOK | changes


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        (3, "not an object"),
        (_tool(name="a b"), "function name"),
        (_tool(name="class.x"), "function name"),
        (_tool(name=None), "function name"),
        (_tool(description=None), "no description"),
        (_tool(parameters=None), "parameters must be"),
        (_tool(parameters=BOOK["parameters"] | {"type": "array"}), 'type "dict"'),
        (_tool(parameters=BOOK["parameters"] | {"required": ["x"]}), "is not there"),
        (_tool(parameters=BOOK["parameters"] | {"required": ["guests"] * 2}), "twice"),
        (_tool(parameters=BOOK["parameters"] | {"required": "guests"}), "list of names"),
        (_tool(parameters={"type": "dict", "properties": [], "required": []}), "properties"),
        (
            _tool(parameters={"type": "dict", "required": [],
                              "properties": {f"p{i}": {"type": "any"} for i in range(65)}}),
            "at most 64",
        ),
        *(
            (_tool(parameters={"type": "dict", "required": [], "properties": {name: schema}}), text)
            for name, schema, text in (
                ("from", {"type": "string"}, "parameter name"),
                ("a-b", {"type": "string"}, "parameter name"),
                ("p", {}, "is not a BFCL python type"),
                ("p", {"type": "date"}, "is not a BFCL python type"),
                ("p", {"type": ["string"]}, "is not a BFCL python type"),
                ("p", "string", "schema is not an object"),
                ("p", {"type": "array"}, "items"),
                ("p", {"type": "array", "items": {"type": "thing"}}, "items"),
                ("p", {"type": "string", "enum": "a"}, "enum"),
            )
        ),
    ],
)  # fmt: skip
def test_malformed_tools_are_rejected_with_what_is_wrong(benchmark, tool, problem):
    rejection = schemas.check_tools([tool], "python")
    assert rejection.reason == base.BAD_TOOLS and problem in rejection.detail
    text = generation(tools=json.dumps([tool]), answer="[book(guests=1)]")
    assert _parse(benchmark, text).reason == base.BAD_TOOLS


def test_a_variable_may_stand_for_a_value(benchmark):
    task = _parse(benchmark, generation(answer="[book(guests=size)]"))
    assert task.answer["ground_truth"] == [{"book": {"guests": ["size"]}}]
    assert benchmark.verify(task) is None
    assert not benchmark.score(task, "[book(guests=Size)]").success


def test_a_reference_that_fails_its_own_checker_is_a_wrong_answer(benchmark):
    # `simple` calls the first function, and Java has no other category.
    seed = seed_task("simple", category="simple_java", language="java")
    other = _parse(benchmark, generation(answer="book(guests=2)"), seed)
    assert benchmark.verify(other) == Rejection(base.WRONG_ANSWER, "wrong_func_name")


@pytest.mark.parametrize("seed", ["simple_python", "simple", "live_simple", "multiple", "parallel"])
def test_the_rule_follows_the_calls_not_the_seed(benchmark, seed):
    """A one-call seed can become a task of several calls, and vice versa."""
    kind = categories.kind_of(seed)
    seed_of = seed_task(kind, category=seed)
    live, simple = "live_" * seed.startswith("live_"), "simple_python"
    if seed.endswith("simple"):
        simple = seed.removeprefix("live_")
    one, two = "[book(guests=2)]", "[book(guests=2), book(guests=3)]"
    alone = json.dumps([BOOK])
    for tools, answer, found, category in [
        ("same", one, "multiple", "multiple"),
        ("same", two, "parallel", "parallel_multiple"),
        (alone, one, "simple", simple),
        (alone, two, "parallel", "parallel"),
    ]:
        task = _parse(benchmark, generation(tools, answer=answer), seed_of)
        assert (task.answer["kind"], task.category) == (found, live + category)
        assert benchmark.verify(task) is None
        assert benchmark.score(task, answer).success
        other = one if answer == two else two
        assert not benchmark.score(task, other).success


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_parsed_and_scored_in_bounded_time(bounded, benchmark, name):
    text = HOSTILE[name]
    plain = seed_task()
    cases = [(plain, text), (plain, generation(tools=text)), (plain, generation(request=text))]
    cases += [
        (seed, generation(answer=text))
        for seed in (
            plain, seed_task("parallel", "static_match"), seed_task("irrelevance", truth=[]),
            seed_task("relevance", truth=[]), seed_task("simple", language="java"),
            seed_task("simple", language="javascript"),
        )
    ]  # fmt: skip
    for seed, hostile in cases:
        result = benchmark.parse(hostile, seed, "g", 0)
        if isinstance(result, Task):
            verdict = benchmark.verify(result)
            assert verdict is None or verdict.reason.replace("_", "").isalpha()
            json.dumps(result.to_json()).encode()
            benchmark.canonical(result)
        score = benchmark.score(seed, text)
        assert 0.0 <= score.reward <= float(score.success)
        assert score.success == (score.reward == 1.0) or score.reason == NO_REFUSAL
        assert score.reason.replace("_", "").isalpha() or score.success
        if score.success:  # none is a correct call
            assert seed.answer["kind"] in ("irrelevance", "relevance")


@pytest.mark.parametrize("language", ["java", "javascript"])
def test_source_languages_go_the_whole_way(benchmark, language):
    declared = {"java": ("String", "ArrayList"), "javascript": ("String", "array")}[language]
    names = {"type": declared[1], "items": {"type": "String"}}
    properties = {"text": {"type": declared[0]}, "names": names, "count": {"type": "integer"}}
    tool = function("A.f", properties, ["text"], "Does it.")
    source = {"java": 'new ArrayList<>(Arrays.asList("a", "b"))', "javascript": '["a", "b"]'}
    answer = f'[A.f(text="x y", names={source[language]}, count=5)]'
    seed = dataclasses.replace(seed_task("simple", language=language), tools=(tool,))
    task = _parse(benchmark, generation(answer=answer), seed)
    expected = {"text": ["x y"], "names": [["a", "b"]], "count": [5]}
    assert task.answer["ground_truth"] == [{"A.f": expected}]
    assert benchmark.verify(task) is None
    assert benchmark.score(task, answer.replace("5", "6")).reason == "value_error_others"
    rewritten = schemas.render_calls(task.answer["ground_truth"], task.tools, language)
    assert benchmark.score(task, rewritten).success
    wrong = _parse(benchmark, generation(answer=answer.replace("5", "5.5")), seed)
    assert wrong.reason == base.BAD_ANSWER and "not of type integer" in wrong.detail
    assert language.capitalize()[:4] in benchmark.agent_messages(seed)[0]["content"]
    # A function may have the types that the simulator is told, and no others.
    system = benchmark.simulator_messages(seed, SeedStatistics())[0]["content"]
    told = system.partition("a parameter may have: ")[2].partition(".")[0].split(", ")
    for name in ast_checker.TYPES[language]:
        only = function("f", {"text": {"type": name, "items": {"type": "String"}}}, [], "Does it.")
        assert (schemas.check_tools([only], language) is None) == (name in told), name


def test_canonical_form_survives_restating(benchmark):
    seed = seed_task()
    request = "WHAT is the weather,\n in OSLO -- for two days"
    restated = _parse(benchmark, generation(json.dumps([BOOK, WEATHER]), request))
    assert benchmark.canonical(restated) == benchmark.canonical(seed)
    other = _parse(benchmark, generation(request="What is the weather in Rome for two days?"))
    assert benchmark.canonical(other) != benchmark.canonical(seed)
    fewer = _parse(benchmark, generation(json.dumps([WEATHER]), request))
    assert benchmark.canonical(fewer) == benchmark.canonical(seed)
    turn = dataclasses.replace(seed, answer={**seed.answer, "rule": "static_match"})
    alone = dataclasses.replace(turn, tools=(WEATHER,))
    assert benchmark.canonical(turn) != benchmark.canonical(alone)
    assert benchmark.text(restated) == request


def test_every_seed_makes_the_whole_way_round(bfcl_dir):
    categories = ("simple_java", "simple_javascript", "parallel", "live_multiple", "irrelevance",
                  "live_relevance", "multi_turn_long_context")  # fmt: skip
    benchmark = BFCL(data_dir=bfcl_dir, seed_categories=categories, eval_categories=())
    seeds = benchmark.tasks("seed")
    assert {seed.category for seed in seeds} == set(categories)
    contradicting = []  # official answers that violate their declared types, or make a call twice
    for seed in seeds:
        task = benchmark.parse(benchmark.simulator_answer(seed), seed, "g", 0)
        if isinstance(task, Rejection):
            assert "not of type" in task.detail or seed.id == "parallel_158", (seed.id, task)
            contradicting.append(seed.id)
            continue
        assert benchmark.verify(task) is None
        assert benchmark.canonical(task) == benchmark.canonical(seed)
        # The restatement's answer is a reference that the seed accepts.
        assert benchmark.score(seed, benchmark.agent_answer(task)).success
    assert len(contradicting) == (10 if len(seeds) > 2_300 else 0)
