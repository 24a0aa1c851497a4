import collections
import random

import pytest

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Benchmark, Rejection, Score, Task
from genenv_jax.benchmarks.dial.chains import Dial
from genenv_jax.scoring import verification
from genenv_jax.scoring.verification import PARSED, PROVEN, NearDuplicates, Verifier, inspect, shingles


class Lines(Benchmark):
    """A small benchmark: the first word says what a check does, the rest is the wording."""

    name = "lines"

    load = None

    def simulator_answer(self, task, seed=None):
        return task.messages[-1]["content"]

    def agent_answer(self, task):
        return task.answer

    def parse(self, text, seed, task_id, generation):
        if text.startswith("unparsable"):
            return Rejection(base.UNPARSABLE, "because")
        messages = ({"role": "user", "content": text},)
        return Task(task_id, self.name, "", messages, (), text.split()[0], seed.id, "generated", generation)

    def fault(self, task):
        if task.answer == "broken":
            return Rejection(base.NOT_EXECUTABLE)
        return None

    def canonical(self, task):
        return " ".join(sorted(self.text(task).split()))

    def verdict(self, task, answer):
        reward = {"half": 0.5, "raw": 1.0, "fail": 0.0}.get(answer, 1.0)
        return Score(reward, answer not in ("raw", "fail"), True, "" if reward == 1 else "because")


def make(text, task_id="t", generation=-1):
    return Task(task_id, "lines", "", ({"role": "user", "content": text},), generation=generation)


SEED = make("one two three four five six seven eight", "seed")
HELD_OUT = make("alpha beta gamma delta epsilon zeta eta theta", "held-out")


def verifier(near_duplicate=0.0, pool_epochs=0):
    config = verification.VerificationConfig(near_duplicate, pool_epochs)
    return Verifier(Lines(), [SEED], [HELD_OUT], config)


def check(checker, text, generation=0, task_id="new", done=True):
    """Inspects a generation and compares it; nothing is admitted."""
    about = {"done": done, "seed": SEED, "task_id": task_id, "generation": generation}
    outcome = inspect(checker.benchmark, text, **about)
    return outcome if isinstance(outcome, Rejection) else checker.compare(outcome)


def verdict(checker, text, generation=0, done=True):
    """The reason, or "" for an accepted task, which is then admitted."""
    outcome = check(checker, text, generation, done=done)
    if isinstance(outcome, Rejection):
        return outcome.reason
    checker.admit(outcome)
    return ""


def test_each_reason():
    checker = verifier(near_duplicate=0.5)
    for text, done, want in [
        ("", True, base.EMPTY),
        (" \n\t", True, base.EMPTY),
        ("", False, base.EMPTY),  # emptiness is looked for first
        ("a fine task", False, base.TRUNCATED),
        ("unparsable", False, base.TRUNCATED),  # before it is parsed
        ("unparsable words", True, base.UNPARSABLE),
        ("broken words", True, base.NOT_EXECUTABLE),
        ("half words", True, base.WRONG_ANSWER),  # less than full reward
        ("raw words", True, base.WRONG_ANSWER),  # full reward, but no success
        ("fail words", True, base.WRONG_ANSWER),
        (HELD_OUT.messages[0]["content"], True, base.CONTAMINATED),
        ("theta " + HELD_OUT.messages[0]["content"][:-6], True, base.CONTAMINATED),  # canonical form
        (HELD_OUT.messages[0]["content"] + " iota", True, base.CONTAMINATED),  # near
        (SEED.messages[0]["content"], True, base.DUPLICATE),
        ("two one three four five six seven eight", True, base.DUPLICATE),  # canonical form
        (SEED.messages[0]["content"] + " nine", True, base.NEAR_DUPLICATE),
        ("a fine task of its own", True, ""),
        ("a fine task of its own", True, base.DUPLICATE),  # of a batch-mate
        ("a fine task of its own too", True, base.NEAR_DUPLICATE),
    ]:
        assert verdict(checker, text, done=done) == want, text


def test_what_is_compared():
    """A held-out task counts as such; without near-duplicates and epochs, copies are barred for ever."""
    held_out = HELD_OUT.messages[0]["content"]
    checker = Verifier(Lines(), [HELD_OUT], [HELD_OUT], verification.VerificationConfig(0.0))
    assert verdict(checker, held_out) == base.CONTAMINATED
    checker = verifier()
    assert verdict(checker, SEED.messages[0]["content"] + " nine") == ""
    assert verdict(checker, held_out + " iota") == ""
    assert verdict(checker, "a fine task", 0) == ""
    assert verdict(checker, "a fine task", 10_000) == base.DUPLICATE


