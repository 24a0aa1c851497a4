"""The embedded default: its data, its interpreter, its two parsers and its demonstrations."""

import collections
import itertools
import json

import numpy as np
import pytest

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Score, SeedStatistics, Task
from genenv_jax.benchmarks.calls import form_of, write_calls
from genenv_jax.benchmarks.demonstrations import endless
from genenv_jax.benchmarks.dial.chains import NEW_NAMES, OPERATIONS, Dial, Program, read_statement
from genenv_jax.benchmarks.dial.demonstrations import Demonstrator
from genenv_jax.benchmarks.dial.turns import DialTurns
from genenv_jax.benchmarks.registry import make_benchmark
from genenv_jax.scoring.verification import inspect
from tests.benchmarks.test_calls import FORMS, in_form

STATEMENT = "Tools: add, subtract, multiply.\nStart at 3. add 5, multiply 4, subtract 9."
GENERATION = f"{STATEMENT}\nCalls: add(5) multiply(4) subtract(9)"
TRACE = "add(3, 5) = 8\nmultiply(8, 4) = 2\nsubtract(2, 9) = 3"
PROGRAM = Program(3, (("add", 5), ("multiply", 4), ("subtract", 9)))


@pytest.fixture(scope="module")
def dial():
    return Dial()


@pytest.fixture(scope="module")
def small():
    return Dial(positions=5)


def depth(task):
    return len(task.answer["calls"])


def parsed(dial, text):
    """A generation's task, or the reason for its rejection."""
    seed = dial.tasks("seed")[0]
    outcome = inspect(dial, text, done=True, seed=seed, task_id="new", generation=3)
    return outcome if isinstance(outcome, Task) else outcome.reason


# -- the world ----------------------------------------------------------------------------------------


def test_examples(dial, small):
    task = dial.task(PROGRAM, id="x", category="depth_3")
    assert task.messages[-1]["content"] == STATEMENT
    assert dial.agent_answer(task) == TRACE
    assert dial.simulator_answer(task) == GENERATION
    assert PROGRAM.run(10) == [8, 2, 3]
    assert read_statement(STATEMENT) == PROGRAM
    program = Program(3, (("add", 4), ("multiply", 4), ("subtract", 1)))
    trace = "add(3, 4) = 2\nmultiply(2, 4) = 3\nsubtract(3, 1) = 2"
    assert small.agent_answer(small.task(program, id="", category="")) == trace


@pytest.mark.parametrize("positions", [2, 5, 10])
def test_the_interpreter(positions):
    rng = np.random.default_rng(positions)
    dial = Dial(positions=positions, num_seeds=2, eval_per_depth=1)
    for _ in range(200):
        program = dial.random_program(rng, int(rng.integers(1, 9)), renamed=bool(rng.integers(2)))
        at, results = program.start, []
        for operation, n in program.calls:
            at = {"add": at + n, "subtract": at - n, "multiply": at * n}[operation] % positions
            results.append(at)
        assert program.run(positions) == results
        assert read_statement(program.statement()) == program
        lines = program.trace(results).split("\n")
        assert [int(line.split(" = ")[1]) for line in lines] == results
        assert [int(line.split("(")[1][0]) for line in lines] == [program.start, *results[:-1]]


def test_renamed_tools(dial):
    renamed = [task for task in dial.tasks("eval") if task.category.startswith("renamed")]
    assert len(renamed) > 100
    used = set()
    for task in renamed:
        names = dial.program(task).names
        assert set(names) == set(OPERATIONS) and len(set(names.values())) == 3
        assert set(names.values()) <= set(NEW_NAMES)
        used |= set(names.values())
        answer = dial.agent_answer(task)
        assert dial.score(task, answer).success
        old = answer
        for operation, name in names.items():
            old = old.replace(name, operation)
        assert dial.score(task, old) == Score(0.0, False, True, "wrong_call")
        assert parsed(dial, dial.simulator_answer(task)) == base.BAD_TOOLS
    assert used == set(NEW_NAMES)


