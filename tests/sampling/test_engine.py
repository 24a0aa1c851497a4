"""Batches, buckets and the way back to the order of the prompts."""

import jax
import numpy as np
import pytest

from genenv_jax.sampling import engine as engine_module
from genenv_jax.sampling.engine import Engine, Rollouts, bucket, pad_rows
from genenv_jax.sampling.sampler import SamplingParams, sample
from tests.sampling.small_model import CONFIG, make_params, make_prompts

G, C = 2, 5
OPTIONS = SamplingParams(C, G, (3, 17, 40, 77, 100))
KEY = jax.random.key(0)
NARROW = Engine(CONFIG, OPTIONS, 3, (4, 8))
WIDE = Engine(CONFIG, OPTIONS, 5, (8,))


@pytest.fixture(scope="module")
def params():
    return make_params()


@pytest.fixture(scope="module")
def prompts():
    """Eleven prompts in both buckets, in no order, with partial batches in both."""
    prompts = make_prompts(11, 8, seed=2)
    widths = [len(p) > 4 for p in prompts]
    assert widths != sorted(widths) and sum(widths) % 3 and (11 - sum(widths)) % 3
    return prompts


@pytest.fixture(scope="module")
def rollouts(params, prompts):
    return NARROW(params, prompts, KEY)


def same(got, want):
    assert got.prompts == want.prompts
    for name in ("tokens", "lengths", "done"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name))
    np.testing.assert_allclose(got.logprobs, want.logprobs, atol=1e-5)


def test_shapes(rollouts, prompts):
    assert len(rollouts) == 11 and rollouts.prompts == prompts
    assert rollouts.tokens.shape == rollouts.logprobs.shape == (11, G, C)
    assert rollouts.lengths.shape == rollouts.done.shape == (11, G)
    assert (rollouts.lengths >= 1).all()
    assert isinstance(rollouts.tokens, np.ndarray)


def test_each_prompt_gets_its_own_samples(params, prompts, rollouts):
    """Prompt i with the row ids i * g + j, sampled on its own."""
    for i in (0, 4, 10):
        tokens, lengths = pad_rows([prompts[i]], 8, 5)
        ids = np.zeros((5, G), np.uint32)
        ids[0] = i * G + np.arange(G)
        alone = sample(params, tokens, lengths, KEY, ids, config=CONFIG, options=OPTIONS)
        np.testing.assert_array_equal(alone.tokens[0], rollouts.tokens[i])
        np.testing.assert_array_equal(alone.lengths[0], rollouts.lengths[i])


def test_batch_size_and_buckets_change_nothing(params, prompts, rollouts):
    same(WIDE(params, prompts, KEY), rollouts)


def test_a_later_part_of_the_list(params, prompts, rollouts):
    same(NARROW(params, prompts[4:], KEY, first_row=4), rollouts.take(range(4, 11)))
    other = NARROW(params, prompts[4:], KEY)
    assert (other.tokens != rollouts.tokens[4:]).any()


def test_every_completion_is_reported_once(params, prompts, rollouts):
    seen = {}
    NARROW(params, prompts, KEY, on_finished=lambda i, j, *rest: seen.setdefault((i, j), rest))
    assert len(seen) == 11 * G
    for (i, j), (tokens, done) in seen.items():
        assert tokens == rollouts.completion(i, j) and done == rollouts.done[i, j]


def test_nothing_is_compiled_in_steady_state(params, rollouts):
    before = sample._cache_size()
    for count in (1, 2, 7):
        NARROW(params, make_prompts(count, 8, seed=count), jax.random.key(count))
    assert sample._cache_size() == before


def test_put_places_every_array(params, prompts, rollouts):
    placed = []

    def put(tree):
        placed.extend(jax.tree.leaves(tree))
        return jax.device_put(tree)

    same(Engine(CONFIG, OPTIONS, 3, (4, 8), put)(params, prompts, KEY), rollouts)
    batches = len(placed) // 3
    assert {x.shape for x in placed} == {(3, 4), (3, 8), (3,), (3, G)}
    assert batches >= 4


def test_no_prompts(params):
    assert len(NARROW(params, [], KEY)) == 0


def test_refused_prompts(params, monkeypatch):
    monkeypatch.setattr(engine_module, "sample", lambda *a, **k: pytest.fail("sampled"))
    with pytest.raises(ValueError, match="prompt 2 has 9 tokens, the limit is 8"):
        NARROW(params, [[1], [2], [3] * 9], KEY)
    with pytest.raises(ValueError, match="prompt 1 is empty"):
        NARROW(params, [[1], [], []], KEY)


def test_buckets():
    assert [bucket(n, (4, 8, 16), "x") for n in (0, 1, 4, 5, 8, 9, 16)] == [4, 4, 4, 8, 8, 16, 16]
    with pytest.raises(ValueError, match="the text has 17 tokens, the limit is 16"):
        bucket(17, (4, 8, 16), "the text")


def test_pad_rows():
    tokens, lengths = pad_rows([[5, 6], [7]], 3, 4)
    assert tokens.tolist() == [[5, 6, 0], [7, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert lengths.tolist() == [2, 1, 0, 0]
    assert tokens.dtype == lengths.dtype == np.int32


def by_hand():
    """Three prompts with completions that name their places."""
    tokens = np.arange(3 * G * C, dtype=np.int32).reshape(3, G, C) + 1
    lengths = np.array([[5, 1], [2, 3], [4, 5]], np.int32)
    return Rollouts([[9], [9, 8, 7, 6, 5], [9, 8]], tokens, lengths, -tokens / 100.0, lengths < 5)


def test_completion_and_take():
    rollouts = by_hand()
    assert rollouts.completion(0, 1) == [6]
    assert rollouts.completion(2, 0) == [21, 22, 23, 24]
    part = rollouts.take([2, 0, 2])
    assert part.prompts == [[9, 8], [9], [9, 8]]
    np.testing.assert_array_equal(part.tokens, rollouts.tokens[[2, 0, 2]])
    np.testing.assert_array_equal(part.lengths, rollouts.lengths[[2, 0, 2]])
    np.testing.assert_array_equal(part.logprobs, rollouts.logprobs[[2, 0, 2]])
    np.testing.assert_array_equal(part.done, rollouts.done[[2, 0, 2]])
    assert len(rollouts.take([])) == 0
    assert len(rollouts.take(np.array([1]))) == 1


def test_training_batch():
    rollouts = by_hand()
    batch = rollouts.batch((4, 8), 5)
    assert batch.prompts.shape == (5, 8) and batch.completions.shape == (5, G, C)
    assert batch.prompt_lengths.tolist() == [1, 5, 2, 1, 1]  # never 0, also in the added rows
    np.testing.assert_array_equal(batch.completions[:3], rollouts.tokens)
    np.testing.assert_array_equal(batch.completion_lengths[:3], rollouts.lengths)
    assert (batch.completion_lengths[3:] == 0).all() and (np.asarray(batch.mask[3:]) == 0).all()
    np.testing.assert_array_equal(batch.mask.sum(axis=-1)[:3], rollouts.lengths)
    assert rollouts.take([0, 2]).batch((4, 8), 2).prompts.shape == (2, 4)  # the smallest bucket
    with pytest.raises(ValueError, match="a prompt has 5 tokens, the limit is 4"):
        rollouts.batch((2, 4), 5)
