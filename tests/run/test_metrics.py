"""Metrics by step, resuming, means inside an epoch."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.run.metrics import EpochMeans, MetricWriter, cells, read_steps


def writer(workdir, **options):
    return contextlib.closing(MetricWriter(workdir / "metrics.jsonl", **options))


def steps(path):
    return list(read_steps(path))


def test_lines_are_sorted_and_hold_every_kind_of_scalar(tmp_path):
    with writer(tmp_path / "new" / "run") as w:
        w.write(
            0,
            {
                "z/float": 0.25,
                "a/int": 3,
                "m/numpy": np.float64(1.5),
                "m/jax": jnp.asarray(2.5),
                "m/bfloat16": jnp.asarray(0.5, jnp.bfloat16),
                "m/flag": np.bool_(True),
            },
        )
    line = (tmp_path / "new" / "run" / "metrics.jsonl").read_text()
    assert line == (
        '{"a/int": 3, "m/bfloat16": 0.5, "m/flag": 1, "m/jax": 2.5, "m/numpy": 1.5, '
        '"step": 0, "z/float": 0.25}\n'
    )


def test_nonfinite_values_become_null_and_are_named(tmp_path):
    with writer(tmp_path) as w:
        w.write(1, {"loss": math.nan, "kl": np.float32(np.inf), "ok": 1.0})
    line = (tmp_path / "metrics.jsonl").read_text()

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    record = json.loads(line, parse_constant=refuse)
    assert record == {"step": 1, "loss": None, "kl": None, "ok": 1.0, "nonfinite": ["kl", "loss"]}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("0.5", "str"),
        (None, "NoneType"),
        (1j, "complex"),
        (np.zeros(2), "shape (2,)"),
        (np.array("2020", dtype="datetime64"), "datetime64"),
    ],
)
def test_other_values_are_refused_by_name_and_write_nothing(tmp_path, value, shown):
    with writer(tmp_path) as w:
        with pytest.raises(TypeError, match="agent/loss") as error:
            w.write(0, {"agent/loss": value})
        assert shown in str(error.value)
        assert w.offset() == 0


@pytest.mark.parametrize("name", ["step", "nonfinite"])
def test_reserved_names_are_refused(tmp_path, name):
    with writer(tmp_path) as w, pytest.raises(ValueError, match="reserved"):
        w.write(0, {name: 1.0})


@pytest.mark.parametrize("step", [-1, 1.0, True, "1"])
def test_steps_are_non_negative_integers(tmp_path, step):
    with writer(tmp_path) as w, pytest.raises(ValueError, match="non-negative integer"):
        w.write(step, {})


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


def test_resumed_file_equals_the_unbroken_one(tmp_path):
    def values(step):
        return {"agent/loss": 1 / (step + 3), "nan": math.nan}

    with writer(tmp_path / "unbroken") as w:
        for step in range(5):
            w.write(step, values(step))
    with writer(tmp_path / "broken") as w:
        for step in range(3):
            w.write(step, values(step))
        offset = w.offset()
        w.write(3, {"lost": 1.0})
    path = tmp_path / "broken" / "metrics.jsonl"
    with open(path, "ab") as file:
        file.write(b'{"agent/loss": 0.2')  # killed in the middle of a line
    with writer(tmp_path / "broken") as w:
        w.truncate(offset)
        assert w.offset() == offset
        for step in range(3, 5):
            w.write(step, values(step))
    assert path.read_bytes() == (tmp_path / "unbroken" / "metrics.jsonl").read_bytes()


def test_a_damaged_file_is_not_appended_to(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 0}\nnonsense\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl:2: damaged line"):
        writer(tmp_path)
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 0}\n{"loss": 1}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl:2: damaged line: no step"):
        writer(tmp_path)


def test_another_processs_file_is_left_alone(tmp_path):
    with writer(tmp_path) as w, writer(tmp_path, read_only=True) as other:
        w.write(0, {"loss": 1.0})
        other.write(0, {"loss": 2.0})
        other.truncate(0)
    assert read_steps(tmp_path / "metrics.jsonl") == {0: {"step": 0, "loss": 1.0}}


def test_after_a_cut_the_steps_go_on_from_there(tmp_path):
    with writer(tmp_path) as w:
        w.write(4, {})
        w.truncate(0)
        w.write(0, {})
    assert steps(tmp_path / "metrics.jsonl") == [0]


def test_epoch_means_weigh_by_elements():
    means = EpochMeans()
    means.update({"loss": jnp.asarray(1.0), "kl": 4.0}, weight=jnp.asarray(30))
    means.update({"loss": np.float32(5.0)}, weight=10)
    means.update({"loss": jnp.asarray(jnp.nan)}, weight=0)  # an empty micro-batch
    assert means.compute() == {"loss": 2.0, "kl": 4.0}


def test_epoch_means_report_what_is_undefined():
    means = EpochMeans()
    means.update({"empty": 1.0}, weight=0)
    means.update({"diverged": math.nan}, weight=2)
    means.update({"diverged": 1.0}, weight=2)
    computed = means.compute()
    assert sorted(computed) == ["diverged", "empty"]
    assert all(math.isnan(value) for value in computed.values())
    assert EpochMeans().compute() == {}


def test_writing_imports_neither_jax_nor_tensorflow(tmp_path):
    code = (
        "import sys; from genenv_jax.run.metrics import MetricWriter, read_steps\n"
        f"w = MetricWriter({os.fspath(tmp_path / 'metrics.jsonl')!r}); w.write(0, {{}})\n"
        "assert list(read_steps(w.path)) == [0]\n"
        "print(sorted({'jax', 'clu', 'flax', 'tensorflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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