# -- the data -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Dial, DialTurns])
@pytest.mark.parametrize("positions", [2, 3, 5, 10])
def test_seeds_and_held_out_tasks(kind, positions):
    """All different, of every depth, and drawn by the seed alone."""
    dial, splits = kind(positions=positions), {"in_distribution": range(1, 7), "deeper": (7, 8)}
    splits |= {"renamed": range(1, 7)} if kind is Dial else {}
    seeds, held_out = dial.tasks("seed"), dial.tasks("eval")
    asked = [dial.canonical(task) for task in (*seeds, *held_out)]
    assert len(seeds) == 64 and len(set(asked)) == len(asked)
    assert dial.held_out == {dial.canonical(task) for task in held_out}
    count = collections.Counter(task.category for task in held_out)
    for split, depths in splits.items():
        for d in depths:
            # There are 270 chains of depth 1, and a sixteenth may be held out.
            most = 16 if kind is Dial and d == 1 else 24
            found = count.pop(f"{split}/depth_{d}")
            assert found == most if positions == 10 else 0 < found <= most
    assert not count
    for task in (*seeds, *held_out):
        assert dial.is_interactive(task) == (kind is DialTurns)
        assert task.category.split("/")[-1] == f"depth_{len(dial.program(task).calls)}"
    assert kind(positions=positions).tasks("eval") == held_out
    assert kind(positions=positions, seed=1).tasks("seed") != seeds


def test_the_depths_of_the_seeds_follow_their_frequencies():
    weights = (0.1, 0.1, 0.15, 0.2, 0.25, 0.2)
    dial = Dial(num_seeds=1000, eval_per_depth=0, seed_depths=weights)
    seeds = collections.Counter(depth(task) for task in dial.tasks("seed"))
    # Depth 1 has slightly fewer: some of its programs are drawn twice.
    shares = np.array([seeds[d] / 1000 for d in range(1, 7)])
    assert np.abs(shares - weights).max() < 0.05


_ONE_CALL = {"positions": 2, "max_depth": 1, "seed_depths": [1]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positions": 1}, "positions = 1: expected an integer from 2 to 10"),
        ({"positions": 11}, "positions = 11"),
        ({"max_depth": 3}, r"seed_depths = \(.*\): expected max_depth = 3 entries"),
        ({"deeper": (6,)}, "deeper = 6: expected an integer from 7 to 64"),
        ({"deeper": (10**9,)}, "deeper = 1000000000: expected an integer from 7 to 64"),
        ({"num_seeds": 10**9}, "num_seeds = 1000000000: expected an integer from 0 to 65536"),
        ({"eval_per_depth": 10**9}, "eval_per_depth = 1000000000"),
        ({"seed_depths": [float("nan")] + [1] * 5}, r"seed_depths = \[nan.*\]: expected freq"),
        ({"seed_depths": ["1"] * 6}, "seed_depths = .* expected frequencies"),
        ({"seed_depths": [0] * 6}, r"seed_depths = \[.*\]: expected frequencies, not all of them 0"),
        ({"misunderstood": 2}, r"misunderstood = 2: expected a number in \[0, 1\]"),
        ({"grasp": 0.95}, r"grasp = 0\.95: expected between 0 and 0\.9"),
        (_ONE_CALL, "num_seeds = 64: the world has too few"),
        (_ONE_CALL | {"num_seeds": 2**16}, "num_seeds = 65536: the world has too few"),
    ],
)
def test_impossible_options(bounded, options, message):
    with pytest.raises(ValueError, match=rf"^config\.benchmark\.{message}"):
        make_benchmark("dial", **options)


def test_no_deeper_tasks():
    dial = Dial(deeper=(), num_seeds=4, eval_per_depth=1)
    assert {task.category.split("/")[0] for task in dial.tasks("eval")} == {"in_distribution", "renamed"}


def test_prompts(dial):
    seed = dial.tasks("seed")[0]
    system, user = dial.agent_messages(seed)
    assert system["role"] == "system" and user == seed.messages[0]
    for attempts, successes, words in [
        (0, 0, "unknown"), (8, 0, "0 of 10"), (8, 4, "5 of 10"), (8, 8, "10 of 10"), (32, 9, "3 of 10")
    ]:  # fmt: skip
        _, user = dial.simulator_messages(seed, SeedStatistics(attempts, successes))
        assert user["content"] == f"{seed.messages[0]['content']}\nSolved: {words}"
    for rate, words in ((0.5, "5 of 10"), (1.0, "all of 10")):
        _, user = dial.simulator_messages(seed, SeedStatistics.asked(rate))
        assert user["content"] == f"{seed.messages[0]['content']}\nWanted: {words}"


# -- the simulator's text -----------------------------------------------------------------------------


