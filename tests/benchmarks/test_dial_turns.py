"""The embedded default in turns: programs, episodes, the simulator's texts, demonstrations."""

import collections
import dataclasses
import itertools
import json

import numpy as np
import pytest

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Score, Task
from genenv_jax.benchmarks.calls import form_of, write_calls
from genenv_jax.benchmarks.demonstrations import endless, play
from genenv_jax.benchmarks.dial.demonstrations import TurnsDemonstrator
from genenv_jax.benchmarks.dial.episode import ANSWER_CHARS
from genenv_jax.benchmarks.dial.programs import Choice, Program, read_statement
from genenv_jax.benchmarks.dial.turns import NO_CHOICE, DialTurns
from tests.benchmarks.test_calls import FORMS, in_form
from tests.benchmarks.test_dial import parsed

STATEMENT = (
    "Tools: add, subtract, multiply.\nStart at 3. 1 add 4, 2 if even multiply 3 else add 2, "
    "3 if above 1 subtract 2 else add 1."
)
GENERATION = (
    "Tools: add, subtract, multiply.\nStart at 3. 1 add 4 [add(3, 4) at 2], 2 if even multiply 3 else add 2 "
    "[multiply(2, 3) at 1], 3 if above 1 subtract 2 else add 1 [add(1, 1) at 2]."
)
ANSWERS = ["1 add(3, 4)", "2 multiply(2, 3)", "3 add(1, 1)", "4 done 2"]
CHOICES = (Choice("even", ("multiply", 3), ("add", 2)), Choice("above 1", ("subtract", 2), ("add", 1)))
PROGRAM = Program(3, (("add", 4), *CHOICES))
# The words' meanings, implemented independently.
CALLED = {"add": lambda a, n: a + n, "subtract": lambda a, n: a - n, "multiply": lambda a, n: a * n}
TESTED = {
    "even": lambda at, _: at % 2 == 0,
    "odd": lambda at, _: at % 2 == 1,
    "above": lambda at, n: at > n,
    "below": lambda at, n: at < n,
}


@pytest.fixture(scope="module")
def dial():
    return DialTurns(positions=5)


@pytest.fixture(scope="module")
def task(dial):
    return dial.task(PROGRAM, id="x", category="depth_3")


def played(dial, task, answers):
    """(Verdict or None, conversation) after some answers."""
    episode, score = dial.episode(task), None
    for answer in answers:
        score = episode.step(answer)
        if score is not None:
            break
    return score, episode.messages()


def verdict(dial, task, answers):
    """(reward, valid, reason) of an episode that these answers end."""
    score, _ = played(dial, task, answers)
    assert score is not None and score.success == (score.reward == 1.0) == (not score.reason)
    return score.reward, score.valid, score.reason


# -- programs -----------------------------------------------------------------------------------------


def test_examples(dial, task):
    assert task.messages[-1]["content"] == dial.text(task) == STATEMENT
    assert dial.agent_answers(task) == ANSWERS
    assert dial.agent_answer(task) == "\n".join(ANSWERS)
    assert dial.simulator_answer(task) == GENERATION
    assert read_statement(STATEMENT) == dial.program(task) == PROGRAM
    assert dial.signature(task) == "add, if even multiply else add, if above subtract else add"
    assert dial.difficulty(task) == 3
    turned = STATEMENT.replace("if even multiply 3 else add 2", "if odd add 2 else multiply 3")
    same = dataclasses.replace(task, messages=({"role": "user", "content": turned},))
    even = {"role": "user", "content": turned.replace("odd", "even")}
    other = dataclasses.replace(same, messages=(even,))
    assert dial.canonical(task) == dial.canonical(same) != dial.canonical(other)


@pytest.mark.parametrize("positions", [2, 5, 10])
def test_the_interpreter(positions):
    rng = np.random.default_rng(positions)
    dial = DialTurns(positions=positions, num_seeds=2, eval_per_depth=1)
    seen = collections.Counter()
    for _ in range(300):
        program = dial.random_program(rng, int(rng.integers(1, 9)))
        assert read_statement(program.statement()) == program
        at, made = program.start, program.run(positions)
        assert len(made) == len(program.calls)
        items = program.statement().split(". ")[1].strip(".").split(", ")
        for item, (operation, position, n) in zip(items, made, strict=True):
            _, *words = item.split()
            if words[0] == "if":
                number = int(words[2]) if words[2].isdigit() else 0
                passes = TESTED[words[1]](at, number)
                seen[words[1], passes] += 1
                otherwise = words.index("else")
                words = words[otherwise - 2 : otherwise] if passes else words[otherwise + 1 :]
            assert (operation, position, n) == (words[0], at, int(words[1]))
            at = CALLED[operation](at, n) % positions
    assert set(seen) == set(itertools.product(TESTED, (True, False)))
    assert min(seen.values()) > 4  # each test both passes and fails


