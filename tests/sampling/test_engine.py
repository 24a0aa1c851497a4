"""Batches, buckets and the way back to the order of the prompts."""

import contextlib
import dataclasses
import functools

import jax
import numpy as np
import pytest

from genenv_jax.models.scoring import score_completions
from genenv_jax.parallel import rules
from genenv_jax.parallel.mesh import make_mesh
from genenv_jax.sampling import cache as caches
from genenv_jax.sampling import decoding
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine, by_bucket, cache_sizes
from genenv_jax.sampling.episodes import EpisodeEngine
from genenv_jax.sampling.sampler import Completion, Rollouts, bucket, pad_rows
from tests.sampling.small_model import CONFIG, make_prompts, same

G, C = 2, 5
OPTIONS = SamplingParams(C, G, (3, 17, 40, 77, 100))
KEY = jax.random.key(0)
NARROW = Engine(CONFIG, OPTIONS, 3, (4, 8))
WIDE = Engine(CONFIG, OPTIONS, 5, (8,))


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


def test_shapes_and_seconds(params, rollouts, prompts):
    assert len(rollouts) == 11 and rollouts.prompts == prompts
    assert rollouts.tokens.shape == rollouts.logprobs.shape == (11, G, C)
    assert rollouts.lengths.shape == rollouts.done.shape == (11, G)
    assert (rollouts.lengths >= 1).all() and isinstance(rollouts.tokens, np.ndarray)
    assert NARROW.seconds["prefill"] > 0 and NARROW.seconds["decode"] > 0
    assert len(NARROW(params, [], KEY)) == 0


def test_batch_size_and_buckets_change_nothing(params, prompts, rollouts):
    same(WIDE(params, prompts, KEY), rollouts)


def test_few_prompts_go_with_the_next_larger_bucket():
    """Unless their padding outweighs a batch: 2 prompts × 2 samples × 4 tokens."""
    assert by_bucket([8, 4, 8, 4], 2, 16) == [(4, [1, 3]), (8, [0, 2])]
    assert by_bucket([8, 4, 8], 2, 16) == [(8, [0, 1, 2])]
    assert by_bucket([8, 4, 64], 2, 16) == [(8, [0, 1]), (64, [2])]
    assert by_bucket([4, 64, 64], 2, 16) == [(4, [0]), (64, [1, 2])]
    assert by_bucket([4], 2, 16) == [(4, [0])]


def test_every_completion_is_reported_once(params, prompts, rollouts):
    seen = []
    NARROW(params, prompts, KEY, on_completion=seen.append)
    want = [rollouts.completion(i, j) for i in range(11) for j in range(G)]
    assert sorted(seen, key=lambda completion: completion.key) == want


def test_a_warm_engine_compiles_nothing(params, prompts):
    """Not even for a bucket or cache size that is used for the first time."""
    options = SamplingParams(65, G, (3,), temperature=0.9)
    engine = EpisodeEngine(CONFIG, options, 3, (4, 8), lanes=1, chunk=4)
    programs = decoding.read_prompts, decoding.decode, decoding.resize
    for step in engine.warm_up(lambda: params):
        step()
    before = [program._cache_size() for program in programs]
    engine(params, prompts, KEY)
    assert [program._cache_size() for program in programs] == before


LONG = SamplingParams(64, 5, (3, 17))  # the cache grows from 32 to 64 columns


@pytest.fixture(scope="module")
def ragged(params):
    """Seven prompts, a limit for each sample, and completions each decoded in its own lane."""
    prompts, rng = make_prompts(7, 6, seed=4), np.random.default_rng(0)
    limits = np.minimum(64, 1 + rng.pareto(0.7, (7, 5)) * 4).astype(int)
    plain = Engine(CONFIG, LONG, 7, (6,), lanes=5, chunk=64)(params, prompts, KEY)
    # Every case is there: ends by an end token and by the limit, in one token and in all 64.
    lengths = np.minimum(plain.lengths, limits)
    assert lengths.min() == 1 and lengths.max() == 64
    assert (plain.lengths <= limits).any() and (plain.lengths > limits).any()
    return prompts, limits, plain


@pytest.mark.parametrize(
    ("slots", "lanes", "chunk", "mesh", "unrolled"),
    [(3, 1, 16, None, False), (2, 2, 5, None, True), (4, 2, 7, (2, 1, 2), False),
     pytest.param(3, 5, 8, None, False, marks=pytest.mark.slow),
     pytest.param(4, 5, 7, (1, 4, 1), True, marks=pytest.mark.slow)],
)  # fmt: skip
def test_replacing_finished_rows_changes_nothing(params, ragged, slots, lanes, chunk, mesh, unrolled):
    """Lanes that continue with another sample, slots with another prompt, a cache that wraps around."""
    prompts, limits, plain = ragged
    finished = []
    config = dataclasses.replace(CONFIG, unroll_layers=unrolled)
    engine = Engine(config, LONG, slots, (6,), lanes=lanes, chunk=chunk, prefill_tokens=12)
    context = contextlib.nullcontext()
    if mesh:
        mesh = make_mesh(*mesh, devices=jax.devices()[:4])
        params = jax.device_put(params, rules.param_shardings(CONFIG, mesh))
        put = functools.partial(jax.device_put, device=rules.batch_sharding(mesh))
        engine, context = dataclasses.replace(engine, put=put), rules.activate(mesh, CONFIG)
    with context:
        note = lambda completion: finished.append(completion.key)  # noqa: E731
        got = engine(params, prompts, KEY, limits=limits, on_completion=note)
    lengths = np.minimum(plain.lengths, limits)
    np.testing.assert_array_equal(got.lengths, lengths)
    np.testing.assert_array_equal(got.done, plain.done & (plain.lengths <= limits))
    kept = np.arange(64) < lengths[..., None]
    np.testing.assert_array_equal(got.tokens, np.where(kept, plain.tokens, 0))
    np.testing.assert_allclose(got.logprobs, np.where(kept, plain.logprobs, 0), atol=2e-5)
    assert sorted(finished) == [(i, j) for i in range(7) for j in range(5)]
    if lanes == 1:  # then the samples of a prompt follow one another
        assert [j for i, j in finished if i == 0] == sorted(range(5), key=lambda j: lengths[0, j] > 1)


