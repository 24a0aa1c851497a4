"""Trackers: which are opened, what they are given, and that none of them stops a run."""

import contextlib
import importlib.util
import json
import os
import signal
import sys
import types
from unittest import mock

import pytest

from genenv_jax.benchmarks.base import Task
from genenv_jax.config import default_config, validate
from genenv_jax.parallel import processes
from genenv_jax.run import tracking
from genenv_jax.run.samples import answer_row, generation_row, spread
from genenv_jax.run.tracking import Trackers, TrackingConfig
from genenv_jax.system import signals
from tests.run.fake_trackers import Failing, FakeTracker, install

HAS_TENSORBOARD = all(importlib.util.find_spec(n) for n in ("tensorflow", "tensorboard"))
TABLES = {"samples/answers": [{"epoch": 1, "answer": "ok"}]}


def opened(workdir, *names):
    return contextlib.closing(Trackers(TrackingConfig(trackers=names, project="p"), workdir, {"seed": 7}))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("trackers", ("wandb", "mlflow"), "expected a tuple of any of ['auto', 'tensorboard'"),
        ("trackers", ("wandb,trackio",), "expected a tuple of any of"),
        ("project", "", "project is empty"),
    ],
)
def test_settings_that_cannot_be(key, value, expected):
    config = default_config()
    config.benchmark.name, config.model.path = "dial", "model"
    validate(config)
    config.tracking[key] = value
    with pytest.raises(ValueError, match=rf"^config\.tracking\.{key}") as error:
        validate(config)
    assert expected in str(error.value)