def test_white_space_around_a_generation(dial):
    padded = parsed(dial, f"\n {GENERATION}\n ")
    assert dial.program(padded) == PROGRAM and padded.messages[-1]["content"] == STATEMENT


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (STATEMENT, "", base.UNPARSABLE),
        *((old, new, base.UNPARSABLE) for old, new in (
            ("\nCalls: ", " Calls: "), ("\nCalls: ", "\nCalls:"), ("Calls: ", "calls: "), ("Start", "start"),
            ("Start at 3", "Start at 13"), ("Start at 3", "Start at -3"), ("subtract 9.", "subtract 9"),
            ("add 5,", "add 5;"), ("add 5,", "add 15,"), ("add 5,", "divide 5,"), ("add 5,", "add add 5,"),
            ("add 5, ", "add 5,"), ("Start at 3. ", "Start at 3. , "), ("Tools: add, ", "Tools: "),
            ("Tools: add, ", "Tools: add, add, "), ("Tools: add, ", "Tools: zap = add, add, "),
            ("Tools: add, ", "Tools: multiply = add, "), ("Tools: add, ", "Tools: add, divide, "),
        )),
        ("Tools: add, ", "Tools: zap = add, ", base.UNPARSABLE),  # but the steps say add
        ("Tools: add, subtract", "Tools: subtract = add, add = subtract", base.BAD_TOOLS),
        *((old, new, base.WRONG_ANSWER) for old, new in (
            ("Calls: add(5)", "Calls: add(6)"), ("Calls: add(5) ", "Calls: "),
            ("add(5) multiply(4)", "multiply(4) add(5)"), ("subtract(9)", "subtract(9) add(1)"),
            ("subtract(9)", "add(9)"),
        )),
        *((old, new, base.BAD_ANSWER) for old, new in (
            ("add(5) ", "add(5)  "), ("add(5) ", "add(5), "), ("add(5) ", "add(15) "), ("add(5) ", "zap(5) "),
            ("add(5) ", "add(3, 5) = 8 "), ("subtract(9)", "subtract(9)\nCalls: add(5)"),
        )),
        ("add(5) multiply(4) subtract(9)", "", base.UNPARSABLE),
        ("add 5", "add 0", base.NOT_EXECUTABLE),
        ("add(5)", "add(0)", base.NOT_EXECUTABLE),
    ],
)  # fmt: skip
def test_near_misses_of_the_simulator(dial, old, new, reason):
    assert old in GENERATION
    assert parsed(dial, GENERATION.replace(old, new, 1)) == reason


def test_what_this_dial_does_not_have(small):
    def text(*calls, start=0):
        program = Program(start, calls)
        return small.simulator_answer(small.task(program, id="", category=""))

    assert isinstance(parsed(small, text(("add", 4), start=4)), Task)
    assert parsed(small, text(("add", 4), start=5)) == base.NOT_EXECUTABLE
    assert parsed(small, text(("add", 5))) == base.NOT_EXECUTABLE
    assert isinstance(parsed(small, text(*[("add", 1)] * 6)), Task)
    assert parsed(small, text(*[("add", 1)] * 7)) == base.TOO_DEEP


# -- the agent's text ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "valid", "reason"),
    [
        ("", False, base.EMPTY),
        ("  \n ", False, base.EMPTY),
        ("I cannot do that.", False, base.UNPARSABLE),
        (TRACE.replace("add(3, 5) = 8", "add(3,5) = 8"), False, base.UNPARSABLE),
        (TRACE.replace("add(3, 5) = 8", "add(3, 5)"), False, base.UNPARSABLE),
        (TRACE.replace("add(3, 5) = 8", "add(3, 5) = 08"), False, base.UNPARSABLE),
        (TRACE.replace("add(3, 5) = 8", "Add(3, 5) = 8"), False, base.UNPARSABLE),
        (TRACE.replace("add(3, 5) = 8", "add(3, \u0665) = 8"), False, base.UNPARSABLE),
        (TRACE.replace("\n", " "), False, base.UNPARSABLE),
        (TRACE.replace("\n", "\n\n", 1), False, base.UNPARSABLE),
        (f"Answer:\n{TRACE}", False, base.UNPARSABLE),
        (f"{TRACE}\nDone.", False, base.UNPARSABLE),
        (f"{TRACE}\n" * 30, False, base.TOO_LONG),
        (TRACE.rpartition("\n")[0], True, "wrong_number_of_calls"),
        (f"{TRACE}\nadd(3, 1) = 4", True, "wrong_number_of_calls"),
        (f"{TRACE}\n{TRACE}", True, "wrong_number_of_calls"),
        (TRACE.replace("= 3", "= 4"), True, "wrong_result"),
        (TRACE.replace("= 8", "= 9"), True, "wrong_result"),  # the first mistake counts
        (TRACE.replace("8\nmultiply(8, 4) = 2", "9\nmultiply(9, 4) = 6"), True, "wrong_result"),
        (TRACE.replace("add(3, 5)", "subtract(3, 5)"), True, "wrong_call"),
        (TRACE.replace("add(3, 5)", "add(5, 3)"), True, "wrong_call"),
        (TRACE.replace("add(3, 5)", "zap(3, 5)"), True, "wrong_call"),
        ("\n".join(TRACE.split("\n")[::-1]), True, "wrong_call"),
        ("add(3, 5) = 8\nsubtract(8, 9) = 9\nmultiply(9, 4) = 6", True, "wrong_call"),
    ],
)
def test_near_misses_of_the_agent(dial, answer, valid, reason):
    task = dial.task(PROGRAM, id="x", category="depth_3")
    assert dial.score(task, answer) == Score(0.0, False, valid, reason)