# -- the data -----------------------------------------------------------------------------------------


def test_tasks_are_drawn(dial):
    rng, kinds = np.random.default_rng(0), collections.Counter()
    for depth, difficulty in enumerate(dial.difficulties, 1):
        for _ in range(100):
            task = dial.draw(rng, difficulty, "d")
            assert dial.verify(task) is None and dial.canonical(task) not in dial.held_out
            assert (task.category, dial.difficulty(task)) == (difficulty, depth)
            kinds.update(isinstance(call, Choice) for call in dial.program(task).calls)
    assert 0.45 < kinds[True] / kinds.total() < 0.55


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"spare_turns": -1}, "spare_turns = -1: expected an integer from 0 to 8"),
        ({"deeper": (7, 9)}, "benchmark: a depth of 9: expected at most 8"),
    ],
)
def test_impossible_options(options, message):
    with pytest.raises(ValueError, match=message):
        DialTurns(**options)


# -- episodes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", [2, 5, 10])
def test_the_reference_wins_every_episode(positions):
    """The conversation grows by the answer and one short message; earlier messages do not change."""
    dial = DialTurns(positions=positions)
    for task in (*dial.tasks("seed"), *dial.tasks("eval")):
        answers, episode = dial.agent_answers(task), dial.episode(task)
        before = episode.messages()
        assert before == dial.agent_messages(task)
        for answer in answers[:-1]:
            assert episode.step(answer) is None
            after = episode.messages()
            assert after[:-2] == before and after[-2] == {"role": "assistant", "content": answer}
            assert after[-1]["role"] == "user" and len(after[-1]["content"]) < 32
            before = after
        assert before[-1]["content"] == f"at {answers[-1][-1]}"
        won = Score(1.0, True, True, "", {"calls": len(answers) - 1, "refused": 0})
        assert episode.step(answers[-1]) == won
        assert episode.step("add(1, 1)") == won
        assert dial.score(task, dial.agent_answer(task)) == won
        episode.close()


def test_what_comes_back_depends_on_the_calls_alone(dial):
    """The same answers from the same start give the same conversation for any program."""
    rng, said = np.random.default_rng(0), collections.defaultdict(set)
    tasks = [dial.task(dial.random_program(rng, 6), id="", category="") for _ in range(60)]
    texts = [f"{name}({at}, {n})" for name in (*CALLED, "zap") for at in range(5) for n in range(6)]
    drawn = [enumerate(rng.choice([*texts, "x", ""], 6), 1) for _ in range(20)]
    scripts = [tuple(f"{i} {text}" for i, text in script) for script in drawn]
    for task in tasks:
        for script in scripts:
            episode, contents = dial.episode(task), []
            for answer in script:
                if episode.step(str(answer)) is not None:  # too many were refused
                    break
                contents.append(episode.messages()[-1]["content"])
            said[task.answer["start"], script].add(tuple(contents))
    assert len(said) == 5 * 20 and all(len(of) == 1 for of in said.values())


@pytest.mark.parametrize(
    ("answers", "observed"),
    [
        (["1 add(3, 4)"], "at 2"),
        (["1 subtract(3, 4)"], "at 4"),  # not requested, but executed
        (["2 add(3, 4)"], "not next, at 3"),
        (["9 done 3"], "not next, at 3"),
        (["1 add(2, 4)"], "not there, at 3"),
        (["1 add(3, 0)"], "no such argument, at 3"),
        (["1 add(3, 5)"], "no such argument, at 3"),
        (["1 zap(3, 4)"], "no such tool, at 3"),
        *((answers, "no call, at 3") for answers in (
            ["add(3, 4)"], ["0 add(3, 4)"], ["1 add(3,4)"], ["1 add(4)"], ["1 Add(3, 4)"],
            ["1 add(3, 4) 2 add(2, 1)"], ["1 add(3, 4)\nat 2\n2 multiply(2, 3)"], ["1 done"], ["1 done 2."],
            [""],
        )),
        (["  1 add(3, 4)\n"], "at 2"),
        (["1 add(3, 4)", "<|im_end|>"], "no call, at 2"),
        (["1 add(3, 4)", "1 add(2, 4)"], "not next, at 2"),
        (["1 add(3, 4)", "2 multiply(3, 3)"], "not there, at 2"),
    ],
)  # fmt: skip
def test_observations(dial, task, answers, observed):
    score, messages = played(dial, task, answers)
    assert score is None and messages[-1] == {"role": "user", "content": observed}
    assert [m["content"] for m in messages if m["role"] == "assistant"] == answers


