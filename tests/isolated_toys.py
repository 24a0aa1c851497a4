"""Toy benchmarks that are scored in worker processes, and so are imported where there is no JAX."""

import os
import time

from tests.toy import Toy


class Hanging(Toy):
    """A few texts do to the process that reads them what they should not."""

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


class Missing(Toy):
    """Can be opened in the process of the run only."""

    isolated = True

    def __reduce__(self):
        return _missing, ()


def _missing():
    raise OSError("its engine is missing")
