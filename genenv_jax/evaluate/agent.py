"""Scores a model's answers to held-out tasks, and writes the files of the evaluation."""

import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.config import Config
from genenv_jax.evaluate.held_out import beside, evaluate, metric_name, warm_up
from genenv_jax.evaluate.intervals import RESAMPLES, intervals, share_sizes
from genenv_jax.evaluate.official import write_official
from genenv_jax.parallel import processes
from genenv_jax.players.policy import Policy
from genenv_jax.publish.provenance import made_with
from genenv_jax.results.pages import write_evaluation_page
from genenv_jax.run.jsonl import write_json, write_jsonl
from genenv_jax.run.progress import Progress
from genenv_jax.scoring.attempts import Attempt, ChatModel
from genenv_jax.scoring.scorer import Scorer

_CUT = 0.1  # share of cut-off answers at which a warning is printed
Attempts = Mapping[str, Sequence[Sequence[Attempt]]]  # by mode and task


def evaluate_agent(
    config: Config,
    benchmark: Benchmark,
    tasks: Sequence[Task],
    chat_models: Mapping[str, ChatModel],
    model: str,
    progress: Progress,
    out: pathlib.Path,
) -> dict[str, dict[str, float]]:
    """Lets the chat model of each mode answer the tasks, scores the answers, and writes the files.

    Args:
      model: its name, for the results.
    Returns:
      the metrics by name: "value"; "low" and "high" if there is an interval; and for a share "tasks", the
      number of tasks it covers.  {} on all processes but the first.
    """
    begin, modes = time.monotonic(), config.evaluation.modes()
    metrics: dict[str, float] = {}
    attempts: dict[str, list[list[Attempt]]] = {}
    policies = [a for a in chat_models.values() if isinstance(a, Policy)]
    if policies:
        steps = warm_up(policies, benchmark, tasks, lambda: policies[0].params)
        with progress.phase("compile", len(steps), "parts") as display:
            for step in steps:
                step()
                display.advance()
    for mode, chat_model in chat_models.items():
        total = len(tasks) * modes[mode][0]
        with (
            Scorer(benchmark, chat_model.text, config.scoring) as scorer,
            progress.phase(f"evaluate ({mode})", total, "answers") as display,
        ):
            found, attempts[mode] = evaluate(benchmark, tasks, chat_model, scorer, display.advance)
        metrics |= {metric_name(mode, name): value for name, value in found.items()}
    if not processes.is_writer():
        return {}
    limits = config.limits
    reached = f"config.limits.agent_response = {limits.agent_response} tokens"
    if warning := cut_off(attempts, reached):
        progress.line(warning)
        if limits.agent_episode:
            progress.line(f"or, in episodes, at config.limits.agent_episode = {limits.agent_episode}")
    chat_model = next(iter(chat_models.values()))
    about = {
        "benchmark": benchmark.name,
        "model": model,
        "tasks": str(len(tasks)),
        **{
            f"{mode} answers a task": f"{samples}" + (f" at temperature {heat:g}" if heat else "")
            for mode, (samples, heat) in modes.items()
        },
        "minutes": f"{(time.monotonic() - begin) / 60:.1f}",
        **benchmark.about(),
        **made_with(config, jax.devices() if policies else ()),
    }
    return _write(benchmark, attempts, metrics, about, config.seed, out, chat_model)


def _write(
    benchmark: Benchmark,
    attempts: Attempts,
    metrics: Mapping[str, float],
    about: Mapping[str, str],
    seed: int,
    out: pathlib.Path,
    chat_model: ChatModel,
) -> dict[str, dict[str, float]]:
    """Writes the files listed in `genenv_jax.evaluate`, with intervals, and returns the metrics.

    chat_model: knows the lengths of prompts.
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
            {"mode": mode} | a.record() | asked
            for mode, made in attempts.items()
            for of in made
            for asked in [_asked(benchmark, of[0].task, chat_model)]
            for a in of
        ),
    )
    write_jsonl(
        out / "verdicts.jsonl",
        ({"mode": mode} | _verdict(of) for mode, made in attempts.items() for of in made),
    )
    write_json(out / "metrics.json", dict(metrics), sort_keys=True)
    results = {
        "about": dict(about),
        "metrics": found,
        "intervals": f"95 % bootstrap over tasks, {RESAMPLES:,} resamples; Wilson's where all agree",
    }
    write_json(out / "results.json", results)  # the main split first
    write_evaluation_page(out)
    for mode, made in attempts.items():
        write_official(benchmark, made, out / "official" / mode)
    return found


def _asked(benchmark: Benchmark, task: Task, chat_model: ChatModel) -> dict[str, Any]:
    """The fields of the task itself in its lines of predictions.jsonl."""
    messages = benchmark.agent_messages(task)
    more = {"prompt": [dict(message) for message in messages], "prompt_tokens": chat_model.tokens(messages)}
    return beside(benchmark, task) | more


def _verdict(attempts: Sequence[Attempt]) -> dict[str, object]:
    """A task's line in verdicts.jsonl: samples, successes, mean reward."""
    task, scores = attempts[0].task, [a.score for a in attempts]
    return {
        "task_id": task.id,
        "category": task.category,
        "samples": len(scores),
        "successes": sum(score.success for score in scores),
        "reward_mean": sum(score.reward for score in scores) / len(scores),
    }


def cut_off(attempts: Attempts, limits: str) -> str:
    """A warning if many answers were cut off, else ""; attempts: by mode and task."""
    ended = [a.ended for made in attempts.values() for of in made for a in of]
    cut = len(ended) - sum(ended)
    if not ended or cut < _CUT * len(ended):
        return ""
    return f"{cut:,} of {len(ended):,} answers were cut off at {limits}"