def test_refused_calls_are_recovered_from_while_turns_are_left(dial, task):
    first, *others = ANSWERS
    for refused in ("1 zap(3, 4)", "9 add(3, 4)", "what?", ""):
        assert verdict(dial, task, [refused, refused, *ANSWERS]) == (1.0, True, "")
        assert verdict(dial, task, [refused, first, refused, *others]) == (1.0, True, "")
        assert verdict(dial, task, [*ANSWERS[:-1], refused, refused, "4 done 2"]) == (1.0, True, "")
        late = [*3 * [refused], *ANSWERS]
        assert verdict(dial, task, late) == (0.0, True, base.STEP_LIMIT)
    strict = DialTurns(positions=5, spare_turns=0)
    assert verdict(strict, task, ANSWERS) == (1.0, True, "")
    assert verdict(strict, task, ["1 zap(3, 4)", *ANSWERS]) == (0.0, True, base.STEP_LIMIT)


@pytest.mark.parametrize(
    ("answers", "valid", "reason"),
    [
        (["1 done 2"], True, "wrong_number_of_calls"),
        (["1 add(3, 4)", "2 done 2"], True, "wrong_number_of_calls"),  # ends right by chance
        ([*ANSWERS[:-1], "4 done 3"], True, "wrong_result"),
        ([*ANSWERS[:-1], "4 add(2, 1)", "5 done 3"], True, "wrong_number_of_calls"),
        (["1 subtract(3, 1)", *ANSWERS[1:]], True, "wrong_call"),  # the same position
        (["1 add(3, 4)", "2 add(2, 2)", "3 subtract(4, 2)", "4 done 2"], True, "wrong_call"),  # other branch
        (["1 add(3, 1)", "2 subtract(4, 1)", "3 add(3, 4)", "4 multiply(2, 3)", "5 add(1, 1)", "6 done 2"],
         True, "wrong_call"),  # undone
        (["1 add(3, 4)", "2 add(2, 2)", "3 subtract(4, 2)", "4 multiply(2, 3)", "5 add(1, 1)", "6 done 2"],
         True, "wrong_call"),  # both branches
        (["x"] * 6, False, base.UNPARSABLE),
        ([""] * 6, False, base.EMPTY),
        (["2 add(3, 4)"] * 6, False, "other_number"),
        (["1 zap(3, 4)"] * 6, False, "unknown_tool"),
        (["1 add(0, 4)"] * 6, False, "other_position"),
        (["1 add(3, 9)"] * 6, False, "unknown_argument"),
        (["1 add(3, 4)", *["x"] * 5], True, base.STEP_LIMIT),
        (["1 add(3, 4) " * 1000], False, base.TOO_LONG),
    ],
)  # fmt: skip
def test_what_is_lost(dial, task, answers, valid, reason):
    assert verdict(dial, task, answers) == (0.0, valid, reason)


def test_an_answer_is_read_up_to_a_length(dial, task):
    wide = ANSWERS[0] + " " * (ANSWER_CHARS - len(ANSWERS[0]))
    assert verdict(dial, task, [wide, *ANSWERS[1:]]) == (1.0, True, "")
    assert verdict(dial, task, [wide + " "]) == (0.0, False, base.TOO_LONG)


