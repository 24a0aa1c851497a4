"""Multi-turn BFCL: episodes, single turns, generated tasks, and the official task counts."""

import json
import pickle

import pytest

from bench.bad_answers.common import HOSTILE
from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Rejection, Score, SeedStatistics, Task
from genenv_jax.benchmarks.bfcl import backends, fitting, multi_turn, prompts
from genenv_jax.benchmarks.bfcl.benchmark import BFCL
from genenv_jax.benchmarks.bfcl.categories import CONVERSATION, MULTI_TURN, TURN_STATE
from genenv_jax.experiment.plan import load_config
from tests.benchmarks import bfcl_tasks
from tests.benchmarks.bfcl_classes import HEAVY
from tests.benchmarks.bfcl_tasks import TOOLS, conversation, generation, turn


@pytest.fixture
def benchmark(executable):
    """Executed single turns; its data is never read."""
    return BFCL(data_dir="nowhere", multi_turn_rule="turn_state")


def test_an_episode_goes_turn_by_turn_and_shows_results(benchmark):
    task = conversation([["touch(file_name='x')"], ["ls()"]])
    episode = benchmark.episode(task)
    assert benchmark.is_interactive(task) and not benchmark.is_interactive(turn([]))
    assert [m["role"] for m in episode.messages()] == ["system", "user"]
    assert episode.step("<think>A file.</think>[touch(file_name='x')]") is None
    answer, results = [message["content"] for message in episode.messages()[-2:]]
    assert (answer, results) == ("[touch(file_name='x')]", "Results of the calls:\ntouch: None")
    assert episode.step("Done.") is None
    # The next request; roles alternate, as chat templates require.
    assert [m["role"] for m in episode.messages()[1:]] == ["user", "assistant"] * 2 + ["user"]
    assert episode.messages()[-1]["content"] == "Request 1."
    assert episode.step("[ls()]") is None
    assert "notes" in episode.messages()[-1]["content"]
    score = episode.step("Those are the files.")
    assert score.success and score.reward == 1.0 and score.reason == ""
    assert score.detail == {"turns": 2, "passed_turns": 2, "steps": 4}
    assert episode.step("[ls()]") is score
    episode.close()


_MAKE, _LOOK = [["touch(file_name='x')"], ["ls()"]], [["ls()"], ["ls()"]]
_STEPS = ["[ls()]"] * multi_turn.MAX_STEPS


@pytest.mark.parametrize(
    ("calls", "answers", "reason"),
    [
        (_MAKE, ["Done."], multi_turn.EMPTY_TURN),
        (_MAKE, ["[]"], multi_turn.EMPTY_TURN),
        (_MAKE, [""], multi_turn.EMPTY_TURN),
        (_MAKE, ["[ls()]", "Done."], multi_turn.STATE_MISMATCH),
        (_MAKE, ["[touch(file_name='y')]", "Done."], multi_turn.STATE_MISMATCH),
        (_MAKE, ["[touch(file_name='x')]", "", "Done."], multi_turn.EMPTY_TURN),
        (_MAKE, ["[touch(file_name='x')]", "", "[cd(folder='work')]", ""], multi_turn.RESPONSE_MISMATCH),
        # Detours, results seen earlier and several steps are accepted.
        (_MAKE, ["[ls(), touch(file_name='x')]", "", "[ls()]", ""], ""),
        (_MAKE, ["[touch(file_name='x')]", "[ls()]", "", "[cat(file_name='notes')]", ""], ""),
        # Turns without reference calls are not checked, but changes in them count in the next.
        ([[], ["ls()"]], ["Which file?", "[ls()]", "Done."], ""),
        ([[], ["ls()"]], ["[cat(file_name='notes')]", "", "[ls()]", "Done."], ""),
        ([[], ["ls()"]], ["[touch(file_name='x')]", "", "[ls()]", "Done."], multi_turn.STATE_MISMATCH),
        (_LOOK, [*_STEPS, "Done.", "[ls()]", "Done."], ""),
        (_LOOK, [*_STEPS, "[ls()]"], multi_turn.FORCE_TERMINATED),
        # In the last turn the official evaluator misses this and compares.
        (_LOOK, ["[ls()]", "Done.", *_STEPS, "[ls()]"], ""),
    ],
)
def test_the_official_rules(benchmark, calls, answers, reason):
    episode = benchmark.episode(conversation(calls))
    assert not any(map(episode.step, answers[:-1]))
    score = episode.step(answers[-1])
    assert score.reason == reason and score.success == (reason == "") and score.valid


def test_a_transcript_is_scored_like_the_episode(benchmark):
    task = conversation([["touch('x')", "ls()"], []])
    written = benchmark.agent_answer(task)
    assert json.loads(written) == [["[touch(file_name='x'), ls()]", "Done."], ["Done."]]
    assert benchmark.score(task, written).success and benchmark.verify(task) is None
    assert benchmark.score(task, "[[]]").reason == multi_turn.FORCE_TERMINATED
    assert benchmark.score(task, "[[], []]").reason == multi_turn.EMPTY_TURN
    assert not benchmark.score(task, "[ls()]").valid
    assert benchmark.score(task, '[["[ls()]"], 3]').reason == base.UNPARSABLE


