"""Evaluates a model as an untrained simulator: how much of its output is valid, and why the rest is not."""

import functools
import pathlib
from collections.abc import Sequence

from genenv_jax.benchmarks.base import Benchmark, SeedStatistics, Task
from genenv_jax.config import Config
from genenv_jax.parallel import processes
from genenv_jax.players.lengths import check_length
from genenv_jax.players.policy import Policy
from genenv_jax.run.jsonl import write_json, write_jsonl
from genenv_jax.run.progress import Progress
from genenv_jax.run.streams import Stream, rng
from genenv_jax.scoring.attempts import ChatModel
from genenv_jax.scoring.scorer import Scorer
from genenv_jax.scoring.verification import Verifier
from genenv_jax.tasks.difficulties import AskedDifficulties
from genenv_jax.tasks.metrics import generation_metrics
from genenv_jax.tasks.simulated import asked_rates, write_tasks


def evaluate_simulator(
    config: Config,
    benchmark: Benchmark,
    seeds: Sequence[Task],
    chat_model: ChatModel,
    progress: Progress,
    out: pathlib.Path,
) -> dict[str, dict[str, float]]:
    """Lets `chat_model` vary each seed as in a run's first epoch, and verifies what it writes.

    Writes tasks.jsonl and metrics.json into `out`.

    Returns:
      "generated/..." to {"value": ...}, as in a run's metrics.jsonl; {} on all processes but the first.
    """
    fits = lambda task: None  # noqa: E731  # a server enforces its own limit
    if isinstance(chat_model, Policy):
        fits = functools.partial(check_length, chat_model.model, config.limits.agent_prompt, benchmark)
    verifier = Verifier(
        benchmark, benchmark.tasks("seed"), benchmark.tasks("eval"), config.verification, fits
    )
    draws = rng(config.seed, Stream.ASKED, 0)
    if config.simulator.asks:
        asked = asked_rates(config.curriculum.alpha, len(seeds), config.simulator.random_rates, draws)
    else:
        difficulties = AskedDifficulties(benchmark, config.curriculum, config.simulator)
        asked = [difficulties.of(seed, draws) or SeedStatistics() for seed in seeds]
    total = len(seeds) * chat_model.samples
    with (
        Scorer(benchmark, chat_model.text, config.scoring) as scorer,
        progress.phase("generate", total, "tasks") as display,
    ):
        batch = write_tasks(
            benchmark,
            seeds,
            asked,
            chat_model.answer,
            scorer,
            verifier,
            config.verification.admit,
            0,
            display.advance,
        )
    if not processes.is_writer():
        return {}
    curriculum = config.curriculum
    metrics = generation_metrics(batch.generations, benchmark, curriculum.alpha, curriculum.k_min)
    metrics = {name: float(value) for name, value in metrics.items()}
    write_jsonl(out / "tasks.jsonl", (g.record(1, benchmark) for g in batch.generations))
    write_json(out / "metrics.json", metrics, sort_keys=True)
    return {name: {"value": value} for name, value in metrics.items()}
