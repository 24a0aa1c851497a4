"""Our call match against verdicts that the official evaluators gave (`bench.official.api_bank`)."""

import collections
import json

import pytest

from bench.bad_answers.api_bank import mutations
from bench.official import api_bank as api_bank_official
from genenv_jax.benchmarks.api_bank.benchmark import APIBank
from genenv_jax.benchmarks.api_bank.scoring import official_metrics, rejects_gold

pytestmark = pytest.mark.data

# The 82 gold calls that the official execution rejects: (API, executed, compared) -> how many.  See
# `api_bank_official.LETTERS`.  "compared" is the check without the execution.
REJECTED_GOLD = {
    # Lists in quotes, which its expression cuts at the first inner quote.  Meetings and films fail the
    # check as well, because it compares a text with a list.
    ("RecordHealthData", "x", "y"): 22, ("AddMeeting", "p", "p"): 10,
    ("ModifyMeeting", "p", "p"): 6, ("QueryMeeting", "p", "p"): 5,
    ("MovieRecommendations", "x", "p"): 5,
    # A check that reads a field `time` that the call does not have.
    ("DeleteMeeting", "k", "k"): 3,
    # A parameter that was renamed after the dialogues were written.
    ("CancelTimedSwitch", "i", "i"): 5, ("TimedSwitch", "i", "i"): 3,
    # Entries of the data base that were edited since, or that an earlier call of the dialogue made.
    ("QueryScene", "o", "y"): 5, ("GetUserToken", "x", "y"): 2, ("QueryRegistration", "x", "y"): 1,
    ("RegisterUser", "x", "y"): 1,
    # The second of two calls, on an API without its state.
    ("ForgotPassword", "x", "y"): 4,
    # A network or an index is needed.
    ("Dictionary", "x", "y"): 5, ("Translate", "x", "y"): 3, ("Translate", "c", "y"): 1,
    ("SearchEngine", "x", "y"): 1,
}  # fmt: skip

# Parameters that the check leaves to the API's output: with the gold output put in its place every value
# passes.  Executed only a right one does, and so it is here.
DECIDED_BY_OUTPUT = {
    ("RecordHealthData", "health_data"), ("Dictionary", "keyword"), ("SearchEngine", "keyword"),
    ("Translate", "tgt_lang"),
}  # fmt: skip


@pytest.fixture(scope="module")
def kept():
    """The official verdicts."""
    return json.loads(api_bank_official.VERDICTS.read_text())


@pytest.fixture(scope="module")
def rows(data_dir, kept):
    """(task, kind, parameter, executed, compared, ours, gold executed, gold compared) a prediction."""
    benchmark = APIBank(data_dir=data_dir)
    found = []
    for task in api_bank_official.compared_tasks(data_dir):
        executed, compared = kept["verdicts"][task.id]
        for (kind, parameter, text, _, _), e, c in zip(
            mutations(task), executed, compared, strict=True
        ):
            ours = benchmark.score(task, text)
            found.append((task, kind, parameter, e, c, ours, executed[0], compared[0]))
    return found


def test_mutations_are_those_that_were_judged(data_dir, kept):
    tasks = api_bank_official.compared_tasks(data_dir)
    texts = [text for task in tasks for _, _, text, _, _ in mutations(task)]
    assert len(tasks) == 620 and len(texts) > 21_000
    assert {task.id for task in tasks} == set(kept["verdicts"])
    assert api_bank_official.digest(texts) == kept["texts"], (
        "the mutations changed: make bench/official/api_bank.json anew"
    )


def test_official_execution_accepts_what_is_documented_of_its_own_gold(rows):
    gold = collections.Counter((row[0].category, row[3] == "y") for row in rows if row[1] == "gold")
    assert gold == {
        ("level-1-api", True): 337, ("level-1-api", False): 62,
        ("level-2-api", True): 80, ("level-2-api", False): 10,
        ("level-3-batch-inf", True): 121, ("level-3-batch-inf", False): 10,
    }  # fmt: skip


