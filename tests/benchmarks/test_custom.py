"""A user's own benchmarks: checkers, files, classes found by import, and their errors."""

import contextlib
import dataclasses
import decimal
import gzip
import io
import json
import sys

import numpy as np
import pytest

from genenv_jax.benchmarks import base, registry
from genenv_jax.benchmarks.base import Rejection, Score, SeedStatistics
from genenv_jax.benchmarks.calls import form_of
from genenv_jax.benchmarks.custom import checkers, files
from genenv_jax.scoring.requests import BROKEN_EPISODES
from genenv_jax.scoring.verification import VerificationConfig, Verifier, inspect
from genenv_jax.scoring.worker import Worker
from tests.benchmarks.test_calls import FORMS, in_form


def _f(**arguments):
    return {"name": "f", "arguments": arguments}


def _graded(checker, reference, text):
    """Reward of a text; None if it cannot be read as an answer."""
    found = text if checker == "call" else checkers.extract(text)
    if checkers.unreadable(checker, found):
        return None
    return checkers.grade(checker, checkers.read_reference(checker, reference), found)


@pytest.mark.parametrize(
    ("checker", "reference", "text", "reward"),
    [
        ("exact", "New York", "<answer> new  york. </answer>", 1),
        ("exact", "New York", 'So it is\n<answer>"New York"</answer>', 1),
        ("exact", "A", "A", 1),  # articles are kept
        ("exact", "A", "The", 0),
        ("exact", "-3.5", "3.5", 0),
        ("exact", "3.5", "35", 0),
        ("exact", 4, "4", 1),
        ("exact", ["CO2", "carbon dioxide"], "Carbon Dioxide", 1),
        ("exact", "x", "<answer>x</answer> or <answer>y</answer>", 0),
        ("exact", r"\frac{1}{2}", r"Hence \boxed{3}, no: \boxed{\frac{1}{2}}.", 1),
        ("exact", "x", r"\boxed{x", None),
        ("exact", "x", "<answer></answer>", None),
        ("f1", "Ann Miller", "<answer>the Ann Miller</answer>", 1),
        ("f1", "Ann Miller", "Ann", 2 / 3),
        ("f1", "Ann Miller", "Bo", 0),
        ("f1", "Ann Miller", "Ann Miller, Oslo", 0.8),
        ("f1", "Ann", "Ann; Bo; Cy", 0.5 / 3),
        ("f1", "Ann", "Ann, Bo or Cy", 0.2),
        ("f1", ["Ann or Bo"], "Ann or Bo", 1),
        ("numeric", 3000, "<answer>3,000 m</answer>", 1),
        ("numeric", 0.333333, "0.3333333", 1),
        ("numeric", 0.3333, "0.333", 0),
        ("numeric", "3 boxes of 24 are 3*24=<<3*24=72>>72.\n#### 72", "72", 1),
        ("numeric", 72, "So it is 72.0 in 3 boxes", None),
        ("last_number", "... #### 1,072", "First 3 boxes, then 1,072 apples.", 1),
        ("last_number", -7, "It falls from 3 to -7.", 1),
        ("last_number", 7, "7 of 8", 0),
        ("last_number", 7, "seven", None),
        ("numeric", 7, "6 or 7", None),
        ("numeric", 7, "seven", None),
        ("numeric", 7, "9" * 5_000, None),
        ("numeric", 7, "\u0667", None),  # another script's digit
        ("call", _f(a=1), "[f(a=1)]", 1),
        ("call", {"name": "f", "parameters": {"a": 1}}, "f(a=2)", 0),
        ("call", _f(a=1), "f(a=1, b=2)", 0),
        ("call", _f(a=1, b="x"), "f(a=1)", 0),
        ("call", _f(a=1), "f(a='1')", 0),
        ("call", _f(a=True), "f(a=1)", 0),
        ("call", _f(a=2.0), "f(a=2)", 1),
        ("call", _f(a=[52, 13.4]), "f(a=[52.0, 13.4])", 1),
        ("call", _f(a=[13.4, 52.0]), json.dumps(_f(a=[13.4, 52])), 1),
        ("call", _f(a=[52.0, 2.0]), "f(a=[52, 2])", 1),
        ("call", _f(a=[52, 2]), "f(a=[52.0, 2])", 0),
        ("call", _f(a=[52, 13.4]), "f(a=[52, '13.4'])", 0),
        ("call", _f(), "f()", 1),
        ("call", {"name": "a.f", "arguments": {"a": [1, 2]}}, "a.f(a=[1, 2])", 1),
        ("call", _f(a={"k": "v"}), "f(a={'k': 'v'})", 1),
        ("call", _f(a=1), "The call is f(a=1)", None),
        ("call", _f(a=1), "f(a=__import__('os'))", 0),
        ("call", _f(a=1), f"<tool_call>\n{json.dumps(_f(a=1))}\n</tool_call>", 1),
        ("call", _f(a=1), "<tool_call>f(a=</tool_call>", None),
        ("call", [_f(a=1), _f(b="x")], "[f(b='x'), f(a=1)]", 1),
    ],
)
def test_the_checkers(checker, reference, text, reward):
    expected = None if reward is None else pytest.approx(reward)
    assert _graded(checker, reference, text) == expected


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (
            -5,
            r"""-$5 ; - 5 ; –5 ; — 5 ; ‑5 ; -€5 ; $ -5 ; -US$5 ; Minus 5 ; negative 5 ; (-5) ; $-5$ ;
            -\text{5} ; -\mathbf{5} ; \boxed{-\$5} ; \left(-5\right) ; **-5** ; The answer is -5. ;
            x = -5 ; -5 km/h ; -5 apples ; −5 °C""",
        ),
        (
            12345,
            r"""12 345 ; 12,345.0 ; 12{,}345 ; 12\,345 ; 12,\!345 ; 12~345 ; $12,345 ; \(12\ 345\) ;
            1.2345e4 ; 12 345 square metres ; 12{,}345\text{ cm}^2 ; 12345° ; $$12345$$ ; 12345 km per hour ;
            $12{,}345\text{ cm}$. ; 12345^\circ\mathrm{C} ; \num{12345} ; $\$12{,}345$""",
        ),
        (
            None,
            r"""\sqrt{2} ; 2π ; 2\pi ; 5! ; 5² ; 2^3 ; 5 million ; 5k ; 5m ; 5M ; log 5 ; 5x ; 5i ; 5% ;
            not 5 ; more than 5 ; 5+ ; ±5 ; \frac{1}{2} ; 5 and a half ; 5½ ; 5 dozens ; 5 thirds ; 5 lakh ;
            5 squared ; 5 percent ; 5 per cent ; 5 tens ; twice 5 ; |-5| ; --5 ; (5) ; x_{5} ; 0,123 ;
            1,234 567 ; 12 34 ; 1  234 ; 1.234.567 ; 5/ ; 5:30 ; ~5 ;
            $5 bn ; $5 m ; 5 m dollars ; 5 minus ; 5 basis points""",
        ),
    ],
)
def test_what_is_one_number(value, texts):
    """With its sign and all of its digits; ambiguous text is no number."""
    texts = [text.strip() for text in texts.split(" ;")]
    read = {text: _graded("numeric", 0 if value is None else value, text) for text in texts}
    assert read == dict.fromkeys(texts, None if value is None else 1)
    if value is not None:
        assert {_graded("numeric", -value, text) for text in texts} == {0}
    assert _graded("numeric", 1234, "1\n234") is None
    assert _graded("numeric", 1234, "1\u202f234 m") == 1


