"""metrics.py: durable lines, resuming, damaged files, means inside an epoch, TensorBoard."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax import metrics
from genenv_jax.metrics import EpochMeans, MetricWriter, read_jsonl

HAS_TENSORBOARD = all(importlib.util.find_spec(n) for n in ("tensorflow", "tensorboard"))


def writer(workdir, **kwargs):
    return MetricWriter(workdir, **{"tensorboard": False, **kwargs})


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
    assert [r["step"] for r in read_jsonl(tmp_path / "metrics.jsonl")] == [0, 2, 3]


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


def test_truncate_to_nothing_starts_again(tmp_path):
    with writer(tmp_path) as w:
        w.write(4, {})
        w.truncate(0)
        w.write(0, {})
    assert [r["step"] for r in read_jsonl(tmp_path / "metrics.jsonl")] == [0]


def test_truncate_refuses_what_is_not_a_recorded_offset(tmp_path):
    with writer(tmp_path) as w:
        w.write(0, {})
        size = w.offset()
        with pytest.raises(ValueError, match=f"has {size} bytes; cannot cut it back to {size + 1}"):
            w.truncate(size + 1)
        with pytest.raises(ValueError, match="inside a line"):
            w.truncate(size - 1)
        with pytest.raises(ValueError, match="cannot cut"):
            w.truncate(-1)
        assert w.offset() == size


def test_a_torn_last_line_is_cut_off_before_appending(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 0}\n{"step": 1, "lo')
    with writer(tmp_path) as w:
        w.write(1, {"loss": 1.0})
    assert read_jsonl(tmp_path / "metrics.jsonl") == [{"step": 0}, {"step": 1, "loss": 1.0}]


def test_a_damaged_file_is_not_appended_to(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 0}\nnonsense\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl:2: damaged line"):
        writer(tmp_path)


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    with writer(tmp_path) as w:
        w.write(0, {})
        before = w.path.read_bytes()
        real_write = os.write
        calls = []

        def full_disk(handle, data):
            calls.append(len(data))
            if len(calls) == 1:
                return real_write(handle, bytes(data)[:5])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(metrics.os, "write", full_disk)
        with pytest.raises(OSError, match="No space"):
            w.write(1, {"loss": 1.0})
        assert len(calls) == 2
        assert w.path.read_bytes() == before
        monkeypatch.setattr(metrics.os, "write", real_write)
        w.write(1, {"loss": 1.0})  # and the step is free again
    assert len(read_jsonl(tmp_path / "metrics.jsonl")) == 2


def test_every_line_is_synced(tmp_path, monkeypatch):
    synced = []
    with writer(tmp_path) as w:
        monkeypatch.setattr(metrics.os, "fsync", lambda handle: synced.append(os.fstat(handle)))
        w.write(0, {"a": 1})
        assert [s.st_size for s in synced] == [w.offset()]


def test_timing_has_a_file_of_its_own(tmp_path):
    with writer(tmp_path, filename="timing.jsonl") as w:
        w.write(1, {"seconds/generate": 2.0})
    assert read_jsonl(tmp_path / "timing.jsonl") == [{"step": 1, "seconds/generate": 2.0}]
    assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"nonsense", "Expecting value"),
        (b"[1]", "not a JSON object"),
        (b"", "Expecting value"),
        (b'{"a": "\xff"}', "codec"),
        (b"\x00\x00", "damaged line"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "integer string"),
    ],
)
def test_damaged_lines_are_named_by_file_and_line(tmp_path, line, reason):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line + b"\n" + b'{"a": 2}\n')
    with pytest.raises(ValueError, match=r"tasks\.jsonl:2: damaged line") as error:
        read_jsonl(path)
    assert reason in str(error.value)


def test_torn_last_line_is_ignored_and_missing_file_named(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'{"a": "x\\ny"}\n{"a": 2')
    assert read_jsonl(path) == [{"a": "x\ny"}]
    path.write_bytes(b"")
    assert read_jsonl(path) == []
    with pytest.raises(FileNotFoundError, match="absent"):
        read_jsonl(tmp_path / "absent.jsonl")


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


@pytest.mark.parametrize("missing", ["tensorflow", "tensorboard"])
def test_tensorboard_true_without_its_packages_names_the_extra(tmp_path, monkeypatch, missing):
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else object()
    )
    with pytest.raises(ImportError, match=rf"need {missing}.*genenv_jax\[tensorboard\]"):
        MetricWriter(tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()
    MetricWriter(tmp_path / "run", tensorboard="auto").close()
    assert sorted(os.listdir(tmp_path / "run")) == ["metrics.jsonl"]


@pytest.mark.parametrize("wanted", ["auto", True])
def test_unusable_tensorflow_stops_only_a_run_that_insists(tmp_path, monkeypatch, wanted):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # importing it raises ImportError
    if wanted is True:
        with pytest.raises(ImportError):
            MetricWriter(tmp_path, tensorboard=wanted)
    else:
        with MetricWriter(tmp_path, tensorboard=wanted) as w:
            w.write(0, {})
        assert sorted(os.listdir(tmp_path)) == ["metrics.jsonl"]


@pytest.mark.parametrize("value", ["yes", None, 1.5])
def test_tensorboard_takes_three_values(tmp_path, value):
    with pytest.raises(ValueError, match="'auto', True or False"):
        MetricWriter(tmp_path, tensorboard=value)


@pytest.mark.parametrize("wanted", ["auto", True])
def test_tensorboard_gets_the_same_scalars(tmp_path, monkeypatch, wanted):
    """With stand-ins for TensorFlow and clu's writer: what reaches them, and in what order."""
    calls = []

    class SummaryWriter:
        def __init__(self, logdir):
            calls.append(("open", logdir))

        def write_scalars(self, step, scalars):
            calls.append(("write", step, scalars))

        def flush(self):
            calls.append(("flush",))

        def close(self):
            calls.append(("close",))

    tensorflow = types.ModuleType("tensorflow")
    tensorflow.config = types.SimpleNamespace(
        set_visible_devices=lambda devices, kind: calls.append(("hide", devices, kind))
    )
    clu_writers = types.ModuleType("clu.metric_writers")
    clu_writers.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    monkeypatch.setitem(sys.modules, "clu.metric_writers", clu_writers)
    monkeypatch.setattr("clu.metric_writers", clu_writers, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with MetricWriter(tmp_path, tensorboard=wanted) as w:
        w.write(3, {"loss": 0.5, "bad": math.nan})
    logdir = os.fspath(tmp_path / "tensorboard")
    assert calls[:2] == [("hide", [], "GPU"), ("open", logdir)]
    name, step, scalars = calls[2]
    assert (name, step, scalars["loss"]) == ("write", 3, 0.5)
    assert math.isnan(scalars["bad"])
    assert calls[3:] == [("flush",), ("close",)]


@pytest.mark.skipif(not HAS_TENSORBOARD, reason="TensorFlow and TensorBoard are not installed")
def test_tensorboard_event_files_hold_the_scalars(tmp_path):
    with MetricWriter(tmp_path, tensorboard=True) as w:
        w.write(0, {"agent/loss": 0.5})
        w.write(1, {"agent/loss": 0.25})
    import tensorflow
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(os.fspath(tmp_path / "tensorboard"))
    events.Reload()
    read = {
        event.step: float(tensorflow.make_ndarray(event.tensor_proto))
        for event in events.Tensors("agent/loss")
    }
    assert read == {0: 0.5, 1: 0.25}


def test_writing_without_tensorboard_imports_neither_jax_nor_tensorflow(tmp_path):
    code = (
        "import sys; from genenv_jax.metrics import MetricWriter, read_jsonl\n"
        f"with MetricWriter({os.fspath(tmp_path)!r}, tensorboard=False) as w: w.write(0, {{}})\n"
        f"read_jsonl(w.path)\n"
        "print(sorted({'jax', 'clu', 'flax', 'tensorflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