def test_a_text_is_scored_line_by_line(dial, task):
    def reason(text):
        score = dial.score(task, text)
        assert score.reward == 0 and not score.success
        return score.valid, score.reason

    text = "\n".join(ANSWERS)
    assert dial.score(task, f"\n {text} \n").success
    assert reason(" \n") == (False, base.EMPTY)
    assert reason(f"{text}\n5 add(2, 1)") == (False, base.UNPARSABLE)
    assert reason(f"{text}\n{text}") == (False, base.UNPARSABLE)
    assert reason("\n".join(ANSWERS[:-1])) == (True, base.STEP_LIMIT)
    assert reason("I cannot do that.") == (False, base.UNPARSABLE)
    assert reason("1 add(3, 4)\n" * 1_000_000)[1] == base.STEP_LIMIT


# -- prompts for a pretrained model -------------------------------------------------------------------


def for_template(form):
    return in_form(DialTurns(positions=5, num_seeds=8, eval_per_depth=1), form)


def call(name, *numbers):
    return {name: dict(zip(("position", "number"), numbers, strict=False))}


MADE = [call("add", 3, 4), call("multiply", 2, 3), call("add", 1, 1), call("done", 2)]


def test_the_rules_as_text(dial):
    """Their examples are right; models made from scratch get no rules."""
    told = DialTurns(positions=5, num_seeds=2, eval_per_depth=1)
    told.use_template("")
    task = told.tasks("seed")[0]
    system, asked, *turns, user = told.agent_messages(task)
    example = told.task(read_statement(asked["content"]), id="", category="")
    score, messages = played(told, example, [turn["content"] for turn in turns[::2]])
    assert score.success and messages[-len(turns) :] == turns
    assert "positions 0 to 4," in system["content"] and user == task.messages[0]
    assert dial.agent_messages(task)[0]["content"] == "Call the tools one at a time."


@pytest.mark.parametrize("form", FORMS)
def test_tools_in_the_template(form):
    """The reference is written in its format, played with tool results, and demonstrated so."""
    dial = for_template(form)
    for task in (*dial.tasks("seed"), *dial.tasks("eval")):
        answers = dial.agent_answers(task)
        assert {form_of(answer) for answer in answers} == {form}
        (tools, system, user), transcript = play(dial, task, answers)
        names = [tool["function"]["name"] for tool in json.loads(tools["content"])]
        assert names == [*CALLED, "done"]
        assert (tools["role"], system["role"], user) == ("tools", "system", task.messages[0])
        replies = [{"role": "tool", "content": f"at {end}"} for end in task.answer["ends"]]
        assert [*transcript.replies] == [(reply,) for reply in replies]
        assert verdict(dial, task, answers) == (1.0, True, "")
        assert dial.score(task, dial.agent_answer(task)).success
        assert task.origin == "eval" or dial.verify(task) is None


@pytest.mark.parametrize(
    ("made", "replied", "reason"),
    [
        (call("zap", 3, 4), "no such tool, at 3", "unknown_tool"),
        (call("add", 2, 4), "not there, at 3", "other_position"),
        (call("add", 3, 0), "no such argument, at 3", "unknown_argument"),
        (call("add", 13, 4), "no call, at 3", base.UNPARSABLE),
        (call("add", "3", "4"), "no call, at 3", base.UNPARSABLE),
        (call("add"), "no call, at 3", base.UNPARSABLE),
        (call("done"), "no call, at 3", base.UNPARSABLE),
        (call("done", 3, 1), "no such tool, at 3", "unknown_tool"),
        ("I cannot do that.", "no call, at 3", base.UNPARSABLE),
        ("<tool_call>{", "no call, at 3", base.UNPARSABLE),
        ("", "no call, at 3", base.EMPTY),
        (MADE, "one call at a time, at 3", "several_calls"),
        ("2 add(3, 4)", "not next, at 3", "other_number"),
        ("x" * (ANSWER_CHARS + 1), None, base.TOO_LONG),
    ],
)
def test_calls_that_are_refused(task, made, replied, reason):
    dial = for_template("hermes")
    calls = made if isinstance(made, list) else [made]
    answer = made if isinstance(made, str) else write_calls(calls, "hermes")
    score, messages = played(dial, task, [answer])
    if replied is None:
        assert score.reason == reason
        return
    assert messages[-1]["content"] == replied
    assert verdict(dial, task, [answer] * 6) == (0.0, False, reason)
    right = [write_calls([made], "hermes") for made in MADE]
    assert verdict(dial, task, [answer, f"So I call\n{right[0]}", *right[1:]]) == (1.0, True, "")
    wrong = write_calls([call("done", 3)], "hermes")
    assert verdict(dial, task, [*right[:-1], wrong]) == (0.0, True, "wrong_result")