@pytest.mark.parametrize("reference", [12345678901, 10**10, 2**60, "12345678901234567", 3, 0])
def test_every_digit_of_a_whole_number_counts(reference):
    assert _graded("numeric", reference, f"{reference}.0") == 1
    for text in (f"{int(reference) + 1}", f"{reference}.0000000001"):
        assert _graded("numeric", reference, text) == 0


@pytest.mark.parametrize(
    ("checker", "reference"),
    [
        ("exact", "It's 5% \u00e9"),
        ("exact", [3, "three"]),
        ("f1", "Ann Miller"),
        ("numeric", 1e23),
        ("numeric", -0.1),
        ("call", _f(a="it's", b=[{"c": -1}], d=False, e=1e-7)),
    ],
)
def test_a_reference_as_an_agent_writes_it_is_right(checker, reference):
    kept = checkers.read_reference(checker, reference)
    assert _graded(checker, reference, checkers.write(checker, kept)) == 1
    assert json.loads(json.dumps(kept)) == kept


def test_the_words_of_an_answer_are_found_in_a_prompt():
    assert checkers.holds("Is it 3,000 or four?", "numeric", 3000)
    assert checkers.holds("Is it 3,000 or four?", "exact", ["4", "5"])
    assert not checkers.holds("Is it 13,000?", "numeric", 3000)
    assert not checkers.holds("New roads to York", "exact", "New York")
    assert not checkers.holds("a", "exact", "?!")
    assert not checkers.holds("f(a=1)", "call", [{"f": {"a": 1}}])  # `grounding` finds these


# -- files --------------------------------------------------------------------------------------------------


def _write(path, *records):
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return str(path)


def _all_seeds(path, **options):
    return registry.make_benchmark("custom", train=str(path), seed_fraction=1, **options)


def _of(directory, *records, **options):
    return _all_seeds(_write(directory / "a.jsonl", *records), **options)


def _inspect(benchmark, text, seed):
    return inspect(benchmark, text, done=True, seed=seed, task_id="g", generation=0)


def _reason(found):
    return found.reason if isinstance(found, Rejection) else ""


BRIEF = {"role": "system", "content": "Be brief."}
ASKED = {"prompt": "Which one is it?", "answer": "Velm"}
OF_BOOK = {
    "type": "object",
    "properties": {
        "guests": {"type": "integer", "description": "How many."},
        "day": {"type": "string", "enum": ["Friday", "Sunday"]},
        "wishes": {"type": "array", "items": {"type": "string"}},
        "price": {"type": "number"},
    },
    "required": ["guests"],
}
BOOK = {"name": "book", "description": "Books a table.", "parameters": OF_BOOK}


def _booked(**arguments):
    return {"answer": {"name": "book", "arguments": arguments}}


BOOKED = {
    "prompt": "Please book a table for 4 on Friday, by the window.",
    **_booked(guests=4, day="Friday", wishes=["window"], price=2),
    "checker": "call",
    "tools": [{"type": "function", "function": BOOK}],
}


def _book(**of):
    return {"tools": [BOOK | of]}


