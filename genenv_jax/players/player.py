"""The base of both players: weights, the shared reference, offloading, export."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optax

from genenv_jax.models import lora, peft
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.huggingface.directory import CARD
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.models.scoring import CompletionBatch, score_completions
from genenv_jax.parallel import processes
from genenv_jax.players import learner
from genenv_jax.players.offload import Offloader, place
from genenv_jax.sampling.sampler import Rollouts, Sampler
from genenv_jax.settings import Settings, within
from genenv_jax.typing import Array, Params, WarmUp


@dataclasses.dataclass(frozen=True)
class PlayerConfig(Settings):
    """Settings that both players have.

    Attributes:
      learning_rate: peak of the schedule that `config.optimizer` sets.
      batch_size: prompts per sampling phase.
      minibatch_size: prompts per optimiser step.
      micro_batches: micro-batches per mini-batch, whose gradients accumulate.
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

    @property
    def draws(self) -> tuple[int, float]:
        """Samples per prompt, and their temperature."""
        raise NotImplementedError

    def group_sizes(self, packed: bool) -> tuple[int, ...]:
        """Ascending numbers of completions per prompt in updates; packed: also fewer, if these suffice."""
        return (self.draws[0],)


def recomputes(dtype: str) -> bool:
    """Whether updates of a model that computes in `dtype` recompute the samples' log-probs.

    GRPO's ratio and RWR's KL cap compare with the trainer's log-probs of the samples.  In float32 the
    sampler's log-probs differ only by rounding, so they are used instead and save a forward pass.
    """
    return dtype != "float32"


class Reference:
    """The model that one or both players start from; it is never trained.

    It is the reference policy of their KL terms and, under LoRA, their base.  Its parameters have the compute
    dtype, and its configuration no adapters.
    """

    def __init__(self, params: Params, config: TransformerConfig):
        self.params, self.config = params, config

    def logprobs(self, batch: CompletionBatch) -> Array:
        """Log-probs (b, g, c) of completions."""
        return score_completions(self.params, batch, self.config)

    def place(self, *, params: bool) -> None:
        """Moves the parameters to the devices or to host memory."""
        self.params = place(self.params, params)


@dataclasses.dataclass(eq=False)
class Player:
    """A language model that samples and is trained; `build.make_players` makes both.

    Attributes:
      model: configuration and tokenizer; its `config.lora` says whether the player is an adapter.
      reference: what it starts from.
      state: trained parameters, float32: all, or the adapters alone; and their moments.  The first update
        destroys them.  A player that is not trained has none: it is the reference.
      widths: ascending completion widths of updates.
      groups: ascending numbers of completions per prompt in updates.
      put: places host arrays on the devices.
    """

    model: LanguageModel
    reference: Reference
    config: PlayerConfig
    sampler: Sampler
    optimizer: optax.GradientTransformation
    state: learner.TrainState
    widths: tuple[int, ...]
    groups: tuple[int, ...]
    put: Callable[[Any], Any]
    offloader: Offloader

    def __post_init__(self):
        self.offloader.add_player(self)

    @property
    def trained(self) -> bool:
        """Whether it has parameters of its own."""
        return bool(self.state.params)

    @property
    def frozen(self) -> Params:
        """The parameters that are not trained: the base under LoRA, all if none are trained, else none."""
        return {} if self.trained and not self.model.config.lora else self.reference.params

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
        sampler = self.sampler
        widths = sampler.prompt_buckets
        blank = [Rollouts.empty([[0] * w], sampler.options, sampler.episode) for w in widths]
        return [
            dataclasses.replace(rollouts, lengths=np.full_like(rollouts.lengths, width)).samples(
                np.arange(group)[None]
            )
            for rollouts in blank
            for width in self.widths
            for group in self.groups
        ]

    def minibatch(self, rollouts: Rollouts, rows: Sequence[int], *arrays: np.ndarray | None) -> tuple:
        """A mini-batch of rollouts and the same rows of `arrays`, padded with zeros; host arrays.

        arrays: (N, g, c), cut to the mini-batch's width, or (N, g); None stays None.
        """
        size = self.config.minibatch_size
        taken, pad = rollouts.take(rows).cut(self.widths), size - len(rows)
        width = taken.tokens.shape[-1]

        def part(x: np.ndarray) -> np.ndarray:
            x = x[rows][..., :width] if x.ndim == 3 else x[rows]
            return np.pad(x, [(0, pad), *[(0, 0)] * (x.ndim - 1)])

        batch = taken.batch(self.sampler.prompt_buckets, size)
        return batch, *(None if x is None else part(x) for x in arrays)

    def own_logprobs(self, rollouts: Rollouts, rows: np.ndarray) -> np.ndarray:
        """(N, g, c) log-probs under the current parameters; 0 outside the prompts `rows`."""
        self.load_for("sample")
        return self._scored(rollouts, rows, self.logprobs)

    def reference_logprobs(self, rollouts: Rollouts, rows: np.ndarray) -> np.ndarray:
        """(N, g, c) log-probs under the reference; 0 outside the prompts `rows`."""
        self.load_for("score")
        return self._scored(rollouts, rows, self.reference.logprobs)

    def _scored(
        self, rollouts: Rollouts, rows: np.ndarray, score: Callable[[CompletionBatch], Array]
    ) -> np.ndarray:
        result, size = np.zeros_like(rollouts.logprobs), self.config.minibatch_size
        parts = [rows[start : start + size] for start in range(0, len(rows), size)]
        scored = [score(self.put(self.minibatch(rollouts, part)[0])) for part in parts]
        for part, logprobs in zip(parts, processes.fetch(scored), strict=True):
            result[part, :, : logprobs.shape[-1]] = logprobs[: len(part)]
        return result

    def warm_up_updates(self, step: Any, empty_batch: Callable[[Rollouts], tuple]) -> list[WarmUp]:
        """Functions that compile an update, for every planned shape.

        step: jitted; takes (state, frozen, mini-batch).
        empty_batch: makes its mini-batch from blank rollouts, scoring them.
        """
        empty: list[tuple] = []

        def fill(blank: Rollouts) -> None:
            empty.append(empty_batch(blank))

        def update(i: int) -> None:
            self.load_for("update")
            step.lower(self.state, self.frozen, empty[i]).compile()

        blanks = self.blank_batches()
        return [
            *(functools.partial(fill, blank) for blank in blanks),
            *(functools.partial(update, i) for i in range(len(blanks))),
        ]

    def load_for(self, phase: str) -> None:
        """Loads what this player needs for "sample", "score", "both" or "update" onto the devices."""
        self.offloader.load_for(phase if self.trained else "score", self)

    def place(self, *, parameters: bool | None = None, moments: bool | None = None) -> None:
        """Moves weights to the devices (true) or to host memory (false); None leaves them alone."""
        state = self.state
        if parameters is not None:
            state = state._replace(params=place(state.params, parameters))
        if moments is not None:
            state = state._replace(opt_state=place(state.opt_state, moments))
        self.state = state

    def export(
        self, directory: pathlib.Path, *, card: str = "", adapter_card: str = "", base_model: str = ""
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
                notes={CARD: adapter_card} if adapter_card else {},
                multimodal=self.model.hf_config.get("model_type") == "gemma3",
            )
        self.model.save(directory, params, lora=adapter, notes={CARD: card} if card else {})
