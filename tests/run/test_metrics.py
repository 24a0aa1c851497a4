import contextlib
import math

import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.run.metrics import EpochMeans, MetricWriter, cells, read_steps


def writer(workdir):
    return contextlib.closing(MetricWriter(workdir / "metrics.jsonl"))


def steps(path):
    return list(read_steps(path))


def test_lines_are_sorted_and_hold_every_kind_of_scalar(tmp_path):
    values = {
        "z/float": 0.25, "a/int": 3, "m/numpy": np.float64(1.5), "m/bfloat16": jnp.asarray(0.5, jnp.bfloat16),
        "m/flag": np.bool_(True), "loss": math.nan, "kl": np.float32(np.inf),
    }  # fmt: skip
    with writer(tmp_path / "new" / "run") as w:
        written = w.write(0, values, more={"about": {"code": "jax 1"}})
    assert {type(value) for value in written.values()} == {int, float} and math.isnan(written["loss"])
    assert (tmp_path / "new" / "run" / "metrics.jsonl").read_text() == (
        '{"a/int": 3, "about": {"code": "jax 1"}, "kl": null, "loss": null, "m/bfloat16": 0.5, "m/flag": 1, '
        '"m/numpy": 1.5, "nonfinite": ["kl", "loss"], "step": 0, "z/float": 0.25}\n'
    )


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({"agent/loss": "0.5"}, r"agent/loss.*str"),
        ({"agent/loss": None}, r"agent/loss.*NoneType"),
        ({"agent/loss": np.zeros(2)}, r"agent/loss.*shape \(2,\)"),
    ],
)
def test_what_is_no_metric_is_refused_and_writes_nothing(tmp_path, values, shown):
    with writer(tmp_path) as w:
        with pytest.raises(TypeError, match=shown):
            w.write(0, values)
        assert w.offset() == 0


def test_a_step_is_written_once_also_across_processes(tmp_path):
    with writer(tmp_path) as w:
        w.write(0, {})
        w.write(2, {})
        with pytest.raises(ValueError, match="already holds step 2; cannot write step 2"):
            w.write(2, {})
    with writer(tmp_path) as w:
        with pytest.raises(ValueError, match="cannot write step 1"):
            w.write(1, {})
        w.write(3, {})
    assert steps(tmp_path / "metrics.jsonl") == [0, 2, 3]


def test_a_damaged_file_is_not_appended_to(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 0}\n{"loss": 1}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl:2: damaged line: no step"):
        writer(tmp_path)


def test_epoch_means_weigh_by_elements():
    means = EpochMeans()
    assert means.compute() == {}
    means.update({"loss": jnp.asarray(1.0), "kl": 4.0}, weight=jnp.asarray(30))
    means.update({"loss": np.float32(5.0)}, weight=10)
    means.update({"loss": jnp.asarray(jnp.nan), "empty": 1.0}, weight=0)  # an empty micro-batch
    means.update({"diverged": math.nan}, weight=2)
    computed = means.compute()
    assert math.isnan(computed.pop("empty")) and math.isnan(computed.pop("diverged"))
    assert computed == {"loss": 2.0, "kl": 4.0}


def test_an_epoch_in_a_few_words():
    nothing = {"reward": "", "p̂": "", "valid": "", "agent KL": "", "held-out": ""}
    metrics = {"generated/valid_share": 0.25, "eval/test/sampled/accuracy": 0.5}
    metrics["eval/test/greedy/accuracy"] = 0.6
    assert cells(metrics) == nothing | {"valid": "25%", "held-out": "0.500"}
    del metrics["eval/test/sampled/accuracy"]
    assert cells(metrics)["held-out"] == "0.600"
    metrics = {"generated/p_hat_mean": 0.4, "agent/reward_mean": 0.25, "agent/kl": 0.0123}
    assert cells(metrics) == nothing | {"p̂": "0.40", "reward": "0.25", "agent KL": "0.012"}
    assert list(cells({})) == list(nothing)
