"""Several real processes on this machine: they meet, agree, share arrays and files, end together, and
train to the result of one process."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from genenv_jax.parallel import processes, rendezvous
from genenv_jax.parallel.rendezvous import Member, meet
from genenv_jax.pools import Pool
from genenv_jax.progress import Progress

ROOT = pathlib.Path(__file__).resolve().parent.parent


def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


# -- how they meet --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("host:1", 2, None), "--process_id: expected all three"),
        ((None, None, 0), "--coordinator_address, --num_processes: expected all three"),
        (("host:1", 2, 2), "--process_id=2: expected 0 to 1"),
        (("host:1", 2, -1), "--process_id=-1: expected 0 to 1"),
        (("host:1", 0, 0), "--num_processes=0: expected at least 1"),
        (("host", 2, 0), "--coordinator_address=host: expected host:port"),
        ((":80", 2, 0), "expected host:port"),
        (("host:66000", 2, 0), "expected host:port"),
    ],
)
def test_wrong_flags_are_named(given, message):
    with pytest.raises(ValueError, match=message):
        processes.initialize(*given)


def test_flags_beside_auto_are_refused():
    with pytest.raises(ValueError, match="expected no --num_processes"):
        processes.initialize(None, 2, None, auto=True)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--distributed=auto", "JAX found no cluster that it knows"),
        ("--num_processes=2", "given without --coordinator_address, --process_id"),
    ],
)
def test_the_command_says_it_in_one_line(tmp_path, flag, message):
    config = f"--config={ROOT / 'configs' / 'quickstart.py'}"
    process = start(
        "genenv_jax.main", 0, 1, 1, tmp_path / "log", config, f"--workdir={tmp_path / 'run'}", flag
    )
    codes, (text,) = end([process], tmp_path / "log", 60)
    assert codes == [2]
    assert text.startswith("error: ") and text.count("\n") == 1 and message in text
    assert not (tmp_path / "run").exists()


def test_no_flags_or_one_process_is_one_process():
    processes.initialize()
    processes.initialize("localhost:1", 1, 0)
    assert processes.process_count() == 1 and processes.is_writer()


def test_devices_in_use_are_an_error():
    import jax

    jax.devices()
    with pytest.raises(RuntimeError, match="before any device is used"):
        processes.initialize(f"127.0.0.1:{free_port()}", 2, 0, timeout=1)


def meeting(*members: Member, timeout=5.0, port=None):
    """What `meet` ends with in each member: None or the error."""
    address = f"127.0.0.1:{port or free_port()}"

    def outcome(member):
        try:
            return meet(address, member, timeout)
        except (ValueError, TimeoutError) as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(len(members)) as pool:
        return list(pool.map(outcome, members))


def member(number, count, program="p"):
    return Member(number, count, program)


def test_all_come_in_any_order():
    assert meeting(*(member(i, 5) for i in (3, 1, 0, 4, 2))) == [None] * 5


def test_the_port_is_free_again_at_once():
    port = free_port()
    for _ in range(3):
        assert meeting(member(0, 2), member(1, 2), port=port) == [None, None]
    with rendezvous._listen(port):
        pass


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (member(1, 3), "process 1 was started with --num_processes=3, process 0 with 2"),
        (member(2, 2), "--process_id=2: expected 0 to 1"),
        (member(1, 2, "q"), "process 1 runs q, process 0 runs p"),
    ],
)
def test_processes_that_do_not_fit_all_hear_why(other, message):
    for error in meeting(member(0, 2), other):
        assert isinstance(error, ValueError) and message in str(error)


def test_two_processes_with_one_number_all_hear_it():
    for error in meeting(member(1, 3), member(1, 3), member(0, 3)):
        assert isinstance(error, ValueError) and "two processes were started" in str(error)


def test_processes_that_never_come_are_counted():
    for error in meeting(member(0, 4), member(2, 4), timeout=1.0):
        assert isinstance(error, TimeoutError)
        assert "4 processes are expected" in str(error) and "processes 1, 3 did not" in str(error)


def test_a_coordinator_that_does_not_answer_is_named():
    (error,) = meeting(member(1, 2), timeout=0.5)
    assert isinstance(error, TimeoutError) and "process 0 did not answer at 127.0.0.1" in str(error)


def test_an_unknown_host_is_named():
    with pytest.raises(ValueError, match="nowhere.invalid:1"):
        meet("nowhere.invalid:1", member(1, 2), 5.0)


def test_a_taken_port_is_named_on_both_sides():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} cannot be used"):
            meet(f"127.0.0.1:{port}", member(0, 2), 1.0)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            outcome = pool.submit(meeting, member(1, 2), port=port)
            stranger, _ = server.accept()
            with stranger:
                stranger.recv(100)
                stranger.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            assert "something else than process 0" in str(outcome.result()[0])


def test_strangers_are_ignored():
    port = free_port()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(meeting, member(0, 2), port=port, timeout=10.0)
        for words in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"[1]\n",
            b'{"process_id": "x"}\n',
            b"\xff" * 9000,
        ):
            for _ in range(100):
                try:
                    with socket.create_connection(("127.0.0.1", port)) as stranger:
                        stranger.sendall(words)
                    break
                except OSError:
                    time.sleep(0.05)
        assert meeting(member(1, 2), port=port) == [None]
        assert outcome.result() == [None]


# -- what only one of them does -------------------------------------------------------------------------


def test_a_read_only_pool_leaves_the_file_alone(tmp_path):
    pool = Pool(tmp_path / "pool.jsonl")
    pool.append([{"a": 1}])
    other = Pool(tmp_path / "pool.jsonl", read_only=True)
    assert other.append([{"a": 2}]) == 1
    other.truncate(0)
    assert list(other) == [{"a": 1}]
    Pool(tmp_path / "none.jsonl", read_only=True)
    assert not (tmp_path / "none.jsonl").exists()


def test_a_silent_progress_still_counts_time(capsys):
    progress = Progress(1, silent=True)
    with progress.phase("work"):
        time.sleep(0.01)
    assert progress.seconds["work"] >= 0.01
    assert capsys.readouterr().err == ""


# -- real processes -------------------------------------------------------------------------------------


def start(module, index, count, devices, output, *arguments, **environment):
    """A process with `devices` of the `count * devices` virtual devices; its output goes to a file."""
    settings = os.environ | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": str(index + 1),  # the order of a set must not matter
        **environment,
    }
    with open(f"{output}.{index}", "w") as file:
        return subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            cwd=ROOT,
            env=settings,
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def end(started, output, timeout):
    """Return codes and outputs of processes; none is left behind."""
    try:
        codes = [process.wait(timeout) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return codes, [pathlib.Path(f"{output}.{i}").read_text() for i in range(len(started))]


def workers(directory, *arguments):
    port = free_port()
    return [
        start(
            "tests.processes_worker",
            i,
            2,
            2,
            directory / "output",
            *("--port", port, "--processes", 2, "--id", i, "--directory", directory),
            *arguments,
        )
        for i in range(2)
    ]


def test_two_processes_share_arrays_decisions_and_files(tmp_path):
    codes, texts = end(workers(tmp_path), tmp_path / "output", 120)
    assert codes == [0, 0], texts
    results = [json.loads(text.splitlines()[-1]) for text in texts]
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    for i, result in enumerate(results):
        # Arrays: each process holds a part, and all of it comes back whole everywhere.
        assert result["local_shards"] == 2 and result["remote"]
        np.testing.assert_array_equal(result["x"], x)
        np.testing.assert_array_equal(result["n"], np.arange(8))
        np.testing.assert_array_equal(result["scaled"], 2 * x)
        np.testing.assert_array_equal(result["moved"], x)
        assert result["total"] == x.sum() and result["untouched"] == 3
        noise = np.asarray(result["shifted"]) - x
        assert len(set(noise[:, 0].round(4))) == 8 and abs(noise).max() < 6
        assert result["shifted"] == results[0]["shifted"]
        # Agreements.
        assert result["gathered"] == ["process 0", "process 1"]
        assert result["again"] == ["process 0 again", "process 1 again"]
        assert result["agreed"] == "said by 0"
        assert result["broadcast"] == 9 * 256
        assert result["writer"] == (i == 0)
        assert "the settings differs" in result["different"]
        assert "process 1 has 'b = 1' where process 0 has 'b = 0'" in result["different"]
        # A workdir that is not shared.
        assert "own-1" in result["not_shared"] and "storage that all" in result["not_shared"]
        assert result["left"] == []
        # A checkpoint of which one process cannot read its part is taken by none.
        assert (result["restored"], result["host"]) == (2.0, {"finished": 2})
        assert (result["fallback"], result["fallback_host"]) == (1.0, {"finished": 1})
        assert result["steps"] == [1]
        # The teacher: one asks, all have its tasks, and all say why there are no more.
        taught = result["teacher"]
        assert len(taught["tasks"]) == 5 and taught["asked"] == (0 if i else 7)
        assert "7 of 9 tasks are written" in taught["failure"].replace(f"teacher-{i}", "")
        for name in ("tasks", "failure"):
            assert taught[name] == results[0]["teacher"][name]
        assert bool(taught["files"]) == (i == 0)
        # Outcomes of scoring: those of process 0, also where another would have failed.
        assert result["outcomes"] == results[0]["outcomes"]
    read, scores, again, inspected = results[0]["outcomes"]
    assert read == again == ["fine", "late", "never"]
    fine = ["score", [1.0, True, True, "in process 0", {}]]
    assert json.loads(scores) == [fine, fine, ["score", [0.0, False, False, "score_crash", {}]]]
    (first, task), (second, _), rejection = json.loads(inspected)
    assert first == second == "task" and task["answer"] == [1.5, None]
    assert task["messages"][0]["content"] == "fine in process 0"
    assert rejection[0] == "rejection" and rejection[1][0] == "verify_crash"
    assert "checkpoint 2 cannot be read, trying the one before: process 1: " in texts[0]
    assert "cannot be read" not in texts[1]  # said once


@pytest.mark.parametrize("how", ["raise", "terminate"])
def test_the_end_of_one_process_is_the_end_of_all(tmp_path, how):
    started = workers(tmp_path, "--end", "raise" if how == "raise" else "wait")
    if how == "terminate":
        deadline = time.monotonic() + 60
        while not all((tmp_path / f"ready-{i}").exists() for i in range(2)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        started[0].send_signal(signal.SIGTERM)
    codes, texts = end(started, tmp_path / "output", 60)
    if how == "raise":
        assert codes == [143, 1]
        assert "ValueError: this one gives up" in texts[1]
        reason = "process 0 ends too: process 1 ended the run: ValueError: this one gives up"
        assert reason in texts[0]
    else:
        assert codes == [143, 143]
        assert "process 1 ends too: process 0 ended the run: it received SIGTERM" in texts[1]


# -- whole runs -----------------------------------------------------------------------------------------

POOLS = ("tasks.jsonl", "d_train.jsonl", "d_env.jsonl")


def toy_run(workdir, count, *settings, command="main", mesh=(2, 2, 1), caches=None):
    """Starts a command on the toy benchmark, on four devices in `count` processes; returns them.

    caches: directories of made models, by process.
    """
    caches = caches or [workdir.parent / "models"] * count
    port = free_port()
    arguments = [
        "--config=tests/run_toy.py:",
        f"--workdir={workdir}",
        *(f"--config.mesh.{k}={v}" for k, v in zip(("data", "fsdp", "tensor"), mesh, strict=True)),
        "--config.agent.minibatch_size=8",
        "--config.simulator.minibatch_size=4",
        "--config.export=True",
        *settings,
    ]
    joined = [f"--coordinator_address=localhost:{port}", f"--num_processes={count}"]
    return [
        start(
            "tests.run_toy",
            i,
            count,
            4 // count,
            workdir.with_suffix(".log"),
            command,
            *arguments,
            *([*joined, f"--process_id={i}"] if count > 1 else []),
            XDG_CACHE_HOME=str(caches[i]),
            JAX_COMPILATION_CACHE_DIR=str(workdir.parent / "xla"),
            JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0.2",
        )
        for i in range(count)
    ]


def finish(workdir, started, timeout=900):
    codes, texts = end(started, workdir.with_suffix(".log"), timeout)
    assert codes == [0] * len(started), texts
    return texts


def assert_equal_runs(workdir, other, tolerance=1e-6):
    """Same pools byte for byte; metrics and exported parameters within `tolerance`."""
    for name in POOLS:
        assert (workdir / name).read_bytes() == (other / name).read_bytes(), name
        assert (workdir / name).stat().st_size > 1000
    lines = [(d / "metrics.jsonl").read_text().splitlines() for d in (workdir, other)]
    for a, b in zip(*([json.loads(line) for line in part] for part in lines), strict=True):
        assert a == pytest.approx(b, rel=tolerance, abs=tolerance)
    for player in ("agent", "simulator"):
        a, b = (load_file(d / player / "model.safetensors") for d in (workdir, other))
        assert a.keys() == b.keys()
        for key in a:
            np.testing.assert_allclose(a[key], b[key], atol=tolerance, rtol=0, err_msg=key)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same two epochs in one process and in two.  Process 1 has a model cache of its own."""
    directory = tmp_path_factory.mktemp("runs")
    one, two = directory / "one", directory / "two"
    finish(one, toy_run(one, 1, "--config.epochs=2"))
    caches = [directory / "models", directory / "other models"]
    texts = finish(two, toy_run(two, 2, "--config.epochs=2", caches=caches))
    return one, two, texts, caches


