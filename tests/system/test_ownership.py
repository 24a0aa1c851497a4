import errno
import fcntl
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading

import pytest

from genenv_jax.system import ownership
from genenv_jax.system.ownership import (
    EVALUATION,
    RUN,
    SUITE,
    owned,
    refuse_other,
    remove_stale,
    scratch_name,
)
from tests.commands import printed

HOLD = """
import pathlib, sys, time
from genenv_jax.system.ownership import owned

with owned(pathlib.Path(sys.argv[1]), "it"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(params=["flock", "no flock"])
def lock(request, tmp_path, monkeypatch):
    """A lock file, on a file system with or without flock."""

    def unknown(*_):
        raise OSError(errno.ENOSYS, "no flock")

    if request.param == "no flock":
        monkeypatch.setattr(fcntl, "flock", unknown)
    return tmp_path / "run.lock"


def fill(directory, names):
    """Makes what a kind of work writes."""
    directory.mkdir()
    for name in names:
        path = directory / name.replace("*", "model")
        path.touch() if path.suffix else path.mkdir()
    return directory


def test_a_directory_belongs_to_one_kind_of_work(tmp_path):
    """Also with a user's file in it; work that has barely begun already owns its directory."""
    for kind, names in ownership._KINDS.items():
        theirs = fill(tmp_path / kind, [*names, "notes.txt"])
        refuse_other(theirs, kind, "--workdir")
        for other in ownership._KINDS.keys() - {kind}:
            with pytest.raises(ValueError, match=f"^--workdir={theirs} belongs to {kind} "):
                refuse_other(theirs, other, "--workdir")
    begun = {RUN: "config.json", "a model": "adapter_config.json", EVALUATION: "endpoint.jsonl"}
    for kind, name in begun.items():
        theirs = fill(tmp_path / f"{kind}, begun", [name])
        with pytest.raises(ValueError, match=f"belongs to {kind} "):
            refuse_other(theirs, SUITE, "--workdir")
    refuse_other(fill(tmp_path / "new", ["notes.txt"]), RUN, "--workdir")
    refuse_other(tmp_path / "none", RUN, "--workdir")


@pytest.mark.parametrize(("kind", "name"), [(RUN, "checkpoints"), (EVALUATION, "results.json")])
def test_what_could_not_be_written_in_the_end_is_refused(tmp_path, kind, name):
    wrong = tmp_path / name
    wrong.mkdir() if wrong.suffix else wrong.touch()
    with pytest.raises(ValueError, match=f"^{wrong} is not a (file|folder); expected one, or another"):
        refuse_other(tmp_path, kind, "--workdir")
    with pytest.raises(NotADirectoryError, match="--out=.* is a file: expected a directory"):
        refuse_other(pathlib.Path(__file__), kind, "--out")


def test_it_is_held_within_the_block_by_one(lock):
    with owned(lock, "runs/x"):
        who = rf"process {os.getpid()} on host {socket.gethostname()} since \d{{4}}-\d\d-\d\d \d\d:\d\d"
        with pytest.raises(ValueError, match=f"runs/x is in use by {who}"), owned(lock, "runs/x"):
            pass
        assert lock.exists()
    assert not lock.exists()
    with pytest.raises(KeyError), owned(lock, "runs/x"):
        raise KeyError
    assert not lock.exists()


def test_another_process_holds_it_until_it_is_killed(lock):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, lock], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        remedy = rf"in use by process {holder.pid} .* this is a copy of what it holds, remove {lock}\)"
        with pytest.raises(ValueError, match=remedy), owned(lock, "it"):
            pass
    finally:
        holder.kill()
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    with owned(lock, "it"):  # also before its parent has asked for its exit code
        assert json.loads(lock.read_text())["process"] == os.getpid()
    holder.wait()


def test_a_lock_of_nobody_is_free(lock):
    """Its process id belongs to another process by now, or its holder was killed while writing."""
    with owned(lock, "it"):
        content = json.loads(lock.read_text())
    for change in ({"began": "another boot/1"}, {"process": 2**22 + 1}):
        lock.write_text(json.dumps(content | change))
        with owned(lock, "it"):
            pass
    for torn in (b"", b'{"host"', b"[]", b'{"host": 1}'):
        lock.write_bytes(torn)
        with owned(lock, "it"):
            pass


def test_another_hosts_is_held_until_it_is_removed(lock):
    with owned(lock, "it"):
        content = json.loads(lock.read_text())
    lock.write_text(json.dumps(content | {"host": "far-away"}))
    message = rf"on host far-away since .* \(if it is gone, or .*, remove {lock}\)"
    with pytest.raises(ValueError, match=message), owned(lock, "it"):
        pass
    lock.unlink()
    with owned(lock, "it"):
        pass


def test_it_can_be_waited_for(lock, monkeypatch):
    monkeypatch.setattr(ownership, "_POLL", 0.01)
    held, ready, said, order = threading.Event(), threading.Event(), [], []

    def first():
        with owned(lock, "it"):
            held.set()
            ready.wait()
            order.append("first")

    def wait(holder):
        said.append(holder)
        ready.set()

    thread = threading.Thread(target=first)
    thread.start()
    held.wait()
    with owned(lock, "it", wait):
        order.append("second")
    thread.join()
    assert order == ["first", "second"] and len(said) == 1 and f"process {os.getpid()} " in said[0]


def test_what_the_dead_left_is_swept(tmp_path):
    code = (
        "import pathlib, sys; from genenv_jax.system.ownership import scratch_name as name\n"
        "path = pathlib.Path(sys.argv[1]) / 'agent'\n"
        "name(path).mkdir(); (name(path) / 'x').touch(); name(path, 'old').mkdir()\n"
        "name(path.with_name('config.json')).touch()"
    )
    printed(code, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    kept = [scratch_name(tmp_path / "agent"), tmp_path / ".agent.elsewhere.4194305.tmp"]
    kept += [tmp_path / ".hidden", tmp_path / "metrics.jsonl"]
    for path in kept:
        path.touch()
    remove_stale(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(kept)
    remove_stale(tmp_path / "none")


def test_a_full_disk_names_the_lock(lock, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match=rf"No space left on device: '{lock}'"), owned(lock, "it"):
        pass
    assert not lock.exists()
