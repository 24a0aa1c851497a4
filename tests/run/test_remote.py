"""Workdirs in a bucket, by gcsfs, Orbax and TensorStore on a Cloud Storage of this machine."""

import hashlib
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from genenv_jax.coevolve import Coevolution
from genenv_jax.config import validate
from genenv_jax.run import remote
from genenv_jax.run.remote import Store, opened, shared
from genenv_jax.run.workdir import lock
from genenv_jax.system import ownership
from tests.commands import COMPILE_FAST, QUICK, ROOT, call
from tests.run.fake_gcs import FakeGcs
from tests.runs import FILES, contents, params, run, same, toy_config

needs_gcsfs = pytest.mark.skipif(
    importlib.util.find_spec("gcsfs") is None, reason="gcsfs is not installed (the extra gcs)"
)
URL = "gs://bucket/runs/toy"
SAVED = "commit_success.txt"
PYTHONPATH = os.pathsep.join([str(ROOT), *sys.path])


@pytest.fixture(scope="module")
def gcs(tmp_path_factory):
    """One for all tests: its clients keep what they have found."""
    fake = FakeGcs("bucket")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in fake.environment.items():
            patch.setenv(name, value)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield fake
    fake.close()


@pytest.fixture
def bucket(gcs):
    """Its objects, none at first."""
    gcs.become({"bucket": {}})
    yield gcs.buckets["bucket"]
    gcs.refused = lambda bucket, name: False


def mirrors():
    root = pathlib.Path(os.environ["XDG_CACHE_HOME"]) / "genenv_jax" / "workdirs"
    return list(root.iterdir())


def run_there(cache, **overrides):
    """Runs the toy in the bucket, with an empty mirror; the experiment, and the mirror's records."""
    assert not pathlib.Path(os.environ["XDG_CACHE_HOME"], "genenv_jax").exists() or not mirrors()
    with opened(URL) as workdir, lock(workdir):
        experiment = Coevolution(validate(toy_config(cache, overrides)), workdir)
        experiment.run()
        return experiment, contents(workdir)


def in_bucket(objects):
    return {name: objects[f"runs/toy/{name}"] for name in FILES}


# -- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "flag", "expected"),
    [
        ("main", "--workdir=s3://bucket/run", "a directory of this machine, or gs://BUCKET/PATH"),
        ("main", "--workdir=gs:///run", "a directory of this machine, or gs://BUCKET/PATH"),
        ("main", "--workdir=gs://bucket/../run", "a directory of this machine, or gs://"),
        ("evaluate", "--workdir=gs://bucket/x", "a directory"),
        ("experiment", "--workdir=gs://bucket/x", "a directory"),
        ("supervised", "--out=gs://bucket/x", "a directory"),
    ],
)
def test_another_url_is_refused(command, flag, expected):
    result = call(command, QUICK, flag)
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert f"{flag}: expected {expected}" in result.stderr
    assert not (ROOT / "gs:").exists() and not (ROOT / "s3:").exists()


def test_without_gcsfs_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    message = r"--workdir=gs://b/run needs .*genenv_jax\[gcs\].*gcsfuse"
    with pytest.raises(ValueError, match=message), opened("gs://b/run"):
        pass


def test_a_directory_of_this_machine_is_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with opened("runs/x") as workdir:
        assert workdir == pathlib.Path("runs/x") and not workdir.exists()
        assert shared(workdir) == tmp_path / "runs" / "x"
        store = Store(workdir)
        store.fetch(), store.push()
        with store.owned():
            assert not workdir.exists()


@needs_gcsfs
@pytest.mark.slow
def test_a_bucket_that_is_missing_or_refuses_is_named(gcs, bucket):
    result = call("main", QUICK, "--workdir=gs://none/run")
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert "--workdir=gs://none/run: 404" in result.stderr
    gcs.refused = lambda bucket, name: True
    result = call("main", QUICK, f"--workdir={URL}")
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert f"{URL}/run.lock: " in result.stderr and "may read and write" in result.stderr
    assert not bucket and not mirrors()