@pytest.mark.slow
def test_two_processes_equal_one(runs):
    one, two, _, _ = runs
    assert_equal_runs(one, two)
    assert {p.name for p in two.iterdir()} == {p.name for p in one.iterdir()}


@pytest.mark.slow
def test_only_the_first_process_speaks(runs):
    _, _, texts, _ = runs
    assert "epoch 2/2  done" in texts[0]
    assert "epoch" not in texts[1]


@pytest.mark.slow
def test_a_process_without_the_base_model_is_given_it(runs):
    _, _, texts, caches = runs
    files = [{p.name: p.read_bytes() for p in cache.rglob("*") if p.is_file()} for cache in caches]
    assert "model.safetensors" in files[0]
    assert files[0] == files[1]
    assert "train base model" not in "".join(texts)  # the run of one process made it


@pytest.fixture(scope="module")
def killed(runs):
    """A run of two processes that were killed outright after the first epoch's checkpoint."""
    one, _, _, _ = runs
    workdir = one.parent / "killed"
    started = toy_run(workdir, 2, "--config.epochs=2")
    deadline = time.monotonic() + 900
    while not (workdir / "checkpoints" / "1" / "_CHECKPOINT_METADATA").exists():
        assert time.monotonic() < deadline and all(p.poll() is None for p in started)
        time.sleep(0.05)
    for process in started:
        process.kill()
    end(started, workdir.with_suffix(".log"), 60)
    assert not (workdir / "agent").exists()
    return workdir


