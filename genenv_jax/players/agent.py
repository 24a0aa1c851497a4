"""The agent π_agent: attempts tasks in groups of rollouts."""

import dataclasses
from collections.abc import Mapping

from genenv_jax.players.player import Player, PlayerConfig
from genenv_jax.players.policy import Policy
from genenv_jax.rl.advantages import ADVANTAGES
from genenv_jax.rl.losses import LossConfig
from genenv_jax.sampling.sampler import Sampler
from genenv_jax.settings import choice, within
from genenv_jax.typing import Params, PRNGKey, WarmUp


@dataclasses.dataclass(frozen=True)
class AgentConfig(PlayerConfig, LossConfig):
    """`config.agent`: settings of the player, of its loss, and of its tasks and groups.

    Attributes:
      group_size: rollouts per task.
      advantages: a reward minus its group's mean, divided by the standard deviation ("group"), undivided
        ("centred", Dr. GRPO) or divided by the mean ("maxrl"), or minus the others' mean ("rloo").
      groups: groups of rollouts to train on: "all", or only the "informative" ones, whose rewards differ, as
        in DAPO's dynamic sampling (arXiv 2503.14476); batches are then filled up with later groups.
      base_share: share of the training tasks that come from the data set; the agent attempts them anew.  The
        paper gives no share.
      replay_share: share of the training tasks that come from D_train; the agent attempts them anew.
    """

    group_size: int = within(8, 1, 2**12)
    advantages: str = choice(*ADVANTAGES)
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

    @property
    def draws(self) -> tuple[int, float]:
        return self.group_size, 1.0  # GRPO's ratio is to the policy that sampled


class Agent(Player):
    """See the module's docstring."""

    config: AgentConfig

    def policy(self, key: PRNGKey) -> Policy:
        """The current agent as a policy that samples with `key`."""
        self.load_for("sample")
        return Policy(self.model, self.sampler, self.params, key)

    def evaluating(self, modes: Mapping[str, tuple[int, float]], batch_size: int) -> dict[str, Sampler]:
        """Its samplers in evaluations.

        Args:
          modes: (samples of a task, temperature) by name.
          batch_size: tasks answered at the same time.
        """
        sampler = dataclasses.replace(self.sampler, batch_size=batch_size)
        return {
            mode: sampler.drawing(group_size=samples, temperature=temperature)
            for mode, (samples, temperature) in modes.items()
        }

    def warm_up(self) -> list[WarmUp]:
        """Functions that compile every program of sampling, for every planned prompt width."""
        return self.sampler.warm_up(self.sampling_params, episodes=self.sampler.episode > 0)

    def sampling_params(self) -> Params:
        """Loads the parameters for sampling and returns them."""
        self.load_for("sample")
        return self.params
