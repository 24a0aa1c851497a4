"""Stale rollouts: which are kept, which come up again, and what is said of them."""

import collections

import numpy as np
import pytest

from genenv_jax.rl import difficulty, replay
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Rollouts
from genenv_jax.trace_pool import TracePool, Traces, replay_metrics

G, C, WIDTH = 4, 3, 6
OPTIONS = SamplingParams(C, G, (1,))


def make_pool(capacity=9, max_age=3, **options):
    return TracePool(OPTIONS, WIDTH, capacity, max_age, **options)


def rollouts(names, seed=0):
    """Groups whose prompts are [name] * (1 + name % WIDTH), with ragged completions, some empty."""
    rng = np.random.default_rng(seed)
    shape = (len(names), G, C)
    lengths = rng.integers(0, C + 1, shape[:2]).astype(np.int32)
    inside = np.arange(C) < lengths[..., None]
    tokens = rng.integers(1, 99, shape).astype(np.int32)
    logprobs = -rng.exponential(size=shape).astype(np.float32)
    done = rng.random(shape[:2]) < 0.5
    prompts = [[name] * (1 + name % WIDTH) for name in names]
    return Rollouts(prompts, tokens * inside, lengths, logprobs * inside, done)


def successes(*counts):
    return np.array([[1.0] * k + [0.0] * (G - k) for k in counts])


def names(traces):
    return [prompt[0] for prompt in traces.rollouts.prompts]


def shares(state, epoch, draws=3000, **options):
    """How often each group is the one that is drawn, from pools in the same state."""
    seen = collections.Counter()
    for i in range(draws):
        again = make_pool(**options)
        again.restore(state)
        seen.update(names(again.choose(np.random.default_rng(i), 1, epoch)))
    return {name: n / draws for name, n in seen.items()}


def test_only_informative_groups_are_kept():
    pool, groups = make_pool(), rollouts([10, 11, 12, 13])
    rewards = np.array([[1, 1, 1, 1], [0, 0, 1, 0], [0.5, 0.5, 0.5, 0.5], [0.1, 0.1, 0.1, 0.2]])
    pool.add(groups, rewards, epoch=2)
    traces = pool.choose(np.random.default_rng(0), 9, epoch=3)
    assert sorted(names(traces)) == [11, 13] and len(pool) == 2
    assert traces.ages.tolist() == [1, 1] and traces.weights is None
    for row, name in enumerate(names(traces)):
        source = name - 10
        np.testing.assert_array_equal(traces.rewards[row], rewards[source])
        for field in ("tokens", "lengths", "logprobs", "done"):
            got, want = getattr(traces.rollouts, field)[row], getattr(groups, field)[source]
            np.testing.assert_array_equal(got, want, err_msg=field)
        assert traces.rollouts.prompts[row] == groups.prompts[source]
    assert traces.mask.sum() == traces.rollouts.lengths.sum()


def test_a_group_comes_up_in_later_epochs_and_once_in_each():
    pool, rng = make_pool(max_age=3), np.random.default_rng(1)
    pool.add(rollouts(range(5)), successes(1, 2, 3, 2, 1), epoch=0)
    assert len(pool.choose(rng, 5, epoch=0)) == 0
    first, second, third = (names(pool.choose(rng, 2, epoch=1)) for _ in range(3))
    assert sorted(first + second + third) == [0, 1, 2, 3, 4]
    assert len(pool.choose(rng, 5, epoch=1)) == 0
    late = pool.choose(rng, 9, epoch=3)
    assert len(late) == 5 and set(late.ages) == {3}
    assert len(pool.choose(rng, 9, epoch=4)) == 0
    pool.trim(3)
    assert len(pool) == 5
    pool.trim(4)
    assert len(pool) == 0
    assert len(pool.choose(rng, 9, epoch=4)) == len(make_pool().choose(rng, 3, 0)) == 0
    assert len(pool.choose(rng, 0, epoch=4)) == 0


