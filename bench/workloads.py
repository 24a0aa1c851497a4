"""What the engines are compared on: model sizes, the works and their random inputs.

NumPy only.  A work is fixed by its numbers and its seed; every engine draws it again.
"""

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Sequence

import numpy as np

SIZES = {
    "tiny": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 256,
    },
    "S": {
        "hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 768, "vocab_size": 4_096,
    },
    "M": {
        "hidden_size": 512, "num_hidden_layers": 12, "num_attention_heads": 8,
        "num_key_value_heads": 2, "intermediate_size": 1_536, "vocab_size": 16_384,
    },
}  # fmt: skip


def huggingface_config(size: dict[str, int]) -> dict:
    """config.json of a Qwen2 model of that size, embeddings tied, no end token."""
    return size | {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu",
        "rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "max_position_embeddings": 32_768,
        "tie_word_embeddings": True, "use_sliding_window": False, "attention_dropout": 0.0,
        "torch_dtype": "float32",
    }  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Work:
    """A piece of work: `prompts` prompts of `prompt` tokens, `group` completions each of `new` tokens.

    Prompts are random, or the token lists of a JSON file, of which the longest has `prompt` tokens.

    kind: what is done, a method of the engines: "sample", "score", "grpo" or "ragged".
    lanes: "ragged" only: completions of a prompt that our engine decodes at a time; when one ends, the next
      begins.  0: fixed batches; when the last row of one ends, the next begins.
    file: the prompts' file; "": random ones.
    """

    kind: str
    prompts: int
    group: int
    prompt: int
    new: int
    lanes: int = 0
    seed: int = 0
    file: str = ""

    @property
    def rows(self) -> int:
        """Completions of all prompts."""
        return self.prompts * self.group

    def prompt_lists(self, vocab_size: int) -> list[list[int]]:
        """The tokens of each prompt."""
        if self.file:
            return json.loads(pathlib.Path(self.file).read_text())
        rng = np.random.default_rng((self.seed, 0))
        return rng.integers(0, vocab_size, (self.prompts, self.prompt), np.int32).tolist()

    def prompt_tokens(self, vocab_size: int) -> np.ndarray:
        """(prompts, prompt) int32, padded with zeros on the right."""
        tokens = np.zeros((self.prompts, self.prompt), np.int32)
        for row, prompt in zip(tokens, self.prompt_lists(vocab_size), strict=True):
            row[: len(prompt)] = prompt
        return tokens

    def prompt_lengths(self) -> np.ndarray:
        """(prompts,) int32."""
        if not self.file:
            return np.full(self.prompts, self.prompt, np.int32)
        return np.array([len(prompt) for prompt in self.prompt_lists(0)], np.int32)

    def completion_tokens(self, vocab_size: int) -> np.ndarray:
        """(prompts, group, new) int32."""
        rng = np.random.default_rng((self.seed, 1))
        return rng.integers(0, vocab_size, (self.prompts, self.group, self.new), np.int32)

    def advantages(self) -> np.ndarray:
        """(prompts, group) float32, of mean zero in a group."""
        x = np.random.default_rng((self.seed, 2)).normal(size=(self.prompts, self.group))
        return (x - x.mean(axis=1, keepdims=True)).astype(np.float32)

    def moved(self, logp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log-probs of an old and of a reference policy near those of the policy, as in mid-training.

        A tenth of the tokens is far enough from the old policy for the clip to act on them.
        """
        rng = np.random.default_rng((self.seed, 3))
        old, ref = (rng.normal(0.0, 0.12, (2, *logp.shape)) + logp).astype(np.float32)
        return old, ref

    def lengths(self) -> np.ndarray:
        """(prompts, group) int: lengths of the completions, heavy-tailed, a quarter of `new` on average."""
        rng = np.random.default_rng((self.seed, 4))
        return heavy_tailed_lengths(rng, (self.prompts, self.group), self.new)


GRPO = {
    "clip": 0.2,
    "kl_coef": 0.001,
    "learning_rate": 1e-6,
    "weight_decay": 0.01,
    "grad_clip": 1.0,
}


# Prompts, group, longest prompt, new tokens; prompts to score, to train on and of ragged lengths.
_COUNTS = {
    "tiny": (2, 4, 8, 8, 2, 2, 4),
    "S": (8, 8, 128, 128, 2, 2, 32),
    "M": (8, 8, 128, 128, 2, 1, 32),
    "model": (8, 8, 264, 64, 2, 1, 32),  # as long as BFCL's single turns
}


def works(size: str, prompt: int | None = None) -> dict[str, Work]:
    """The works of one size by name, or of a given "model".

    prompt: longest prompts.
    """
    prompts, group, longest, new, scored, trained, ragged = _COUNTS[size]
    return {
        "sample": Work("sample", prompts, group, prompt or longest, new),
        "prefill": Work("sample", prompts, group, prompt or longest, 1),
        "score": Work("score", scored, group, prompt or longest, new),
        "grpo": Work("grpo", trained, group, prompt or longest, new),
        "ragged": Work("ragged", ragged, group, prompt or longest, new),
    }


def with_prompts(work: Work, prompts: Sequence[list[int]], file: pathlib.Path) -> Work:
    """The work on given prompts: as many as it has, spread over those of .7 to 1 times its length.

    prompts: token lists; the chosen ones are written to `file`.  Raises ValueError if too few are that long.
    """
    low = math.ceil(0.7 * work.prompt)
    fitting = sorted((p for p in prompts if low <= len(p) <= work.prompt), key=len)
    n = work.prompts
    if len(fitting) < n:
        raise ValueError(f"{len(fitting)} prompts of {low} to {work.prompt} tokens: expected {n}")
    # Both ends of the range; a single prompt is the longest.
    chosen = [fitting[(len(fitting) - 1) * i // max(n - 1, 1)] for i in range(n)]
    chosen = chosen if n > 1 else fitting[-1:]
    file.write_text(json.dumps(chosen))
    return dataclasses.replace(work, prompt=len(chosen[-1]), file=str(file))


def heavy_tailed_lengths(rng: np.random.Generator, shape: tuple[int, ...], maximum: int) -> np.ndarray:
    """Lengths in 1..maximum of mean maximum / 4: a log-normal of width 1, cut off at the maximum.

    A few rows in a hundred reach the maximum, so nearly every fixed batch of 64 waits for one.
    """
    # E[min(X, 1)] = 1/4 for a log-normal X with mu = -1.8034, sigma = 1.
    drawn = rng.lognormal(math.log(maximum) - 1.8034, 1.0, shape)
    return np.clip(np.rint(drawn), 1, maximum).astype(np.int64)


AT_ONCE = 64  # rows that decode at a time, in every engine

# The settings of the project's commands (genenv_jax/run/allocator.py).  Every engine gets the same.
MALLOC = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "2147483647",
    "MALLOC_TOP_PAD_": "67108864",
}


def one_thread() -> dict[str, str]:
    """Environment of an engine's process: one thread for its kernels, no network, allocator settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    return (
        kept
        | MALLOC
        | {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false "
            "--xla_force_host_platform_device_count=1",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": "",
            "PYTHONUNBUFFERED": "1",
        }
    )