# -- files ----------------------------------------------------------------------------------------------


@needs_gcsfs
@pytest.mark.slow
def test_changed_files_are_pushed_and_what_a_resume_reads_is_fetched(gcs, bucket):
    with opened(f"{URL}/") as workdir:
        store = Store(workdir)
        assert workdir.parts[-2:] == ("runs", "toy")
        for name in ("a.jsonl", "held_out/after.jsonl", "agent/model", "xla_cache/x", "run.lock"):
            (workdir / name).parent.mkdir(exist_ok=True)
            (workdir / name).write_text(name)
        (workdir / "empty.jsonl").touch()
        store.push()
        pushed = {"a.jsonl", "held_out/after.jsonl", "agent/model", "empty.jsonl"}
        assert {name.removeprefix("runs/toy/") for name in bucket} == pushed
        before = len(gcs.log)
        store.push()
        (workdir / "a.jsonl").write_text("longer")
        store.push()
        assert [name for _, name, _ in gcs.log[before:]] == ["runs/toy/a.jsonl"]
    assert not mirrors()
    gcs.put("bucket", "runs/toy2/b.jsonl", b"another run's")
    with opened(URL) as workdir:
        Store(workdir).fetch()
        found = {p.relative_to(workdir).as_posix(): p.read_text() for p in workdir.rglob("*.jsonl")}
        expected = {"held_out/after.jsonl": "held_out/after.jsonl", "empty.jsonl": ""}
        assert found == {"a.jsonl": "longer"} | expected
        gcs.refused = lambda bucket, name: True
        with pytest.raises(OSError, match=f"{URL}/a.jsonl: .*may read and write"):
            Store(workdir).push()


# -- whole runs -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unbroken(cache, gcs, tmp_path_factory):
    """A run on this machine, the same in the bucket, and the changes there."""
    settings = {"epochs": 3, "export": True}
    workdir = tmp_path_factory.mktemp("unbroken")
    here = run(cache, workdir, **settings)
    gcs.become({"bucket": {}})
    there, mirrored = run_there(cache, **settings)
    assert mirrored == contents(workdir) == in_bucket(gcs.buckets["bucket"])
    for player in ("agent", "simulator"):
        assert same(params(here, player), params(there, player))
    return workdir, list(gcs.log), dict(gcs.buckets["bucket"])


@needs_gcsfs
@pytest.mark.slow
def test_a_run_leaves_in_the_bucket_what_it_leaves_on_a_disk(unbroken):
    workdir, _, objects = unbroken
    names = {p.relative_to(workdir) for p in workdir.rglob("*") if p.is_file()}
    local = {name.as_posix() for name in names if name.parts[0] != "checkpoints"}
    assert {n.removeprefix("runs/toy/") for n in objects if "/checkpoints/" not in n} == local
    for name in ("agent/model.safetensors", "held_out/after.jsonl"):
        assert objects[f"runs/toy/{name}"] == (workdir / name).read_bytes()
    saved = {n.split("/")[3] for n in objects if n.startswith("runs/toy/checkpoints/")}
    assert saved == {"2", "3"}
    assert f"runs/toy/checkpoints/3/{SAVED}" in objects
    assert "runs/toy/checkpoints/3/digests.json" in objects