@pytest.mark.parametrize("missing", ["tensorflow", "tensorboard", "wandb", "trackio"])
def test_a_named_tracker_that_is_not_installed_is_one_error(tmp_path, monkeypatch, missing):
    here = types.SimpleNamespace(origin="there.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else here)
    extra = "tensorboard" if missing == "tensorflow" else missing
    with pytest.raises(ValueError, match=rf"'{extra}', but {missing} .*-e '\.\[{extra}\]"):
        TrackingConfig(trackers=("auto", extra)).check()
    if extra == "tensorboard":
        TrackingConfig().check()
        with opened(tmp_path, "auto") as trackers:
            trackers.log(0, {"loss": 1.0}, {})
    assert os.listdir(tmp_path) == []


def test_a_continued_run_has_its_id_and_gives_no_step_twice(tmp_path, monkeypatch):
    workdir = tmp_path / "runs of mine" / "été:1"
    workdir.mkdir(parents=True)
    fakes = install(monkeypatch, wandb=FakeTracker, trackio=FakeTracker)
    for steps in ((0, 1, 2), (1, 2, 3)):
        with opened(workdir, "wandb", "trackio") as trackers:
            for step in steps:
                trackers.log(step, {"loss": 1.0}, {})
    assert [[step for step, *_ in fake.logged] for fake in fakes] == [[0, 1, 2, 3]] * 2
    (run_id,) = {run_id for fake in fakes for run_id in fake.ids}
    assert (fakes[0].project, fakes[0].config) == ("p", {"seed": 7})
    assert run_id.startswith("runs-of-mine--t--1-") and len(fakes[0].ids) == 2
    assert json.loads((workdir / "tracking.json").read_text()) == {"id": run_id, "step": 3}


@pytest.mark.parametrize("content", [None, "[]", "{}", '{"id": 1, "step": 0}'])
def test_without_an_id_the_services_are_left_out(tmp_path, monkeypatch, caplog, content):
    """It is damaged, or cannot be rewritten."""
    (fake,) = install(monkeypatch, wandb=FakeTracker)

    def full(*_):
        raise OSError(28, "No space left on device", "tracking.json")

    if content is not None:
        (tmp_path / "tracking.json").write_text(content)
    with opened(tmp_path, "wandb") as trackers:
        trackers.log(0, {}, {})
        if content is None:
            monkeypatch.setattr(tracking, "write_json", full)
        trackers.log(1, {}, {})
        trackers.log(2, {}, {})
    assert [step for step, *_ in fake.logged] == ([0] if content is None else [])
    (record,) = caplog.records
    expected = "is damaged" if content else "sent to wandb: OSError: [Errno 28] No space left"
    assert expected in record.getMessage()


def test_only_the_first_process_tracks(tmp_path, monkeypatch):
    (fake,) = install(monkeypatch, wandb=FakeTracker)
    monkeypatch.setattr(processes, "process_index", lambda: 1)
    monkeypatch.setattr(tracking, "_missing", lambda name: ["wandb"])  # nor need it be installed
    TrackingConfig(trackers=("wandb",)).check()
    with opened(tmp_path, "wandb") as trackers:
        trackers.log(0, {}, {})
        assert trackers.samples == 0
    assert fake.ids == [] and os.listdir(tmp_path) == []


@pytest.mark.parametrize("where", ["open", "log", "close"])
def test_a_tracker_that_fails_is_left_out_with_one_line(tmp_path, monkeypatch, caplog, where):
    good, bad = install(monkeypatch, wandb=FakeTracker, trackio=Failing)
    bad.where = where
    with opened(tmp_path, "trackio", "wandb") as trackers:
        for step in range(3):
            trackers.log(step, {"loss": 1.0}, {})
    assert [step for step, *_ in good.logged] == [0, 1, 2] and good.closed == 1
    (record,) = caplog.records
    assert record.getMessage() == (
        "nothing more is sent to trackio: ConnectionError: no network and no second line"
    )
    assert bad.closed == (where == "close")
    assert [step for step, *_ in bad.logged] == ([0, 1, 2] if where == "close" else [])


def test_a_signal_ends_the_run_after_all_were_given_the_step(tmp_path, monkeypatch, caplog):
    fakes = install(monkeypatch, wandb=FakeTracker, trackio=FakeTracker)
    fakes[0].on_log = lambda: signal.raise_signal(signal.SIGTERM)
    with (
        pytest.raises(SystemExit),
        signals.ending(signal.SIGTERM),
        opened(tmp_path, "wandb", "trackio") as trackers,
    ):
        trackers.log(0, {}, {})
        raise AssertionError("the signal was not heard")
    for fake in fakes:
        assert [step for step, *_ in fake.logged] == [0]
        assert fake.closed == 1 and fake.closed_within is signals.Ended
    assert not caplog.records


def test_wandb_gets_no_code_unless_its_environment_says_so(tmp_path, monkeypatch):
    given = {}
    fake = types.SimpleNamespace(run=0, Table=None, Settings=dict, init=lambda **how: given.update(how))
    monkeypatch.setitem(sys.modules, "wandb", fake)
    for name in ("WANDB_DISABLE_CODE", "WANDB_DISABLE_GIT"):
        monkeypatch.delenv(name, raising=False)
    tracking.WandB("genenv", "run-1", tmp_path, {})
    assert given["settings"]["disable_code"] and given["settings"]["disable_git"]
    monkeypatch.setenv("WANDB_DISABLE_GIT", "false")
    tracking.WandB("genenv", "run-1", tmp_path, {})
    assert given["settings"]["disable_code"] and "disable_git" not in given["settings"]


def test_tensorboard_gets_the_scalars(tmp_path, monkeypatch):
    """With stand-ins for TensorFlow and clu's writer: what reaches them, and in what order."""
    fake = mock.MagicMock()
    monkeypatch.setitem(sys.modules, "tensorflow", fake.tensorflow)
    monkeypatch.setitem(sys.modules, "clu.metric_writers", fake.writers)
    monkeypatch.setattr("clu.metric_writers", fake.writers, raising=False)
    monkeypatch.setattr(tracking, "_missing", lambda name: [])
    with opened(tmp_path, "auto", "tensorboard") as trackers:
        assert trackers.samples == 0  # it shows no tables
        trackers.log(3, {"loss": 0.5}, TABLES)
        trackers.log(3, {"loss": 0.5}, {})  # repeated: its files cannot be truncated
    hidden = mock.call.tensorflow.config.set_visible_devices([], "GPU")
    opening = mock.call.writers.SummaryWriter(os.fspath(tmp_path / "tensorboard"))
    writer = mock.call.writers.SummaryWriter()
    written = [writer.write_scalars(3, {"loss": 0.5}), writer.flush()]
    assert fake.mock_calls == [hidden, opening, *written, *written, writer.close()]
    assert os.listdir(tmp_path) == []  # no id, which only services need


@pytest.mark.skipif(not HAS_TENSORBOARD, reason="TensorFlow and TensorBoard are not installed")
def test_tensorboard_event_files_hold_the_scalars(tmp_path):
    with opened(tmp_path, "tensorboard") as trackers:
        trackers.log(0, {"agent/loss": 0.5}, {})
        trackers.log(1, {"agent/loss": 0.25}, {})
    import tensorflow
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(os.fspath(tmp_path / "tensorboard"))
    events.Reload()
    read = {
        event.step: float(tensorflow.make_ndarray(event.tensor_proto))
        for event in events.Tensors("agent/loss")
    }
    assert read == {0: 0.5, 1: 0.25}


def test_samples_lie_evenly_over_the_records():
    assert spread(range(10), 4) == [0, 2, 5, 7]
    assert spread("abc", 8) == ["a", "b", "c"]
    assert spread("abc", 0) == spread("", 3) == []


def test_rows_are_made_of_the_records():
    task = Task("t", "toy", "all", ({"role": "user", "content": "2 + 2?"},))
    record = {
        "epoch": 3, "id": "generated-3-0-0", "text": "a\x1b[31mb\u202e\ud800\nc", "verdict": "unparsable",
        "task": None, **dict.fromkeys(("p_hat", "r_env", "weight")),
    }  # fmt: skip
    assert generation_row(record) == {
        "epoch": 3, "text": "a\\u001b[31mb\\u202e\\ud800\nc", "verdict": "unparsable",
        **dict.fromkeys(("p_hat", "r_env", "weight")),
    }  # fmt: skip
    assert generation_row(record | {"text": ""})["text"] == ""
    assert generation_row(record | {"text": "", "task": task.to_json()})["text"] == "2 + 2?"
    answer = {"task_id": "t", "answer": "4", "reward": 1.0, "success": True}
    shown = {"epoch": 5, "task": "2 + 2?", "answer": "4", "reward": 1.0, "verdict": "success"}
    assert answer_row(5, task, answer) == shown
    failed = answer | {"success": False, "reward": 0.0, "answers": ["look", "4"]}
    assert answer_row(5, task, failed) == shown | {"answer": "look\n4", "reward": 0.0, "verdict": "failure"}
    assert answer_row(5, task, failed | {"reason": "odd"})["verdict"] == "odd"
