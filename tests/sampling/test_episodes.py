"""Episodes: what is sampled, what is read, and where it ends."""

import contextlib
import dataclasses
import functools
import itertools

import jax
import numpy as np
import pytest

from genenv_jax.models.scoring import score_completions
from genenv_jax.parallel import rules
from genenv_jax.parallel.mesh import make_mesh
from genenv_jax.sampling import decoding, turns
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine
from genenv_jax.sampling.episodes import EpisodeEngine
from tests.sampling.small_model import CONFIG, make_prompts, same

G, ANSWER, LENGTH = 2, 6, 48
OPTIONS = SamplingParams(ANSWER, G, (3, 17, 40, 77, 100))
KEY = jax.random.key(0)
N = 5


def engine(batch_size=3, buckets=(4, 8), config=CONFIG, length=LENGTH, **options):
    return EpisodeEngine(config, OPTIONS, batch_size, buckets, episode=length, **options)


class Scripted:
    """Replies that follow from the answers; some take a few calls, as slow environments do."""

    def __init__(self, slow=True, longest=20):
        self.answers, self.waiting, self.crowded = {}, {}, []
        self._slow, self._longest = slow, longest

    def answer(self, completion):
        row, tokens, done = completion.key, completion.content, completion.ended
        assert len(tokens) <= ANSWER and done == (tokens[-1] in OPTIONS.eos_ids)
        self.answers.setdefault(row, []).append(list(tokens))
        rng = np.random.default_rng([*row, *tokens])
        if len(self.answers[row]) > 2 + row[1]:
            reply = None
        else:
            reply = rng.integers(0, CONFIG.vocab_size, rng.integers(1, self._longest)).tolist()
        self.waiting[row] = int(rng.integers(0, 3)) * self._slow, reply

    def replies(self, wait):
        assert self.waiting or not wait
        came = {row: reply for row, (left, reply) in self.waiting.items() if not left or wait}
        self.waiting = {r: (max(n - 1, 0), x) for r, (n, x) in self.waiting.items() if r not in came}
        return came

    def no_room(self, row):
        self.crowded.append(row)


@pytest.fixture(scope="module")
def prompts():
    return make_prompts(N, 8, seed=2)


@pytest.fixture(scope="module")
def played(params, prompts):
    environments = Scripted()
    return engine().play(params, prompts, environments, KEY), environments


def test_actions_are_what_was_answered(played):
    rollouts, environments = played
    assert set(environments.answers) == {(i, j) for i in range(N) for j in range(G)}
    for row, answers in environments.answers.items():
        length, loss_mask = rollouts.lengths[row], rollouts.loss_mask[row]
        assert rollouts.tokens[row][loss_mask].tolist() == list(itertools.chain(*answers))
        assert not loss_mask[length:].any() and (row in environments.crowded or loss_mask[length - 1])
        assert (rollouts.logprobs[row][~loss_mask] == 0).all()
        assert (rollouts.logprobs[row][loss_mask] < 0).all()
    assert ((np.arange(LENGTH) < rollouts.lengths[..., None]) & ~rollouts.loss_mask).sum() > 50
    assert environments.crowded and len(environments.crowded) < N * G


def test_logprobs_are_those_of_teacher_forcing(params, played):
    rollouts, _ = played
    forced = score_completions(params, rollouts.batch((8,), N), CONFIG)
    np.testing.assert_allclose(rollouts.logprobs, forced, atol=1e-4)


def test_the_first_answers_are_those_of_the_engine(params, prompts, played):
    _, environments = played
    single = Engine(CONFIG, OPTIONS, 3, (4, 8))(params, prompts, KEY)
    for (i, j), answers in environments.answers.items():
        assert answers[0] == single.completion(i, j).content


@pytest.mark.parametrize(
    "options",
    [
        *({"batch_size": 5}, {"batch_size": 1, "buckets": (8,)}, {"chunk": 3}, {"prefill_tokens": 8}),
        {"config": dataclasses.replace(CONFIG, unroll_layers=True)},
    ],
)
def test_batches_and_chunks_change_nothing(params, prompts, played, options):
    same(engine(**options).play(params, prompts, Scripted(), KEY), played[0])


def test_when_a_reply_comes_and_in_how_many_parts_it_is_read_changes_nothing(
    params, prompts, monkeypatch, played
):
    same(engine().play(params, prompts, Scripted(slow=False), KEY), played[0])
    monkeypatch.setattr("genenv_jax.sampling.episodes.OBSERVATION_WIDTHS", (4, 8))
    same(engine().play(params, prompts, Scripted(), KEY), played[0])


