"""Checks of prompt lengths, made before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence

from ml_collections import ConfigDict

from genenv_jax.benchmarks.base import Benchmark, SeedStatistics, Task, is_interactive
from genenv_jax.models.language_model import LanguageModel


def check_prompts(
    config: ConfigDict,
    model: LanguageModel,
    benchmark: Benchmark,
    seeds: Sequence[Task],
    eval_tasks: Sequence[Task],
) -> None:
    """Refuses a prompt that is longer than its limit, or a limit that the model's positions lack.

    Episodes are left out: what they show is known when they are played, and one that outgrows the limit
    ends there.

    Raises ValueError naming the task, its length and the setting.
    """
    eval_tasks = [task for task in eval_tasks if not is_interactive(benchmark, task)]
    checks = [
        ("agent", [*seeds, *eval_tasks], benchmark.agent_messages),
        (
            "simulator",
            seeds,
            lambda seed: benchmark.simulator_messages(seed, SeedStatistics(100, 100)),
        ),
    ]
    for player, tasks, messages in checks:
        prompt, response = config.limits[f"{player}_prompt"], config.limits[f"{player}_response"]
        if prompt + response > model.config.max_positions:
            raise ValueError(
                f"config.limits.{player}_prompt + {player}_response = {prompt + response}: expected at "
                f"most the model's max_position_embeddings = {model.config.max_positions}"
            )
        for task in tasks:
            length = len(model.encode_messages(messages(task)))
            if length > prompt:
                raise ValueError(
                    f"the {player}'s prompt for task {task.id} has {length} tokens: expected at most "
                    f"config.limits.{player}_prompt = {prompt}"
                )