NOT_TEXT = "a message has content other than text: .'role': 'user'"
MESSAGES = "prompt .*expected a text, or a list of messages .* ending with the user's"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("{", "unparsable: JSONDecodeError: .*column 2.*; expected {.prompt"),
        ("[1]", "expected an object"),
        ('{"prompt": "x?", "answer": NaN}', "NaN is not JSON"),
        ('{"prompt": "x?", "prompt": "y?", "answer": "z"}', "repeated key"),
        ('{"prompt": "\\u0000x?", "answer": "z"}', "not_text: escaped control character"),
        ({"prompt": "x?"}, "no answer; expected"),
        ({"answer": "x"}, "no prompt; expected"),
        (ASKED | {"anser": "x"}, "unknown key 'anser'; expected some of prompt, answer, checker"),
        (ASKED | {"prompt": 3}, MESSAGES),
        (ASKED | {"prompt": " "}, MESSAGES),
        (ASKED | {"prompt": []}, MESSAGES),
        (ASKED | {"prompt": [{"role": "assistant", "content": "x"}]}, MESSAGES),
        (ASKED | {"prompt": [{"role": "tool", "content": "x"}]}, f"the role 'tool'; {MESSAGES[9:]}"),
        (ASKED | {"prompt": '[{"role": "developer", "content": "x"}]'}, "has the role 'developer'"),
        (ASKED | {"prompt": [{"from": "observation", "value": "x"}]}, "has the role 'observation'"),
        (ASKED | {"prompt": [{"role": "user", "content": [{"type": "image_url", "url": "x"}]}]}, NOT_TEXT),
        (ASKED | {"prompt": [{"role": "user", "content": "x?", "tool_calls": [1]}]}, NOT_TEXT),
        (ASKED | {"prompt": ["x?"]}, f"'x.' is not a message; {MESSAGES[9:]}"),
        (ASKED | {"prompt": "..."}, "unparsable: a prompt without letters"),
        (ASKED | {"answer": None}, "no answer; expected"),
        (ASKED | {"answer": [None]}, "answer .None.: expected a text of 1 to 2000 characters, a number"),
        (ASKED | {"answer": True}, "answer True: expected a text"),
        (ASKED | {"answer": []}, "expected 1 to 16 texts"),
        (ASKED | {"answer": "x" * 2001}, "it is too_long"),
        (ASKED | {"answer": "x</answer>"}, "wrong_answer: the reference answer is graded 0.0"),
        (ASKED | {"answer": "the", "checker": "f1"}, "wrong_answer: the reference answer is graded"),
        (ASKED | {"checker": "nummeric"}, "checker 'nummeric': expected one of exact, f1, numeric"),
        (ASKED | {"checker": "numeric"}, "answer 'Velm': expected a number"),
        (ASKED | {"checker": "numeric", "answer": 1e200}, "of at most 1e100"),
        (ASKED | {"checker": "call"}, 'expected {"name": ..., "arguments"'),
        (ASKED | {"checker": "call", "answer": 17 * [BOOKED["answer"]]}, "a list of 1 to 16 of these"),
        (ASKED | {"checker": "call", "answer": {"name": "f g", "arguments": {}}}, "graded 0.0: unparsable"),
        (ASKED | {"category": ""}, "category = '': expected a line of 1 to 200"),
        (ASKED | {"id": 3.5}, "id = 3.5: expected a line"),
        (ASKED | {"category": "a\nb"}, "expected a line"),
        (ASKED | {"checker": ["exact"]}, "checker .'exact'.: expected one of exact"),
        (BOOKED | {"tools": 3}, "tools: expected a list of at least one function; expected a list of {.name"),
        (BOOKED | {"tools": ["book"]}, "tools: a function is not an object; expected a list of"),
        (BOOKED | {"tools": "[{"}, "tools: unparsable: JSONDecodeError: .*; expected a list, or its JSON"),
        (BOOKED | _book(name="a b"), "tools: function name 'a b'; expected"),
        (BOOKED | _book(parameters=[]), "tools: unknown .*|tools: book: parameters must be"),
        (BOOKED | _book(parameters={"type": "object", "properties": {"a": {}}}), "tools: book.a: type None"),
        (BOOKED | {"tools": [BOOK, BOOK]}, "tools: two functions named book"),
        (BOOKED | {"checker": "exact", "answer": "x"}, "tools with the checker 'exact': expected 'call'"),
        (BOOKED | _book(name="other"), "bad_answer: no tool book"),
        (BOOKED | _booked(day="Friday"), "bad_answer: book: no guests"),
        (BOOKED | _booked(guests=4, hour=1), "bad_answer: book: unknown hour"),
        (BOOKED | _booked(guests="4"), "bad_answer: book.guests: not of type integer"),
        (BOOKED | _booked(guests=True), "bad_answer: book.guests: not of type integer"),
        (BOOKED | _booked(guests=4, day="Monday"), "bad_answer: book.day: not in the enum"),
        (BOOKED | _booked(guests=4, wishes=[1]), r"bad_answer: book.wishes\[0\]: not of type string"),
        ({"prompt": "x?", "reward_model": "x"}, "reward_model 'x': expected {.ground_truth"),
        ({"prompt": "x?", "reward_model": {"ground_truth": "x", "style": "model"}}, "style = 'model'"),
        ({"prompt": "x?", "reward_model": {"ground_truth": None}}, "expected {.ground_truth"),
    ],
)  # fmt: skip
def test_a_line_that_is_not_right_is_named(tmp_path, record, message):
    with pytest.raises(ValueError, match=rf"a\.jsonl:3: .*{message}"):
        _of(tmp_path, ASKED, "", record).tasks("seed")


def test_whole_numbers_may_be_names(tmp_path):
    benchmark = _of(tmp_path, ASKED | {"id": 3, "category": 4})
    (task,) = [*benchmark.tasks("seed"), *benchmark.tasks("eval")]
    assert (task.id, task.category) == ("3", "4")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "train = '': expected a file of questions"),
        ({"train": "nowhere.jsonl"}, "nowhere.jsonl is missing: expected a file"),
        ({"train": 3}, "train = 3: expected a file"),
        ({"train": "mine.jsonl", "checker": "fuzzy"}, "checker = 'fuzzy': expected one of exact"),
        ({"train": "mine.jsonl", "seed_fraction": 2}, "seed_fraction = 2: expected a number in"),
        ({"train": "mine.jsonl", "instruction": 2}, "instruction = 2: expected a text or None"),
        ({"train": "mine.jsonl", "judge_url": "http://x"}, "judge_model = '': expected the judge's name"),
        ({"train": "mine.jsonl", "judge_model": "m"}, "judge_model = 'm': expected judge_url with it"),
        ({"train": "~/mine.jsonl"}, "^(?!~).*/mine.jsonl is missing: expected a file"),
        ({"train": "mine.jsonl", "hold_out": "x"}, "hold_out is not an option .* did you mean held_out"),
        ({"train": "mine.jsonl", "reward": "mine"}, "benchmark.reward = 'mine': expected module:name"),
        ({"train": "hf://datasets/gsm8k"}, "hf://datasets/gsm8k: expected .*/OWNER/NAME.@REVISION./FILE"),
        ({"train": "."}, r"\. is a directory: expected a file"),
        ({"train": "pointer.parquet"}, "pointer.parquet is a Git LFS pointer"),
        ({"train": "cut.jsonl.gz"}, "cut.jsonl.gz: not a gzip file that can be read"),
        ({"train": "broken.parquet"}, "broken.parquet: not a parquet file that can be read"),
        ({"train": "latin.jsonl"}, "latin.jsonl:2: not JSON: 'utf-8' codec"),
        ({"train": "twice.jsonl"}, "twice.jsonl:2: id 'a' was used before"),
        ({"train": "twice.jsonl", "held_out": "once.jsonl"}, "id 'a' is used by a seed and by a held-out"),
    ],
)  # fmt: skip
def test_an_option_that_is_not_right_is_named(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    _write(tmp_path / "mine.jsonl", ASKED)
    named = [{"prompt": f"Which is number {n}?", "answer": "x", "id": "a"} for n in (1, 2)]
    _write(tmp_path / "once.jsonl", named[0])
    if "held_out" in options:
        _write(tmp_path / "twice.jsonl", named[1])
    else:
        _write(tmp_path / "twice.jsonl", *named)
        options = options and {"seed_fraction": 1.0, **options}
    (tmp_path / "broken.parquet").write_bytes(b"PAR1, but not really")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
    (tmp_path / "pointer.parquet").write_text(pointer)
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b"{}")[:-9])
    (tmp_path / "latin.jsonl").write_bytes(json.dumps(ASKED).encode() + b"\n\xe9\n")
    with pytest.raises((ValueError, OSError), match=message):
        registry.make_benchmark("custom", **options).tasks("seed")


