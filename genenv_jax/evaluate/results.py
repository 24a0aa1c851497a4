"""Writes the files of an evaluation."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.benchmarks.shown import reference_text, request_text
from genenv_jax.evaluate.held_out import metric_name
from genenv_jax.evaluate.intervals import RESAMPLES, intervals, share_sizes
from genenv_jax.results.evaluation_page import write_evaluation_page
from genenv_jax.run.jsonl import write_json, write_jsonl
from genenv_jax.scoring.attempts import Attempt

Attempts = Mapping[str, Sequence[Sequence[Attempt]]]  # by mode and task


def write_results(
    benchmark: Benchmark,
    attempts: Attempts,
    metrics: Mapping[str, float],
    about: Mapping[str, str],
    seed: int,
    out: pathlib.Path,
    prompt_tokens: Mapping[str, int | None],
) -> dict[str, dict[str, float]]:
    """Writes the files listed in `genenv_jax.evaluate`, with intervals.

    Args:
      prompt_tokens: task id to the length of its prompt; None if it is unknown.
    Returns:
      the metrics by name: "value"; "low" and "high" if there is an interval; and for a share "tasks", the
      number of tasks it covers.
    """
    found: dict[str, dict[str, float]] = {name: {"value": value} for name, value in metrics.items()}
    for mode, made in attempts.items():
        sizes = share_sizes(benchmark, made)
        bounds = intervals(benchmark, made, sizes, seed=seed)
        for name in sizes | bounds:
            if (full := metric_name(mode, name)) not in found:
                continue
            if name in sizes:
                found[full]["tasks"] = sizes[name]
            if name in bounds:
                found[full]["low"], found[full]["high"] = bounds[name]
    write_jsonl(
        out / "predictions.jsonl",
        (
            {"mode": mode} | a.record() | beside
            for mode, made in attempts.items()
            for of in made
            for beside in [_beside(benchmark, of[0].task, prompt_tokens)]
            for a in of
        ),
    )
    write_jsonl(
        out / "verdicts.jsonl",
        ({"mode": mode} | verdict(of) for mode, made in attempts.items() for of in made),
    )
    write_json(out / "metrics.json", dict(metrics), sort_keys=True)
    results = {
        "about": dict(about),
        "metrics": found,
        "intervals": f"95 % bootstrap over tasks, {RESAMPLES} resamples; Wilson's where these agree",
    }
    write_json(out / "results.json", results, sort_keys=True)
    write_evaluation_page(out)
    return found


def _beside(
    benchmark: Benchmark, task: Task, prompt_tokens: Mapping[str, int | None]
) -> dict[str, Any]:
    """The fields of the task itself in its lines of predictions.jsonl."""
    return {
        "request": request_text(benchmark, task),
        "reference": reference_text(benchmark, task),
        "prompt": [dict(message) for message in benchmark.agent_messages(task)],
        "prompt_tokens": prompt_tokens.get(task.id),
    }


def verdict(attempts: Sequence[Attempt]) -> dict[str, object]:
    """A task's line in verdicts.jsonl: samples, successes, mean reward."""
    task, scores = attempts[0].task, [a.score for a in attempts]
    return {
        "task_id": task.id,
        "category": task.category,
        "samples": len(scores),
        "successes": sum(score.success for score in scores),
        "reward_mean": sum(score.reward for score in scores) / len(scores),
    }
