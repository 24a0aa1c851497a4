"""Scores a model on a benchmark's held-out tasks.

    python -m genenv_jax.evaluate --config=configs/quickstart.py --model=runs/quickstart/agent \\
        --workdir=runs/quickstart-eval

writes predictions.jsonl (every answer and its verdict) and metrics.json, and prints the metrics.
Without --model it scores what the configuration's players start from.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
from absl import flags
from ml_collections import ConfigDict, config_flags

from genenv_jax import cli
from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.config import prompt_buckets, validate
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.parallel import processes
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine, OnFinished, ignore
from genenv_jax.scoring.questions import FAILED_SCORES, SCORE
from genenv_jax.scoring.scorer import Scorer
from genenv_jax.typing import Params, PRNGKey
from genenv_jax.workdir import compare_data, compare_settings


def evaluation_engines(
    config: ConfigDict, model: LanguageModel, put: Callable[[Any], Any] = lambda x: x
) -> dict[str, Engine]:
    """The samplers that the configuration asks for: "sampled" (temperature 1) and "greedy"."""
    wanted = {
        "sampled": (config.evaluation.sampled, 1.0),
        "greedy": (int(config.evaluation.greedy), 0.0),
    }
    buckets = prompt_buckets(config, config.limits.agent_prompt)
    engines = {}
    for mode, (samples, temperature) in wanted.items():
        if samples:
            options = SamplingParams(
                config.limits.agent_response, samples, model.eos_ids, temperature=temperature
            )
            at_once = config.sampling.batch_size or config.evaluation.batch_size
            lanes = config.sampling.lanes
            engines[mode] = Engine(model.config, options, at_once, buckets, put, lanes)
    return engines


def evaluate(
    benchmark: Benchmark,
    model: LanguageModel,
    params: Params,
    tasks: Sequence[Task],
    engine: Engine,
    key: PRNGKey,
    scorer: Scorer,
    on_finished: OnFinished = ignore,
    waiting: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Answers every task `engine.options.group_size` times and scores the answers.

    Args:
      scorer: scores while the engine samples.
      on_finished: see `Engine`.
      waiting: makes a context in which the last scores are waited for.
    Returns:
      the benchmark's metrics over all answers, and one record an answer: task id, category, sample
      number, answer text and verdict.  An answer that the token limit cut off is scored as it stands.
      Among the metrics: how many answers could not be scored, by reason, where there were any.
    """
    prompts = [model.encode_messages(benchmark.agent_messages(task)) for task in tasks]
    scores = scorer.batch()

    def finished(i: int, j: int, tokens: list[int], done: bool) -> None:
        scores.add((i, j), tokens, SCORE, tasks[i])
        on_finished(i, j, tokens, done)

    rollouts = engine(params, prompts, key, on_finished=finished)
    with waiting():
        scored = scores.collect()
    results, records = [], []
    for (i, j), (answer, score) in scored.items():
        results.append((tasks[i], score))
        records.append(
            {
                "task_id": tasks[i].id,
                "category": tasks[i].category,
                "sample": j,
                "answer": answer,
                "ended": bool(rollouts.done[i, j]),
                "reward": score.reward,
                "success": score.success,
                "valid": score.valid,
                "reason": score.reason,
            }
        )
    failed = collections.Counter(
        score.reason for _, score in results if score.reason in FAILED_SCORES
    )
    return benchmark.aggregate(results) | dict(failed), records


def metric_name(mode: str, name: str) -> str:
    """The metric "eval/<split>/<mode>/<metric>" of a benchmark's "<split>/<metric>".

    The split is "test" where the benchmark names none.
    """
    split, _, metric = name.rpartition("/")
    return f"eval/{split or 'test'}/{mode}/{metric}"


def run(config: ConfigDict, model_path: str, workdir: str) -> dict[str, float]:
    """Evaluates a model directory or hub id; returns the metrics, which the first process writes."""
    from genenv_jax.players import building
    from genenv_jax.players.prompts import check_prompts

    validate(config)
    compare_settings(config)
    benchmark = building.make_benchmark(config)
    compare_data(benchmark)
    if model_path:
        config.model.path, config.model.make.vocab_size = model_path, 0
    host = building.open_model(config, benchmark)
    model = host.model
    tasks = building.evaluation_tasks(config, benchmark)
    check_prompts(config, model, benchmark, (), tasks)
    out, writer = pathlib.Path(workdir), processes.is_writer()
    if writer:
        out.mkdir(parents=True, exist_ok=True)
    predictions = out / "predictions.jsonl" if writer else os.devnull
    metrics: dict[str, float] = {}
    scorer = Scorer(benchmark, model.decode, **config.scoring.to_dict())
    with scorer, host.activate(), open(predictions, "w") as file:
        params = host.load_params(config.model.dtype)
        for mode, engine in evaluation_engines(config, model, host.put).items():
            key = jax.random.key(config.seed)
            scores, records = evaluate(benchmark, model, params, tasks, engine, key, scorer)
            metrics |= {metric_name(mode, name): value for name, value in scores.items()}
            file.writelines(json.dumps({"mode": mode} | record) + "\n" for record in records)
    if writer:
        (out / "metrics.json").write_text(json.dumps(metrics, indent=2, sort_keys=True) + "\n")
    return metrics


def main() -> None:
    """The command; see the module's docstring."""
    with cli.one_line_errors():
        metrics = run(CONFIG.value, flags.FLAGS.model, flags.FLAGS.workdir)
    for name, value in sorted(metrics.items()) if processes.is_writer() else ():
        print(f"{name:48} {value:.4f}")


if __name__ == "__main__":
    CONFIG = config_flags.DEFINE_config_file("config", None, "Configuration file.")
    flags.DEFINE_string("model", "", "Model directory or hub id; empty: the configuration's own.")
    flags.DEFINE_string("workdir", None, "Directory of the results.")
    cli.define_process_flags()
    flags.mark_flags_as_required(["config", "workdir"])
    cli.run(main)
