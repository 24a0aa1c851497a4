"""genenv_jax as a worker of bench/compare.py: the pieces that a run itself uses."""

import functools
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import protocol
from workloads import AT_ONCE, GRPO, Work

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import flax
import jax
import jax.numpy as jnp

from genenv_jax.models import huggingface
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.scoring import CompletionBatch, score_completions
from genenv_jax.players import learner
from genenv_jax.players.optimizer import OptimizerConfig, make_optimizer
from genenv_jax.rl.losses import LossConfig
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine


class Ours:
    """The model and the works; see `protocol.serve`."""

    def __init__(self, directory: str, matmul_dtype: str = ""):
        hf = huggingface.read_config(directory)
        options = {"unroll_layers": True, "matmul_dtype": matmul_dtype}
        self.config = TransformerConfig.from_huggingface(hf, **options)
        self.params = huggingface.load_params(directory, self.config)
        self.vocab = self.config.vocab_size

    def describe(self) -> dict[str, str]:
        return {"jax": jax.__version__, "flax": flax.__version__}

    def gemm(self, n: int) -> float:
        """GFLOP per CPU second of one n x n x n product of the engine's operands."""
        a = jnp.asarray(np.random.default_rng(0).normal(size=(n, n)), self.config.operand_dtype)
        run = lambda: jax.block_until_ready(_product(a, a))  # noqa: E731
        run()
        times = [protocol.timed(run)["cpu"] for _ in range(2)]
        return 2e-9 * n**3 / min(times)

    def logprobs(self, work: dict[str, Any]) -> list:
        work = Work(**work)
        return np.asarray(self._logprobs(work), np.float64).tolist()

    def sample(self, work: Work) -> Callable[[], int]:
        engine = self._engine(work)
        prompts, keys = work.prompt_lists(self.vocab), _keys()

        def run() -> int:
            return int(engine(self.params, prompts, next(keys)).lengths.sum())

        return run

    def ragged(self, work: Work) -> Callable[[], int]:
        """With lanes, all prompts in one call, whose ended rows make room; else in fixed batches."""
        prompts, limits = work.prompt_lists(self.vocab), work.lengths()
        lanes = work.lanes or work.group
        at_once = min(max(1, AT_ONCE // lanes), work.prompts)
        part = work.prompts if work.lanes else at_once
        engine, keys = self._engine(work, at_once, lanes=lanes), _keys()

        def run() -> int:
            key, total = next(keys), 0
            for start in range(0, work.prompts, part):
                rows = slice(start, start + part)
                part_key = jax.random.fold_in(key, start)
                rollouts = engine(self.params, prompts[rows], part_key, limits=limits[rows])
                assert (rollouts.lengths == limits[rows]).all()
                total += int(rollouts.lengths.sum())
            return total

        return run

    def score(self, work: Work) -> Callable[[], None]:
        batch = jax.device_put(self._batch(work))

        def run() -> None:
            jax.block_until_ready(score_completions(self.params, batch, self.config))

        return run

    def grpo(self, work: Work) -> Callable[[], dict[str, float]]:
        optimizer = _optimizer()
        step = learner.make_grpo_step(self.config, _LOSS, optimizer)
        state = learner.init_state(self.params, optimizer)
        batch = jax.device_put(self._grpo_batch(work))

        def run() -> dict[str, float]:
            nonlocal state
            state, metrics = jax.block_until_ready(step(state, {}, batch))
            return {name: float(metrics[name]) for name in ("loss", "grad_norm")}

        return run

    def _engine(self, work: Work, batch_size: int | None = None, **options: Any) -> Engine:
        sampling = SamplingParams(work.new, work.group, eos_ids=())
        put = jax.device_put
        return Engine(self.config, sampling, batch_size or work.prompts, (work.prompt,), put, **options)

    def _batch(self, work: Work) -> CompletionBatch:
        b, g = work.prompts, work.group
        return CompletionBatch(
            work.prompt_tokens(self.vocab),
            work.prompt_lengths(),
            work.completion_tokens(self.vocab),
            np.full((b, g), work.new, np.int32),
        )

    def _logprobs(self, work: Work) -> np.ndarray:
        return np.asarray(score_completions(self.params, self._batch(work), self.config))

    def _grpo_batch(self, work: Work) -> learner.GRPOBatch:
        old, ref = work.moved(self._logprobs(work))
        return learner.GRPOBatch(self._batch(work), old, ref, work.advantages())


_LOSS = LossConfig(kl_coef=GRPO["kl_coef"], entropy_coef=0.0)  # its clip is GRPO["clip"]


def _optimizer() -> Any:
    return make_optimizer(
        GRPO["learning_rate"],
        OptimizerConfig(weight_decay=GRPO["weight_decay"]),
        grad_clip=GRPO["grad_clip"],
    )


_product = jax.jit(functools.partial(jnp.matmul, preferred_element_type=jnp.float32))


def _keys():
    """A new key for each repetition."""
    for i in range(1_000_000):
        yield jax.random.key(i)


if __name__ == "__main__":
    protocol.serve(lambda: Ours(*sys.argv[1:]))