class Endless:
    """Replies with the same token up to answer `times`."""

    def __init__(self, times):
        self.left, self.came, self.crowded = {}, {}, 0
        self._times = times

    def answer(self, completion):
        row = completion.key
        left = self.left[row] = self.left.get(row, self._times) - 1
        self.came[row] = [5] if left else None

    def replies(self, wait):
        came, self.came = self.came, {}
        return came

    def no_room(self, row):
        self.crowded += 1


def test_an_episode_ends_at_its_limit(params, prompts):
    environments = Endless(10**6)
    rollouts = engine(length=20).play(params, prompts, environments, KEY)
    assert (rollouts.lengths <= 20).all() and (rollouts.lengths > 20 - 2 - ANSWER).all()
    assert environments.crowded == N * G


def test_rows_that_outgrow_their_first_cache(params, prompts):
    """Layers with a window of 200 tokens have 150 columns at first."""
    config = dataclasses.replace(CONFIG, window=dataclasses.replace(CONFIG.window, size=200))
    rollouts = engine(config=config, length=300).play(params, prompts, Endless(10**6), KEY)
    assert (rollouts.lengths > 250).all()
    forced = score_completions(params, rollouts.batch((8,), N), config)
    np.testing.assert_allclose(rollouts.logprobs, forced, atol=1e-4)


def test_nothing_is_compiled_in_steady_state(params, prompts):
    """Not by the first call after a warm-up."""
    warm = engine(batch_size=4, buckets=(8,), length=300)
    programs = turns._read_prompts, turns.decode, turns.observe, turns.widen, turns.empty
    for step in warm.warm_up(lambda: params, episodes=True):
        step()
    assert warm.seconds == {"prefill": 0.0, "decode": 0.0}  # compiling is no sampling
    before = [program._cache_size() for program in programs]
    for seed in (1, 2):
        warm.play(params, make_prompts(7, 8, seed), Endless(40), jax.random.key(seed))
    assert [program._cache_size() for program in programs] == before


def test_what_the_devices_were_given_stays_as_it_was(params, prompts):
    """A device may read it at any time: a host that wrote to it would race."""
    given = []

    def put(tree):
        given.extend((x, x.copy()) for x in jax.tree.leaves(tree))
        return jax.device_put(tree)

    engine(put=put).play(params, prompts, Scripted(), KEY)
    Engine(CONFIG, OPTIONS, 3, (4, 8), put=put)(params, prompts, KEY)
    assert len(given) > 50
    for array, copy in given:
        np.testing.assert_array_equal(array, copy)


def test_all_free_slots_are_filled_before_a_chunk(params, prompts, monkeypatch):
    """Though prompts are read one at a time."""
    calls = []
    for name in ("admit", "decode"):
        program = getattr(turns, name)
        monkeypatch.setattr(turns, name, lambda *a, n=name, p=program, **b: calls.append(n) or p(*a, **b))
    engine(batch_size=N, buckets=(8,), prefill_tokens=8).play(params, prompts, Scripted(), KEY)
    assert calls[:N] == ["admit"] * N and "admit" not in calls[N:]


def test_the_size_of_the_caches_counts_whole_episodes():
    sampler = engine(length=300)
    state = turns.empty(config=CONFIG, slots=3, group=G, prompt=8, length=300)
    assert sampler.cache_bytes == sum(x.nbytes for x in jax.tree.leaves(state))
    plain = Engine(CONFIG, OPTIONS, 3, (4, 8)).cache_bytes
    assert engine(length=0).cache_bytes == plain < sampler.cache_bytes


def test_the_caches_are_donated(params):
    state = turns.empty(config=CONFIG, slots=2, group=G, prompt=8, length=32)
    rows = turns.Rows(*(np.ones((2, G), t) for t in (np.int32, np.int32, np.int32, bool, np.uint32)))
    weights = decoding.prepare(params, config=CONFIG)
    turns.decode(weights, state, rows, KEY, config=CONFIG, options=OPTIONS, steps=4)
    assert all(x.is_deleted() for x in jax.tree.leaves(state.history))


@pytest.mark.parametrize(
    "shape", [{"data": 2, "fsdp": 2, "tensor": 2}, pytest.param({"data": 8}, marks=pytest.mark.slow)]
)
def test_meshes_change_nothing(params, prompts, played, shape):
    mesh = make_mesh(**{"data": 1, "fsdp": 1, "tensor": 1} | shape)
    with contextlib.ExitStack() as stack:
        stack.enter_context(rules.activate(mesh, CONFIG))
        put = functools.partial(jax.device_put, device=rules.batch_sharding(mesh))
        placed = jax.device_put(params, rules.param_shardings(CONFIG, mesh))
        got = engine(batch_size=8, put=put).play(placed, prompts, Scripted(), KEY)
    same(got, played[0])
