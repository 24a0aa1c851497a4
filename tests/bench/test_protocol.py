import os
import sys
import textwrap

import pytest
from protocol import Worker, WorkerError
from workloads import Work

BENCH = os.path.dirname(sys.modules["protocol"].__file__)


@pytest.fixture
def worker(tmp_path):
    """A process with an engine that spins instead of computing."""
    script = tmp_path / "engine.py"
    script.write_text(
        textwrap.dedent("""
        import os, sys, threading, time
        import protocol

        class Engine:
            def describe(self):
                print("a library's chatter")
                os.write(1, b"more of it, from C")
                return {"engine": "1.0"}

            def spin(self, work):
                calls = []
                def run():
                    start = time.process_time()
                    while time.process_time() - start < 0.05:
                        pass
                    time.sleep(0.1)
                    calls.append(work.new)
                    return len(calls)
                return run

            def leave(self):
                os._exit(3)

        protocol.serve(Engine)
        """)
    )
    with Worker("spinner", [sys.executable, str(script)], os.environ | {"PYTHONPATH": BENCH}) as worker:
        yield worker


def test_answers_are_kept_apart_from_what_libraries_print(worker):
    assert worker.ask("describe")["value"] == {"engine": "1.0"}


def test_cpu_seconds_leave_out_waiting(worker):
    work = Work("spin", 1, 1, 1, 1)
    assert worker.prepare(work)["value"] == 1
    answer = worker.run(work)
    assert answer["value"] == 3  # after the two of the warm-up
    assert 0.05 <= answer["cpu"] < 0.1
    assert answer["wall"] >= 0.15


def test_an_engine_that_ends_is_an_error(worker):
    with pytest.raises(WorkerError, match="spinner: ended with status 3 during leave"):
        worker.ask("leave")
    # A request that nobody reads raises the same error; closing the worker raises none.
    with pytest.raises(WorkerError, match="spinner: ended with status 3 during describe"):
        worker.ask("describe")
