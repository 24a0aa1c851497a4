"""The agent π_agent: attempts tasks in groups of rollouts."""

from __future__ import annotations

import dataclasses

from genenv_jax.players.player import Player, PlayerConfig, Setup
from genenv_jax.players.policy import Policy
from genenv_jax.rl.grpo import GRPOConfig
from genenv_jax.sampling.episodes import EpisodeEngine
from genenv_jax.settings import choice, within
from genenv_jax.typing import Params, PRNGKey, WarmUp


@dataclasses.dataclass(frozen=True)
class AgentConfig(PlayerConfig, GRPOConfig):
    """`config.agent`: the player's, GRPO's, and what its tasks and groups are.

    Attributes:
      group_size: rollouts a task.
      advantage_scale: "std" divides by the group's sample standard deviation; "none" does not (Dr. GRPO).
      groups: which groups of rollouts are trained on: "all", or the "informative" ones, whose rewards differ,
        as DAPO's dynamic sampling (arXiv 2503.14476) keeps them; batches are filled up with the next ones.
      base_share: share of the training tasks that come from the data set; the agent attempts them anew.
      replay_share: share of the training tasks that come from D_train; the agent attempts them anew.
    """

    group_size: int = within(8, 1)
    advantage_scale: str = choice("std", "none")
    groups: str = choice("all", "informative")
    base_share: float = within(0.2, 0, 1)
    replay_share: float = within(0.0, 0, 1)

    def __post_init__(self):
        super().__post_init__()
        if self.group_size < 2:
            raise ValueError(
                f"group_size = {self.group_size}: expected at least 2, since advantages compare the rollouts "
                "of a group"
            )
        if self.base_share + self.replay_share >= 1:
            raise ValueError("base_share + replay_share must leave room for fresh tasks (< 1)")


class Agent(Player):
    """See the module's docstring.

    Args:
      setup, trained: see `Player`.
      config: its settings.
    """

    config: AgentConfig

    def __init__(self, setup: Setup, config: AgentConfig, trained: Params):
        # The ratio of GRPO is taken to the policy that sampled.
        super().__init__(setup, config, trained, "agent", config.group_size, temperature=1.0)

    def policy(self, key: PRNGKey) -> Policy:
        """The agent as it is now, drawing by `key`."""
        self.load_for("sample")
        return Policy(self.model, self.engine, self.params, key)

    def warm_up(self) -> list[WarmUp]:
        """What compiles all that sampling may run, for every prompt width that is planned."""
        player = EpisodeEngine(self.engine) if self.engine.episode else self.engine
        return player.warm_up(self.sampling_params)

    def sampling_params(self) -> Params:
        """The parameters, brought to where they can sample."""
        self.load_for("sample")
        return self.params