# -- the simulator's text -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        *((old, new, base.UNPARSABLE) for old, new in (
            ("Tools: add, subtract", "Tools: subtract, add"), ("Tools: add", "Tools: zap = add"),
            ("Start at 3", "Start at 13"), (" 2 if", " 3 if"), (" 2 if", " if"), (" 1 add", " 0 add"),
            ("if even", "if prime"), ("if even", "if even 2"), ("if above 1", "if above"),
            ("if above 1", "if above 11"), (" else add 2", ""), ("multiply 3 else", "else"),
            ("multiply 3 else", "if odd multiply 3 else add 1 else"), ("multiply 3", "divide 3"),
            ("at 2], ", "at 2]; "), ("at 2].", "at 2]"), ("at 2],", "at 2,"), ("4 [add", "4[add"),
            ("4 [add", "4  [add"),
        )),
        *((old, new, base.BAD_ANSWER) for old, new in (
            (" [add(3, 4) at 2]", ""), (" [add(3, 4) at 2]", 2 * " [add(3, 4) at 2]"),
            ("1 add 4 [add(3, 4) at 2]", "1 [add(3, 4) at 2] add 4"), ("[add(3, 4)", "[add(4)"),
            ("[add(3, 4)", "[zap(3, 4)"), ("add(3, 4) at 2", "add(3, 4)"),
        )),
        ("[add(1, 1) at 2].", "[add(1, 1) at 2].\n", ""),
        ("add(3, 4)", "add(3, 3)", base.WRONG_ANSWER),
        ("add(3, 4) at 2", "add(3, 4) at 1", base.WRONG_ANSWER),
        ("add(1, 1) at 2", "add(1, 1) at 3", base.WRONG_ANSWER),
        ("multiply(2, 3) at 1", "add(2, 2) at 4", base.WRONG_ANSWER),  # the other branch
        ("multiply(2, 3)", "multiply(3, 3)", base.WRONG_ANSWER),
        ("add(1, 1)", "subtract(1, 4)", base.WRONG_ANSWER),  # to the same position
        ("Start at 3", "Start at 5", base.NOT_EXECUTABLE),
        ("Start at 3", "Start at 2", base.WRONG_ANSWER),
        ("1 add 4", "1 add 0", base.NOT_EXECUTABLE),
        ("else add 2", "else add 5", base.NOT_EXECUTABLE),  # in the untaken branch
        ("else add 2", "else multiply 3", NO_CHOICE),
        ("above 1", "above 4", NO_CHOICE),
        ("above 1", "below 0", NO_CHOICE),
        ("above 1", "below 5", NO_CHOICE),
    ],
)  # fmt: skip
def test_near_misses_of_the_simulator(dial, old, new, reason):
    assert old in GENERATION
    outcome = parsed(dial, GENERATION.replace(old, new, 1))
    assert (outcome.id if isinstance(outcome, Task) else outcome) == (reason or "new")


def test_too_many_calls(dial):
    rng = np.random.default_rng(0)
    for depth, wanted in ((6, Task), (7, base.TOO_DEEP), (8, base.TOO_DEEP)):
        program = dial.random_program(rng, depth)
        choice = Choice("above 1", ("multiply", 3), ("subtract", 4))
        longest = dataclasses.replace(program, calls=depth * (choice,))
        for one in (program, longest):
            outcome = parsed(dial, dial.simulator_answer(dial.task(one, id="", category="")))
            assert outcome == wanted or isinstance(outcome, wanted if wanted is Task else ())


def test_an_unproven_task_is_played_too(dial):
    """If every parsed task is admitted, a reference may be wrong: nothing raises, nobody wins."""
    head = STATEMENT.split(" 3. ")[0]
    steps = "1 add 4 [multiply(9, 9) at 0], 2 add 1 [add(0, 1) at 7]"
    text = f"{head} 9. {steps}."
    task = dial.parse(text, dial.tasks("seed")[0], "new", 0)
    assert dial.verify(task).reason == base.NOT_EXECUTABLE
    assert dial.simulator_answer(task) == text
    assert not dial.score(task, dial.agent_answer(task)).success


# -- the demonstrations -------------------------------------------------------------------------------


