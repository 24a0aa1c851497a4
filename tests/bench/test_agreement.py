import random

import pytest

from bench.agreement import tally
from bench.bad_answers import alfworld, api_bank, bad_answers, bamboogle, bfcl, bfcl_source
from genenv_jax.benchmarks.bfcl.source_calls import decode_source_calls
from tests.benchmarks.bfcl_tasks import seed_task
from tests.redteam.scenes import scene

# Placeholders in the forms, which a task's texts replace.
_FILLED = ("CALL", "GOLD", "QUESTION", "LANGUAGE")
# Kinds that a scene's tasks must have, beside those of every benchmark.
KINDS = {
    "alfworld_games": {*alfworld.CHANGES} - {"random commands first"},
    "api_bank": {*api_bank.FORMS, *api_bank.CHANGES},
    "bamboogle": {*bamboogle.FORMS, *bamboogle.CHANGES},
    "bfcl_single": {*bfcl.FORMS, *bfcl.OF_REFERENCE, "cut short", "argument dropped", "text: case"},
    "bfcl_conversations": {"reference"},
    "bfcl_irrelevance": {*bfcl_source.NO_CALL},
    "travelplanner": {"annotated", "two changes", "other city", "teleports"},
    "custom": set(),
    "dial": set(),
}


@pytest.mark.parametrize("name", KINDS)
def test_bad_answers_are_of_many_kinds_and_the_same_for_a_seed(name):
    with scene(name) as opened:
        kinds, texts = set(), []
        for task in opened.tasks[:20]:
            seeds = random.Random(task.id), random.Random(task.id)
            made = [list(bad_answers(opened.benchmark, task, rng)) for rng in seeds]
            assert made[0] == made[1]
            right = opened.benchmark.agent_answer(task)
            kinds |= {kind for kind, _ in made[0]}
            texts += [text for _, text in made[0] if text != right]
    # BFCL's are drawn at random for each task: a few kinds may be missing.
    assert len(KINDS[name] - kinds) <= len(KINDS[name]) / 5 and len(kinds) >= 27
    assert all(isinstance(text, str) for text in texts) and len(set(texts)) > len(texts) / 2
    assert not [text for text in texts for word in _FILLED if word in text]


@pytest.mark.parametrize("language", ["java", "javascript"])
def test_answers_in_java_and_javascript(language):
    own = seed_task("simple", language=language, truth=[{"weather.get": {"city": ["Oslo"], "days": [2]}}])
    found = list(bfcl_source.source_answers(own, random.Random(0), 60))
    assert len(found) == 60 and {*bfcl_source.FORMS} <= {kind for kind, _ in found}
    reference = decode_source_calls(found[0][1], language)
    for kind, text in found:
        if kind in ("fence", "arguments in another order"):
            assert decode_source_calls(text, language) == reference, text


TASK = seed_task("parallel")


def test_tally_counts_every_class_of_disagreement():
    cases = [tally.Case("a", TASK, "yes"), tally.Case("a", TASK, "no"), tally.Case("b", TASK, "maybe")]
    counted = tally.Tally()
    counted.run(
        cases,
        lambda case: tally.Verdict(case.text != "no", "no" if case.text == "no" else ""),
        lambda case: tally.Verdict(case.text == "yes", "" if case.text == "yes" else "wrong"),
    )
    counted.add(cases[0], tally.Verdict(True, "", 1), tally.Verdict(True, "", 2))
    outcomes = (tally.BOTH, tally.NEITHER, tally.OFFICIAL, tally.OURS, tally.OTHER)
    assert [counted.total(outcome) for outcome in outcomes] == [1, 1, 0, 1, 1] and counted.total() == 4
    assert counted.classes[tally.OURS, "wrong", ""] == {"b": 1}
    text = counted.table()
    assert "| b | 1 | 0 | 0 | 0 | 1 | 0 |" in text and "| all | 4 | 1 | 1 | 0 | 1 | 1 |" in text
    assert "only accepted here; official: wrong; here: accepted: 1\n  b: 1, as parallel_0: 'maybe'" in text
