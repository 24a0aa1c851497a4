"""Success rates of skills, pooled over tasks and epochs.

A task of ten attempts has a standard error of up to .16; a skill is needed by many tasks.  Each skill has a
Beta posterior whose counts lose a share every epoch, since the agent changes (MoPPS, arXiv 2507.04632).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from genenv_jax.benchmarks.base import Benchmark, Task, skills

_KEPT = 0.5  # share of the counts that an epoch keeps
_PRIOR = 1.0  # successes and failures before any attempt: uniform


class SkillRates:
    """See the module's docstring.

    Args:
      benchmark: says which skills a task needs.
    """

    def __init__(self, benchmark: Benchmark):
        self._benchmark = benchmark
        self._counts: dict[str, tuple[float, float]] = {}  # attempts, successes

    def record(self, outcomes: Iterable[tuple[Task, int, int]], changed: bool = True) -> None:
        """Records (task, attempts, successes), after a loss of older counts if the agent has `changed`."""
        kept = _KEPT if changed else 1.0
        self._counts = {name: (kept * n, kept * k) for name, (n, k) in self._counts.items()}
        for task, attempts, successes in outcomes:
            for name in skills(self._benchmark, task):
                n, k = self._counts.get(name, (0.0, 0.0))
                self._counts[name] = n + attempts, k + successes

    def of(self, task: Task) -> np.ndarray:
        """The posterior means of the task's skills, at least one number."""
        counts = [self._counts.get(name, (0.0, 0.0)) for name in skills(self._benchmark, task)]
        return np.array([(k + _PRIOR) / (n + 2 * _PRIOR) for n, k in counts or [(0.0, 0.0)]])

    def state(self) -> dict[str, list[float]]:
        """The state to checkpoint, as plain JSON."""
        return {name: list(counts) for name, counts in sorted(self._counts.items())}

    def restore(self, state: Mapping[str, Sequence[float]], tasks: Iterable[Task] = ()) -> None:
        """Inverse of `state`."""
        self._counts = {name: (n, k) for name, (n, k) in state.items()}
