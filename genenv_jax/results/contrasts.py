"""Differences between two arms over their common seeds: the main contrasts, and all others."""

import dataclasses
import itertools

import numpy as np

from genenv_jax.results import statistics
from genenv_jax.results.suites import Results


@dataclasses.dataclass(frozen=True)
class Contrast:
    """First arm minus second arm in one number of `run_scores`, over their common seeds.

    mean: of the differences; p: of `statistics.sign_flip_test`.
    interval, t_interval: 95 % intervals of the mean difference, bootstrap and Student's t; None for one seed.
    holm: p adjusted over the suite's contrasts; None for other contrasts.
    """

    first: str
    second: str
    name: str
    seeds: tuple[int, ...]
    differences: tuple[float, ...]
    mean: float
    p: float
    interval: np.ndarray | None
    t_interval: tuple[float, float] | None
    holm: float | None = None

    @property
    def wins(self) -> int:
        """Seeds on which the first arm is ahead."""
        return sum(d > 0 for d in self.differences)


def contrast(results: Results, first: str, second: str, name: str) -> Contrast | None:
    """Compares two arms; None if they have no seed in common."""
    a, b = results.score(first, name), results.score(second, name)
    seeds = tuple(seed for seed in a if seed in b)
    if not seeds:
        return None
    differences = [a[seed] - b[seed] for seed in seeds]
    return Contrast(
        first=first,
        second=second,
        name=name,
        seeds=seeds,
        differences=tuple(differences),
        mean=float(np.mean(differences)),
        p=statistics.sign_flip_test(differences),
        interval=statistics.bootstrap_interval(differences, resamples=results.suite.bootstrap),
        t_interval=statistics.t_interval(differences),
    )


def main_contrasts(results: Results) -> list[Contrast]:
    """The suite's contrasts in the primary number, the area under the curve, with Holm's correction.

    The correction counts every contrast of the suite.  A contrast whose arms share no seed yet counts with
    p = 1, so that an unfinished suite is not corrected less, and is left out of the list.
    """
    name = f"auc/{results.primary.key}"
    found = [contrast(results, *pair, name) for pair in results.suite.contrasts]
    adjusted = statistics.holm([c.p if c else 1.0 for c in found])
    return [dataclasses.replace(c, holm=p) for c, p in zip(found, adjusted, strict=True) if c]


def secondary_contrasts(results: Results) -> list[Contrast]:
    """The main contrasts in all other held-out numbers and against the other cost; not corrected."""
    keys = [metric.key for metric in results.accuracies]
    costs = [name for name in results.names if name.startswith("auc over ")]
    names = [f"auc/{key}" for key in keys[1:]] + [f"final/{key}" for key in keys] + costs
    found = [contrast(results, *pair, n) for pair in results.suite.contrasts for n in names]
    return [c for c in found if c]


def exploratory_contrasts(results: Results) -> list[Contrast]:
    """All pairs of arms that are not main contrasts, in AUC, without correction."""
    main = {frozenset(pair) for pair in results.suite.contrasts}
    pairs = [p for p in itertools.combinations(results.runs, 2) if frozenset(p) not in main]
    found = [contrast(results, *pair, f"auc/{results.primary.key}") for pair in pairs]
    return [c for c in found if c]
