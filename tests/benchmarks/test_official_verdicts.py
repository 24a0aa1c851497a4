"""The stored verdicts of official evaluators: small, and without a text of a benchmark."""

import json
import re

import pytest

from bench.official import api_bank, bfcl, bfcl_conversations, travelplanner

# An id, a digest, an error type, letters that stand for verdicts.
_WORD = re.compile(r"[\w:/.-]*")


@pytest.mark.parametrize(
    ("path", "size", "keys"),
    [
        (api_bank.VERDICTS, 100_000, {"commit", "texts", "verdicts"}),
        (bfcl.VERDICTS, 120_000, {"errors", "texts", "verdicts"}),
        (bfcl_conversations.VERDICTS, 60_000, {"errors", "texts", "verdicts"}),
        (travelplanner.VERDICTS, 40_000, {"plans", "kinds", "verdicts", "rates"}),
    ],
    ids=lambda value: getattr(value, "stem", None),
)
def test_stored_verdicts_are_small_and_hold_no_text(path, size, keys):
    def words(value):
        if isinstance(value, dict):
            value = [*value, *value.values()]
        return (
            [word for each in value for word in words(each)] if isinstance(value, list) else [value]
        )

    kept = json.loads(path.read_text())
    assert path.stat().st_size < size and set(kept) == keys
    assert all(_WORD.fullmatch(word) for word in words(kept) if isinstance(word, str))
