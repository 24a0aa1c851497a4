"""Plays episodes while the devices sample: an answer goes in, the next conversation or the score comes out.

    episodes.advance((i, j), task, answers)     # runs in the episode's process
    states = episodes.collect()                 # {(i, j): messages or Score}

Each episode stays in one worker process while that process lives.  If the process is killed (a step that
takes too long, a crash), the episode whose step was running has failed.  The other episodes that it held
are replayed from their answers in the process that replaces it.
"""

from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor

from genenv_jax.benchmarks.base import Message, Score, Task
from genenv_jax.parallel import processes
from genenv_jax.sampling.sampler import Key
from genenv_jax.scoring import requests
from genenv_jax.scoring.worker import Worker

State = list[Message] | Score


class Episodes:
    """See the module's docstring.

    Args:
      workers: processes, each started when its first episode begins; if empty, a thread of this process
        plays, without time limits.
      ask: see `Scorer.ask`.
    """

    def __init__(self, workers: Sequence[Worker], ask: Callable[..., State | None]):
        self._workers, self._ask = workers, ask
        # One thread per process, so that a slow process delays only its own episodes.
        names = [f"episodes {i}" for i in range(max(1, len(workers)))]
        self._threads = [ThreadPoolExecutor(1, name) for name in names]
        self._futures: dict[Key, Future[State | None]] = {}

    def advance(self, key: Key, task: Task, answers: Sequence[str]) -> None:
        """Continues an episode.

        key: (task, sample) of an episode that is not being played.
        answers: all answers so far; if empty, the episode begins.
        """
        self._futures[key] = self._submit(key, requests.EPISODE, (key, task, tuple(answers)))

    def drop(self, key: Key) -> None:
        """Abandons an episode."""
        self._submit(key, requests.DROP, (key,))

    def collect(self) -> dict[Key, State]:
        """Waits for all episodes that are being played; returns their states, sorted by key.

        Every process of a run collects the same episodes and uses the first process's states.
        """
        return self._take(sorted(self._futures))

    def collect_some(self, wait: bool) -> dict[Key, State]:
        """Like `collect`, but only for episodes that are done; with `wait`, waits for at least one.

        With several processes it waits for all episodes, since they would not agree on which are done.
        """
        if processes.process_count() > 1:
            return self.collect()
        if wait:
            futures.wait(self._futures.values(), return_when=futures.FIRST_COMPLETED)
        return self._take(sorted(key for key, future in self._futures.items() if future.done()))

    def _take(self, keys: Sequence[Key]) -> dict[Key, State]:
        states = [self._futures.pop(key).result() for key in keys]
        if processes.process_count() > 1:
            packed = requests.pack(states) if processes.is_writer() else ""
            states = requests.unpack(processes.agree("episodes", packed))
        return dict(zip(keys, states, strict=True))

    def close(self) -> None:
        """Stops threads and processes."""
        for threads in self._threads:
            threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.close()

    def _submit(self, key: Key, question: str, arguments: tuple) -> Future[State | None]:
        place = hash(key) % len(self._threads)  # hash of integers: the same in every run
        worker = self._workers[place] if self._workers else None
        return self._threads[place].submit(self._ask, worker, question, arguments)