def test_a_judge_decides_on_answers_that_the_checker_does_not_take(tmp_path):
    records = [
        {"prompt": "Which is it?", "answer": ["Tarn", "the Tarn"]},
        {"prompt": "Who was it?", "answer": "Ann Miller", "checker": "f1"},
        {"prompt": "How many?", "answer": 3, "checker": "numeric"},
    ]
    benchmark = _of(tmp_path, *records, judge_url="http://x/v1", judge_model="m")
    assert benchmark.isolated and benchmark.worker_needs == ("network",)
    assert benchmark.about()["judge"] == "m"
    exact, f1, numeric = benchmark.tasks("seed")
    asked = []

    def lenient(*given):
        asked.append(given)
        if "?" in given[2]:
            raise TimeoutError("no reply")
        return "river" in given[2].lower()

    benchmark.judge = lenient
    for task, answer, reward in (
        (exact, "Tarn", 1),
        (exact, "so it is <answer>that river</answer>", 1),
        (exact, "Velm", 0),
        (f1, "Ann", 2 / 3),
        (f1, "a river", 1),
        (numeric, "4", 0),
    ):
        assert benchmark.score(task, answer).reward == pytest.approx(reward)
    # The judge is not asked about answers that the checker accepts or that other checkers score.
    assert asked[0] == ("Which is it?", ["Tarn", "the Tarn"], "that river") and len(asked) == 4
    # An answer without a verdict counts as neither solved nor attempted.
    score = benchmark.score(exact, "which?")
    assert score.reason in BROKEN_EPISODES and not score.valid
    assert score.detail["judge_error"] == "TimeoutError: no reply"


def test_the_files_of_gsm8k_are_read_as_they_are(tmp_path):
    lines = [
        {
            "question": f"Nora packs {n} boxes of {n + 3} pears. How many pears are that?",
            "answer": f"Each has {n + 3}: {n}*{n + 3}=<<{n}*{n + 3}={n * (n + 3)}>>.\n#### {n * (n + 3):,}",
        }
        for n in range(1, 101)
    ]
    table = tmp_path / "train.parquet"
    table.write_bytes(_parquet(lines))
    for train in (_write(tmp_path / "train.jsonl", *lines), str(table)):
        benchmark = registry.make_benchmark("custom", train=train, checker="last_number")
        tasks = [*benchmark.tasks("seed"), *benchmark.tasks("eval")]
        assert len(tasks) == 100 and {type(task.answer["reference"]) for task in tasks} == {int}
        for task in tasks:
            said = f"First 2 steps, then {task.answer['reference']:,} pears."
            assert benchmark.score(task, said).reward == 1.0 > benchmark.score(task, "2").reward


def test_one_file_is_divided_by_its_prompts(tmp_path):
    """Regardless of order and of other lines; four fifths are seeds by default."""
    asked = [{"prompt": f"Which town is number {n}?", "answer": f"Town {n}"} for n in range(400)]
    whole = registry.make_benchmark("custom", train=_write(tmp_path / "a.jsonl", *asked))
    part = registry.make_benchmark("custom", train=_write(tmp_path / "b.jsonl", *asked[:99:-1]))
    prompts = lambda b, split: {b.text(task) for task in b.tasks(split)}  # noqa: E731
    assert 0.75 < len(whole.tasks("seed")) / 400 < 0.85
    assert not prompts(whole, "seed") & prompts(whole, "eval")
    assert prompts(part, "eval") < prompts(whole, "eval")
    half = registry.make_benchmark("custom", train=whole.train, seed_fraction=0.5)
    assert prompts(half, "seed") < prompts(whole, "seed")
    assert "0.2 of it" in whole.about()["held_out"]


def test_seeds_that_are_held_out_are_left_out(tmp_path, caplog):
    other = {"prompt": "Which one is the other?", "answer": "Tarn"}
    unseen = {"prompt": "Which one of them is it?", "answer": "Velm"}
    same = {"prompt": "WHICH one of them is it", "answer": "Velm"}
    sums = [{"prompt": f"What is 7 {sign} 3?", "answer": "x"} for sign in "+-/×÷"]
    benchmark = registry.make_benchmark(
        "custom",
        train=_write(tmp_path / "train.jsonl", same, other, other, *sums),
        held_out=_write(tmp_path / "test.jsonl", unseen, sums[0]),
    )
    kept = [benchmark.text(task) for task in benchmark.tasks("seed")]
    assert "custom: 2 seeds dropped: they ask held-out questions" in caplog.text
    assert "custom: 1 seeds dropped: they ask what other seeds ask" in caplog.text
    assert kept == [other["prompt"], *(asked["prompt"] for asked in sums[1:])]
    made = Verifier(benchmark, [], benchmark.tasks("eval"), VerificationConfig())
    written = json.dumps(unseen | {"prompt": "Now then, which one of them is it really?"})
    (seed, *_) = benchmark.tasks("seed")
    for text in (json.dumps(same), written):
        assert made.decide(_inspect(benchmark, text, seed)).reason == base.CONTAMINATED