def test_long_conversations_fit_and_keep_the_request(benchmark):
    turns = [[{"role": "user", "content": f"Request {i}. " + "word " * 200}] for i in range(40)]
    task = conversation([["ls()"]] * 40, turns)
    episode = benchmark.episode(task)
    call = f"[ls(), echo(content='{'long ' * 300}', file_name='notes')]"
    for index in range(12):
        answer = call.replace("notes", f"f{index}") if index % 2 == 0 else "Done."
        assert "Request 0." in episode.messages()[1]["content"] or index > 0
        episode.step("[ls()]" if index % 2 == 0 else answer)
    for _ in range(15):
        episode.step("[cat(file_name='notes')]")
        messages = episode.messages()
        assert sum(len(m["content"]) for m in messages) <= prompts.MAX_CHARS
        assert any("Request 6." in m["content"] for m in messages)
    assert fitting.shortened("abcdefgh" * 10, 8).startswith("abcdef […72 characters left out…]")


@pytest.mark.parametrize(
    "text",
    [*HOSTILE.values(), *(pytest.param(text, marks=pytest.mark.slow) for text in HEAVY.values())],
    ids=[*HOSTILE, *HEAVY],
)
def test_hostile_answers_get_a_score_in_bounded_time(bounded, benchmark, text):
    episode = benchmark.episode(conversation([["ls()"], ["ls()"]]))
    score = episode.step(text)
    assert score is None or not score.success
    assert sum(len(m["content"]) for m in episode.messages()) <= prompts.MAX_CHARS
    for message in episode.messages():
        message["content"].encode()
    for task in (turn(["touch(file_name='x')"]), conversation([["ls()"]])):
        assert not benchmark.score(task, text).success
    made = benchmark.parse(generation(answer=text), turn(["touch(file_name='x')"]), "g", 0)
    assert isinstance(made, Rejection | Task)


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("[touch(file_name='x')]", Score(1.0, True, True)),
        ("[touch('x')]", Score(1.0, True, True)),
        # Needless calls cost reward and no success.
        ("[ls(), touch(file_name='x')]", Score(0.5, True, True)),
        ("[touch(file_name='x'), touch(file_name='x')]", Score(0.5, True, True)),
        ("[ls(), touch(file_name='x'), cd(folder='work')]", Score(0.0, True, True)),
        (f"[touch(file_name='x'), {', '.join(['ls()'] * 50)}]", Score(0.0, True, True)),
        ("[touch(file_name='y')]", Score(0.0, False, True, multi_turn.STATE_MISMATCH)),
        ("[ls()]", Score(0.0, False, True, multi_turn.STATE_MISMATCH)),
        ("[]", Score(0.0, False, True, multi_turn.EMPTY_TURN)),
        ("I do not know.", Score(0.0, False, False, "decoder_failed")),
        ("", Score(0.0, False, False, "empty")),
        ("\0", Score(0.0, False, False, "not_text")),
        (f"[{', '.join(['ls()'] * 200)}]", Score(0.0, False, False, "too_long")),
    ],
)
def test_a_turn_on_its_own_is_executed(benchmark, answer, score):
    assert benchmark.score(turn(["touch(file_name='x')"]), answer) == score


def test_as_many_calls_as_the_reference_has_are_needed(benchmark):
    """Even if a simulator wrote it."""
    text = generation("same", "Look twice.", "[ls(), cat(file_name='notes')]")
    made = benchmark.parse(text, turn(["touch(file_name='x')"]), "g0", 1)
    assert benchmark.score(made, "[cat(file_name='notes'), ls()]").reward == 1.0
    answers = [f"[cat(file_name='notes'), ls(){', ls()' * count}]" for count in range(1, 5)]
    scores = [benchmark.score(made, answer) for answer in answers]
    assert all(score.success for score in scores)
    assert [score.reward for score in scores] == pytest.approx([2 / 3, 1 / 3, 0, 0])


def test_a_turn_starts_where_the_history_ends(benchmark):
    task = turn(["ls()"], (["touch(file_name='x')"], ["cd(folder='work')"]))
    assert benchmark.score(task, "[ls()]").success
    # Results in the history are not the agent's own, so it must look for itself.
    assert not benchmark.score(task, "[cd(folder='..')]").success