def test_a_window_between_two_sizes_of_the_cache(params, ragged):
    """Layers with a window of 40 tokens have 32 columns at first."""
    config = dataclasses.replace(CONFIG, window=dataclasses.replace(CONFIG.window, size=40))
    got = Engine(config, LONG, 3, (6,), lanes=2)(params, ragged[0], KEY)
    assert got.lengths.max() == 64
    np.testing.assert_allclose(got.logprobs, score_completions(params, got.batch((6,), 7), config), atol=2e-5)


def test_completions_are_reported_while_others_are_decoded(params, ragged, monkeypatch):
    prompts, limits, _ = ragged
    events, decode = [], decoding.decode

    def recorded(*args, **kwargs):
        events.append("chunk")
        return decode(*args, **kwargs)

    monkeypatch.setattr(decoding, "decode", recorded)
    engine = Engine(CONFIG, LONG, 3, (6,), lanes=1, chunk=16, prefill_tokens=12)
    engine(params, prompts, KEY, limits=limits, on_completion=lambda _: events.append("finished"))
    # Two chunks are on their way before the first is read: the device never waits for the host.
    assert events[:2] == ["finished", "chunk"] or events[:2] == ["chunk", "finished"]
    last_chunk = len(events) - events[::-1].index("chunk")
    assert events[:last_chunk].count("finished") > 10


@pytest.mark.parametrize(
    ("limit", "want"),
    [(1, [1]), (20, [20]), (32, [32]), (50, [50]), (70, [64, 70]), (128, [32, 64, 96, 128]),
     (512, [128, 256, 384, 512]), (1000, [256, 512, 768, 1000])],
)  # fmt: skip
def test_sizes_of_the_cache(limit, want):
    assert cache_sizes(limit) == want


@pytest.mark.parametrize("unrolled", [False, True])
def test_layers_with_a_window_cache_only_what_it_needs(unrolled):
    engine = Engine(dataclasses.replace(CONFIG, unroll_layers=unrolled), LONG, 3, (6,))
    state = jax.eval_shape(lambda: engine.empty_state(KEY, 6, 64))
    assert caches.lengths(state.prompts, engine.config) == (6, CONFIG.window.size)
    assert caches.lengths(state.generated, engine.config) == (64, CONFIG.window.size)
    arrays = jax.tree.leaves((state.prompts, state.generated))
    columns = 3 * (6 + 2 * CONFIG.window.size) + 3 * 5 * (64 + 2 * CONFIG.window.size)
    assert sum(x.size for x in arrays) == columns * 2 * CONFIG.num_kv_heads * CONFIG.head_dim


def test_prompts_are_read_a_part_at_a_time():
    """So that a large batch's activations never all exist at once."""
    engine = Engine(CONFIG, OPTIONS, 64, (32, 128, 4096))
    assert [engine.prompts_at_once(width) for width in (32, 128, 4096)] == [32, 8, 1]
    with rules.activate(make_mesh(2, 2, 2), CONFIG):
        assert [engine.prompts_at_once(width) for width in (32, 128, 4096)] == [32, 8, 4]
    assert Engine(CONFIG, OPTIONS, 5, (32,)).prompts_at_once(32) == 5


def test_refused_prompts(params, monkeypatch):
    monkeypatch.setattr(decoding, "prepare", lambda *a, **k: pytest.fail("sampled"))
    with pytest.raises(ValueError, match="prompt 2 has 9 tokens, the limit is 8"):
        NARROW(params, [[1], [2], [3] * 9], KEY)
    with pytest.raises(ValueError, match="prompt 1 is empty"):
        NARROW(params, [[1], [], []], KEY)


def test_buckets_and_padding():
    assert [bucket(n, (4, 8, 16), "x") for n in (0, 4, 5, 16)] == [4, 4, 8, 16]
    with pytest.raises(ValueError, match="the text has 17 tokens, the limit is 16"):
        bucket(17, (4, 8, 16), "the text")
    tokens, lengths = pad_rows([[5, 6], [7]], 3, 4)
    assert tokens.tolist() == [[5, 6, 0], [7, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert lengths.tolist() == [2, 1, 0, 0] and tokens.dtype == lengths.dtype == np.int32


def by_hand():
    """Three prompts with completions that name their places."""
    tokens = np.arange(3 * G * C, dtype=np.int32).reshape(3, G, C) + 1
    lengths = np.array([[5, 1], [2, 3], [4, 5]], np.int32)
    return Rollouts([[9], [9, 8, 7, 6, 5], [9, 8]], tokens, lengths, -tokens / 100.0, lengths < 5)


def test_completion_and_take():
    rollouts = by_hand()
    assert rollouts.completion(0, 1) == Completion(0, 1, [6], True)
    assert rollouts.completion(2, 0).content == [21, 22, 23, 24]
    part = rollouts.take([2, 0, 2])
    assert part.prompts == [[9, 8], [9], [9, 8]]
    for name in ("tokens", "lengths", "logprobs", "done"):
        np.testing.assert_array_equal(getattr(part, name), getattr(rollouts, name)[[2, 0, 2]])
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