def test_the_priorities_are_those_of_learnability_and_staleness():
    """The shares with which groups are drawn, from `rl.replay.priorities` on `difficulty.learnability`."""
    for share in (0.0, 0.5, 1.0):
        options = {"max_age": 9, "staleness_share": share}
        pool = make_pool(**options)
        pool.add(rollouts([0, 1]), successes(2, 1), epoch=0)
        pool.choose(np.random.default_rng(0), 1, epoch=3)  # one of them has been used since
        used = pool.state()["used"][:2]
        assert sorted(used) == [0, 3]
        pool.add(rollouts([2, 3]), successes(3, 2), epoch=4)
        staleness = [*(6 - used), 2, 2]
        learnability = difficulty.learnability(np.array([2, 1, 3, 2]), np.full(4, G))
        want = replay.priorities(learnability, staleness, staleness_share=share)
        found = shares(pool.state(), epoch=6, **options)
        np.testing.assert_allclose([found.get(i, 0) for i in range(4)], want, atol=0.035)


def test_too_many_groups_leave_the_least_learnable():
    pool = make_pool(capacity=3)
    pool.add(rollouts([0, 1, 2]), successes(2, 1, 3), epoch=0)
    pool.add(rollouts([3, 4]), successes(2, 1), epoch=1)
    with pytest.raises(ValueError, match="5 groups: expected at most 3"):
        pool.state()
    pool.trim(2)
    kept = names(pool.choose(np.random.default_rng(0), 9, epoch=2))
    assert sorted(kept) == [0, 3, 4]  # of 1, 2 and 4, which are worth the same, the newest


def test_a_restored_pool_goes_on_alike():
    pool = make_pool(capacity=6)
    empty = pool.state()
    pool.add(rollouts([3, 1, 5, 2], seed=5), successes(1, 2, 3, 2), epoch=1)
    pool.choose(np.random.default_rng(2), 1, epoch=2)
    state = pool.state()
    shapes = lambda s: {name: (x.shape, x.dtype) for name, x in s.items()}  # noqa: E731
    assert shapes(empty) == shapes(state)
    again = make_pool(capacity=6)
    again.restore({name: x.copy() for name, x in state.items()})
    for name, value in again.state().items():
        np.testing.assert_array_equal(value, state[name], err_msg=name)
    for epoch in (2, 3):
        ours, theirs = (p.choose(np.random.default_rng(7), 2, epoch) for p in (pool, again))
        assert names(ours) == names(theirs) and len(ours) == 2
        np.testing.assert_array_equal(ours.rollouts.logprobs, theirs.rollouts.logprobs)
        np.testing.assert_array_equal(ours.ages, theirs.ages)
    again.restore(empty)
    assert len(again) == 0


def test_what_is_drawn_does_not_change_with_the_pool():
    pool = make_pool()
    pool.add(rollouts([1]), successes(1), epoch=0)
    drawn = pool.choose(np.random.default_rng(0), 1, epoch=1)
    drawn.rollouts.tokens[:] = 0
    drawn.rewards[:] = 7
    assert pool.state()["tokens"].any() and pool.state()["rewards"].max() == 1


def test_metrics():
    assert replay_metrics([], 2.0) == {"replayed_groups": 0}
    parts = []
    for count, ages, weight in ((2, [1, 4], 0.5), (0, [], 1.0), (1, [4], 2.0)):
        groups = rollouts(range(count), seed=count)
        rewards = np.zeros((count, G))
        traces = Traces(groups, rewards, np.array(ages, np.int32))
        parts.append(Traces(groups, rewards, traces.ages, weight * traces.mask.astype(np.float32)))
    low, high = (int(part.rollouts.lengths.sum()) for part in (parts[0], parts[2]))
    assert replay_metrics(parts, 2.0) == pytest.approx(
        {
            "replayed_groups": 3,
            "replay_age_mean": 3.0,
            "replay_weight_mean": (0.5 * low + 2.0 * high) / (low + high),
            "replay_truncated_share": high / (low + high),
        }
    )
