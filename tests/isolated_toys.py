"""Toy benchmarks that are scored in worker processes, and so are imported without JAX."""

import errno
import importlib
import os
import pickle
import time

from genenv_jax.benchmarks.base import Episode, Score
from tests.toy import Toy


class Hanging(Toy):
    """A few texts hang or kill the process that reads them."""

    isolated = True

    def score(self, task, answer):
        if "ok" in answer or len(answer) % 5 == 4:
            return super().score(task, answer)
        if len(answer) % 5 == 3:
            time.sleep(600)
        if len(answer) % 5 == 2:
            os._exit(1)
        return super().score(task, answer)

    def parse(self, text, seed, task_id, generation):
        if len(text) % 4 == 1:
            os.kill(os.getpid(), 11)
        if len(text) == 22:
            time.sleep(600)
        return super().parse(text, seed, task_id, generation)


class Talk(Episode):
    """Two turns; the second shows the answer to the first, and both must fit."""

    def __init__(self, benchmark, task):
        super().__init__(max_turns=2)
        self.benchmark, self.task = benchmark, task

    def messages(self):
        said = " ".join(str(len(answer)) for answer in self.answers)
        return [{"role": "user", "content": f"{self.benchmark.text(self.task)} {said}"}]

    def take(self, answer):
        return []

    def stop(self):
        scores = [self.benchmark.score(self.task, answer) for answer in self.answers]
        fits = all(score.success for score in scores)
        return Score(float(fits), fits, True, "" if fits else "odd", {"turns": 2})


class Talking(Toy):
    """Held-out tasks are played in two turns."""

    isolated = True

    def is_interactive(self, task):
        return task.origin == "eval"

    def episode(self, task):
        return Talk(self, task)


class TalkingHere(Talking):
    """The same, in the run's process."""

    isolated = False


def send(worker, question):
    """Asks a worker a question without waiting for its answer."""
    message = pickle.dumps(question)
    worker._connection.sendall(len(message).to_bytes(4, "big") + message)


TOOLS = "ctypes fcntl gc json mmap os pathlib resource signal socket subprocess sys threading time"


class Escaping(Toy):
    """Runs an answer, lines of Python; the score's reason is the last line's value or the error."""

    isolated = True

    def __init__(self, *needs):
        super().__init__()
        self.worker_needs = needs

    def score(self, task, answer):
        *lines, last = answer.splitlines()
        space = {name: importlib.import_module(name) for name in TOOLS.split()}
        try:
            exec("\n".join(lines), space)
            outcome = eval(last, space)
        except OSError as error:
            outcome = errno.errorcode.get(error.errno, type(error).__name__)
        except (MemoryError, ValueError) as error:
            outcome = type(error).__name__
        return Score(1.0, True, True, str(outcome))
