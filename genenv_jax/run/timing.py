"""Where an epoch's time goes, and how many programs it compiles."""

import collections
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from genenv_jax.sampling.sampler import Sampler


class Stopwatch:
    """Seconds by name, which add up to the seconds since the last `lap`.

    A nested measurement counts only for the inner name.  clock: seconds from any origin, never decreasing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._began = clock()
        self._inside = [0.0]  # seconds of finished measurements, by nesting level

    @contextlib.contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Adds the seconds of the block to `name`."""
        began = self._clock()
        self._inside.append(0.0)
        try:
            yield
        finally:
            elapsed = self._clock() - began
            own = elapsed - self._inside.pop()
            self._inside[-1] += elapsed
            self._seconds[name] = self._seconds.get(name, 0.0) + own

    def lap(self, rest: str) -> dict[str, float]:
        """Seconds by name since the last lap, with unmeasured time as `rest`, and "total"."""
        now = self._clock()
        total, seconds = now - self._began, self._seconds
        seconds[rest] = total - sum(seconds.values())
        self._seconds, self._began, self._inside = {}, now, [0.0]
        return seconds | {"total": total}


class Compilations:
    """Counts the programs that JAX compiles between construction and `close`.

    Attributes:
      seconds: spent on compiling so far.
    """

    def __init__(self):
        self._counts: collections.Counter[str] = collections.Counter()
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._timed)
        jax.monitoring.register_event_listener(self._happened)

    def lap(self) -> tuple[int, int]:
        """(compiled, loaded) since the last lap: programs compiled here, or found in the persistent cache."""
        counts, self._counts = self._counts, collections.Counter()
        return counts["wanted"] - counts["loaded"], counts["loaded"]

    def close(self) -> None:
        """Stops counting."""
        jax.monitoring.unregister_event_duration_listener(self._timed)
        jax.monitoring.unregister_event_listener(self._happened)

    def _timed(self, event: str, seconds: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":  # also on a cache hit
            self._counts["wanted"] += 1
            self.seconds += seconds

    def _happened(self, event: str, **_: Any) -> None:
        if event == "/jax/compilation_cache/cache_hits":
            self._counts["loaded"] += 1


class RunClock(contextlib.AbstractContextManager):
    """Where a run's time goes, by epoch: phases, compilations and samplers.

    Args:
      samplers: their prefill and decoding seconds are added up.
      rollouts: rollouts so far.
    """

    def __init__(self, samplers: Sequence[Sampler] = (), rollouts: int = 0):
        self._samplers, self._rollouts = samplers, rollouts
        self._watch, self._compilations = Stopwatch(), Compilations()
        self._sampled = self._sampling()

    def measure(self, name: str) -> contextlib.AbstractContextManager[None]:
        """See `Stopwatch.measure`."""
        return self._watch.measure(name)

    def compiling(self) -> float:
        """Seconds spent on compiling so far."""
        return self._compilations.seconds

    def lap(self, rollouts: int) -> dict[str, float]:
        """The timing metrics since the last lap.

        "seconds/host" is the time that no other name accounts for.  "host_share" also includes checkpoints
        and waiting for verification and scores: the share of time in which the devices are idle.

        rollouts: rollouts so far.
        """
        seconds = self._watch.lap(rest="host")
        timing = {f"seconds/{name}": value for name, value in seconds.items()}
        idle = sum(seconds.get(name, 0.0) for name in ("verify", "score", "checkpoint", "host"))
        timing["host_share"] = idle / seconds["total"]
        if seconds.get("interact"):
            made = rollouts - self._rollouts
            timing["rollouts_per_second"] = made / (seconds["interact"] + seconds["score"])
        compiled, loaded = self._compilations.lap()
        timing |= {"programs/compiled": compiled, "programs/loaded": loaded}
        sampled = self._sampling()
        timing |= {f"sampling/{n}": s - self._sampled.get(n, 0.0) for n, s in sampled.items()}
        self._rollouts, self._sampled = rollouts, sampled
        return timing

    def __exit__(self, *_: object) -> None:
        self._compilations.close()

    def _sampling(self) -> dict[str, float]:
        total: collections.Counter[str] = collections.Counter()
        for sampler in self._samplers:
            total.update(sampler.seconds)
        return dict(total)
