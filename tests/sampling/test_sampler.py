"""What is sampled: against full forward passes, and what it depends on."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.models.scoring import score_completions
from genenv_jax.sampling import decoding
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine
from tests.sampling.small_model import CONFIG, full_logits, log_softmax, make_prompts

B, G, P, C = 4, 3, 6, 9
EOS = (3, 17, 40, 41, 77, 90, 100, 128)
SAMPLED = SamplingParams(C, G, EOS)


@pytest.fixture(scope="module")
def prompts():
    return make_prompts(B, P)


def run(params, prompts, options=SAMPLED, seed=0, config=CONFIG):
    return Engine(config, options, B, (P,))(params, prompts, jax.random.key(seed))


@pytest.fixture(scope="module")
def samples(params, prompts):
    return run(params, prompts)


@pytest.mark.parametrize(
    ("temperature", "dtype", "local", "gap"),
    [
        (1.0, "float32", (True, False, True), 1e-5),
        (0.5, "float32", (True, True, True), 1e-5),
        (1.0, "bfloat16", (True, False, True), 0.1),
    ],
)
def test_lengths_ends_and_log_probs(params, prompts, temperature, dtype, local, gap):
    """They agree with each other, and the log-probs equal the trainer's for the raw policy."""
    options = dataclasses.replace(SAMPLED, temperature=temperature)
    config = dataclasses.replace(CONFIG, dtype=dtype, window=dataclasses.replace(CONFIG.window, layers=local))
    samples = run(params, prompts, options, seed=1, config=config)
    assert samples.tokens.dtype == samples.lengths.dtype == np.int32
    assert samples.logprobs.dtype == np.float32 and samples.done.dtype == bool
    for i, j in np.ndindex(samples.lengths.shape):
        n = samples.lengths[i, j]
        row = samples.tokens[i, j]
        ends = np.isin(row[:n], EOS)
        assert 1 <= n <= C and not ends[:-1].any()
        assert ends[-1] == samples.done[i, j] and (samples.done[i, j] or n == C)
        assert (row[n:] == 0).all() and (samples.logprobs[i, j, n:] == 0).all()
    # Every case is there: early ends by several tokens, and rows cut off by the limit.
    last = np.take_along_axis(samples.tokens, samples.lengths[..., None] - 1, axis=-1)[..., 0]
    assert len(set(last[samples.done].tolist())) > 2
    assert (~samples.done).any() and (samples.lengths < C).any()
    forced = score_completions(params, samples.batch((P,), B), config)
    np.testing.assert_allclose(samples.logprobs, forced, atol=gap)


def test_greedy_is_the_argmax_of_full_passes(params, prompts):
    """Each token recomputed by a pass over the whole sequence so far, without any cache."""
    samples = run(params, prompts, dataclasses.replace(SAMPLED, temperature=0.0, group_size=2))
    np.testing.assert_array_equal(samples.tokens[:, 0], samples.tokens[:, 1])
    sequences, done = [list(p) for p in prompts], [False] * B
    for step in range(C):
        logits = full_logits(params, [s + [5] * (P + C - len(s)) for s in sequences])
        for i, sequence in enumerate(sequences):
            if not done[i]:
                at = logits[i, len(sequence) - 1]
                sequence.append(int(at.argmax()))
                done[i] = sequence[-1] in EOS
                assert samples.logprobs[i, 0, step] == pytest.approx(log_softmax(at)[sequence[-1]], abs=1e-5)
    for i, prompt in enumerate(prompts):
        assert samples.completion(i, 0).content == sequences[i][len(prompt) :]
    assert samples.done[:, 0].tolist() == done


def test_keys_and_rows(params, prompts, samples):
    again = run(params, prompts)
    np.testing.assert_array_equal(again.tokens, samples.tokens)
    np.testing.assert_array_equal(again.logprobs, samples.logprobs)
    for i in range(B):
        assert len({tuple(row) for row in samples.tokens[i].tolist()}) == G  # the members of a group differ
    assert (run(params, prompts, seed=1).tokens[..., 0] != samples.tokens[..., 0]).mean() > 0.5
    twice = run(params, [prompts[0]] * B)  # the same prompt in two places differs
    assert (twice.tokens[0] != twice.tokens[1]).any()


def test_steps_have_keys_of_their_own(params):
    """With equal logits at every step (all weights zero) the draws of a row still vary."""
    samples = run(jax.tree.map(jnp.zeros_like, params), make_prompts(B, P))
    np.testing.assert_allclose(samples.logprobs[:, :, 0], -np.log(130), atol=1e-5)
    first, second = samples.tokens[..., 0].ravel(), samples.tokens[..., 1].ravel()
    assert len(set(first.tolist())) > 6
    assert (first != second).mean() > 0.7


@pytest.mark.parametrize(("eos_ids", "want"), [(tuple(range(130)), 1), ((), 5)])
def test_decoding_stops_when_every_row_is_done(params, prompts, monkeypatch, eos_ids, want):
    """Counts how often a token is drawn: exactly once per step."""
    calls = []
    original = decoding.next_token

    def counting(logits, row_keys, step, options):
        jax.debug.callback(lambda s: calls.append(int(s)), step[0, 0])
        return original(logits, row_keys, step, options)

    monkeypatch.setattr(decoding, "next_token", counting)
    samples = run(params, prompts[:1], SamplingParams(5, 1, eos_ids))
    jax.effects_barrier()
    assert calls == list(range(want))
    assert samples.lengths.tolist() == [[want]] and samples.done.tolist() == [[bool(eos_ids)]]
