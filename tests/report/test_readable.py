"""JSON values as text."""

import pytest

from genenv_jax.report.readable import readable


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("[f(a=1), g()]", "[f(a=1), g()]"),
        ("[]", "[]"),
        ("{broken", "{broken"),
        (3, "3"),
        (None, "null"),
        ({}, "{}"),
        (["a", 1, None], "a, 1, null"),
        (["a\nb", "c"], "- a\n  b\n- c"),
        ([["a"], ["b", "c"]], "- a\n- b, c"),
        ({"value": 10, "names": ["x", "y"]}, "value: 10\nnames: x, y"),
        ({"call": {"city": "Oslo", "days": [1]}}, "call:\n  city: Oslo\n  days: 1"),
        ('[{"day": 1, "city": "Oslo"}, {"day": 2}]', "- day: 1\n  city: Oslo\n- day: 2"),
        (["x" * 60, "y" * 60], f"- {'x' * 60}\n- {'y' * 60}"),
    ],
)
def test_values_are_laid_out(value, text):
    assert readable(value) == text


def test_deep_values_end():
    deep = "[" * 900 + '{"a": 1}' + "]" * 900
    assert readable(deep) == deep
    nested = 1
    for _ in range(40):
        nested = {"a": nested}
    assert len(readable(nested)) < 2000