# -- prompts for a pretrained model -------------------------------------------------------------------

CALLS = [
    {"add": {"position": 3, "number": 5, "result": 8}},
    {"multiply": {"position": 8, "number": 4, "result": 2}},
    {"subtract": {"position": 2, "number": 9, "result": 3}},
]


@pytest.mark.parametrize("positions", [2, 5, 10])
def test_the_rules_as_text(positions):
    """Their example is right; models made from scratch get no rules."""
    dial = Dial(positions=positions, num_seeds=2, eval_per_depth=1, tools_in="text")
    dial.use_template("<tool_call>")
    for task in dial.tasks("eval"):
        system, asked, answered, user = dial.agent_messages(task)
        assert f"positions 0 to {positions - 1}," in system["content"] and user == task.messages[0]
        example = read_statement(asked["content"])
        assert example.names == dial.program(task).names
        assert dial.score(dial.task(example, id="", category=""), answered["content"]).success
        assert dial.score(task, dial.agent_answer(task)).success
    dial.use_template("", made=True)
    assert dial.agent_messages(task)[0]["content"] == "Call the tools in order."


@pytest.mark.parametrize("form", FORMS)
def test_tools_in_the_template(form):
    dial = in_form(Dial(positions=5, num_seeds=8, eval_per_depth=2, shots=1), form)
    for task in (*dial.tasks("seed"), *dial.tasks("eval")):
        tools, system, _, worked, user = dial.agent_messages(task)
        names = [tool["function"]["name"] for tool in json.loads(tools["content"])]
        assert names == [*dial.program(task).names.values()]
        assert (tools["role"], system["role"], user) == ("tools", "system", task.messages[0])
        answer = dial.agent_answer(task)
        assert form_of(answer) == form_of(worked["content"]) == form
        assert dial.score(task, answer) == Score(1.0, True, True)
        assert task.origin == "eval" or dial.verify(task) is None


def changed(which, **arguments):
    """The right calls, with one call's arguments changed."""
    calls = [{name: dict(of) for name, of in call.items()} for call in CALLS]
    for of in calls[which].values():
        of |= arguments
    return write_calls(calls, "hermes")


@pytest.mark.parametrize(
    ("answer", "valid", "reason"),
    [
        (f"I call:\n{changed(0)}\nDone.", True, ""),
        (TRACE, True, ""),
        (write_calls(CALLS[:2], "hermes"), True, "wrong_number_of_calls"),
        (write_calls([*CALLS, *CALLS], "hermes"), True, "wrong_number_of_calls"),
        (write_calls(CALLS[::-1], "hermes"), True, "wrong_call"),
        (changed(2, result=4), True, "wrong_result"),
        (changed(1, position=3), True, "wrong_call"),
        (changed(0, number=4), True, "wrong_call"),
        (changed(0).replace("add", "zap"), True, "wrong_call"),
        (changed(0, result=18), False, base.UNPARSABLE),
        (changed(0, result="8"), False, base.UNPARSABLE),
        (changed(0, result=True), False, base.UNPARSABLE),
        (changed(0, extra=1), False, base.UNPARSABLE),
        (write_calls([{"add": {"position": 3, "number": 5}}], "hermes"), False, base.UNPARSABLE),
        (write_calls([{"add": {}}], "hermes"), False, base.UNPARSABLE),
        (f"<tool_call>{TRACE}</tool_call>", False, base.UNPARSABLE),
        (changed(0)[:-20], False, base.UNPARSABLE),
        (changed(0) * 100, False, base.TOO_LONG),
        (f"add(position=0x{'f' * 6_000}, number=5, result=8)", False, base.TOO_LONG),
    ],
)
def test_calls_in_the_templates_form(answer, valid, reason):
    dial = in_form(Dial(num_seeds=2, eval_per_depth=1), "hermes")
    task = dial.task(PROGRAM, id="x", category="depth_3")
    assert dial.score(task, answer) == Score(float(not reason), not reason, valid, reason)


