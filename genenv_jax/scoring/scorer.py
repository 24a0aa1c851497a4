"""The scorer: scores completions as they finish, and returns the outcomes when all are done.

    batch = scorer.batch()
    sampler(..., on_completion=lambda c: batch.add(c, SCORE, tasks[c.row]))
    outcomes = batch.collect()     # [(completion as text, Score)], in order of row and sample

Threads of this process decode and score completions while the devices keep sampling.  With worker
processes, each thread sends its completion to one of them, with a time limit.

In a run with several processes, the first one scores and all use its outcomes: timeouts depend on timing,
and processes that disagree about one would make different decisions.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import os
import pathlib
import queue
import tempfile
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from absl import logging

from genenv_jax.benchmarks.base import Benchmark
from genenv_jax.parallel import processes
from genenv_jax.sampling.sampler import Completion, Key
from genenv_jax.scoring import isolation, requests
from genenv_jax.scoring.episodes import Episodes
from genenv_jax.scoring.open_episodes import OpenEpisodes
from genenv_jax.scoring.worker import NoAnswer, Worker
from genenv_jax.settings import Settings, within
from genenv_jax.system.ownership import remove_stale

_LOGGED = 5  # failures of each kind to log
# A completion as text, and the outcome: None in processes that do not score.
_Answered = tuple[Completion, requests.Outcome | None]


@dataclasses.dataclass(frozen=True)
class ScoringConfig(Settings):
    """`config.scoring`: how texts are scored and verified while the devices sample.

    Attributes:
      workers: worker processes; 0: a thread, or processes if the benchmark requires them (`isolated`).
      timeout: maximum seconds per text in a worker process.
      memory: maximum GiB per worker process; 0: no limit.
    """

    workers: int = within(0, 0, 2**10)
    timeout: float = within(60.0, 0.1, 86_400)
    memory: float = within(4.0, 0)


def worker_count(benchmark: Benchmark, workers: int) -> int:
    """The number of worker processes: as many as configured; 0 means none.

    A benchmark that is `isolated` always gets some: by default one for each core but one, at most 16.
    """
    if workers or not benchmark.isolated:
        return workers
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(16, (cores or 1) - 1))


class Scorer:
    """See the module's docstring.

    Args:
      decode: token ids -> text.  Called from several threads at a time.
      config: its settings; `worker_count` gives the number of processes.
    Raises:
      ValueError: the benchmark cannot be scored in worker processes; the first one is started here.
      RuntimeError: the first worker process does not start.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        decode: Callable[[Sequence[int]], str],
        config: ScoringConfig = ScoringConfig(),
    ):
        self._benchmark, self._decode = benchmark, decode
        self._here = OpenEpisodes(benchmark)
        count = worker_count(benchmark, config.workers) if processes.is_writer() else 0
        limits = config.timeout, config.memory
        self._workers = [Worker(benchmark, *limits) for _ in range(count)]
        # Separate workers: an episode stays in its process, but any idle worker can score a text.
        stages = [Worker(benchmark, *limits) for _ in range(count)]
        self.episodes = Episodes(stages, self.ask)
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(max(1, len(self._workers)), "scoring")
        self._failures: collections.Counter[str] = collections.Counter()
        self._closed = False
        if count:
            with contextlib.suppress(OSError):  # directories of workers of killed runs
                remove_stale(pathlib.Path(tempfile.gettempdir()))
            self._workers[0].start()  # the benchmark's errors show here, before training
            line, complete = isolation.summary(self._workers[0].protections)
            (logging.info if complete else logging.warning)("%s", line)

    def __enter__(self) -> Scorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def batch(self) -> Batch:
        """A new batch, for the completions of one sampler call."""
        return Batch(functools.partial(self._threads.submit, self._answer))

    def close(self) -> None:
        """Stops threads and processes; unanswered questions are dropped."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.close()
        self.episodes.close()

    def _answer(self, completion: Completion, question: str, arguments: tuple) -> _Answered:
        text = self._decode(completion.content)
        completion = dataclasses.replace(completion, content=text)
        worker = self._idle.get() if self._workers else None
        try:
            return completion, self.ask(worker, question, (*arguments, text))
        finally:
            if worker:
                self._idle.put(worker)

    def ask(self, worker: Worker | None, question: str, arguments: tuple) -> requests.Outcome | None:
        """What a worker, or this process, answers; if there is no answer, the outcome that says so.

        None in processes that do not score.  Raises what `Worker.start` does.
        """
        if not processes.is_writer():
            return None
        try:
            if worker:
                return worker.ask(question, arguments)
            try:
                return requests.answer(self._benchmark, self._here, question, arguments)
            except Exception as error:  # it should not raise; one text must not end the run
                raise NoAnswer(requests.CRASH, traceback.format_exc().strip()) from error
        except NoAnswer as error:
            how, detail = error.how, error.detail
        self._failures[how] += 1
        if self._failures[how] <= _LOGGED and not self._closed:
            last = " (not said again)" if self._failures[how] == _LOGGED else ""
            logging.warning("%s_%s: %s%s", question, how, detail, last)
        return requests.failure(question, how, detail.splitlines()[-1][:500])


class Batch:
    """Completions of one sampler call, being scored.

    Every process of a run adds the same completions, in any order, and collects.
    """

    def __init__(self, submit: Callable[..., Future[_Answered]]):
        self._submit = submit
        self._futures: dict[Key, Future[_Answered]] = {}

    def add(self, completion: Completion, question: str, *arguments: Any) -> None:
        """Adds a finished completion, each once.

        question: one of `requests`.  arguments: the question's arguments before the text.
        """
        self._futures[completion.key] = self._submit(completion, question, arguments)

    def collect(self) -> list[tuple[Completion, requests.Outcome]]:
        """Waits for all completions; returns each as text, with its outcome, sorted by row and sample.

        Raises RuntimeError or ValueError if a worker process cannot be restarted.
        """
        answers = [future.result() for _, future in sorted(self._futures.items())]
        if processes.process_count() == 1:
            return answers
        completions, outcomes = zip(*answers, strict=True) if answers else ((), ())
        packed = requests.pack(outcomes) if processes.is_writer() else ""
        outcomes = requests.unpack(processes.agree("outcomes of scoring", packed))
        return list(zip(completions, outcomes, strict=True))
