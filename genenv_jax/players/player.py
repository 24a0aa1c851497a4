"""The base of both players: weights, the shared reference, offloading, export."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from genenv_jax.models import lora, peft
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.huggingface.directory import CARD
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.models.scoring import CompletionBatch, score_completions
from genenv_jax.players import learner
from genenv_jax.players.lengths import LimitsConfig
from genenv_jax.players.offload import Offloader, place
from genenv_jax.players.optimizer import OptimizerConfig, make_optimizer
from genenv_jax.players.policy import make_engine
from genenv_jax.sampling.engine import Rollouts, SamplingConfig
from genenv_jax.settings import Settings, within
from genenv_jax.typing import Array, Params


@dataclasses.dataclass(frozen=True)
class PlayerConfig(Settings):
    """Settings that both players have.

    Attributes:
      learning_rate: the highest of the schedule that `config.optimizer` sets.
      batch_size: prompts per sampling phase.
      minibatch_size: prompts per optimiser step.
      micro_batches: parts that a mini-batch's gradient is accumulated from.
      update_epochs: passes over a batch.
    """

    learning_rate: float = within(1e-6, 0)
    batch_size: int = within(64, 1, 2**16)
    minibatch_size: int = within(16, 1, 2**16)
    micro_batches: int = within(1, 1, 2**16)
    update_epochs: int = within(1, 1)

    def __post_init__(self):
        super().__post_init__()
        if self.minibatch_size % self.micro_batches:
            raise ValueError(
                f"micro_batches = {self.micro_batches}: expected a divisor of minibatch_size = "
                f"{self.minibatch_size}"
            )


def recomputes(dtype: str) -> bool:
    """Whether updates of a model that computes in `dtype` recompute the samples' log-probs.

    GRPO's ratio and RWR's KL cap compare with the trainer's log-probs of the samples.  In float32 the
    sampler's log-probs differ only by rounding, so they are used instead and save a forward pass.
    """
    return dtype != "float32"


class Reference:
    """The model that both players start from; it is never trained.

    It is the reference policy of both KL terms and, under LoRA, the base of both players.

    Args:
      params: its parameters, in the compute dtype.
      config: of the decoder, without adapters.
    """

    def __init__(self, params: Params, config: TransformerConfig):
        self.params, self.config = params, config

    def logprobs(self, batch: CompletionBatch) -> Array:
        """Log-probs (b, g, c) of completions."""
        return score_completions(self.params, batch, self.config)

    def place(self, *, params: bool) -> None:
        """Moves the parameters to the devices or to host memory."""
        self.params = place(self.params, params)


@dataclasses.dataclass(frozen=True)
class Setup:
    """Arguments that both players share.

    Attributes:
      model: configuration and tokenizer; its `config.lora` says whether the players are adapters.
      reference: shared by both.
      offloader: moves weights between devices and host memory.
      put: places host arrays on the devices.
      limits, sampling: settings.
      optimizer: settings of both optimisers.
      moments: type of their moments.
    """

    model: LanguageModel
    reference: Reference
    offloader: Offloader
    put: Callable[[Any], Any]
    limits: LimitsConfig
    sampling: SamplingConfig
    optimizer: OptimizerConfig
    moments: str


class Player:
    """A language model that samples and is trained.

    Args:
      setup: what it shares with the other player.
      config: its settings.
      trained: trained parameters, float32: all, or the adapters alone.  Donated to the first update.
      role: "agent" or "simulator".
      group: samples per prompt.
      temperature: of the samples.
    Attributes:
      buckets: ascending prompt widths.
      widths: ascending completion widths of updates.
      groups: ascending numbers of completions per prompt in updates.
      engine: samples `group` completions of each prompt.
      state: parameters and moments.
    """

    def __init__(
        self,
        setup: Setup,
        config: PlayerConfig,
        trained: Params,
        role: str,
        group: int,
        temperature: float,
    ):
        model, limits, put = setup.model, setup.limits, setup.put
        self.model, self.reference, self.config, self.put = model, setup.reference, config, put
        self.groups: tuple[int, ...] = (group,)
        rows, lanes = setup.sampling.batch_size or config.batch_size, setup.sampling.lanes
        self.engine = make_engine(model, limits, put, role, group, temperature, rows, lanes)
        _, response, episode = limits.of(role)
        self.buckets, self.widths = self.engine.prompt_buckets, limits.widths(episode or response)
        self.optimizer = make_optimizer(config.learning_rate, setup.optimizer, setup.moments)
        self.state = learner.init_state(trained, self.optimizer, copy=False)
        self._offloader = setup.offloader
        self._offloader.add_player(self)

    @property
    def frozen(self) -> Params:
        """The parameters that are not trained: the base under LoRA, else none."""
        return self.reference.params if self.model.config.lora else {}

    @property
    def recomputes(self) -> bool:
        """Whether its updates recompute the samples' log-probs; see the function `recomputes`."""
        return recomputes(self.model.config.dtype)

    @property
    def params(self) -> Params:
        """All parameters, in the module's layout; nothing is copied."""
        return lora.join(self.frozen, self.state.params)

    def logprobs(self, batch: CompletionBatch) -> Array:
        """Log-probs (b, g, c) of completions under the current parameters."""
        return score_completions(self.params, batch, self.model.config)

    def blank_batches(self) -> list[Rollouts]:
        """Blank rollouts of one prompt for each shape of an update, to compile it with."""
        engine = self.engine
        blank = [Rollouts.empty([[0] * w], engine.options, engine.episode) for w in self.buckets]
        return [
            dataclasses.replace(rollouts, lengths=np.full_like(rollouts.lengths, width)).samples(
                np.arange(group)[None]
            )
            for rollouts in blank
            for width in self.widths
            for group in self.groups
        ]

    def minibatch(self, rollouts: Rollouts, rows: Sequence[int], *arrays: np.ndarray) -> tuple:
        """A mini-batch of rollouts and the same rows of `arrays`, padded with zeros; host arrays.

        arrays: (N, g, c), cut to the mini-batch's width, or (N, g).
        """
        size = self.config.minibatch_size
        taken, pad = rollouts.take(rows).cut(self.widths), size - len(rows)
        width = taken.tokens.shape[-1]
        parts = [x[rows][..., :width] if x.ndim == 3 else x[rows] for x in arrays]
        return (
            taken.batch(self.buckets, size),
            *(np.pad(x, [(0, pad), *[(0, 0)] * (x.ndim - 1)]) for x in parts),
        )

    def load_for(self, phase: str) -> None:
        """Loads what this player needs for "sample", "score", "both" or "update" onto the devices."""
        self._offloader.load_for(phase, self)

    def place(self, *, parameters: bool | None = None, moments: bool | None = None) -> None:
        """Moves weights to the devices (true) or to host memory (false); None leaves them alone."""
        state = self.state
        if parameters is not None:
            state = state._replace(params=place(state.params, parameters))
        if moments is not None:
            state = state._replace(opt_state=place(state.opt_state, moments))
        self.state = state

    def export(
        self,
        directory: pathlib.Path,
        *,
        card: str = "",
        adapter_card: str = "",
        base_model: str = "",
    ) -> None:
        """Writes the player as a Hugging Face directory, replacing an existing one.

        Under LoRA the adapters are merged into it, and a second directory, "<name>_adapter", holds only the
        adapters, in PEFT's format.

        Args:
          card, adapter_card: text of each README.md; "": none is written.
          base_model: base that the adapters name; "": the directory that the base was read from.
        """
        self.load_for("sample")
        params, adapter = self.params, self.model.config.lora
        if adapter:
            peft.save_adapter(
                directory.with_name(f"{directory.name}_adapter"),
                self.state.params,
                adapter,
                base_model=base_model or str(self.model.path),
                overwrite=True,
                notes={CARD: adapter_card} if adapter_card else {},
            )
        notes = {CARD: card} if card else {}
        self.model.save(directory, params, lora=adapter, overwrite=True, notes=notes)