def test_a_prompt_that_names_its_answer_may_be_varied_as_such(tmp_path):
    chosen = {"prompt": "Which is larger, a cat or a horse?", "answer": "a horse"}
    benchmark = _of(tmp_path, chosen, ASKED)
    listed, free = benchmark.tasks("seed")
    new = json.dumps({"prompt": "Which is smaller, a mouse or a cow?", "answer": "a mouse"})
    for text in (new, f"```json\n{new}\n```"):
        assert isinstance(_inspect(benchmark, text, listed), base.Task)
    assert _inspect(benchmark, new, free).reason == base.GIVEN_AWAY


def test_the_context_stays(tmp_path):
    record = {"prompt": [BRIEF, {"role": "user", "content": "Who?"}], "answer": "Ann"}
    benchmark = _of(tmp_path, record, ASKED)
    first, second = benchmark.tasks("seed")
    made = benchmark.parse('{"prompt": "Where?", "answer": "Oslo"}', first, "g", 0)
    said = benchmark.agent_messages(made)
    assert [m["role"] for m in said] == ["system", "user"] and said[1]["content"] == "Where?"
    assert said[0]["content"].startswith("Be brief.\n\nEnd with the answer")
    asked = benchmark.simulator_messages(first, SeedStatistics())[1]["content"]
    assert "System: Be brief." in asked
    without = dataclasses.replace(made, messages=said[1:])
    assert benchmark.canonical(made) != benchmark.canonical(without)
    plain = _of(tmp_path, record, ASKED, instruction="")
    assert plain.agent_messages(first) == list(first.messages)
    assert plain.agent_messages(second) == list(second.messages)


# -- tools --------------------------------------------------------------------------------------------------


def test_tools_as_text(tmp_path):
    """In any format that files may use, before the answer's format; and for the simulator."""
    of_bfcl = {**OF_BOOK, "type": "dict", "properties": {**OF_BOOK["properties"], "price": {"type": "float"}}}
    forms = BOOKED["tools"], [BOOK], [{**BOOK, "parameters": of_bfcl}], json.dumps([BOOK])
    numbered = [(tools, f"{BOOKED['prompt']} {n}") for n, tools in enumerate(forms)]
    records = [BOOKED | {"tools": tools, "prompt": prompt} for tools, prompt in numbered]
    benchmark = _of(tmp_path, *records, ASKED)
    *seeds, plain = benchmark.tasks("seed")
    assert len(seeds) == 4 and plain.tools == () and all(seed.tools == (BOOK,) for seed in seeds)
    system = benchmark.agent_messages(seeds[0])[0]
    listed, form = system["content"].split("\n\n")
    assert json.loads(listed.split("\n")[1]) == BOOK and form == checkers.INSTRUCTIONS["call"]
    asked = benchmark.simulator_messages(seeds[0], SeedStatistics())[1]["content"]
    assert json.dumps(BOOK) in asked
    assert "Functions" not in str(benchmark.simulator_messages(plain, SeedStatistics()))
    answer = benchmark.agent_answer(seeds[0])
    assert answer == "[book(guests=4, day='Friday', wishes=['window'], price=2)]"
    assert benchmark.score(seeds[0], answer).reward == 1
    mine = _of(tmp_path, BOOKED, instruction="")
    assert mine.agent_messages(mine.tasks("seed")[0])[0]["content"].endswith(json.dumps(BOOK))


@pytest.mark.parametrize("form", FORMS)
def test_tools_in_the_template(tmp_path, form):
    said = [BRIEF, {"role": "user", "content": "Book for 4, Friday, window."}]
    benchmark = _of(tmp_path, BOOKED, BOOKED | {"prompt": said}, ASKED, shots=1)
    first, second, plain = in_form(benchmark, form).tasks("seed")
    for task in (first, second):
        tools, system, *_, user = benchmark.agent_messages(task)
        assert json.loads(tools["content"]) == BOOKED["tools"] and user == task.messages[-1]
        assert system["content"].endswith(checkers.IN_TEMPLATE)
        answer = benchmark.agent_answer(task)
        assert form_of(answer) == form and benchmark.verify(task) is None
        call = "[book(guests=4, day='Friday', wishes=['window'], price=2.0)]"
        for text in (answer, call):
            assert benchmark.score(task, text).success
    assert benchmark.prompt(plain)[0]["content"] == checkers.INSTRUCTIONS["exact"]
    assert benchmark.agent_answer(plain) == "<answer>Velm</answer>"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"guests": 2, "day": "Sunday"}, ""), ({"guests": 2, "day": "Friday"}, base.NOT_ASKED),
        ({"guests": 2}, ""), ({"guests": "2"}, base.BAD_ANSWER), ({"day": "Sunday"}, base.BAD_ANSWER),
        ({"guests": 2, "day": "Monday"}, base.BAD_ANSWER), ({"guests": 2, "place": "Oslo"}, base.BAD_ANSWER),
        ({"guests": 77}, base.NOT_ASKED),
    ],
)  # fmt: skip
def test_calls_of_a_generated_task_fit_the_tools(tmp_path, arguments, reason):
    benchmark = _of(tmp_path, BOOKED)
    (seed,) = benchmark.tasks("seed")
    text = json.dumps({"prompt": "A table for 2 on Sunday, please.", **_booked(**arguments)})
    found = _inspect(benchmark, text, seed)
    assert _reason(found if isinstance(found, Rejection) else benchmark.grounding(found)) == reason


