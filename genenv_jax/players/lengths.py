"""Lengths of prompts and completions: their limits, and checks that are made before anything is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from genenv_jax.benchmarks.base import TOO_LONG, Benchmark, Rejection, SeedStatistics, Task
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.settings import Settings, within


@dataclasses.dataclass(frozen=True)
class LimitsConfig(Settings):
    """`config.limits`: longest prompts and completions of both players, in tokens.

    Attributes:
      agent_prompt: of the agent's prompts.
      agent_response: of one answer of the agent.
      agent_episode: of an episode's answers and observations together; 0: no episodes are trained on.
      simulator_prompt: of the simulator's prompts.
      simulator_response: of a task that the simulator writes.
      prompt_buckets: smaller prompt widths that programs are compiled for, too.
      response_buckets: smaller completion widths that updates are compiled for, too, and with any of them the
        simulator's for 1, 2, 4, ... records of a seed: a batch of few short completions costs less.
    """

    agent_prompt: int = within(4096, 1)
    agent_response: int = within(512, 1)
    agent_episode: int = within(0, 0)
    simulator_prompt: int = within(4096, 1)
    simulator_response: int = within(1024, 1)
    prompt_buckets: tuple[int, ...] = (512, 1024, 2048)
    response_buckets: tuple[int, ...] = ()

    def __post_init__(self):
        super().__post_init__()
        for name in ("prompt_buckets", "response_buckets"):
            if any(size < 1 for size in getattr(self, name)):
                raise ValueError(f"{name} = {getattr(self, name)}: expected positive widths")

    def of(self, role: str) -> tuple[int, int, int]:
        """(prompt, answer, episode) of a role, "agent" or "simulator"; no episode: 0."""
        if role == "agent":
            return self.agent_prompt, self.agent_response, self.agent_episode
        return self.simulator_prompt, self.simulator_response, 0

    def buckets(self, limit: int) -> tuple[int, ...]:
        """The prompt widths that are compiled for prompts of at most `limit` tokens, ascending."""
        return _up_to(limit, self.prompt_buckets)

    def widths(self, limit: int) -> tuple[int, ...]:
        """The completion widths that updates are compiled for, of completions of at most `limit` tokens."""
        return _up_to(limit, self.response_buckets)


def _up_to(limit: int, sizes: Sequence[int]) -> tuple[int, ...]:
    return (*sorted({size for size in sizes if size < limit}), limit)


def check_length(
    model: LanguageModel, limit: int, benchmark: Benchmark, task: Task
) -> Rejection | None:
    """A rejection where the agent's prompt for a task has more than `limit` tokens."""
    length = len(model.encode_messages(benchmark.agent_messages(task)))
    if length > limit:
        return Rejection(TOO_LONG, f"{length} prompt tokens, limit {limit}")
    return None


def check_prompts(
    limits: LimitsConfig,
    model: LanguageModel,
    benchmark: Benchmark,
    seeds: Sequence[Task],
    eval_tasks: Sequence[Task],
) -> None:
    """Refuses a prompt that is longer than its limit, or a limit that the model's positions lack.

    Episodes are left out: what they show is known when they are played, and one that outgrows the limit
    ends there.

    Raises ValueError naming the task, its length and the setting; also where agents are trained on episodes
    and there is no room for them, or the chat template cannot go on with their tokens.
    """
    if benchmark.episodes:
        if limits.agent_episode < limits.agent_response:
            raise ValueError(
                f"config.limits.agent_episode = {limits.agent_episode}: expected at least agent_response = "
                f"{limits.agent_response}, since this benchmark's tasks are episodes"
            )
        if model.why_not_continuable:
            raise ValueError(f"{model.why_not_continuable}; expected a template that only appends")
    answered = [task for task in eval_tasks if not benchmark.is_interactive(task)]

    def simulator_messages(seed: Task):
        return benchmark.simulator_messages(seed, SeedStatistics(100, 100))

    for player, tasks, messages in (
        ("agent", [*seeds, *answered], benchmark.agent_messages),
        ("simulator", seeds, simulator_messages),
    ):
        prompt, *answers = limits.of(player)
        response = max(answers)
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
