"""Whole samples: against full forward passes, and what they do not depend on."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.models.scoring import CompletionBatch, score_completions
from genenv_jax.sampling import decoding
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import pad_rows
from tests.sampling.sampler import sample
from tests.sampling.small_model import CONFIG, full_logits, log_softmax, make_params, make_prompts

B, G, P, C = 4, 3, 6, 9
EOS = (3, 17, 40, 41, 77, 90, 100, 128)
SAMPLED = SamplingParams(C, G, EOS)
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def params():
    return make_params()


@pytest.fixture(scope="module")
def prompts():
    return make_prompts(B, P)


def run(params, prompts, options=SAMPLED, width=P, key=KEY, row_ids=None):
    """Samples as host arrays; batches always have B rows."""
    tokens, lengths = pad_rows(prompts, width, B)
    if row_ids is None:
        row_ids = np.arange(B * options.group_size).reshape(B, -1)
    row_ids = np.asarray(row_ids, np.uint32)
    samples = sample(params, tokens, lengths, key, row_ids, config=CONFIG, options=options)
    return jax.device_get(samples)


@pytest.fixture(scope="module")
def samples(params, prompts):
    return run(params, prompts)


def teacher_forced(params, prompts, samples):
    tokens, lengths = pad_rows(prompts, P, B)
    batch = CompletionBatch(tokens, lengths, samples.tokens, samples.lengths)
    return np.asarray(score_completions(params, batch, CONFIG))


def check_shape_of_samples(samples, options):
    """Lengths, end tokens, `done` and the places past the end agree with each other."""
    for i, j in np.ndindex(samples.lengths.shape):
        n = samples.lengths[i, j]
        row = samples.tokens[i, j]
        ends = np.isin(row[:n], options.eos_ids)
        assert 1 <= n <= options.max_new_tokens
        assert not ends[:-1].any()
        assert ends[-1] == samples.done[i, j]
        assert samples.done[i, j] or n == options.max_new_tokens
        assert (row[n:] == 0).all() and (samples.logprobs[i, j, n:] == 0).all()
        assert (samples.logprobs[i, j, :n] < 0).all()


def test_shapes_lengths_and_ends(samples):
    assert samples.tokens.shape == samples.logprobs.shape == (B, G, C)
    assert samples.tokens.dtype == samples.lengths.dtype == np.int32
    assert samples.logprobs.dtype == np.float32 and samples.done.dtype == bool
    check_shape_of_samples(samples, SAMPLED)
    # The fixture shows every case: early ends by several tokens, and rows cut off by the limit.
    last = np.take_along_axis(samples.tokens, samples.lengths[..., None] - 1, axis=-1)[..., 0]
    assert len(set(last[samples.done].tolist())) > 2
    assert (~samples.done).any() and (samples.lengths < C).any()


def test_logprobs_are_those_of_the_trainer(params, prompts, samples):
    want = teacher_forced(params, prompts, samples)
    assert np.abs(samples.logprobs - want).max() < 1e-5


def test_logprobs_are_of_the_raw_policy(params, prompts):
    """Whatever the temperature."""
    options = dataclasses.replace(SAMPLED, temperature=0.5)
    samples = run(params, prompts, options)
    check_shape_of_samples(samples, options)
    np.testing.assert_allclose(
        samples.logprobs, teacher_forced(params, prompts, samples), atol=1e-5
    )


def test_greedy_is_the_argmax_of_full_passes(params, prompts):
    """Each token recomputed by a pass over the whole sequence so far, without any cache."""
    options = dataclasses.replace(SAMPLED, temperature=0.0, group_size=2)
    samples = run(params, prompts, options)
    check_shape_of_samples(samples, options)
    np.testing.assert_array_equal(samples.tokens[:, 0], samples.tokens[:, 1])
    sequences, lengths = [list(p) for p in prompts], [0] * B
    logprobs = np.zeros((B, C))
    done = [False] * B
    for step in range(C):
        padded = [s + [5] * (P + C - len(s)) for s in sequences]
        logits = full_logits(params, padded)
        for i, sequence in enumerate(sequences):
            if not done[i]:
                at = logits[i, len(sequence) - 1]
                token = int(at.argmax())
                logprobs[i, step] = log_softmax(at)[token]
                sequence.append(token)
                lengths[i] += 1
                done[i] = token in EOS
    for i, prompt in enumerate(prompts):
        assert samples.tokens[i, 0, : lengths[i]].tolist() == sequences[i][len(prompt) :]
    assert samples.lengths[:, 0].tolist() == lengths
    assert samples.done[:, 0].tolist() == done
    np.testing.assert_allclose(samples.logprobs[:, 0], logprobs, atol=1e-5)


def test_a_sample_depends_on_its_prompt_key_and_row_only(params, prompts, samples):
    """Order, neighbours, empty rows and the prompt's bucket change no token."""
    ids = np.arange(B * G).reshape(B, G)

    def same(got, rows, want_rows):
        for name in ("tokens", "lengths", "done"):
            np.testing.assert_array_equal(
                getattr(got, name)[rows], getattr(samples, name)[want_rows]
            )
        np.testing.assert_allclose(got.logprobs[rows], samples.logprobs[want_rows], atol=1e-5)

    order = [2, 0, 3, 1]
    same(run(params, [prompts[i] for i in order], row_ids=ids[order]), slice(None), order)
    others = make_prompts(B, P, seed=9)
    mixed = run(params, [others[0], prompts[1], others[2], prompts[3]], row_ids=ids)
    same(mixed, [1, 3], [1, 3])
    assert (mixed.tokens[[0, 2]] != samples.tokens[[0, 2]]).any()
    few = run(params, [prompts[1], [], prompts[0], []], row_ids=ids[[1, 2, 0, 3]])
    same(few, [0, 2], [1, 0])
    assert (few.lengths[[1, 3]] == 0).all() and few.done[[1, 3]].all()
    assert (few.tokens[[1, 3]] == 0).all() and (few.logprobs[[1, 3]] == 0).all()
    same(run(params, prompts, width=P + 5), slice(None), slice(None))


