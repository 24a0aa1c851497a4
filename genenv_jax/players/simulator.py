"""The simulator π_env: writes variations of seed tasks."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import numpy as np

from genenv_jax.benchmarks.base import Benchmark, Message, Task
from genenv_jax.benchmarks.success_record import LONGEST
from genenv_jax.parallel import processes
from genenv_jax.players.player import Player, PlayerConfig
from genenv_jax.sampling.sampler import Completion, OnCompletion, Rollouts, ignore
from genenv_jax.settings import choice, within
from genenv_jax.typing import Params, PRNGKey, WarmUp


@dataclasses.dataclass(frozen=True)
class SimulatorConfig(PlayerConfig):
    """`config.simulator`; its batches are batches of seeds, each with all its variations.

    Attributes:
      train: whether the simulator is trained; otherwise it stays the initial simulator.
      variations: generations per seed and epoch (n).
      temperature: sampling temperature; small models write nonsense at 1.  Updates use log-probs at 1.
      rwr_temperature: λ in exp(λ R_env).
      success_rate_over: p̂ over a seed's n variations together ("batch", Eq. 2; only with method "rwr") or
        over each "task".
      method: "rwr", the paper's; "grpo": policy gradient; the advantage is R_env minus the seed's mean;
        "hindsight": trains on every attempted task under a prompt that asks for its actual success rate; new
        prompts ask for a rate that should yield α (`trainers.simulator.Hindsight`).
      random_rates: share of "hindsight"'s prompts that ask for a random rate, so that the simulator learns
        what rates mean.
      coverage: exponent c in w / share^c, with the share of records that need the same skill (`rl.weights`).
      mixture: share of the variations that the initial simulator writes.
      kl_coef: coefficient of the KL penalty to the initial simulator; the paper gives no value.
      kl_cap: maximum KL of an update of "rwr", in nats per token, over the current simulator's own texts
        (below temperature 1 it is an estimate, over likelier texts); 0: no cap.
        .01 is 1 to 2 nats per task; the paper gives no value.
    """

    train: bool = True
    learning_rate: float = within(5e-7, 0)
    variations: int = within(4, 1, 2**12)
    temperature: float = within(1.0, 0.01, 100)
    rwr_temperature: float = within(1.0, 0)
    success_rate_over: str = choice("batch", "task")
    method: str = choice("rwr", "grpo", "hindsight")
    random_rates: float = within(0.1, 0, 1)
    coverage: float = within(0.0, 0)
    mixture: float = within(0.0, 0, 1)
    kl_coef: float = within(0.01, 0)
    kl_cap: float = within(0.01, 0)

    def __post_init__(self):
        super().__post_init__()
        if self.method == "grpo" and self.temperature != 1.0:
            raise ValueError(f"temperature = {self.temperature}: expected 1.0 with method = 'grpo'")
        if self.coverage and self.method == "grpo":
            raise ValueError(f"coverage = {self.coverage}: method = 'grpo' has no weights")
        if abs(self.mixture * self.variations - self.num_from_initial) > 1e-6:
            raise ValueError(
                f"mixture = {self.mixture}: expected a share that gives a whole number of a seed's "
                f"variations = {self.variations}"
            )

    @property
    def asks(self) -> bool:
        """Whether its prompts ask for a success rate."""
        return self.method == "hindsight"

    @property
    def draws(self) -> tuple[int, float]:
        return self.variations, self.temperature

    def group_sizes(self, packed: bool) -> tuple[int, ...]:
        if self.asks:  # each record has its own prompt
            return (1,)
        n = self.variations
        return tuple(sorted({n, *(2**i for i in range(n.bit_length()) if packed and 2**i < n)}))

    @property
    def num_from_initial(self) -> int:
        """How many of a seed's variations the initial simulator writes."""
        return round(self.mixture * self.variations)


class Simulator(Player):
    """See the module's docstring.  The KL penalty is to the reference, the initial simulator."""

    config: SimulatorConfig

    def __post_init__(self):
        super().__post_init__()
        config = self.config
        self._initial = dataclasses.replace(self.sampler, config=self.reference.config)
        # (whether it is the trained simulator, its sampler), each with its share of a seed's variations.
        self._samplers = [
            (own, sampler.drawing(group_size=count))
            for own, sampler, count in (
                (True, self.sampler, config.variations - config.num_from_initial),
                (False, self._initial, config.num_from_initial),
            )
            if count
        ]

    def has_room(self, benchmark: Benchmark, task: Task) -> bool:
        """Whether the prompt that asks to vary `task` is short enough."""
        messages = benchmark.simulator_messages(task, LONGEST)
        return len(self.model.encode_messages(messages)) <= self.sampler.prompt_buckets[-1]

    def generate(
        self,
        contexts: Sequence[Sequence[Message]],
        key: PRNGKey,
        on_completion: OnCompletion = ignore,
        initial: bool = False,
    ) -> Rollouts:
        """`variations` generations for each context, a prompt to vary a seed.

        The initial simulator writes the last `num_from_initial` of each; "logprobs" are the writer's.

        initial: the initial simulator writes all.
        """
        prompts = [self.model.encode_messages(messages) for messages in contexts]
        self.load_for("score" if initial else self._sampling)
        parts: list[Rollouts] = []
        for own, sampler in [(False, self._initial)] if initial else self._samplers:
            first = sum(part.lengths.shape[1] for part in parts)

            def finished(completion: Completion, first: int = first) -> None:
                on_completion(dataclasses.replace(completion, sample=first + completion.sample))

            params = self.params if own else self.reference.params
            # The first writer draws the same numbers as if it were the only one.
            drawn = jax.random.fold_in(key, processes.put(np.uint32(first))) if first else key
            parts.append(sampler(params, prompts, drawn, on_completion=finished))
        return Rollouts.concat(parts, axis=1)

    def sampled_tokens(self, generations: Rollouts) -> int:
        """Tokens that models processed for `generate`: each writer reads the prompts."""
        return generations.token_count + (len(self._samplers) - 1) * sum(map(len, generations.prompts))

    @property
    def scores_start(self) -> bool:
        """Whether `start_logprobs` computes them anew."""
        return bool(self.config.num_from_initial) or self.recomputes or self.config.asks

    def start_logprobs(self, generations: Rollouts, used: np.ndarray) -> np.ndarray:
        """(S, n, c) log-probs under the current simulator; 0 outside the rows `used`.

        The sampler's log-probs, unless `scores_start` is true.
        """
        if not self.scores_start:
            return generations.logprobs
        return self.own_logprobs(generations, used)

    def warm_up(self) -> list[WarmUp]:
        """Functions that compile every program of `generate`, for every planned prompt width."""

        def params(own: bool) -> Params:
            self.load_for(self._sampling)
            return self.params if own else self.reference.params

        return [
            step
            for own, sampler in self._samplers
            for step in sampler.warm_up(functools.partial(params, own))
        ]

    @property
    def _sampling(self) -> str:
        return "both" if self.config.num_from_initial else "sample"
