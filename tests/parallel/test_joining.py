"""How the processes of a run join: flags, ports and hosts, and processes that do not fit together."""

import signal
import socket

import jax
import pytest

from genenv_jax.parallel import joining, processes
from tests.parallel.launch import end, free_port, start, workers


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("host:1", 2, None), "--process_id: expected all three"),
        ((None, None, 0), "--coordinator_address, --num_processes: expected all three"),
        (("host:1", 2, 2), "--process_id=2: expected 0 to 1"),
        (("host:1", 2, -1), "--process_id=-1: expected 0 to 1"),
        (("host:1", 0, 0), "--num_processes=0: expected at least 1"),
        (("host", 2, 0), "--coordinator_address=host: expected host:port"),
        (("host:66000", 2, 0), "expected host:port"),
        (("nowhere.invalid:1", 2, 1), "--coordinator_address=nowhere.invalid:1: "),
        ((None, 2, None, True), "expected no --num_processes"),
    ],
)
def test_wrong_flags_are_named(given, message):
    *given, auto = given if len(given) == 4 else (*given, False)
    with pytest.raises(ValueError, match=message):
        joining.initialize(*given, auto=auto, timeout=5.0)


def test_no_flags_or_one_process_is_one_process():
    joining.initialize()
    joining.initialize("localhost:1", 1, 0)
    assert processes.process_count() == 1 and processes.is_writer()


def test_devices_in_use_are_an_error():
    jax.devices()
    with pytest.raises(RuntimeError, match="before any JAX calls"):
        joining.initialize(f"127.0.0.1:{free_port()}", 2, 0, timeout=10)


def test_a_process_0_that_does_not_answer_is_named():
    port = free_port()
    with pytest.raises(TimeoutError, match=f"did not answer at 127.0.0.1:{port} within 0 s"):
        joining.initialize(f"127.0.0.1:{port}", 2, 1, timeout=0.3)


@pytest.mark.parametrize("interface", ["127.0.0.1", ""])
def test_a_port_in_use_is_named(interface):
    """Also on one interface only, and before JAX, which can crash there."""
    with socket.create_server((interface, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} cannot be used on process 0's host"):
            joining.initialize(f"127.0.0.1:{port}", 2, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("members", "codes", "message"),
    [
        (((0, 3), (1, 3)), [1, 1], "not all processes joined process 0 at 127.0.0.1:"),
        (((0, 2), (1, 3)), [2, 2], "1 has '--num_processes=3' where process 0 has '--num_proc"),
        # JAX aborts the first of the two when the second one joins.
        (((0, 3), (1, 3), (1, 3)), [-signal.SIGABRT, 1, 1], "and its own --process_id"),
    ],
)
def test_processes_that_do_not_fit_say_why(tmp_path, members, codes, message):
    ended, texts = end(workers(tmp_path, "--timeout", 12, members=members), tmp_path / "output", 120)
    assert sorted(ended) == codes, texts
    for code, text in zip(ended, texts, strict=True):
        errors = [line for line in text.splitlines() if line.startswith("error: ")]
        assert len(errors) == (code > 0), texts
        assert all(message in error for error in errors), texts
        assert "Traceback" not in text, text
        if code < 0:
            assert "a request from a newer incarnation" in text, text


@pytest.mark.slow
@pytest.mark.parametrize("index", [None, 0, 1])
def test_the_command_says_it_in_one_line(tmp_path, index):
    """Another process may join later: hence exit code 1, at which a launcher restarts it."""
    flags = ["--config=configs/quickstart.py", f"--workdir={tmp_path / 'run'}"]
    if index is None:
        flags += ["--distributed=auto"]
    else:
        flags += [f"--coordinator_address=127.0.0.1:{free_port()}", "--num_processes=2"]
        flags += [f"--process_id={index}", "--initialization_timeout=2"]
    codes, (text,) = end([start("genenv_jax.main", 0, 1, tmp_path / "log", *flags)], tmp_path / "log", 60)
    assert codes == [2 if index is None else 1] and "Traceback" not in text and "error: " in text
    assert ("JAX recognised no cluster" in text) == (index is None)
    assert not (tmp_path / "run").exists()