def test_keys_and_rows(params, prompts, samples):
    again = run(params, prompts)
    np.testing.assert_array_equal(again.tokens, samples.tokens)
    np.testing.assert_array_equal(again.logprobs, samples.logprobs)
    for i in range(B):
        rows = {tuple(row) for row in samples.tokens[i].tolist()}
        assert len(rows) == G  # the members of a group differ
    other = run(params, prompts, key=jax.random.key(1))
    assert (other.tokens[..., 0] != samples.tokens[..., 0]).mean() > 0.5
    shifted = run(params, prompts, row_ids=np.arange(B * G).reshape(B, G) + 1)
    assert (shifted.tokens != samples.tokens).any(axis=-1).mean() > 0.8
    # The same prompt in two places differs, and under one row id it does not.
    twice = [prompts[0]] * B
    assert (run(params, twice).tokens[0] != run(params, twice).tokens[1]).any()
    ids = np.broadcast_to(np.arange(G), (B, G))
    one = run(params, twice, row_ids=ids)
    np.testing.assert_array_equal(one.tokens, np.broadcast_to(one.tokens[:1], one.tokens.shape))


def test_steps_have_keys_of_their_own(params):
    """With equal logits at every step (all weights zero) the draws of a row still vary."""
    flat = jax.tree.map(jnp.zeros_like, params)
    samples = run(flat, make_prompts(B, P))
    np.testing.assert_allclose(samples.logprobs[:, :, 0], -np.log(130), atol=1e-5)
    first, second = samples.tokens[..., 0].ravel(), samples.tokens[..., 1].ravel()
    assert len(set(first.tolist())) > 6
    assert (first != second).mean() > 0.7


@pytest.mark.parametrize(("eos_ids", "want"), [(tuple(range(130)), 1), ((), 5)])
def test_decoding_stops_when_every_row_is_done(params, prompts, monkeypatch, eos_ids, want):
    """Counts how often a token is drawn: once a step, and not once more."""
    calls = []
    original = decoding.next_token

    def counting(logits, row_keys, step, options):
        jax.debug.callback(lambda s: calls.append(int(s)), step[0, 0])
        return original(logits, row_keys, step, options)

    monkeypatch.setattr(decoding, "next_token", counting)
    options = SamplingParams(5, 1, eos_ids)
    fresh = jax.jit(sample.__wrapped__, static_argnames=("config", "options"))
    tokens, lengths = pad_rows([prompts[0], []], P, 2)
    got = fresh(
        params, tokens, lengths, KEY, np.zeros((2, 1), np.uint32), config=CONFIG, options=options
    )
    jax.effects_barrier()
    assert calls == list(range(want))
    assert got.lengths.tolist() == [[want], [0]]
    assert got.done.tolist() == [[bool(eos_ids)], [True]]
