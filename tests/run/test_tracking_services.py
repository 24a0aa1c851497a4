"""Runs in the real W&B, offline, and in the real Trackio, on this machine; both are read back."""

import json
import math
import os
import shutil
import struct
import time

import pytest

from genenv_jax.run.tracking import SAMPLES, Trackers, TrackingConfig
from tests.run.fake_trackers import assert_as_recorded
from tests.runs import run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def isolated(tmp_path_factory):
    """Isolates the services from a user's own runs; both packages read the environment when imported."""
    home = tmp_path_factory.mktemp("services")
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith(("WANDB_", "TRACKIO_"))]:
            patch.delenv(name)
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # where nothing listens
        patch.setenv("WANDB_ERROR_REPORTING", "false")
        for name in ("CONFIG", "CACHE", "DATA"):
            patch.setenv(f"WANDB_{name}_DIR", str(home / name))
        patch.setenv("NETRC", str(home / "netrc"))
        patch.setenv("TRACKIO_DIR", str(home / "trackio"))
        yield home


@pytest.fixture(scope="module", params=["wandb", "trackio"])
def tracked(cache, isolated, tmp_path_factory, request):
    """A run of three epochs, of which the second was repeated; and its tracker's name."""
    pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    workdir = tmp_path_factory.mktemp("tracked") / "run"
    settings = {"tracking.trackers": (request.param,)}
    run(cache, workdir, epochs=2, **settings)
    shutil.rmtree(workdir / "checkpoints" / "2")
    run(cache, workdir, epochs=3, **settings)
    return request.param, workdir


def wandb_records(path):
    """The records of a .wandb file: LevelDB's log format after a header of seven bytes."""
    from wandb.proto import wandb_internal_pb2

    content, at, part = path.read_bytes(), 7, b""
    assert content[:4] == b":W&B"
    while at + 7 <= len(content):
        if (left := 32_768 - at % 32_768) < 7:  # the end of a block
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        part += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield wandb_internal_pb2.Record.FromString(part)
            part = b""


def whole(path):
    """The records up to the last one: the service closes the file some time after a run's `finish`."""
    deadline = time.monotonic() + 60
    while True:
        records = list(wandb_records(path))
        if records and records[-1].HasField("exit"):
            return records
        assert time.monotonic() < deadline, [r.WhichOneof("record_type") for r in records]
        time.sleep(0.1)


def nested(items):
    """{key: value} of W&B's items; the parts of nested keys are joined by dots."""
    return {".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items}


def read_wandb(workdir):
    """(id, configuration, [(step, scalars, tables)], exit code) of each directory, in order."""
    runs = []
    for directory in sorted((workdir / "wandb").glob("offline-run-*")):
        ids, rows, code = set(), [], None
        for record in whole(next(directory.glob("*.wandb"))):
            if record.HasField("run"):
                ids.add((record.run.run_id, record.run.project, record.run.resume))
                config = nested(record.run.config.update)
            elif record.HasField("history"):
                row = nested(record.history.item)
                names = {name.partition(".")[0] for name in row if name.startswith("samples/")}
                stored = {n: directory / "files" / row[f"{n}.path"] for n in names}
                tables = {n: json.loads(file.read_text()) for n, file in stored.items()}
                scalars = {n: v for n, v in row.items() if n[0] != "_" and "samples/" not in n}
                shown = {n: [dict(zip(t["columns"], line, strict=True)) for line in t["data"]]
                         for n, t in tables.items()}  # fmt: skip
                rows.append((row["_step"], scalars, shown))
            elif record.HasField("exit"):
                code = record.exit.exit_code
        ((run_id, project, resume),) = ids
        assert project == "genenv" and resume
        runs.append((run_id, config, rows, code))
    return runs


def read_trackio():
    """(name, configuration, [(step, scalars, tables)]) of each run."""
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    runs = []
    for found in trackio.Api().runs("genenv"):
        rows = []
        for row in SQLiteStorage.get_logs("genenv", found.name, run_id=found.id):
            tables = {n: v["_value"] for n, v in row.items() if n.startswith("samples/")}
            step = row.pop("step")
            del row["timestamp"]
            rows.append((step, {n: v for n, v in row.items() if n not in tables}, tables))
        runs.append((found.name, found.config, rows))
    return runs


def test_it_holds_what_the_files_say_under_one_id(tracked):
    name, workdir = tracked
    run_id = json.loads((workdir / "tracking.json").read_text())["id"]
    if name == "wandb":
        (first, _, begun, code), (again, config, rest, _) = read_wandb(workdir)
        assert (first, again, code) == (run_id, run_id, 0)
        assert [step for step, *_ in begun] == [0, 1, 2]
        rows = begun + rest
    else:
        ((first, config, rows),) = read_trackio()
        assert first == run_id
    wanted = json.loads((workdir / "config.json").read_text())
    assert {key: config[key] for key in wanted} == wanted and wanted["fingerprint"]
    assert_as_recorded(workdir, rows, SAMPLES, sizes={4, SAMPLES})


def test_values_that_are_hard_to_send(isolated, tmp_path, tracked, caplog):
    name, _ = tracked
    rows = [
        {"epoch": 1, "text": "", "reward": None},
        {"epoch": 1, "text": "<img src=x onerror=alert(1)> | \\u001b é", "reward": 1},
        {"epoch": 1, "text": "x" * 50_000, "reward": 0.5},
    ]
    trackers = Trackers(TrackingConfig(trackers=(name,), project="hard"), tmp_path, {"a": {"b": (1, None)}})
    trackers.log(0, {"loss": math.nan, "kl": math.inf, "n": 3}, {"samples/answers": rows})
    trackers.close()
    assert not [record for record in caplog.records if record.name == "absl"]
    if name == "wandb":
        (table,) = tmp_path.glob("wandb/offline-run-*/files/media/table/samples/*.json")
        assert json.loads(table.read_text())["data"] == [list(row.values()) for row in rows]
    else:
        from trackio.sqlite_storage import SQLiteStorage

        (row,) = SQLiteStorage.get_logs("hard", trackers._id.id)
        assert row["samples/answers"]["_value"] == rows
        assert math.isnan(row["loss"]) and row["kl"] == math.inf and row["n"] == 3


def test_without_a_login_the_run_goes_on(isolated, tmp_path, monkeypatch, caplog):
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "online")
    wandb.teardown()  # it has read the environment before
    trackers = Trackers(TrackingConfig(trackers=("wandb",)), tmp_path, {})
    trackers.log(0, {"loss": 1.0}, {})
    trackers.close()
    wandb.teardown()
    (said,) = [record.getMessage() for record in caplog.records if record.name == "absl"]
    assert said.startswith("nothing more is sent to wandb: PermissionError: not logged in")
