"""An evaluation's metrics and their confidence intervals."""

import collections
import dataclasses
import math
import statistics
from collections.abc import Sequence

import numpy as np

from genenv_jax.benchmarks.base import Benchmark
from genenv_jax.scoring.attempts import Attempt

RESAMPLES = 1000  # per bootstrap
Attempts = Sequence[Sequence[Attempt]]  # all attempts, by task


def pass_at_k(samples: int, successes: int, k: int) -> float:
    """Unbiased estimate of the chance that one of k samples succeeds: 1 − C(n−c, k) / C(n, k).

    Chen et al. 2021 (arXiv 2107.03374), Eq. 1.  n are the samples, at least k, and c the successes.
    """
    return 1.0 - math.comb(samples - successes, k) / math.comb(samples, k)


def evaluation_metrics(benchmark: Benchmark, attempts: Attempts) -> dict[str, float]:
    """The benchmark's metrics over all samples, validity of the answers, and pass@k.

    "valid_share": share of answers that could be read and judged.  "invalid_<reason>": share of the others,
    by reason; they are neither right nor wrong.  "truncated_share": share cut off by the token limit.
    pass@k needs several samples per task: k = 1 (the mean success), 2, 4, 8, ... up to the number of samples,
    and that number.  The metrics are means over samples, so they estimate those of a single sample.
    Names are "all/pass@k" and so on if the benchmark's own are "<split>/<metric>".
    """
    answers = [a for of in attempts for a in of]
    metrics = benchmark.aggregate([(a.task, a.score) for a in answers])
    # Over all tasks, even if the benchmark has several held-out splits.
    prefix = "all/" if any("/" in name for name in metrics) else ""
    if answers:
        invalid = collections.Counter(a.score.reason for a in answers if not a.score.valid)
        metrics[f"{prefix}valid_share"] = 1 - invalid.total() / len(answers)
        for reason, count in invalid.items():
            metrics[f"{prefix}invalid_{reason}"] = count / len(answers)
        metrics[f"{prefix}truncated_share"] = sum(not a.ended for a in answers) / len(answers)
    samples = min((len(of) for of in attempts), default=0)
    if samples > 1:
        powers = {2**i for i in range(samples.bit_length())}
        for k in sorted(k for k in powers | {samples} if k <= samples):
            metrics[f"{prefix}pass@{k}"] = float(
                np.mean([pass_at_k(len(of), sum(a.score.success for a in of), k) for of in attempts])
            )
    return metrics


def share_sizes(benchmark: Benchmark, attempts: Attempts) -> dict[str, int]:
    """The number of tasks behind each metric that is a share: of successes, valid or cut-off answers.

    A benchmark's own metric is a share if it is 0 when all tasks fail and 1 when all succeed.  It covers the
    tasks whose success moves it, tested on each task together with one task of every category.  An accuracy
    that no task moves covers all.
    """
    sizes: collections.Counter[str] = collections.Counter()
    anchors = list({of[0].task.category: of[0] for of in attempts}.values())

    def metrics(failed: Sequence[Attempt], right: Sequence[Attempt]) -> dict[str, float]:
        told = [(a, False) for a in failed] + [(a, True) for a in right]
        return benchmark.aggregate(
            [(a.task, dataclasses.replace(a.score, reward=float(won), success=won)) for a, won in told]
        )

    for first, *_ in attempts:
        none, one = metrics([*anchors, first], []), metrics(anchors, [first])
        every = metrics([], [*anchors, first])
        sizes.update(n for n in none if none[n] == 0 and one[n] > 0 and math.isclose(every[n], 1))
    own = benchmark.aggregate([(a.task, a.score) for of in attempts for a in of])
    for name in evaluation_metrics(benchmark, attempts):
        if name not in own or (name.rpartition("/")[2] == "accuracy" and not sizes[name]):
            sizes[name] = len(attempts)
    return +sizes


def wilson_interval(share: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share of `n` independent trials (JASA 22, 1927).

    Its width is never 0: with no success in n trials, its upper end is z² / (n + z²).
    """
    z = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    middle, scale = share + z * z / (2 * n), 1 + z * z / n
    half = z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    return max((middle - half) / scale, 0.0), min((middle + half) / scale, 1.0)


def intervals(
    benchmark: Benchmark,
    attempts: Attempts,
    sizes: dict[str, int],
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Percentile bootstrap intervals of `evaluation_metrics`, or Wilson's where these have no width.

    Tasks are drawn with replacement within their category, each with all of its samples, so categories
    keep their sizes and samples of one task are not treated as independent.  Categories with a single task
    are pooled, since nothing varies within them.  The intervals cover the benchmark's choice of tasks, not
    the training seed.

    A bootstrap fails if all resamples agree, as when all verdicts do, or if some lack the metric.  A share
    then gets the `wilson_interval` over its tasks, any other metric none.

    sizes: see `share_sizes`.  Returns (low, high) of each metric that has an interval.
    """
    strata: dict[str, list[int]] = collections.defaultdict(list)
    for index, (first, *_) in enumerate(attempts):
        strata[first.task.category].append(index)
    alone = [i for of in strata.values() if len(of) == 1 for i in of]
    groups = [of for of in strata.values() if len(of) > 1] + ([alone] if alone else [])
    rng = np.random.default_rng(seed)
    drawn: dict[str, list[float]] = collections.defaultdict(list)
    for _ in range(resamples):
        rows = [rng.choice(indices, len(indices)) for indices in groups]
        resample = [attempts[i] for i in np.concatenate(rows)] if rows else []
        for name, value in evaluation_metrics(benchmark, resample).items():
            drawn[name].append(value)
    tail = 50.0 * (1.0 - confidence)
    found = {}
    for name, value in evaluation_metrics(benchmark, attempts).items():
        if len(drawn[name]) == resamples:
            low, high = (float(x) for x in np.percentile(drawn[name], (tail, 100.0 - tail)))
            if not math.isclose(low, high, abs_tol=1e-12):
                found[name] = low, high
                continue
        if name in sizes:
            found[name] = wilson_interval(min(max(value, 0.0), 1.0), sizes[name], confidence)
    return found