def test_what_is_not_a_call_of_the_tools_is_wrong(tmp_path):
    benchmark = _of(tmp_path, BOOKED)
    benchmark.use_template("<tool_call>")
    (seed,) = benchmark.tasks("seed")
    right = benchmark.agent_answer(seed)
    assert "tools" in benchmark.about()
    for text, reason in {
        right.replace("book", "cook"): "wrong_answer",
        right.replace("4", '"4"'): "wrong_answer",
        right.replace("4", '4, "hour": 1'): "wrong_answer",
        f"{right}\n{right}": "wrong_answer",
        right[:-20]: base.UNPARSABLE,
        "I cannot.": base.UNPARSABLE,
        200 * right: base.TOO_LONG,
    }.items():
        score = benchmark.score(seed, text)
        assert (score.reward, score.reason) == (0, reason)


# -- the data of the paper's authors ------------------------------------------------------------------------

VERL = [
    {
        "data_source": "sums",
        "prompt": [{"role": "user", "content": rf"What is {sum_}? Answer in \boxed{{}}."}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"index": index, "split": "train"},
    }
    for index, (sum_, truth) in enumerate((("2 + 2", "4"), ("2 * 9", '{"answer": 18}')))
]
TOOLS = [
    {
        "prompt": f"Please call {name} for me",
        "reward_model": {"ground_truth": {"name": name, "parameters": parameters}},
    }
    for name, parameters in (("f", {"a": 1, "b": None}), ("g", {"a": None, "b": "x"}))
]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_verls_columns(tmp_path, form):
    def stored(name, records):
        path = tmp_path / f"{name}.{form}"
        path.write_bytes((_lines if form == "jsonl" else _parquet)(records))
        return str(path)

    parts = {"train": stored("train", VERL[:1]), "held_out": stored("test", VERL[1:])}
    sums = registry.make_benchmark("custom", **parts, instruction="")
    (seed,), (unseen,) = sums.tasks("seed"), sums.tasks("eval")
    assert (seed.category, unseen.answer["reference"]) == ("sums", "18")
    scored = [
        (seed, Score(1.0, True, True)),
        *((dataclasses.replace(seed, category=category), Score(success, success == 1, True))
          for category, success in (("a/b", 0.0), ("a-b", 1.0), ("a%2Fb", 1.0), ("a|b", 0.0), ("a b", 1.0))),
    ]  # fmt: skip
    assert sums.aggregate(scored) == {
        "accuracy": pytest.approx(4 / 6), "reward": pytest.approx(4 / 6), "accuracy_sums": 1.0,
        "accuracy_a%2Fb": 0.0, "accuracy_a-b": 1.0, "accuracy_a%252Fb": 1.0, "accuracy_a|b": 0.0,
        "accuracy_a b": 1.0,
    }  # fmt: skip
    assert sums.agent_messages(seed) == VERL[0]["prompt"]
    assert sums.score(unseen, r"9 + 9 = 18, so \boxed{18}").success
    tools = _all_seeds(stored("t", TOOLS), checker="call")
    first, second = tools.tasks("seed")
    assert first.answer["reference"] == [{"f": {"a": 1}}]
    assert second.answer["reference"] == [{"g": {"b": "x"}}]
    called = '<tool_call>{"name": "f", "parameters": {"a": 1}}</tool_call>'
    assert tools.score(first, called).success
    own = _all_seeds(stored("own", [ASKED]))
    assert own.score(own.tasks("seed")[0], "Velm").success
    of_pay = {"type": "object", "properties": {"sum": {"type": "number"}}}
    two = [BOOK, {"name": "pay", "parameters": of_pay}]
    (seed,) = _all_seeds(stored("booked", [BOOKED | {"tools": two}])).tasks("seed")
    properties = [[*tool["parameters"]["properties"]] for tool in seed.tools]
    assert properties == [[*OF_BOOK["properties"]], ["sum"]]


def _parquet(records):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(records), out := io.BytesIO())
    return out.getvalue()


def _lines(records, ends="\n"):
    return "".join(json.dumps(record) + ends for record in records).encode()


CARRIERS = {
    "bom.jsonl": lambda records: b"\xef\xbb\xbf" + _lines(records, "\r\n"),
    "a.jsonl.gz": lambda records: gzip.compress(_lines(records)),
    "blank": lambda records: b"\n\r\n" + _lines(records, "\n\n"),
    "array.json": lambda records: json.dumps(records, indent=1).encode(),
    "array.txt": lambda records: b"\xef\xbb\xbf\r\n" + json.dumps(records).encode(),
    "a.PARQUET": _parquet,
    "a.pq": _parquet,
    "a.parquet.gz": lambda records: gzip.compress(_parquet(records)),
}
_SAID = [BRIEF, {"role": "user", "content": "Which one?"}]
_PARTS = [{"type": "text", "text": "Which "}, {"type": "text", "text": "one?"}]
_CALLS = [{"a": 1, "o": {"x": 1}}, {"b": "x", "o": {"y": [{"u": 1}, {"v": None}]}}, {}]
_TRUTHS = (
    '[{"name": "f", "arguments": {"a": null}, "id": "c1", "type": "function"}]',
    '{"name": "f", "parameters": {}}',
)
SETS = {
    "numbers": (
        "exact",
        [{"prompt": f"What is number {n}?", "answer": n + 70.0} for n in range(3)],
        ["70", "71", "72"],
    ),
    "messages": (
        "exact",
        [{"prompt": said if isinstance(said, str) else json.dumps(said), "answer": "x"} for said in (
            _SAID,
            str(_SAID),
            [_SAID[0], {"role": "user", "content": _PARTS}],
            [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "Which one?"}],
        )],
        ["x"] * 4,
    ),
    "calls": (
        "call",
        [{"prompt": f"Do {n}", "answer": {"name": "f", "arguments": of}, "category": "c" if n else None}
         for n, of in enumerate(_CALLS)],
        [[{"f": {"a": 1, "o": {"x": 1}}}], [{"f": {"b": "x", "o": {"y": [{"u": 1}, {}]}}}], [{"f": {}}]],
    ),
    "calls of verl": (
        "call",
        [{"prompt": [{**_SAID[1], "name": None}], "answer": None, "checker": None,
          "reward_model": {"ground_truth": truth}}
         for truth in _TRUTHS],
        [[{"f": {}}]] * 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CARRIERS)
