"""ALFWorld's numbers: success rate over a split, and by type of task.

Source: alfworld/agents/environment/alfred_tw_env.py (success is `won`), and the splits of
configs/base_config.yaml: valid_seen is eval_in_distribution, valid_unseen eval_out_of_distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from genenv_jax.benchmarks.alfworld.games import EVAL_SPLITS, TASK_TYPES
from genenv_jax.benchmarks.base import Score, Task

OTHER = "generated"


def aggregate(results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
    """Metrics of any multiset of results.

    Returns: for each split, valid_unseen first,
      <split>/accuracy            the headline: share of successes, of all answers or episodes of the split;
      <split>/success_rate        the same, where games were played in episodes;
      <split>/step_accuracy       the same, where expert steps were asked for one by one;
      <split>/<type of task>      the same of one type;
      <split>/mean_over_types     mean of those of the types that are there;
      <split>/steps               mean number of steps of the games that were won;
      <split>/inadmissible        share of commands that were not possible.
    {"accuracy": 0.0} where there are no results.
    """
    by_split: dict[str, list[tuple[Task, Score]]] = {}
    for task, score in results:
        by_split.setdefault(_field(task, "split") or OTHER, []).append((task, score))
    metrics: dict[str, float] = {}
    ordered = [split for split in EVAL_SPLITS if split in by_split]
    ordered += sorted(set(by_split) - set(ordered))
    for split in ordered:
        metrics[f"{split}/accuracy"] = _success(by_split[split])
    for split in ordered:
        metrics |= {f"{split}/{name}": value for name, value in _details(by_split[split]).items()}
    return metrics or {"accuracy": 0.0}


def _details(results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
    played = [(t, s) for t, s in results if _field(t, "kind") == "episode"]
    asked = [(t, s) for t, s in results if _field(t, "kind") == "step"]
    found = {}
    if played:
        found["success_rate"] = _success(played)
    if asked:
        found["step_accuracy"] = _success(asked)
    types = {}
    for name in TASK_TYPES:
        part = [(t, s) for t, s in results if t.category == name]
        if part:
            types[name] = _success(part)
    found |= types
    if types:
        found["mean_over_types"] = _mean(list(types.values()))
    steps = [s.detail["steps"] for _, s in played if s.success and "steps" in s.detail]
    if steps:
        found["steps"] = _mean(steps)
    tried = sum(s.detail.get("steps", 0) for _, s in results)
    if tried:
        found["inadmissible"] = sum(s.detail.get("inadmissible", 0) for _, s in results) / tried
    return found


def _field(task: Task, name: str) -> str:
    return str(task.answer.get(name, "")) if isinstance(task.answer, Mapping) else ""


def _success(results: Sequence[tuple[Task, Score]]) -> float:
    return _mean([float(score.success) for _, score in results])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