def test_aggregate(dial):
    def results(category, *successes):
        task = dial.task(PROGRAM, id="x", category=category)
        return [(task, Score(float(s), bool(s), True)) for s in successes]

    of_one = results("in_distribution/depth_1", 1, 1, 1, 0)
    of_two = results("in_distribution/depth_2", 0, 1)
    got = dial.aggregate([*of_one, *of_two, *results("deeper/depth_7", 0)])
    assert got == {
        "in_distribution/depth_1": 0.75,
        "in_distribution/depth_2": 0.5,
        "deeper/depth_7": 0.0,
        "in_distribution/accuracy": 0.625,  # mean over depths, however many tasks each has
        "deeper/accuracy": 0.0,
    }
    assert dial.aggregate([]) == {}


def test_accuracy_beyond_the_seeds():
    dial = Dial(seed_depths=(0.6, 0.4, 0, 0, 0, 0))
    tasks = [t for t in dial.tasks("eval") if not t.category.startswith("renamed/")]
    right = {"in_distribution/depth_1", "in_distribution/depth_4"}
    got = dial.aggregate([(t, Score(1.0, t.category in right, True)) for t in tasks])
    assert got["in_distribution/accuracy"] == pytest.approx(2 / 6)
    assert got["in_distribution/beyond_seeds"] == 0.25  # of depths 3, 4, 5 and 6
    assert "deeper/beyond_seeds" not in got  # the whole split is beyond them


# -- the demonstrations -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demonstrations(small):
    """2,000 pairs per role."""
    pairs = Demonstrator(small).pairs(np.random.default_rng(0))
    drawn = list(itertools.islice(pairs, 4000))
    return drawn[::2], drawn[1::2]


def test_nothing_held_out_is_demonstrated(small, demonstrations):
    agent, simulator = demonstrations
    texts = [messages[-1]["content"] for messages, _ in agent]
    texts += [messages[-1]["content"].rpartition("\n")[0] for messages, _ in simulator]
    texts += [completion.partition("\nCalls: ")[0] for _, completion in simulator]
    tasks = [small.task(read_statement(text), id="", category="") for text in texts]
    assert len(tasks) == 6_000
    assert small.held_out.isdisjoint(map(small.canonical, tasks))


def test_the_simulator_is_shown_valid_variations(small, demonstrations):
    steps, contexts, rates = collections.Counter(), collections.Counter(), []
    for messages, completion in demonstrations[1]:
        task = parsed(small, completion)
        assert isinstance(task, Task)
        statement, _, line = messages[-1]["content"].rpartition("\n")
        at, _, solved = line.partition(": ")
        before = len(read_statement(statement).calls)
        contexts[at] += 1
        rates.append((before, "0123456789".find(solved[0])))
        if 2 <= before <= 4:  # where no change is clipped
            steps[depth(task) - before] += 1
    total = sum(steps.values())
    shares = [steps[s] / total for s in (-1, 0, 1, 2)]
    np.testing.assert_allclose(shares, (0.15, 0.25, 0.35, 0.25), atol=0.05)
    assert set(steps) == {-1, 0, 1, 2}
    assert set(contexts) == {"Solved", "Alike", "Recent"}
    assert min(contexts.values()) > 2000 * 0.25
    # The rates are the demonstrator's on the seeds: longer seeds have lower ones.
    known = [(calls, solved) for calls, solved in rates if solved >= 0]
    assert 0.05 < 1 - len(known) / len(rates) < 0.15
    by_calls = [np.mean([solved for calls, solved in known if calls == n]) for n in (1, 2, 3)]
    assert by_calls[0] > by_calls[1] > by_calls[2] > 0


