import json
import socket

import pytest

from genenv_jax.run import workdir
from genenv_jax.run.digests import Growing
from genenv_jax.run.workdir import RunFiles, RunSettings, check_files, lock, set_aside
from tests import tiny

NAMES = ("tasks", "d_train", "d_env", "metrics")


def test_it_is_one_runs_and_swept(tmp_path):
    place = tmp_path / "runs" / "x"
    with lock(place):
        pass
    assert not list(place.iterdir())
    held_out, ending = place / "held_out", f"{socket.gethostname()}.{2**22 + 1}.tmp"
    held_out.mkdir()
    (place / f".agent.{ending}").mkdir()
    (place / f".c.json.{ending}").touch()
    (held_out / f".before.jsonl.{ending}").touch()
    with lock(place):
        assert sorted(path.name for path in place.rglob("*")) == ["held_out", "run.lock"]
        assert json.loads((place / "run.lock").read_text())["host"] == socket.gethostname()
        with pytest.raises(ValueError, match=f"--workdir={place} is in use by process"), lock(place):
            pass


@pytest.mark.parametrize("left", ["tasks.jsonl", "metrics.jsonl", "held_out", "agent"])
def test_what_a_run_left_is_not_replaced_if_its_checkpoints_are_missing(tmp_path, left):
    place = tmp_path / left
    place.write_text('{"a": 1}\n') if place.suffix else place.mkdir()
    message = rf"{tmp_path / 'checkpoints'} is missing, but a run has written {left}"
    with pytest.raises(ValueError, match=message):
        RunSettings(tmp_path, {"seed": 1})
    (tmp_path / "checkpoints").mkdir()
    RunSettings(tmp_path, {"seed": 1})


def test_records_without_a_checkpoint_are_set_aside(tmp_path, caplog):
    """Records from before the end of the first epoch are not: a run killed there starts over."""
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    (tmp_path / "d_train.jsonl").write_text('{"a": 0}\n')
    (tmp_path / "d_env.jsonl").touch()
    set_aside(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    (tmp_path / "tasks.jsonl").write_text('{"a": 1}\n')
    set_aside(tmp_path)
    (aside,) = tmp_path.glob("before-*")
    assert f"{tmp_path} has no checkpoint; its files were moved to {aside}" in caplog.text
    assert (aside / "tasks.jsonl").read_text() == '{"a": 1}\n'
    assert (aside / "metrics.jsonl").read_text() == '{"step": 0}\n'
    assert {path.name for path in tmp_path.iterdir()} == {aside.name, "d_env.jsonl"}


def test_its_files_are_compared_with_a_checkpoints(tmp_path):
    for name in NAMES:
        (tmp_path / f"{name}.jsonl").write_text('{"a": 1}\n{"b": 2}\n')
    lengths = dict.fromkeys(NAMES, 9)
    host = {"offsets": lengths, "digests": {name: Growing(tmp_path / f"{name}.jsonl")(9) for name in NAMES}}
    file = tmp_path / "d_env.jsonl"
    check_files(tmp_path, host)
    file.write_text('{"a": 1}\n{"b": 3}')  # what came after the checkpoint does not count
    check_files(tmp_path, host)
    file.write_text('{"a": 7}\n')
    with pytest.raises(ValueError, match=rf"{file} is damaged: its first 9 bytes"):
        check_files(tmp_path, host)
    file.write_text('{"a": 1}')
    with pytest.raises(ValueError, match=rf"{file} has 8 bytes, but had 9"):
        check_files(tmp_path, host)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"d_env\.jsonl"):
        check_files(tmp_path, host)


def test_what_was_compared_is_not_read_again_for_the_next_checkpoint(tmp_path):
    for name in (*NAMES, "timing"):
        (tmp_path / f"{name}.jsonl").write_text('{"step": 1}\n{"step": 2}\n')
    lengths = dict.fromkeys((*NAMES, "timing"), 12)
    wanted = {name: Growing(tmp_path / f"{name}.jsonl")(12) for name in NAMES}
    compared = check_files(tmp_path, {"offsets": lengths, "digests": wanted})
    assert set(compared) == set(NAMES)
    files = RunFiles(tmp_path, lengths, compared)
    files.tasks.append([{"epoch": 2}])
    digests = files.digests()
    assert digests == {name: Growing(tmp_path / f"{name}.jsonl")() for name in (*NAMES, "timing")}
    with (tmp_path / "tasks.jsonl").open("r+") as file:
        file.write("[")  # behind its back
    assert files.digests() == digests
    files.close()


@pytest.mark.parametrize("writer", [True, False])
def test_every_process_takes_the_checkpoints_copy_of_damaged_settings(tmp_path, monkeypatch, writer):
    (tmp_path / "config.json").write_text('{"config": ')
    (tmp_path / "checkpoints").mkdir()
    monkeypatch.setattr(workdir.processes, "is_writer", lambda: writer)
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        RunSettings(tmp_path, {"seed": 1})
    copy = {"parts": {"settings": {"seed": 2}}}
    monkeypatch.setattr(workdir, "newest_host", lambda directory: copy)
    with pytest.raises(ValueError, match=r"config\.seed = 2, but now it is 1"):
        RunSettings(tmp_path, {"seed": 1})
    copy["parts"]["settings"]["gone"] = 3
    with pytest.raises(ValueError, match=r"config\.gone = 3, but now there is no such setting: expected"):
        RunSettings(tmp_path, {"seed": 2})


def test_a_run_goes_on_with_its_own_tasks_only(tmp_path):
    model, place = tiny.write_model(tmp_path / "model"), tmp_path / "run"
    before, again = (RunSettings(place, {"seed": 1}) for _ in range(2))
    for run in (before, again):
        run.add_tasks("seed: 8 tasks ab12")
    before.write(model)
    again.restore(before.state(), [])
    with pytest.raises(ValueError, match=r"tasks were seed: 8 tasks ab12, but .* seed: 9 tasks"):
        RunSettings(place, {"seed": 1}).add_tasks("seed: 9 tasks cd34")
    with pytest.raises(ValueError, match="config.seed = 2"):
        again.restore(before.state() | {"seed": 2}, [])