@pytest.mark.slow
def test_killed_processes_continue_to_the_same_bytes(runs, killed, tmp_path):
    _, two, _, _ = runs
    workdir = two.parent / "resumed"
    shutil.copytree(killed, workdir)
    finish(workdir, toy_run(workdir, 2, "--config.epochs=2"))
    assert_equal_runs(workdir, two, tolerance=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [(2, 2, 1), (1, 2, 2)])
def test_one_process_continues_what_two_began(runs, killed, mesh):
    _, two, _, _ = runs
    workdir = two.parent / f"resumed-{mesh[0]}{mesh[1]}{mesh[2]}"
    shutil.copytree(killed, workdir)
    finish(workdir, toy_run(workdir, 1, "--config.epochs=2", mesh=mesh))
    assert_equal_runs(workdir, two, tolerance=1e-5)


@pytest.mark.slow
def test_two_processes_evaluate_as_one(runs):
    one, two, _, _ = runs
    for workdir, count in ((one, 1), (two, 2)):
        out = workdir.with_name(f"{workdir.name}-eval")
        model = f"--model={one / 'agent'}"
        texts = finish(out, toy_run(out, count, model, command="evaluate"))
        assert "eval/test/greedy/accuracy" in texts[0]
        assert "eval/test/greedy/accuracy" not in "".join(texts[1:])
    for name in ("predictions.jsonl", "metrics.json"):
        first, second = (d.with_name(f"{d.name}-eval") / name for d in (one, two))
        assert first.read_bytes() == second.read_bytes()
        assert first.stat().st_size > 0


@pytest.mark.slow
def test_a_mistake_ends_all_processes_with_its_line(runs):
    one, _, _, _ = runs
    workdir = one.parent / "mistaken"
    started = toy_run(workdir, 2, "--config.agent.batch_size=6")
    codes, texts = end(started, workdir.with_suffix(".log"), 120)
    assert set(codes) <= {2, 143} and 2 in codes, texts
    assert any("config.agent.batch_size = 6: expected a multiple of" in text for text in texts)
    assert not any("Traceback" in text for text in texts), texts