def test_details_and_the_accepted_task():
    checker = verifier()
    assert "because" in check(checker, "fail x", 1).detail
    task = check(checker, "fine words", 4, "t-7")
    assert (task.id, task.seed_id, task.origin, task.generation) == ("t-7", "seed", "generated", 4)
    # A check alone admits nothing.
    assert isinstance(check(checker, "fine words", 4), Task)


@pytest.mark.parametrize("near_duplicate", [0.0, 0.8])
def test_pool_epochs(near_duplicate):
    """A task of epoch 2 bars its copies in epochs 2, 3 and 4, also by wording."""
    checker = verifier(pool_epochs=3, near_duplicate=near_duplicate)
    text = "a fine task of its own and of some length"
    assert verdict(checker, text, 2) == ""
    assert [verdict(checker, text, epoch) for epoch in (2, 3, 4)] == [base.DUPLICATE] * 3
    assert verdict(checker, text, 5) == ""
    assert verdict(checker, text, 7) == base.DUPLICATE  # the window starts again
    for epoch in (0, 50):  # seeds and held-out tasks are always compared
        assert verdict(checker, SEED.messages[0]["content"], epoch) == base.DUPLICATE
        assert verdict(checker, HELD_OUT.messages[0]["content"], epoch) == base.CONTAMINATED
    if near_duplicate:
        checker = verifier(pool_epochs=1, near_duplicate=0.75)
        assert verdict(checker, SEED.messages[0]["content"] + " nine", 50) == base.NEAR_DUPLICATE


def test_what_bars_nothing_any_more_is_not_kept():
    checker = verifier(pool_epochs=3, near_duplicate=0.8)
    for epoch in range(40):
        assert verdict(checker, f"a fine task of its own in epoch {epoch}", epoch) == ""
    assert len(checker._texts._epochs) <= 2 * (3 + 1) and len(checker._known) == 3 + 1  # and the seed


def test_restore_gives_the_same_verdicts():
    texts = ["a b c d e f g", "h i j k l m n", "a b c d e f g", "o p q r s t u", "o p q r s t u v"]
    options = {"near_duplicate": 0.7, "pool_epochs": 2}
    whole, accepted = verifier(**options), []
    for epoch, text in enumerate(texts):
        outcome = check(whole, text, epoch, str(epoch))
        if isinstance(outcome, Task):
            whole.admit(outcome)
            accepted.append(outcome)
    assert len(accepted) == 4
    resumed = verifier(**options)
    resumed.restore(None, [Task.from_json(task.to_json()) for task in accepted])
    for text in [*texts, "something new altogether and long enough"]:
        for epoch in (4, 5, 6):
            assert check(resumed, text, epoch) == check(whole, text, epoch)


def test_shingles():
    assert len(shingles("a b c d e")) == 1
    assert len(shingles("a b c d e f g")) == 3
    assert shingles("A  b\nC d E") == shingles("a b c d e")
    assert shingles("a b") != shingles("a c") and len(shingles("a b")) == 1
    assert len(shingles("a a a a a a a a")) == 1
    assert shingles("\ud800 x")  # a lone surrogate is no error


def test_jaccard_threshold():
    """Ten words have 6 shingles; one more word makes 7, 6 of them shared: 6 / 7."""
    text = "a b c d e f g h i j"
    off = NearDuplicates(0.0)
    off.add(text)
    assert not off.matches(text)
    for threshold, want in ((6 / 7 - 1e-9, True), (6 / 7 + 1e-9, False), (1.0, False)):
        index = NearDuplicates(threshold)
        index.add("x y z q r")
        index.add(text)
        assert index.matches(text + " k") == want
        assert index.matches(text)
        assert not index.matches("k l m n o p q")


def changed(rng, text, vocabulary):
    """A text with up to three words added, removed or replaced."""
    words = text.split()
    for _ in range(rng.randint(0, 3)):
        place, word = rng.randrange(len(words)), rng.choice(vocabulary)
        words[place : place + rng.randint(0, 1)] = [word] * rng.randint(len(words) == 1, 1)
    return " ".join(words)


