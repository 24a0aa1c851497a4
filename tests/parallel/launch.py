"""Starts the processes of a run on this machine, and compares what runs leave behind."""

import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.commands import COMPILE_FAST, ROOT
from tests.runs import lines


def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


def start(module, index, devices, output, *arguments, **environment):
    """Starts a module with `devices` virtual devices; its output goes to the file `output`.INDEX."""
    settings = os.environ | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices} {COMPILE_FAST}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "PYTHONHASHSEED": str(index + 1),  # the order of a set must not matter
        **environment,
    }
    with open(f"{output}.{index}", "w") as file:
        return subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)], cwd=ROOT, env=settings, stdout=file,
            stderr=subprocess.STDOUT,
        )  # fmt: skip


def end(started, output, timeout):
    """Return codes and outputs of processes; none is left running."""
    try:
        codes = [process.wait(timeout) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return codes, [pathlib.Path(f"{output}.{i}").read_text() for i in range(len(started))]


def workers(directory, *arguments, members=((0, 2), (1, 2))):
    """Starts tests/parallel/worker.py with two devices for each (process id, number of processes)."""
    port = free_port()
    return [
        start(
            "tests.parallel.worker", i, 2, directory / "output", "--port", port, "--processes", count,
            *("--id", index, "--directory", directory), *arguments,
        )
        for i, (index, count) in enumerate(members)
    ]  # fmt: skip


def toy_run(workdir, count, *settings, command="main", mesh=(2, 2, 1), caches=None):
    """Starts a command on the toy benchmark, on four devices in `count` processes; returns them.

    caches: directories of made models, by process.
    """
    caches = caches or [workdir.parent / "models"] * count
    arguments = [
        "--config=tests/run_toy.py:",
        f"--workdir={workdir}",
        *(f"--config.mesh.{k}={v}" for k, v in zip(("data", "fsdp", "tensor"), mesh, strict=True)),
        *("--config.agent.minibatch_size=8", "--config.simulator.minibatch_size=4", "--config.export=True"),
        *settings,
    ]
    if count > 1:
        arguments += [f"--coordinator_address=localhost:{free_port()}", f"--num_processes={count}"]
    return [
        start(
            "tests.run_toy", i, 4 // count, workdir.with_suffix(".log"), command, *arguments,
            *([f"--process_id={i}"] if count > 1 else []), XDG_CACHE_HOME=str(caches[i]),
        )
        for i in range(count)
    ]  # fmt: skip


def finish(workdir, started, timeout=900):
    """The outputs of a toy run's processes, which must succeed."""
    codes, texts = end(started, workdir.with_suffix(".log"), timeout)
    assert codes == [0] * len(started), texts
    return texts


def assert_equal_runs(workdir, other, tolerance=1e-6):
    """Same tasks and pools byte for byte; metrics and exported parameters within `tolerance`."""
    for name in ("tasks.jsonl", "d_train.jsonl", "d_env.jsonl"):
        assert (workdir / name).read_bytes() == (other / name).read_bytes(), name
        assert (workdir / name).stat().st_size > 1000
    for a, b in zip(lines(workdir), lines(other), strict=True):
        assert a == pytest.approx(b, rel=tolerance, abs=tolerance)
    for player in ("agent", "simulator"):
        a, b = (load_file(d / player / "model.safetensors") for d in (workdir, other))
        assert a.keys() == b.keys()
        for key in a:
            np.testing.assert_allclose(a[key], b[key], atol=tolerance, rtol=0, err_msg=key)