def test_generated_turns_must_run_on_their_seeds_state(benchmark):
    seed = turn(["touch(file_name='x')"])
    assert benchmark.verify(seed) is None
    system, given, *_ = benchmark.simulator_messages(seed, SeedStatistics(4, 2))
    assert "without an error" in system["content"] and '"notes"' in given["content"]

    def made(answer, tools="same"):
        text = generation(tools, "Show the file of notes.", answer)
        task = benchmark.parse(text, seed, "g0", 1)
        return task if isinstance(task, Rejection) else benchmark.verify(task) or task

    task = made("[cat(file_name='notes')]")
    assert isinstance(task, Task) and task.answer["calls"] == ["cat(file_name='notes')"]
    assert benchmark.score(task, "[cat(file_name='notes')]").success
    assert not benchmark.score(task, "[touch(file_name='x')]").success
    again = benchmark.parse(benchmark.simulator_answer(task), seed, "g0", 1)
    assert again == task
    assert made("[cat(file_name='absent')]").reason == base.NOT_EXECUTABLE
    assert made("[remove(file_name='notes')]").reason == base.BAD_ANSWER
    assert made("[cat(file_name='notes')]", json.dumps([TOOLS[0]])).reason == base.NOT_EXECUTABLE


def test_the_package_of_a_rule_is_checked_at_once(monkeypatch):
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install --no-deps bfcl-eval==2026.3.23"):
        BFCL(multi_turn_rule="conversation")
    assert not BFCL().isolated
    single = BFCL(multi_turn_rule="conversation", seed_categories=(), eval_categories=("multiple",))
    assert not single.isolated


@pytest.mark.parametrize("installed", [True, False])
def test_training_executes_where_it_can(monkeypatch, installed):
    monkeypatch.setattr(backends, "is_installed", lambda: installed)
    rule = load_config("configs/bfcl.py", "config").benchmark.multi_turn_rule
    assert rule == ("turn_state" if installed else "turn_static")
    assert BFCL(data_dir="nowhere", multi_turn_rule=rule).about()["bfcl_multi_turn_rule"] == rule


def test_it_says_what_its_numbers_are(benchmark):
    assert benchmark.isolated and pickle.loads(pickle.dumps(benchmark)).isolated
    about = benchmark.about()
    assert about["bfcl_version"] == "v4" and about["bfcl_multi_turn_rule"] == "turn_state"
    assert about["bfcl_eval_version"] == backends.package_version()
    v3 = BFCL(version="v3", data_dir="nowhere", multi_turn_rule="conversation")
    assert "48 of the 800" in v3.about()["bfcl_v3_classes"]
    assert "bfcl_eval_version" not in BFCL().about()


def test_multi_turn_is_the_mean_of_its_four(benchmark):
    def results(rule):
        counts = zip(MULTI_TURN, (1, 0, 2, 1), (1, 3, 4, 2), strict=True)
        won = [(name, i, i < passed) for name, passed, count in counts for i in range(count)]
        tasks = [Task(f"{name}_{i}", "bfcl", name, (), answer={"rule": rule}) for name, i, _ in won]
        return list(zip(tasks, (Score(float(of), of, True) for *_, of in won), strict=True))

    metrics = benchmark.aggregate(results(CONVERSATION))
    assert metrics["multi_turn"] == pytest.approx((1 + 0 + 0.5 + 0.5) / 4)
    assert metrics["multi_turn_base"] == 1 and "overall" not in metrics
    executed = benchmark.aggregate(results(TURN_STATE))
    assert executed["multi_turn_base_turn_state"] == 1 and "multi_turn" not in executed


@pytest.mark.parametrize("category", MULTI_TURN)
@pytest.mark.parametrize("rule", ["turn_state", "conversation"])
def test_every_reference_is_accepted_when_executed(executable, tmp_path, category, rule):
    benchmark = bfcl_tasks.of_category(bfcl_tasks.write(tmp_path), category, rule)
    tasks = benchmark.tasks("eval")
    assert len(tasks) == bfcl_tasks.COUNT * (3 if rule == "turn_state" else 1)
    for task in tasks:
        assert benchmark.score(task, benchmark.agent_answer(task)).success, task.id
        assert not benchmark.score(task, "[]").success
        assert sum(len(m["content"]) for m in benchmark.agent_messages(task)) <= 13_500


def test_requests_of_held_out_conversations_do_not_come_back(executable, tmp_path):
    directory = bfcl_tasks.write(tmp_path)
    benchmark = BFCL(data_dir=directory, multi_turn_rule="conversation", seed_fraction=0.5)
    seeds, held_out = benchmark.tasks("seed"), benchmark.tasks("eval")
    assert {task.answer["rule"] for task in seeds} == {TURN_STATE}
    assert {task.answer["rule"] for task in held_out} == {CONVERSATION}
    # A turn shows the results of earlier calls.
    assert any("Results of the calls:" in m["content"] for m in seeds[-1].messages)
    for stolen in (benchmark.text(held_out[0]).split("\n")[1].upper(), "Something else."):
        text = generation("same", stolen, benchmark.agent_answer(seeds[0]))
        made = pickle.loads(pickle.dumps(benchmark)).parse(text, seeds[0], "g0", 0)
        verdict = pickle.loads(pickle.dumps(benchmark)).verify(made)
        reason = None if verdict is None else verdict.reason
        assert reason == (None if stolen.startswith("Something") else base.CONTAMINATED)
    assert benchmark.canonical(held_out[0]) != benchmark.canonical(held_out[1])
