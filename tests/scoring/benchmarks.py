"""A benchmark whose texts decide the fate of the process that scores them.

It is imported in worker processes, and so does not import JAX.
"""

import os
import signal
import sys
import time

from genenv_jax.benchmarks.base import Benchmark, Rejection, Score, Task


def make_task(text="", task_id="t"):
    return Task(task_id, "dangerous", "", ({"role": "user", "content": text},))


def recurse():
    return recurse()


class Dangerous(Benchmark):
    """`score` and `parse` do what the first word of the text says; the rest is a reward."""

    name = "dangerous"
    load = verdict = None

    def __init__(self, isolated=False):
        self.isolated = isolated

    def act(self, text):
        word, *rest = text.split()
        deeds = {
            "loop": lambda: any(iter(int, 1)),
            "sleep": lambda: time.sleep(float(rest[0])),
            "exit": lambda: os._exit(3),
            "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
            "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
            "leave": lambda: sys.exit(0),
            "memory": lambda: [bytearray(2**26) for _ in range(64)],  # 4 GiB
            "recurse": recurse,
            "raise": lambda: {}["what a text can do"],
        }
        deeds.get(word, str)()

    def score(self, task, text):
        self.act(text)
        if text.startswith("lambda"):
            return lambda: 0
        if text.startswith("who"):
            return Score(1.0, True, True, str(os.getpid()))
        return Score(len(text) / 100, len(text) > 5, True, task.id)

    def parse(self, text, seed, task_id, generation):
        self.act(text)
        if text.startswith("bad"):
            return Rejection("unparsable", text)
        messages = make_task(text).messages
        return Task(task_id, self.name, "", messages, (), None, seed.id, "generated", generation)

    def agent_answer(self, task):
        return "a right answer " * 7


class Complete(Dangerous):
    """Its own answers earn full reward."""

    def score(self, task, text):
        if text == self.agent_answer(task):
            return Score(1.0, True, True)
        return super().score(task, text)


class Unpicklable(Dangerous):
    """Holds what cannot be sent to another process."""

    def __init__(self):
        self.engine = lambda: 0


class Unopenable(Dangerous):
    """Can be pickled but not unpickled."""

    def __reduce__(self):
        return _fail, ()


def _fail():
    raise OSError("the engine's files are not here")


class ImportsJax(Dangerous):
    """Brings JAX into the process that opens it."""

    def __reduce__(self):
        return _import_jax, ()


def _import_jax():
    import jax  # noqa: F401

    return ImportsJax()


class DiesAtBirth(Dangerous):
    """Ends the process that opens it."""

    def __reduce__(self):
        return os._exit, (7,)