def test_a_share_of_the_prompts_may_ask_for_a_success_rate():
    """Then the task's depth does not depend on the seed, and a lower rate means a harder task."""
    dial, asked, others = small_but(asked=0.4), collections.defaultdict(list), 0
    pairs = Demonstrator(dial).pairs(np.random.default_rng(0))
    for messages, completion in itertools.islice(pairs, 1, 3000, 2):
        statement, _, line = messages[-1]["content"].rpartition("\n")
        at, _, rate = line.partition(": ")
        if at == "Wanted":
            before = len(read_statement(statement).calls)
            tenths = 10 if rate == "all of 10" else int(rate[0])
            asked[tenths].append((depth(parsed(dial, completion)), before))
        else:
            others += 1
    assert others == pytest.approx(1500 * 0.6, rel=0.05) and set(asked) == set(range(11))
    means = [np.mean([after for after, _ in asked[k]]) for k in (0, 5, 10)]
    assert means[0] > max(means[1:])
    rng, demonstrator = np.random.default_rng(0), Demonstrator(dial)
    wrong, rates = demonstrator.misunderstandings(rng), np.linspace(0, 1, 100)
    tasks = [demonstrator.asked(rng, dial.random_program(rng, 3), rate, wrong) for rate in rates]
    chances = [np.prod(demonstrator.chances(dial.program(task), wrong)) for task in tasks]
    assert np.corrcoef(rates, chances)[0, 1] > 0.85
    assert abs(np.corrcoef(np.transpose(asked[5]))[0, 1]) < 0.3


def small_but(**options):
    depths = {"max_depth": 3, "deeper": (4,), "seed_depths": (1, 1, 1)}
    return Dial(positions=5, num_seeds=4, **depths, **options)


def mistaken(dial, seed):
    return Demonstrator(dial).misunderstandings(np.random.default_rng(seed))


def test_how_well_misunderstood_calls_are_grasped():
    dial = small_but(misunderstood=1.0, grasp=0.5)
    demonstrator, rng = Demonstrator(dial), np.random.default_rng(0)
    wrong = mistaken(dial, 1)
    program = Program(2, (("multiply", 3),))
    results = [demonstrator.trace(rng, program, wrong)[-1] for _ in range(4000)]
    right, other = str(2 * 3 % 5), str(2 * wrong["multiply", 3] % 5)
    assert abs(results.count(right) / 4000 - (0.5 + 0.02)) < 0.03
    assert abs(results.count(other) / 4000 - (0.4 + 0.02)) < 0.03


def test_rates_of_the_agents_demonstrations(small, demonstrations):
    """Misunderstood calls: right 30 %, mistaken 60 %, random 10 %; others: right 90 %, random 10 %."""
    wrong = mistaken(small, 0)  # the same generator's first draws
    renamed, depths = 0, collections.Counter()
    rows = []  # (misunderstood, expected rate of right, right, expected of mistaken, mistaken)
    for messages, completion in demonstrations[0]:
        program = read_statement(messages[-1]["content"])
        renamed += program.names != PROGRAM.names
        depths[len(program.calls)] += 1
        results = [int(line.rpartition(" = ")[2]) for line in completion.split("\n")]
        assert completion == program.trace(results)  # consistent with its own results
        at = program.start
        for call, result in zip(program.calls, results, strict=True):
            true = OPERATIONS[call[0]](at, call[1]) % 5
            by_chance = 0.1 / 5
            if call in wrong:
                other = OPERATIONS[call[0]](at, wrong[call]) % 5
                same = true == other
                rates = 0.3 + 0.6 * same + by_chance, 0.6 + 0.3 * same + by_chance
                rows.append((1, rates[0], result == true, rates[1], result == other))
            else:
                rows.append((0, 0.9 + by_chance, result == true, 0, 0))
            at = result
    rows = np.array(rows, float)
    others, misunderstood = (rows[rows[:, 0] == which] for which in (0, 1))
    assert len(misunderstood) > 2000
    share = len(misunderstood) / len(rows)
    assert abs(share - len(wrong) / 12) < 0.03
    for part, columns in ((misunderstood, (1, 2)), (misunderstood, (3, 4)), (others, (1, 2))):
        expected, got = part[:, columns[0]].mean(), part[:, columns[1]].mean()
        assert abs(expected - got) < 0.02
    assert misunderstood[:, 2].mean() < 0.5 < misunderstood[:, 4].mean()
    assert abs(renamed / 2000 - 0.2) < 0.04
    assert set(depths) == set(range(1, 9))
    assert max(depths.values()) < 1.3 * min(depths.values())


@pytest.mark.parametrize("kind", [Dial, DialTurns])
def test_the_demonstrations_follow_from_their_seed(kind):
    def first(seed):
        return list(itertools.islice(endless(kind(num_seeds=2), np.random.default_rng(seed)), 50))

    assert first(0) == first(0) != first(1)