@needs_gcsfs
@pytest.mark.slow
def test_after_every_change_the_checkpoints_find_their_records(unbroken):
    """What a kill leaves is the bucket after one of the changes."""
    objects, checked = {}, set()
    for _, name, data in unbroken[1]:
        objects = {n: d for n, d in objects.items() if n != name}
        objects |= {} if data is None else {name: data}
        for epoch in (1, 2, 3):
            directory = f"runs/toy/checkpoints/{epoch}"
            if f"{directory}/{SAVED}" not in objects or f"{directory}/host/metadata" not in objects:
                continue
            host = json.loads(objects[f"{directory}/host/metadata"])
            for record in ("tasks", "d_train", "d_env", "metrics"):
                content = objects[f"runs/toy/{record}.jsonl"][: host["offsets"][record]]
                digest = hashlib.blake2b(content, digest_size=32).hexdigest()
                assert digest == host["digests"][record]
                checked.add((epoch, record))
    assert len(checked) == 12


# What is under way when a process is killed.
POINTS = (
    *("nothing is saved", "the first checkpoint", "records are pushed", "its arrays"),
    *("its last file", "it is whole", "an old one is removed", "players are pushed"),
)


def cuts(log):
    """By point, the number of changes after which a process might have been killed."""
    names = [name.removeprefix("runs/toy/") for _, name, _ in log]
    first = {name: names.index(name) for name in names}
    begun = min(i for i, n in enumerate(names) if n.startswith("checkpoints/2/"))
    saved = first[f"checkpoints/2/{SAVED}"]
    written = [i for i in range(begun, saved) if names[i].startswith("checkpoints/2/agent/")]
    removed = [i for i, (_, n, d) in enumerate(log) if d is None and "/checkpoints/1/" in n]
    pushed = [i for i in range(begun) if names[i] == "metrics.jsonl"][-1]
    changes = (
        *(first["metrics.jsonl"] + 1, first[f"checkpoints/1/{SAVED}"], pushed),
        *(written[len(written) // 2], saved, saved + 1, removed[len(removed) // 2]),
        first["agent/model.safetensors"] + 1,
    )
    return dict(zip(POINTS, changes, strict=True))


@needs_gcsfs
@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_it_goes_on_to_the_same_bytes(cache, gcs, unbroken, point):
    workdir, log, objects = unbroken
    gcs.log = log
    left = gcs.after(cuts(log)[point])
    left["bucket"].pop("runs/toy/run.lock")
    gcs.become(left)
    _, mirrored = run_there(cache, epochs=3, export=True)
    assert mirrored == contents(workdir) == in_bucket(gcs.buckets["bucket"])
    for name in ("agent", "simulator"):
        weights = f"{name}/model.safetensors"
        assert gcs.buckets["bucket"][f"runs/toy/{weights}"] == objects[f"runs/toy/{weights}"]


@needs_gcsfs
@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over(cache, gcs, unbroken, caplog):
    """Its removal was cut short: the digests are gone, and so is a file of its arrays."""
    workdir, _, objects = unbroken
    directory = "runs/toy/checkpoints/3/"
    arrays = max(
        (n for n in objects if n.startswith(f"{directory}agent/d/")), key=lambda n: len(objects[n])
    )
    gone = (f"{directory}digests.json", arrays)
    gcs.become({"bucket": {n: d for n, d in objects.items() if n not in gone}})
    _, mirrored = run_there(cache, epochs=3)
    assert "checkpoint 3 cannot be taken, trying the one before" in caplog.text
    assert mirrored == contents(workdir)


def toy_process(cache, url, *arguments, epochs=2):
    line = [sys.executable, "tests/run_toy.py", "main", f"--config=tests/run_toy.py:{cache}"]
    line += [f"--workdir={url}", f"--config.epochs={epochs}", *arguments]
    environment = os.environ | {"XLA_FLAGS": COMPILE_FAST, "PYTHONPATH": PYTHONPATH}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(line, cwd=ROOT, env=environment, **pipes)


@needs_gcsfs
@pytest.mark.slow
@pytest.mark.parametrize("struck", ["checkpoints/2", "within_epoch/1000016"])
def test_a_process_killed_within_a_checkpoint_goes_on_and_is_reported(
    cache, gcs, bucket, tmp_path, struck
):
    """The lock that it leaves, and its mirror, are those of a process that is no more."""
    whole = run(cache, tmp_path / "whole", epochs=2).session.workdir
    often = ["--config.checkpoint.minutes=1e-9"] if struck.startswith("within") else []
    process = toy_process(cache, URL, *often)

    def strike(_, name):
        if f"/{struck}/agent/" in name:
            process.send_signal(signal.SIGKILL)

    gcs.changed = strike
    output, _ = process.communicate(timeout=300)
    gcs.changed = lambda bucket, name: None
    assert process.returncode == -signal.SIGKILL, output
    assert "runs/toy/run.lock" in bucket and mirrors()
    before = "within_epoch/1000008" if often else "checkpoints/1"
    assert f"runs/toy/{before}/{SAVED}" in bucket
    again = toy_process(cache, URL, *often)
    output, _ = again.communicate(timeout=300)
    assert again.returncode == 0, output
    assert f"finished    {URL}/\n" in output and f"genenv report {URL}" in output
    assert in_bucket(bucket) == {name: (whole / name).read_bytes() for name in FILES}
    assert "runs/toy/run.lock" not in bucket and not mirrors()
    result = call("report", URL, f"--out={tmp_path / 'page'}")
    assert result.returncode == 0, result.stderr
    assert "toy" in (tmp_path / "page" / "report.html").read_text()
    config = f"--config=tests/run_toy.py:{cache}"
    dry = call("main", config, f"--workdir={URL}", "--dry_run", "--config.seed=9")
    assert dry.returncode == 2 and "config.seed = 0, but now it is 9" in dry.stderr


# -- the lock -------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(remote, "_BEAT", 0.1)
    monkeypatch.setattr(remote, "_DEAD", 2.0)


@needs_gcsfs
@pytest.mark.slow
def test_a_run_in_a_bucket_is_one_processs(gcs, bucket, quick):
    with opened(URL) as workdir, Store(workdir).owned():
        who = ownership.parse(bucket["runs/toy/run.lock"])
        assert who["process"] == os.getpid()
        with (
            pytest.raises(ValueError, match=f"--workdir={URL} is in use by process {os.getpid()} "),
            Store(workdir).owned(),
        ):
            pass
        count = gcs.count
        elsewhere = json.dumps(who | {"host": "far-away"}).encode()
        beats = threading.Event()

        def beat():
            while not beats.wait(0.2):
                gcs.put("bucket", "runs/other/run.lock", elsewhere)

        gcs.put("bucket", "runs/other/run.lock", elsewhere)
        thread = threading.Thread(target=beat)
        thread.start()
        with opened("gs://bucket/runs/other") as other:
            with pytest.raises(ValueError, match="on host far-away since"), Store(other).owned():
                pass
            beats.set(), thread.join()
            with Store(other).owned():  # no beat for so long
                assert ownership.parse(bucket["runs/other/run.lock"])["process"] == os.getpid()
        assert gcs.count > count + 10
        assert "runs/other/run.lock" not in bucket
    assert "runs/toy/run.lock" not in bucket


HOLD = """
import time
from genenv_jax.run import remote

remote._BEAT = 0.1
with remote.opened("gs://bucket/run") as workdir, remote.Store(workdir).owned():
    print("held", flush=True)
    time.sleep(60)
"""


@needs_gcsfs
@pytest.mark.slow
def test_a_holder_whose_lock_is_taken_ends(gcs, bucket):
    environment = os.environ | {"PYTHONPATH": PYTHONPATH}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    holder = subprocess.Popen([sys.executable, "-c", HOLD], env=environment, **pipes)
    try:
        assert holder.stdout.readline() == "held\n", holder.stderr.read()
        gcs.put("bucket", "run/run.lock", b"another's")
        assert holder.wait(30) == 2
        assert "another run has taken gs://bucket/run/run.lock" in holder.stderr.read()
    finally:
        holder.kill()
    assert bucket["run/run.lock"] == b"another's"
