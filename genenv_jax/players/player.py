"""What the two players have in common: weights, a reference, a place in memory, an export."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

from ml_collections import ConfigDict

from genenv_jax.models import lora, peft
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.models.scoring import CompletionBatch, score_completions
from genenv_jax.players import learner
from genenv_jax.players.optimizer import OptimizerConfig, make_optimizer
from genenv_jax.players.residency import Residency, place
from genenv_jax.typing import Array, Params


class Reference:
    """The model that both players start from, which stays as it is.

    It is the policy of both KL terms and, under LoRA, the base of both players.

    Args:
      params: its parameters, in the compute type.
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


class Player:
    """A language model that is trained.

    Args:
      model: configuration and tokenizer; its `config.lora` says whether the player is an adapter.
      trained: what is trained, float32: all parameters, or the adapters alone.  Taken over.
      reference: shared by both players.
      config: the player's part of the configuration.
      residency: takes charge of where the weights are.
      put: places host arrays on the devices.
      moments: type in which the optimiser's moments are kept.
    """

    def __init__(
        self,
        model: LanguageModel,
        trained: Params,
        reference: Reference,
        config: ConfigDict,
        residency: Residency,
        put: Callable[[Any], Any],
        moments: str,
    ):
        self.model, self.reference, self.config = model, reference, config
        self._put, self._residency = put, residency
        self.optimizer = make_optimizer(
            OptimizerConfig(
                config.learning_rate,
                weight_decay=config.weight_decay,
                grad_clip=config.grad_clip,
                moments=moments,
            )
        )
        self.state = learner.init_state(trained, self.optimizer, copy=False)
        residency.add_player(self)

    @property
    def frozen(self) -> Params:
        """The parameters that are not trained: the base under LoRA, else none."""
        return self.reference.params if self.model.config.lora else {}

    @property
    def params(self) -> Params:
        """All parameters, as the module takes them; nothing is copied."""
        return lora.join(self.frozen, self.state.params)

    def enter(self, phase: str) -> None:
        """Brings what this player needs for "sample", "score" or "update" to the devices."""
        self._residency.enter(phase, self)

    def place(self, *, parameters: bool | None = None, moments: bool | None = None) -> None:
        """Moves weights to the devices (true) or to host memory (false); None leaves them."""
        state = self.state
        if parameters is not None:
            state = state._replace(params=place(state.params, parameters))
        if moments is not None:
            state = state._replace(opt_state=place(state.opt_state, moments))
        self.state = state

    def export(self, directory: pathlib.Path) -> None:
        """Writes the player as a Hugging Face directory, replacing what is there.

        Under LoRA the adapters are merged into it, and a directory beside it, "<name>_adapter", holds
        them alone in PEFT's format.
        """
        self.enter("sample")
        params, adapter = self.params, self.model.config.lora
        if adapter:
            peft.save_adapter(
                directory.with_name(f"{directory.name}_adapter"),
                self.state.params,
                adapter,
                base_model=str(self.model.path),
                overwrite=True,
            )
            params = lora.merge(params, adapter)
        self.model.save(directory, params, overwrite=True)
