import pytest

from genenv_jax.results.answers import GROUPS, detail_text, verdict, verdict_group
from genenv_jax.scoring.requests import EPISODE_TOO_LONG, FAILED_SCORES, PROMPT_TOO_LONG


@pytest.mark.parametrize(
    ("reasons", "group"),
    [
        ((PROMPT_TOO_LONG, EPISODE_TOO_LONG, "step_limit", "force_terminated"), "unfinished"),
        (FAILED_SCORES, "not scored"),
        (("wrong_answer", "instance_state_mismatch", "a reason of its own"), "wrong answer"),
    ],
)
def test_groups_of_reasons(reasons, group):
    assert group in GROUPS and {verdict_group(reason) for reason in reasons} == {group}


def test_of_an_unknown_reason_it_matters_whether_the_answer_could_be_read():
    assert verdict_group("other", valid=False) == "form"
    assert verdict_group("step_limit", valid=False) == "unfinished"


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ({"success": True, "reason": "", "ended": False}, ("correct", "success")),
        ({"success": True, "reason": "decoder_success"}, ("correct", "success")),
        ({"success": False, "reason": "unparsable", "valid": False}, ("form", "unparsable")),
        ({"success": False, "reason": "unparsable", "valid": False, "ended": False},
         ("form", "unparsable, cut off")),
        ({"success": False, "reason": "wrong", "ended": False}, ("wrong answer", "wrong")),
        ({"success": "yes", "reason": None}, ("wrong answer", "failure")),
    ],
)  # fmt: skip
def test_verdict_of_a_record(record, found):
    assert verdict(record) == found


def test_details_are_one_bounded_line():
    assert detail_text({"detail": {"f1": 0.5, "note": "a\nb", "deep": {"x": 1}}}) == "f1 0.5 · note a b"
    assert detail_text({"detail": "text"}) == ""
    assert len(detail_text({"detail": {str(i): "x" * 1000 for i in range(99)}})) < 400
