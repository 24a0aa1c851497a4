"""Rows stay on their part of the batch axis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.parallel import rules
from genenv_jax.parallel.mesh import make_mesh
from genenv_jax.sampling import parts
from tests.sampling.small_model import CONFIG


@pytest.fixture
def four_parts():
    with rules.activate(make_mesh(2, 2, 2), CONFIG):
        yield


def test_without_a_mesh_rows_stand_in_their_order():
    assert parts.places(np.array([5, 0, 3, 2]), 8, 3).tolist() == [0, 1, 2, -1]
    at, slots = parts.free_places(np.array([False, True, True, False, True]), 4, 2)
    assert at.tolist() == [0, 1] and slots.tolist() == [1, 2]


def test_each_row_stands_in_the_part_of_its_slot(four_parts):
    """Twelve slots, three per part; a batch of eight, two per part."""
    assert parts.places(np.array([0, 1, 2, 11, 4, 10, 9]), 12, 8).tolist() == [0, 1, -1, 6, 2, 7, -1]


def test_free_places_are_spread_over_the_parts(four_parts):
    free = np.array([1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 1, 0], bool)
    at, slots = parts.free_places(free, 8, 8)  # two, none, two and one of a part's three
    assert dict(zip(at.tolist(), slots.tolist(), strict=True)) == {0: 0, 1: 1, 4: 7, 5: 8, 6: 10}
    at, slots = parts.free_places(free, 8, 3)
    assert at.tolist() == [0, 4, 6] and slots.tolist() == [0, 7, 10]


def test_rows_are_put_and_taken_as_without_parts(four_parts):
    x, rng = np.zeros((12, 5), np.int32), np.random.default_rng(0)
    new = rng.integers(1, 99, (8, 5), dtype=np.int32)
    slots = np.array([2, 0, 4, 12, 7, 6, 12, 12])  # 12: nowhere
    want = np.concatenate([x, x])
    want[slots] = new

    @jax.jit
    def run(x, slots, new):
        own = parts.local(slots, 12)
        x = parts.put_rows(x, own, new)
        return x, parts.take_rows(x, own)

    got, taken = run(*map(jnp.asarray, (x, slots, new)))
    np.testing.assert_array_equal(got, want[:12])
    there = slots < 12
    np.testing.assert_array_equal(taken[there], new[there])