def test_every_gold_call_is_accepted_here(rows):
    assert all(row[5].success for row in rows if row[1] == "gold")


def test_verdicts_equal_the_official_execution_where_it_accepts_the_gold_call(rows):
    judged = [row for row in rows if row[6] == "y"]
    wrong = [
        (task.id, kind, parameter, executed, ours.reason)
        for task, kind, parameter, executed, _, ours, _, _ in judged
        if ours.success != (executed == "y")
    ]
    assert not wrong
    passed = sum(row[5].success for row in judged)
    # Both verdicts must be well represented for equality to mean anything.
    assert len(judged) > 17_000 and 0.2 < passed / len(judged) < 0.5


def test_gold_calls_that_the_official_execution_rejects_are_known(rows):
    rejected = collections.Counter(
        (task.answer["name"], executed, compared)
        for task, kind, _, executed, compared, *_ in rows
        if kind == "gold" and executed != "y"
    )
    assert rejected == REJECTED_GOLD


def test_the_metric_of_executed_calls_is_the_official_verdict(rows):
    """Of every prediction, the gold calls that the official execution rejects included."""
    assert all(rejects_gold(row[0]) == (row[3] != "y") for row in rows if row[1] == "gold")
    by_change = collections.defaultdict(list)
    for row in rows:
        by_change[row[1], row[2] != ""].append(row)
    for changed in by_change.values():
        found = official_metrics([(row[0], row[5]) for row in changed])
        accepted = collections.defaultdict(list)
        for row in changed:
            accepted[row[0].category].append(row[3] == "y")
        for split, verdicts in accepted.items():
            name = "accuracy_executed" if len(accepted) == 1 else f"{split}/accuracy_executed"
            assert found[name] == pytest.approx(sum(verdicts) / len(verdicts))


def test_reward_is_stricter_than_success_and_equal_on_gold(rows):
    assert all(row[5].reward == 1.0 for row in rows if row[1] == "gold")
    assert all(row[5].success for row in rows if row[5].reward)
    # Where they part, a value of the call was left open: no part of its form.
    parted = {row[1] for row in rows if row[5].success and not row[5].reward}
    assert parted <= {
        "upper_case", "lower_case", "longer", "shorter", "one_word_more", "first_word_only",
        "last_word_replaced", "no_leading_zeros", "decimal", "other", "values_rotated",
    }  # fmt: skip


def test_for_these_verdicts_equal_the_official_check_without_execution(rows):
    judged = [row for row in rows if row[6] != "y" and row[7] == "y"]
    differ = [row for row in judged if row[5].success != (row[4] == "y")]
    assert len(judged) > 1_600
    # Here stricter, and only where the output decides.
    assert {(row[0].answer["name"], row[2]) for row in differ} == DECIDED_BY_OUTPUT
    assert not any(row[5].success for row in differ)
    assert len(differ) == 263


def test_where_no_official_verdict_is_left_one_change_decides(rows):
    """Meetings, films and timed switches: what the check would reject is rejected, and no more."""
    harmless = {"gold", "prose", "bare", "double_quotes", "spaces_between", "order"}
    harmful = {
        "missing", "other", "unknown_api", "unknown_parameter", "empty", "no_brackets",
    }  # fmt: skip
    for task, kind, parameter, _, _, ours, executed, compared in rows:
        if executed == "y" or compared == "y":
            continue
        name = task.answer["name"]
        if kind in harmless and not parameter:
            assert ours.success, (task.id, kind)
        elif name == "DeleteMeeting" and parameter not in ("", "token", "start_time"):
            continue  # deletions are checked by their time
        elif (name, parameter, kind) == ("TimedSwitch", "on", "other"):
            continue  # whatever is not "True" is cast to False
        elif kind in harmful:
            assert not ours.success, (task.id, kind, parameter)