@pytest.mark.parametrize(("checker", "records", "references"), SETS.values(), ids=SETS)
def test_the_same_data_is_the_same_tasks(tmp_path, name, checker, records, references):
    (tmp_path / name).write_bytes(CARRIERS[name](records))
    plain = _write(tmp_path / "plain.jsonl", *records)
    both = (_all_seeds(path, checker=checker) for path in (tmp_path / name, plain))
    read, same = ([*of._made("seed")] for of in both)
    assert read == same and [task.answer["reference"] for task in read] == references
    if "Be brief" in str(records):
        assert all([*task.messages] == _SAID for task in read)


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        (71.0, "71"), (-0.0, "0"), (np.float32(71.1), "71.1"), (decimal.Decimal("71"), "71"),
        (decimal.Decimal("71.50"), "71.5"), (b"Velm", "Velm"), ([decimal.Decimal("3")], ["3"]),
        (float("nan"), None), (float("inf"), None), (b"\xff", None),
    ],
)  # fmt: skip
def test_an_answer_of_a_table_is_its_text_or_refused(tmp_path, answer, reference):
    (tmp_path / "a.parquet").write_bytes(_parquet([ASKED | {"answer": answer}]))
    benchmark = _all_seeds(tmp_path / "a.parquet")
    if reference is None:
        with pytest.raises(ValueError, match=r"a\.parquet:1: .*answer"):
            benchmark.tasks("seed")
    else:
        assert benchmark.tasks("seed")[0].answer["reference"] == reference


def test_a_row_that_is_not_right_is_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(_parquet([ASKED, {"prompt": "x?"}]))
    with pytest.raises(ValueError, match=r"a\.parquet:2: no answer; expected"):
        _all_seeds(tmp_path / "a.parquet").tasks("eval")


def _dictionary(values, count, name="prompt"):
    """A small file of `count` records with the same value in a field."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {name: values, "answer": "4"}
    table = pyarrow.table({key: pyarrow.repeat(of, count) for key, of in columns.items()})
    parquet.write_table(table, out := io.BytesIO(), compression="zstd")
    assert len(out.getvalue()) < 2**20
    return out.getvalue()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: _dictionary("2 + 2?", 5 * 10**6), "prompt has 5,000,000 values: expected at most"),
        (lambda: _dictionary([[0] * 10**6], 5, "tools"), "tools.list.element.* has 5,000,000 val"),
        (lambda: _dictionary("2 + 2? " * 10**4, 10**4), "more than 1 GiB of questions"),
        (lambda: gzip.compress(_lines([ASKED]) * 10**5), "more than"),
        (lambda: _lines([ASKED]) * 10**5, "more than"),
        (lambda: _lines([ASKED | {"prompt": f"{n}?a"} for n in range(200)]), "at most 100 records"),
    ],
)
def test_a_file_that_grows_is_refused_before_it_has(bounded, tmp_path, monkeypatch, make, message):
    monkeypatch.setattr(files, "_MAX_FILE", 2**22)
    monkeypatch.setattr(files, "_MAX_RECORDS", 100)
    path = tmp_path / "large"
    path.write_bytes(make())
    with pytest.raises(ValueError, match=message):
        registry.make_benchmark("custom", train=str(path)).tasks("seed")


# -- classes ------------------------------------------------------------------------------------------------

MODULE = '''
"""Classes of somebody's own."""

import dataclasses
import json

from genenv_jax.benchmarks.base import Benchmark
from genenv_jax.benchmarks.custom.benchmark import Custom, Question

@dataclasses.dataclass(kw_only=True, eq=False)
class Good(Custom):
    name = "good"
    checker = "numeric"
    step: int = 2

    def questions(self, split):
        start = {"seed": 0, "eval": 100}[split]
        return [Question(f"What comes after number {n}?", n + self.step) for n in range(start, start + 5)]

    def check(self, question):
        number = int(question.prompt.split()[-1].strip("?"))
        return "" if question.answer == number + self.step else f"it is {number + self.step}"

    def grade(self, question, answer):
        return 0.5 if answer == "50" else super().grade(question, answer)

class One(Custom):
    def questions(self, split):
        return [Question("Which one?", "x")]

@dataclasses.dataclass(kw_only=True, eq=False)
class Needs(One):
    size: int

class Bare(One):
    size: int = 3

class Empty(Custom):
    pass

class Other:
    pass

class Half(Benchmark):
    def load(self, split):
        return []

class Odd(One):
    def questions(self, split):
        return [1]

class Raises(One):
    def questions(self, split):
        return {}[split]

class Parses(One):
    def questions(self, split):
        return json.loads("[")

class Checks(One):
    def check(self, question):
        return 1 / 0

class Made(One):
    def __post_init__(self):
        {}[3]

class Grades(One):
    def grade(self, question, answer):
        return 1.5

def function():
    pass

def near(question, answer):
    while answer == "13":
        pass
    return max(0, 1 - abs(float(answer) - question.answer) / 10)

