"""Tunix as a worker of bench/compare.py, in an environment of its own; tried with google-tunix 0.1.7.

The pieces are those of its GRPO learner: `Sampler`, `compute_per_token_logps`, `grpo_loss_fn` and the
trainer's jitted step.  Its loss computes entropies too, as ours does.  Its sampler takes each sample
as a prompt of its own, and returns no log-probs here.
"""

from __future__ import annotations

import importlib.metadata
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import memory
import numpy as np
import optax
import protocol
from flax import nnx
from tunix.generate.sampler import CacheConfig, Sampler
from tunix.models.qwen2 import model as qwen2
from tunix.models.qwen2 import params as qwen2_params
from tunix.rl import common
from tunix.rl.algo_core import grpo_loss_fn
from tunix.rl.grpo.grpo_learner import GRPOConfig, TrainExample
from tunix.rl.trainer import Trainer
from tunix.sft.peft_trainer import TrainingConfig
from workloads import GRPO, Work

# As padding and end: tokens are drawn from the whole vocabulary, none may mean either.
NO_TOKEN = -1


class TokenLists:
    """A tokenizer whose texts are token ids with spaces between them."""

    def encode(self, text: str) -> list[int]:
        return [int(token) for token in text.split()]

    def decode(self, tokens: list[int]) -> str:
        return ""

    def bos_id(self) -> None:
        return None

    def eos_id(self) -> int:
        return NO_TOKEN

    def pad_id(self) -> int:
        return NO_TOKEN


class Tunix:
    """The model and the works; see `protocol.serve`."""

    def __init__(self, directory: str):
        self.directory = directory
        hf = json.loads((pathlib.Path(directory) / "config.json").read_text())
        self.config = qwen2.ModelConfig(
            num_layers=hf["num_hidden_layers"],
            vocab_size=hf["vocab_size"],
            embed_dim=hf["hidden_size"],
            hidden_dim=hf["intermediate_size"],
            num_heads=hf["num_attention_heads"],
            head_dim=hf["hidden_size"] // hf["num_attention_heads"],
            num_kv_heads=hf["num_key_value_heads"],
            rope_theta=hf["rope_theta"],
            norm_eps=hf["rms_norm_eps"],
            use_tied_embedding=hf["tie_word_embeddings"],
        )
        self.vocab = self.config.vocab_size
        self.model = self._load()

    def describe(self) -> dict[str, str]:
        return {"google-tunix": importlib.metadata.version("google-tunix")}

    def logprobs(self, work: dict[str, Any]) -> list:
        work = Work(**work)
        logp = np.asarray(self._logprobs(*self._rows(work)), np.float64)
        return logp.reshape(work.prompts, work.group, work.new).tolist()

    def sample(self, work: Work) -> Callable[[], int]:
        c = self.config
        cache = CacheConfig(work.prompt + work.new, c.num_layers, c.num_kv_heads, c.head_dim)
        sampler = Sampler(self.model, TokenLists(), cache)
        prompts, _ = self._rows(work)
        texts = [" ".join(map(str, row)) for row in prompts.tolist()]
        seeds = iter(range(1_000_000))

        def run() -> int:
            out = sampler(
                texts,
                max_generation_steps=work.new,
                max_prompt_length=work.prompt,
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                seed=next(seeds),
            )
            return sum(len(tokens) for tokens in out.tokens)

        return run

    def score(self, work: Work) -> Callable[[], None]:
        prompts, completions = map(jnp.asarray, self._rows(work))

        def run() -> None:
            jax.block_until_ready(self._logprobs(prompts, completions))

        return run

    def grpo(self, work: Work) -> Callable[[], dict[str, float]]:
        prompts, completions = self._rows(work)
        shape = work.prompts, work.group, work.new
        logp = np.asarray(self._logprobs(prompts, completions)).reshape(shape)
        old, ref = (jnp.asarray(x.reshape(-1, work.new)) for x in work.moved(logp))
        example = TrainExample(
            prompt_ids=jnp.asarray(prompts),
            prompt_mask=jnp.ones(prompts.shape, bool),
            completion_ids=jnp.asarray(completions),
            completion_mask=jnp.ones(completions.shape, bool),
            advantages=jnp.asarray(work.advantages().reshape(-1)),
            ref_per_token_logps=ref,
            old_per_token_logps=old,
        )
        algorithm = GRPOConfig(
            num_generations=work.group,
            beta=GRPO["kl_coef"],
            kl_loss_mode="low_var_kl",
            epsilon=GRPO["clip"],
            loss_agg_mode="token-mean",
        )
        algorithm.temperature = 1.0  # the learner sets it from the rollouts' configuration
        optimizer = optax.chain(
            optax.clip_by_global_norm(GRPO["grad_clip"]),
            optax.adamw(GRPO["learning_rate"], weight_decay=GRPO["weight_decay"]),
        )
        config = TrainingConfig(eval_every_n_steps=1, max_steps=1_000_000)
        trainer = Trainer(self._load(), optimizer, config, custom_checkpoint_metadata_fn=dict)

        def loss(model, train_example, algo_config):
            return grpo_loss_fn(model, train_example, algo_config, NO_TOKEN, NO_TOKEN)

        trainer.with_loss_fn(loss, has_aux=True)
        trainer.with_gen_model_input_fn(
            lambda example: {"train_example": example, "algo_config": algorithm}
        )
        step, _ = trainer.jit_train_and_eval_step(cache_nnx_graph=True)

        def run() -> dict[str, float]:
            loss, _, norm = jax.block_until_ready(step(example))
            jax.block_until_ready(nnx.state(trainer.model))
            return {"loss": float(loss), "grad_norm": float(norm)}

        return run

    def memory(self, work: dict[str, Any]) -> dict[str, int]:
        """Bytes by which the process grows at most during a GRPO step, gradients included."""
        return {"resident": memory.growth(self.grpo(Work(**work)))}

    def _load(self) -> Any:
        return qwen2_params.create_model_from_safe_tensors(self.directory, self.config)

    def _rows(self, work: Work) -> tuple[np.ndarray, np.ndarray]:
        """Prompts (rows, prompt), each repeated for its group, and completions (rows, new)."""
        prompts = np.repeat(work.prompt_tokens(self.vocab), work.group, axis=0)
        return prompts, work.completion_tokens(self.vocab).reshape(-1, work.new)

    def _logprobs(self, prompts: Any, completions: Any) -> jax.Array:
        graph, state = nnx.split(self.model)
        return common.compute_per_token_logps(
            graph, state, prompts, completions, pad_id=NO_TOKEN, eos_id=NO_TOKEN
        )


if __name__ == "__main__":
    protocol.serve(lambda: Tunix(sys.argv[1]))
