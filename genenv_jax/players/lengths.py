"""Limits on the lengths of prompts and completions, and the checks of them before training."""

import dataclasses
from collections.abc import Sequence

from genenv_jax.benchmarks.base import TOO_LONG, Benchmark, Rejection, Task
from genenv_jax.benchmarks.success_record import LONGEST
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.settings import Settings, within


@dataclasses.dataclass(frozen=True)
class LimitsConfig(Settings):
    """`config.limits`: maximum tokens in prompts and completions of both players.

    Attributes:
      agent_prompt: maximum tokens per agent prompt.
      agent_response: maximum tokens per agent answer, thoughts included.
      agent_episode: maximum tokens per episode, answers plus observations; 0: no training on episodes.
      simulator_prompt: maximum tokens per simulator prompt.
      simulator_response: maximum tokens per simulator completion.
      prompt_buckets: additional, smaller prompt widths to compile programs for.
      response_buckets: additional, smaller completion widths to compile updates for: batches of short
        completions cost less; if set, simulator updates are also compiled for 1, 2, 4, ... records per seed.
    """

    agent_prompt: int = within(4096, 1, 2**22)
    agent_response: int = within(512, 1, 2**22)
    agent_episode: int = within(0, 0, 2**22)
    simulator_prompt: int = within(4096, 1, 2**22)
    simulator_response: int = within(1024, 1, 2**22)
    prompt_buckets: tuple[int, ...] = (512, 1024, 2048)
    response_buckets: tuple[int, ...] = ()

    def __post_init__(self):
        super().__post_init__()
        for name in ("prompt_buckets", "response_buckets"):
            if any(size < 1 for size in getattr(self, name)):
                raise ValueError(f"{name} = {getattr(self, name)}: expected positive widths")

    def of(self, role: str) -> tuple[int, int, int]:
        """Limits (prompt, answer, episode) of a role, "agent" or "simulator"; 0: no episodes."""
        if role == "agent":
            return self.agent_prompt, self.agent_response, self.agent_episode
        return self.simulator_prompt, self.simulator_response, 0

    def buckets(self, limit: int) -> tuple[int, ...]:
        """Compiled prompt widths for prompts of at most `limit` tokens, ascending."""
        return _up_to(limit, self.prompt_buckets)

    def widths(self, limit: int) -> tuple[int, ...]:
        """Compiled completion widths of updates, for completions of at most `limit` tokens, ascending."""
        return _up_to(limit, self.response_buckets)


def _up_to(limit: int, sizes: Sequence[int]) -> tuple[int, ...]:
    return (*sorted({size for size in sizes if size < limit}), limit)


def check_length(model: LanguageModel, limit: int, benchmark: Benchmark, task: Task) -> Rejection | None:
    """A rejection if the agent's prompt for the task exceeds `limit` tokens, else None."""
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
    """Checks that prompts fit their limits and that the limits fit the model's positions.

    Episodes are not checked: their contents are known only when they are played, and one that outgrows the
    limit ends there.

    Raises ValueError naming the task, its length and the setting.  Also raises it if the agent is trained on
    episodes and there is no room for them, or the chat template cannot continue their tokens.
    """
    if benchmark.episodes:
        if limits.agent_episode < limits.agent_response:
            raise ValueError(
                f"config.limits.agent_episode = {limits.agent_episode}: expected at least agent_response = "
                f"{limits.agent_response}, since this benchmark's tasks are episodes"
            )
        if model.why_not_continuable:
            raise ValueError(f"{model.why_not_continuable}; expected a template that only appends")
    elif limits.agent_episode:
        raise ValueError(
            f"config.limits.agent_episode = {limits.agent_episode}: expected 0, since the agent is not "
            "trained on episodes"
        )
    answered = [task for task in eval_tasks if not benchmark.is_interactive(task)]

    def simulator_messages(seed: Task):
        return benchmark.simulator_messages(seed, LONGEST)

    for player, tasks, messages in (
        ("agent", [*seeds, *answered], benchmark.agent_messages),
        ("simulator", seeds, simulator_messages),
    ):
        prompt, *answers = limits.of(player)
        response = max(answers)
        name = "response" if response == answers[0] else "episode"
        if prompt + response > model.config.max_positions:
            raise ValueError(
                f"config.limits.{player}_prompt + {player}_{name} = {prompt + response}: expected at "
                f"most the model's max_position_embeddings = {model.config.max_positions}"
            )
        for task in tasks:
            length = len(model.encode_messages(messages(task)))
            if length > prompt:
                raise ValueError(
                    f"the {player}'s prompt for task {task.id} has {length} tokens: expected at most "
                    f"config.limits.{player}_prompt = {prompt}"
                )