def double(question, answer):
    return 2
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A working directory with mine.py and some modules that cannot be imported."""
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "raises.py").write_text("import json\nx = 1 / 0\n")
    (tmp_path / "ends.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "syntax.py").write_text("def f(:\n")
    (tmp_path / "needs.py").write_text("import no_such_package\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    yield
    for name in ("mine", "raises", "ends", "syntax", "needs"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing:A", "there is no module 'nothing'; expected it in .* or on PYTHONPATH"),
        ("mine.sub:A", "there is no module 'mine.sub'|'mine' is not a package"),
        ("mine:", "expected module:Class"),
        ("mine.py:Good", "there is no module 'mine.py'|'mine' is not a package"),
        ("../mine:Good", "expected module:Class"),
        ("mine:Goood", "mine has no class Goood; did you mean Good?"),
        ("mine:function", "mine has no class function; expected it in .*mine.py"),
        ("mine:Other", "Other is not a benchmark; expected a subclass of genenv_jax.benchmarks.base"),
        ("mine:Half", "Half lacks verdict$"),
        ("mine:Empty", "Empty lacks questions$"),
        ("mine:Needs", "config.benchmark.size is missing: mine:Needs has no default for it"),
        ("mine:Odd", r"Odd.questions\('eval'\)\[0\] is 1: expected a Question"),
        ("mine:Raises", r"Raises.questions\('eval'\) raised KeyError: 'eval' \(mine.py:\d+ in questions\)$"),
        ("mine:Parses", r"raised JSONDecodeError: .* \(mine.py:\d+ in questions\)$"),
        ("mine:Checks", r"bad_answer: malformed task: ZeroDivisionError: .* \(mine.py:\d+ in check\)$"),
        ("mine:Made", r"mine:Made cannot be made: KeyError: 3 \(mine.py:\d+ in __post_init__\)$"),
        ("mine:Grades", r"Grades.questions\('eval'\)\[0\]: .*grade returned 1.5: expected a number in"),
        ("mine:Bare", "Bare has the options size but is not a dataclass: expected @dataclasses"),
        ("raises:A", r"cannot be imported: ZeroDivisionError: .*\(raises.py:2\)"),
        ("ends:A", "cannot be imported: SystemExit"),
        ("syntax:A", r"cannot be imported: SyntaxError: .*\(syntax.py, line 1\)"),
        ("needs:A", r"cannot be imported: ModuleNotFoundError: .*no_such_package.* \(needs.py:1\)"),
        ("dail", "expected one of .*'dial'.*, or module:Class"),
    ],
)  # fmt: skip
def test_a_class_that_cannot_be_had_is_named(module, name, message):
    with pytest.raises(ValueError, match=message):
        registry.make_benchmark(name).tasks("seed")


def test_a_class_and_its_options(module):
    good = registry.make_benchmark("mine:Good", step=3, shots=1)
    assert isinstance(good, base.Benchmark) and good.checker == "numeric" and good.isolated
    assert registry.default_options("mine:Good")["step"] == 2
    unknown = "config.benchmark.stp is not an option of mine:Good; did you mean step"
    with pytest.raises(ValueError, match=unknown):
        registry.make_benchmark("mine:Good", stp=3)
    with pytest.raises(ValueError, match="max_seeds = -1: expected an integer"):
        registry.make_benchmark("mine:Good", max_seeds=-1)
    (seed, *_), unseen = good.tasks("seed"), good.tasks("eval")
    assert good.score(unseen[0], "103") == Score(1.0, True, True)
    assert good.score(unseen[0], "50") == Score(0.5, False, True, "wrong_answer")
    verdicts = {
        '{"prompt": "What comes after number 50?", "answer": 53}': "",
        '{"prompt": "What comes after number 50?", "answer": 52}': base.WRONG_ANSWER,
        '{"prompt": "What comes after number fifty?", "answer": 53}': base.BAD_ANSWER,  # check raises
        '{"prompt": "What comes after number 50?", "answer": 1e400}': base.UNPARSABLE,
    }
    for text, reason in verdicts.items():
        assert _reason(_inspect(good, text, seed)) == reason
    assert good.grounding(seed) == base.GROUNDED
    roles = [m["role"] for m in good.agent_messages(unseen[0])]
    assert roles == ["system", "user", "assistant", "user"]
    few = good.aggregate([(seed, Score(1.0, True, True)), (seed, Score(0.5, False, True))])
    assert few == {"accuracy": 0.5, "reward": 0.75}


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ("mine:nearer", "reward = 'mine:nearer': mine has no function nearer; did you mean near?"),
        ("raises:near", "reward = 'raises:near': the module cannot be imported: ZeroDivisionError"),
        ("mine:double", "mine.jsonl:1: .*grade returned 2.0: expected a number in"),
        ("mine:function", "mine.jsonl:1: bad_answer: malformed task: TypeError"),
    ],
)
def test_a_reward_that_cannot_be_had_is_named(module, tmp_path, reward, message):
    path = _write(tmp_path / "mine.jsonl", {"prompt": "How many?", "answer": "3"})
    with pytest.raises(ValueError, match=message):
        registry.make_benchmark("custom", train=path, reward=reward).tasks("seed")


def test_a_function_grades_in_a_worker_process(module, tmp_path):
    path = _write(tmp_path / "mine.jsonl", {"prompt": "How many?", "answer": 30})
    options = {"train": path, "checker": "numeric", "seed_fraction": 1, "reward": "mine:near"}
    benchmark = registry.make_benchmark("custom", **options)
    (task,) = benchmark.tasks("seed")
    assert benchmark.isolated and benchmark.about()["checker"] == "mine:near"
    with contextlib.closing(Worker(benchmark, timeout=0.5)) as worker:
        assert worker.ask("score", (task, "<answer>28</answer>")).reward == 0.8
        assert worker.ask("score", (task, "<answer>30</answer>")).success
        with pytest.raises(Exception, match="no answer within 0.5 s"):
            worker.ask("score", (task, "13"))


def test_a_file_of_the_hub_is_read(tmp_path, monkeypatch):
    import huggingface_hub.errors

    path, asked = _write(tmp_path / "mine.jsonl", ASKED), []

    def download(repo_id, filename, **of):
        asked.append((repo_id, filename, of))
        if filename == "none":
            raise huggingface_hub.errors.LocalEntryNotFoundError("offline")
        return path

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    address = "hf://datasets/openai/gsm8k@~parquet/main/train/0000.parquet"
    benchmark = registry.make_benchmark("custom", train=address, seed_fraction=1)
    assert len(benchmark.tasks("seed")) == 1 and benchmark.about()["data"] == address
    of = {"repo_type": "dataset", "revision": "refs/convert/parquet"}
    assert asked[0] == ("openai/gsm8k", "main/train/0000.parquet", of)
    with pytest.raises(FileNotFoundError, match="hf://datasets/a/b/none could not be fetched"):
        registry.make_benchmark("custom", train="hf://datasets/a/b/none").tasks("seed")