@pytest.mark.parametrize("crowded", [1, verification._CROWDED])
@pytest.mark.parametrize("threshold", [1e-9, 0.5, 0.8, 6 / 7, 1.0])
def test_the_index_finds_what_comparing_with_every_text_does(threshold, crowded, monkeypatch):
    """Exactly: small vocabularies crowd the shingles, so that levels rise; old texts are forgotten."""
    monkeypatch.setattr(verification, "_CROWDED", crowded)
    rng, verdicts = random.Random(0), collections.Counter()
    for size in (2, 5, 40):
        vocabulary = [f"w{i}" for i in range(size)]
        index, known, sets = NearDuplicates(threshold), [], []
        for epoch in range(60):
            index.forget(epoch - 30)
            for _ in range(3):
                text = " ".join(rng.choices(vocabulary, k=rng.randint(1, 40)))
                if known and rng.random() < 0.7:
                    text = changed(rng, rng.choice(known), vocabulary)
                grams, after = shingles(text), epoch - rng.choice([30, 10, 2])
                similar = (
                    len(grams & other) >= threshold * len(grams | other)
                    for other, since in sets
                    if since > after and grams & other
                )
                want = any(similar)
                assert index.matches(text, after) == want
                verdicts[want] += 1
                if not want or rng.random() < 0.5:
                    known.append(text)
                    sets.append((grams, epoch))
                    index.add(text, epoch)
        assert len(index._epochs) < 2 * sum(since > 59 - 30 for _, since in sets)
    assert min(verdicts[True], verdicts[False]) > 20, verdicts


def test_a_shingle_of_all_texts_does_not_make_each_of_them_a_candidate():
    """Texts that share only a phrase of every task are mostly not compared."""
    index, compared = NearDuplicates(0.8), []
    index._similar = lambda grams, others: compared.append(others)
    for i in range(1_000):
        index.add(f"tools add subtract multiply start at once {i} {i + 1} {i + 2} {i + 3} {i + 4}")
    index.matches("tools add subtract multiply start at once 7 8 9 10 11")
    assert 1 <= len(compared) <= 2 * verification._CROWDED


def inspected(text, admit, benchmark=None):
    return inspect(benchmark or Lines(), text, done=True, seed=SEED, task_id="t", generation=0, admit=admit)


@pytest.mark.parametrize("text", ["broken words", "half words", "raw words", "fail words"])
def test_parsed_admits_what_fails_its_checks(text):
    """With the answer that the simulator wrote for it; what cannot be read stays out."""
    assert isinstance(inspected(text, PROVEN), Rejection)
    task = inspected(text, PARSED)
    assert task.answer == text.split()[0] and task.origin == "generated"
    assert inspected("fine words", PARSED) == inspected("fine words", PROVEN)
    for unreadable in ("", "unparsable words"):
        assert inspected(unreadable, PARSED) == inspected(unreadable, PROVEN)


def test_parsed_keeps_bounds_and_copies_out():
    dial = Dial(num_seeds=8, eval_per_depth=1)
    seed, held_out = dial.tasks("seed")[0], dial.tasks("eval")[0]
    config = verification.VerificationConfig(0.0)
    checker = Verifier(dial, dial.tasks("seed"), dial.tasks("eval"), config)

    def outcome(program):
        text = dial.simulator_answer(dial.task(program, id="", category=""))
        text = text.replace("Calls: ", "Calls: add(1) ")
        return inspect(dial, text, done=True, seed=seed, task_id="t", generation=0, admit=PARSED)

    # Although the reference differs: the same request must not come back.
    assert checker.compare(outcome(dial.program(seed))).reason == base.DUPLICATE
    assert checker.compare(outcome(dial.program(held_out))).reason == base.CONTAMINATED
    long = dial.program(next(t for t in dial.tasks("eval") if "deeper" in t.category))
    assert outcome(long).reason == base.TOO_DEEP


def test_parsed_keeps_out_what_the_benchmark_cannot_work_with():
    class Raises(Lines):
        def score(self, task, answer):
            if task.answer == "broken":
                raise KeyError(answer)
            return super().score(task, answer)

    assert inspected("broken words", PARSED, Raises()) == Rejection(base.NOT_EXECUTABLE)
    assert inspected("fail words", PARSED, Raises()).answer == "fail"
