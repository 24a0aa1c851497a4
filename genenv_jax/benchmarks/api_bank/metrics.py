"""API-Bank's metrics under the official evaluators' names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from genenv_jax.benchmarks.api_bank.executed import REJECTED_GOLD
from genenv_jax.benchmarks.api_bank.records import CALL, RESPONSE, SPLITS
from genenv_jax.benchmarks.api_bank.rules import TOOL_SEARCHER
from genenv_jax.benchmarks.base import Score, Task


def official_metrics(results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
    """Aggregates verdicts.

    Returns, for each split that was scored, in the order of `SPLITS`:
      <split>/accuracy    calls: matches over all calls ("Accuracy"); replies: share of successes.
      <split>/accuracy_executed   test calls, tool searches aside: share that the official execution accepts,
                          which is matches less those whose gold call it rejects (`executed`).  At level 1
                          it is over all calls, as the published "Accuracy" is.
      <split>/rouge_l     replies: mean ROUGE-L F1 (the official number for replies).
      <split>/accuracy_without_tool_search, <split>/accuracy_tool_search_words, <split>/tool_search_errors
                          levels 2 and 3: accuracy over the other calls; accuracy with the lenient rule for
                          keywords (`rules.WORDS`); number of wrong ToolSearcher calls ("ToolSearcher
                          Error Num").
      <split>/sample_accuracy   level 3: share of requirements of which no call is wrong ("Sample
                          Accuracy", over 50 where all are there).
    and calls/accuracy over the calls of all splits where there are several.  With one split the names
    have no prefix.  No result: {"accuracy": 0.0}.
    """
    by_split: dict[str, list[tuple[Task, Score]]] = defaultdict(list)
    for task, score in results:
        by_split[task.category].append((task, score))
    order = [name for name in SPLITS if name in by_split]
    metrics: dict[str, float] = {}
    for name in order:
        prefix = f"{name}/" if len(order) > 1 else ""
        for key, value in _split_metrics(by_split[name]).items():
            metrics[prefix + key] = value
    calls = [score for task, score in results if task.answer["kind"] == CALL]
    if sum(SPLITS[name].kind == CALL for name in order) > 1:
        metrics["calls/accuracy"] = _mean([score.success for score in calls])
    return metrics or {"accuracy": 0.0}


def _split_metrics(results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
    metrics = {"accuracy": _mean([score.success for _, score in results])}
    first = results[0][0]
    spec = first.answer
    if spec["kind"] == RESPONSE:
        metrics["rouge_l"] = _mean([score.detail.get("rouge_l", 0.0) for _, score in results])
        return metrics
    searches = [score for task, score in results if task.answer["name"] == TOOL_SEARCHER]
    others = [score for task, score in results if task.answer["name"] != TOOL_SEARCHER]
    if others and not SPLITS[first.category].training:
        metrics["accuracy_executed"] = _mean(
            [
                score.success and task.id not in REJECTED_GOLD
                for task, score in results
                if task.answer["name"] != TOOL_SEARCHER
            ]
        )
    if spec["level"] < 2:
        return metrics
    if others:
        metrics["accuracy_without_tool_search"] = _mean([score.success for score in others])
    lenient = [score.detail.get("tool_search_words", score.success) for _, score in results]
    metrics["accuracy_tool_search_words"] = _mean(lenient)
    metrics["tool_search_errors"] = float(sum(not score.success for score in searches))
    if spec["level"] == 3:
        right: dict[str, bool] = defaultdict(lambda: True)
        for task, score in results:
            right[task.answer["sample"]] &= score.success
        metrics["sample_accuracy"] = _mean(list(right.values()))
    return metrics


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
