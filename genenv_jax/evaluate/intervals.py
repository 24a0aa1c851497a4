"""Numbers of an evaluation and how sure they are."""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence

import numpy as np

from genenv_jax.benchmarks.base import Benchmark, Score, Task

Results = Sequence[tuple[Task, Sequence[Score]]]  # each task with the scores of its samples


def pass_at_k(samples: int, successes: int, k: int) -> float:
    """Unbiased estimate of the chance that one of k samples succeeds: 1 − C(n−c, k) / C(n, k).

    Chen et al. 2021 (arXiv 2107.03374), Eq. 1.

    Args:
      samples: n, how many were drawn.
      successes: c of them succeeded.
      k: at most n.
    """
    if not 0 <= successes <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} of {successes} in {samples}: expected c <= n and 1 <= k <= n")
    return 1.0 - math.comb(samples - successes, k) / math.comb(samples, k)


def evaluation_metrics(benchmark: Benchmark, results: Results) -> dict[str, float]:
    """The benchmark's metrics over all samples; the form of the answers; of several samples a task, pass@k.

    "valid_share" is the share of answers that could be read and judged, "invalid_<reason>" that of the
    others by reason: what is no matter of right or wrong.
    k = 2, 4, 8, ... up to the number of samples, and that number; pass@1 is the mean success.  The
    metrics are means over samples, so they estimate those of a single one.
    They are "all/pass@k" and so on where the benchmark's own metrics are "<split>/<metric>".
    """
    pairs = [(task, score) for task, scores in results for score in scores]
    metrics = benchmark.aggregate(pairs)
    # Over all tasks, also where the benchmark has several held-out splits.
    prefix = "all/" if any("/" in name for name in metrics) else ""
    if pairs:
        invalid = collections.Counter(score.reason for _, score in pairs if not score.valid)
        metrics[f"{prefix}valid_share"] = 1 - invalid.total() / len(pairs)
        for reason, count in invalid.items():
            metrics[f"{prefix}invalid_{reason}"] = count / len(pairs)
    samples = min((len(scores) for _, scores in results), default=0)
    if samples > 1:
        powers = {2**i for i in range(samples.bit_length())}
        for k in sorted(k for k in powers | {samples} if k <= samples):
            metrics[f"{prefix}pass@{k}"] = float(
                np.mean(
                    [
                        pass_at_k(len(scores), sum(score.success for score in scores), k)
                        for _, scores in results
                    ]
                )
            )
    return metrics


def bootstrap_intervals(
    benchmark: Benchmark,
    results: Results,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Percentile bootstrap intervals of `evaluation_metrics`.

    Tasks are drawn with replacement within their category, each with all of its samples: categories
    keep their sizes, and samples of one task are not taken for independent ones.  The intervals are
    about which tasks the benchmark happens to have; they say nothing of training seeds.

    Returns:
      (low, high) of each metric; of those alone that every resample has.
    """
    strata: dict[str, list[int]] = collections.defaultdict(list)
    for index, (task, _) in enumerate(results):
        strata[task.category].append(index)
    rng = np.random.default_rng(seed)
    drawn: dict[str, list[float]] = collections.defaultdict(list)
    for _ in range(resamples):
        rows = [rng.choice(indices, len(indices)) for indices in strata.values()]
        resample = [results[i] for i in np.concatenate(rows)] if rows else []
        for name, value in evaluation_metrics(benchmark, resample).items():
            drawn[name].append(value)
    tail = 50.0 * (1.0 - confidence)
    return {
        name: tuple(float(x) for x in np.percentile(values, (tail, 100.0 - tail)))
        for name, values in drawn.items()
        if len(values) == resamples
    }
