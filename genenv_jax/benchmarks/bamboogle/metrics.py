"""Bamboogle's metrics."""

from __future__ import annotations

from collections.abc import Sequence

from genenv_jax.benchmarks.base import Score, Task

_MEASURES = ("em", "f1", "sub_em", "precision", "recall")


def official_metrics(results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
    """Means over all results; {"accuracy": 0.0} where there are none.

    Returns:
      accuracy                          share of successes (the headline; exact match by default);
      em, f1, sub_em, precision, recall see `answers.Measures`; an answer that was not read counts 0;
      searches, found                   with a search tool: searches made and sub-questions found, a
                                        question;
      judge, judge_failures             with a judge: share that it calls correct, of those that it
                                        judged; share of verdicts that could not be had.
    """
    if not results:
        return {"accuracy": 0.0}
    scores = [score for _, score in results]
    metrics = {"accuracy": sum(score.success for score in scores) / len(scores)}
    for name in _MEASURES:
        metrics[name] = sum(score.detail.get(name, 0.0) for score in scores) / len(scores)
    for name in ("searches", "found"):
        values = [score.detail[name] for score in scores if name in score.detail]
        if values:
            metrics[name] = sum(values) / len(values)
    verdicts = [score.detail["judge"] for score in scores if "judge" in score.detail]
    if verdicts:
        judged = [verdict for verdict in verdicts if verdict is not None]
        if judged:
            metrics["judge"] = sum(judged) / len(judged)
        metrics["judge_failures"] = 1 - len(judged) / len(verdicts)
    return metrics
