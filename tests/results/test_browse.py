import pytest

from genenv_jax.results.browse import browser, choices, spread
from tests.results.synthetic import ATTACK


def pair(index, length=20):
    text = (f"task {index} " + ATTACK * length)[: 40 * length]
    sides = [("before", text, "wrong"), ("after", text, "success")]
    category = "rare" if index % 100 == 99 else "frequent"
    return {"change": "learnt", "category": category, "request": text, "reference": "", "sides": sides}


@pytest.mark.parametrize("length", [1, 2000])
def test_what_does_not_fit_is_left_out_evenly(length):
    records = [pair(i, length) for i in range(400)]
    found = browser("tasks", "compared_task", records, lambda r: r["category"], [], 60_000)
    sizes = [len(item.encode()) for item in found.items]
    assert 60_000 - 2 * max(sizes) < sum(sizes) <= 60_000 and found.total == 400
    assert sum('data-category="rare"' in item for item in found.items) == 4


def test_any_first_part_has_all_kinds():
    assert spread("aaabbc", str) == [0, 3, 5, 1, 4, 2]


def test_choices_are_counted():
    assert choices("x", "X", "abbc").choices == [("b", 2), ("a", 1), ("c", 1)]
    assert choices("x", "X", "cab", by_count=False).choices == [("c", 1), ("a", 1), ("b", 1)]
    epochs = list(map(str, range(250)))
    assert [len(choices("x", "X", epochs, by_count).choices) for by_count in (True, False)] == [200, 250]
