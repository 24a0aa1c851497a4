"""Updates that have diverged: which count, and what they leave."""

import errno
import os
import pathlib
from types import SimpleNamespace

import numpy as np
import pytest

from genenv_jax.sampling.sampler import Rollouts
from genenv_jax.trainers import divergence


def test_what_has_diverged():
    assert not divergence.reason({"loss": -1.5, "kl": 1000.0})
    bad = {"loss": float("nan"), "kl": 9.0, "grad_norm": float("inf")}
    assert divergence.reason(bad).startswith("loss, grad_norm not finite; lower its")
    for name in ("kl", "kl_to_initial", "update_kl"):
        why = divergence.reason({"loss": 1.0, name: 1.8e8})
        assert why.startswith(f"{name} = 1.8e+08 nats a token, over 1000;")


@pytest.fixture(params=["answers", "episodes"])
def rollouts(request):
    rng = np.random.default_rng(0)
    lengths = np.array([[3, 0], [2, 3]], np.int32)
    logprobs = rng.normal(size=(2, 2, 3)).astype(np.float32)
    logprobs[0, 0, 1] = np.nan
    tokens = rng.integers(0, 99, (2, 2, 3), dtype=np.int32)
    loss_mask = tokens > 40 if request.param == "episodes" else None
    return Rollouts([[1, 2], [3]], tokens, lengths, logprobs, lengths > 2, loss_mask)


def refused(workdir, rollouts):
    session = SimpleNamespace(finished=6, workdir=pathlib.Path(workdir))
    values = np.array([[0.1, 1.0], [0.0, 0.5]])
    divergence.check(session, "agent", {"kl": 1.0}, rollouts, values)
    with pytest.raises(FloatingPointError) as error:
        divergence.check(session, "agent", {"kl": np.inf, "loss": 0.25}, rollouts, values)
    return str(error.value), values


def test_its_batch_is_kept_for_replay(tmp_path, rollouts):
    message, values = refused(tmp_path, rollouts)
    (kept,) = tmp_path.rglob("*.npz")
    assert message == (
        "epoch 7, the agent's update: kl not finite; lower its learning rate, or look for NaN in the "
        f"weights.  Its batch is kept in {tmp_path}/diverged/agent-7.npz.  It is not saved; "
        "if the model in the newest checkpoint had already diverged, remove that checkpoint"
    )
    found, kept_values, metrics = divergence.load(kept)
    assert found.prompts == rollouts.prompts and metrics == {"kl": np.inf, "loss": 0.25}
    np.testing.assert_array_equal(kept_values, values)
    assert (found.loss_mask is None) is (rollouts.loss_mask is None)
    for name in ("tokens", "lengths", "logprobs", "done", "loss_mask"):
        got, want = getattr(found, name), getattr(rollouts, name)
        if want is not None:
            assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_a_full_disk_does_not_hide_why(tmp_path, rollouts, monkeypatch):
    def full(file, **_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez_compressed", full)
    message, _ = refused(tmp_path, rollouts)
    assert "kl not finite" in message
    assert "Its batch could not be kept: [Errno 28] No space left on device" in message
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
