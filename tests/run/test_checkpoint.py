import contextlib
import errno
import json
import os
import resource
import shutil
import sys
import threading

import jax
import numpy as np
import pytest

from genenv_jax.run import digests
from genenv_jax.run.checkpoint import Checkpoints, newest_host


def states(n):
    # Noise, since what compresses well is kept elsewhere than in the arrays' own files.
    noise = np.random.default_rng(n).normal(size=(64, 64)).astype(np.float32)
    return {"agent": jax.device_put({"w": noise, "step": np.int32(n)})}


def save(directory, *numbers):
    checkpoints = Checkpoints(directory, keep=3)
    for n in numbers:
        checkpoints.save(n, states(n), {"finished": n})
    checkpoints.close()


def restored(directory, keep=3):
    """Which checkpoint is taken; its arrays are those that were saved."""
    with contextlib.closing(Checkpoints(directory, keep=keep)) as checkpoints:
        found, host = checkpoints.restore(states(0))
    np.testing.assert_array_equal(found["agent"]["w"], states(host["finished"])["agent"]["w"])
    return host["finished"]


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoints")
    save(directory, 1, 2)
    return directory


@pytest.fixture
def two(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "checkpoints")


def test_every_file_of_a_checkpoint_has_a_digest_when_it_appears(saved):
    for step in ("1", "2"):
        files = {p for p in (saved / step).rglob("*") if p.is_file() and p.parent != saved / step}
        sealed = json.loads((saved / step / digests.NAME).read_text())
        assert {saved / step / name for name in sealed} >= {p for p in files if p.parent.name == "d"}
        assert any(name.startswith("host/") for name in sealed)
        digests.check(saved / step)
    assert restored(saved) == 2


@pytest.mark.parametrize("pattern", ["agent/**/d/*", "agent/_METADATA", "host/*", digests.NAME])
def test_one_bit_is_enough_to_take_the_one_before(two, caplog, pattern):
    files = [path for path in (two / "2").glob(pattern) if path.is_file()]
    flip(max(files, key=lambda path: path.stat().st_size))
    assert restored(two) == 1
    assert caplog.text.count("checkpoint 2 cannot be restored, trying the one before: ") == 1
    assert "damaged" in caplog.text or "missing" in caplog.text  # the bit may be of a name
    assert not (two / "2").exists()  # it would block the epoch's new one


def test_where_all_are_damaged_nothing_is_removed(two):
    for step in ("1", "2"):
        flip(max((two / step / "agent").rglob("d/*"), key=lambda path: path.stat().st_size))
    with pytest.raises(ValueError, match=r"none of the checkpoints \[2, 1\].*1/agent/.* is damaged"):
        restored(two)
    assert (two / "1").exists() and (two / "2").exists()


def test_one_without_digests_is_not_taken(two, caplog):
    (two / "2" / digests.NAME).unlink()
    assert restored(two) == 1
    assert "checkpoint 2 cannot be restored, trying the one before" in caplog.text


def test_what_is_not_finite_is_not_saved(two):
    checkpoints, bad = Checkpoints(two, keep=3), states(3)
    bad["agent"]["w"] = bad["agent"]["w"].at[5, 7].set(-np.inf)
    with pytest.raises(FloatingPointError, match=r"\['agent'\]\['w'\] holds NaN or infinity after epoch 3"):
        checkpoints.save(3, bad, {"finished": 3})
    checkpoints.close()
    assert restored(two) == 2


def test_the_host_values_of_the_newest(two, tmp_path):
    assert newest_host(two)["finished"] == 2
    for file in (two / "2" / "host").iterdir():
        file.write_bytes(b"{")
    assert newest_host(two)["finished"] == 1
    assert newest_host(tmp_path / "none") is None


def test_what_a_killed_save_left_does_not_matter(two):
    left = two / "3.orbax-checkpoint-tmp" / "agent.orbax-checkpoint-tmp"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"half")
    assert restored(two) == 2
    assert {path.name for path in two.iterdir()} == {"1", "2"}  # removed at the next start
    save(two, 3)
    assert restored(two) == 3
    assert {path.name for path in two.iterdir()} == {"1", "2", "3"}


def test_one_too_many_is_removed(two):
    """A save killed after writing may have left the oldest checkpoint, or half of it."""
    save(two, 3)
    shutil.rmtree(two / "1" / "agent")
    shutil.copytree(two / "3", two / "4")
    assert restored(two, keep=2) == 3
    assert {path.name for path in two.iterdir()} == {"3", "4"}


def test_a_disk_that_fills_up_while_arrays_are_written_is_one_error(two, capfd):
    """A file-size limit stands in for a full disk; all writing threads hit it."""
    arrays = np.random.default_rng(0).normal(size=(40, 64, 64)).astype(np.float32)
    many = {"agent": jax.device_put({f"w{i}": x for i, x in enumerate(arrays)})}
    checkpoints = Checkpoints(two, keep=3)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    try:
        with pytest.raises(OSError, match=f"a checkpoint could not be written to {two}: ") as error:
            checkpoints.save(3, many, {"finished": 3})
            checkpoints.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(error.value)
    assert capfd.readouterr().err == ""
    assert restored(two) == 2


def test_threads_errors_of_a_closed_loop_are_not_shown(two, monkeypatch, capfd):
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    Checkpoints(two, keep=3).close()
    for error in (RuntimeError("Event loop is closed"), RuntimeError("another")):
        sys.excepthook(RuntimeError, error, None)
    assert capfd.readouterr().err == "RuntimeError: another\n"


@pytest.mark.parametrize(
    ("module", "function", "code", "said"),
    [
        (digests, "seal", errno.ENOSPC, "no space left on device"),
        (os, "mkdir", errno.EROFS, ".*Read-only file system"),
    ],
)
def test_a_directory_that_cannot_be_written_is_one_error_that_names_it(
    two, monkeypatch, capfd, module, function, code, said
):
    def fails(*_, **__):
        raise OSError(code, os.strerror(code))

    checkpoints = Checkpoints(two, keep=3)
    before = set(threading.enumerate())
    monkeypatch.setattr(module, function, fails)
    with pytest.raises(OSError, match=f"could not be written to {two}: {said}"):
        checkpoints.save(3, states(3), {"finished": 3})
        checkpoints.close()
    if module is os:  # no thread waits for the directory and keeps the process alive
        for thread in set(threading.enumerate()) - before:
            thread.join(10)
            assert not thread.is_alive(), thread
    assert capfd.readouterr().err == ""
    monkeypatch.undo()
    checkpoints.close()
    assert restored(two) == 2
    save(two, 3)
    assert restored(two) == 3