def test_episodes_are_played(dial, task):
    """The answers, each with its reply, up to the episode's end."""
    opening, played = play(dial, task, ["1 zap(3, 4)", *ANSWERS, "5 add(2, 1)"])
    assert played.answers == ("1 zap(3, 4)", *ANSWERS)
    assert opening == dial.agent_messages(task)
    assert played.replies[0][-1]["content"] == "no such tool, at 3"
    roles = ["assistant", "user"] * len(played.answers)
    assert [message["role"] for message in played.messages()] == roles[:-1]


@pytest.fixture(scope="module")
def drawn(dial):
    """The misunderstandings, and 1,500 episodes."""
    demonstrator, rng = TurnsDemonstrator(dial), np.random.default_rng(0)
    wrong = demonstrator.misunderstandings(rng)
    return wrong, [demonstrator.episode(rng, wrong) for _ in range(1500)]


def test_demonstrated_episodes(dial, drawn):
    """They end by themselves; deeper ones fail more often; refused calls stay within the allowance."""
    _, episodes = drawn
    won, refused, total = collections.defaultdict(list), 0, 0
    for task, answers in episodes:
        assert dial.canonical(task) not in dial.held_out
        score, messages = played(dial, task, answers)
        assert score is not None and score.valid and score.reason in ("", "wrong_call")
        assert [m["content"] for m in messages if m["role"] == "assistant"] == answers
        assert score.detail["calls"] == dial.difficulty(task)
        won[int(dial.difficulty(task))].append(score.success)
        refused += score.detail["refused"]
        total += len(answers)
    assert set(won) == set(range(1, 9)) and 0.02 < refused / total < 0.04
    rates = [np.mean(won[depth]) for depth in (1, 2, 4)]
    assert 0.4 < rates[0] < 0.6 and rates[0] > 1.5 * rates[1] > 2.5 * rates[2] > 0


def test_rates_of_the_demonstrated_calls(dial, drawn):
    """Misunderstood: right 30 %, mistaken 60 %, by chance 10 %; the others: right 90 %, by chance 10 %."""
    wrong, episodes = drawn
    arguments, branches = collections.defaultdict(list), collections.defaultdict(list)
    for task, answers in episodes:
        at, made = dial.program(task).start, []
        for answer in answers[:-1]:
            name, _, rest = answer[2:].partition("(")
            position, n = map(int, rest.strip(")").split(", "))
            if name in CALLED and position == at:
                made.append((name, at, n))
                at = CALLED[name](at, n) % 5
        for call, (name, at, n) in zip(dial.program(task).calls, made, strict=True):
            if isinstance(call, Choice):
                if call.call[0] == call.otherwise[0]:
                    continue  # the branch cannot be determined
                passes, taken = at in dial.tests[call.test], name == call.call[0]
                branches[call.test in wrong].append(passes == taken)
                call = call.call if taken else call.otherwise
            arguments[call in wrong].append((n == call[1], n == wrong.get(call)))
    understood, misunderstood = np.mean(arguments[False], axis=0), np.mean(arguments[True], axis=0)
    assert abs(understood[0] - (0.9 + 0.1 / 4)) < 0.01
    assert np.abs(misunderstood - (0.3 + 0.1 / 4, 0.6 + 0.1 / 4)).max() < 0.02
    assert abs(np.mean(branches[False]) - 0.95) < 0.02
    assert abs(np.mean(branches[True]) - 0.35) < 0.03


def test_the_endless_demonstrations(dial):
    """All turns of an episode, then a simulator pair, whose task passes."""
    episodes = written = 0
    for messages, completion in itertools.islice(endless(dial, np.random.default_rng(0)), 400):
        if messages[0]["content"] == dial.agent_instruction:
            episodes += len(messages) == 2
            continue
        outcome = parsed(dial, completion)
        assert isinstance(outcome, Task) and dial.canonical(outcome) not in dial.held_out
        written += 1
    assert 0 <= episodes - written <= 1 and written > 50


def test_two_positions_can_be_demonstrated():
    demonstrator = TurnsDemonstrator(DialTurns(positions=2, num_seeds=2, eval_per_depth=1))
    rng = np.random.default_rng(0)
    wrong = demonstrator.misunderstandings(rng)
    assert all(demonstrator.episode(rng, wrong)[1] for _ in range(20))
