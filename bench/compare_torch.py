"""Hugging Face transformers on PyTorch as a worker of bench/compare.py, in its users' style.

`generate` on 64 rows at once with its cache; log-probs from logits at completion positions only; one
AdamW with fused updates.  Unlike ours, its sampling returns no log-probs.  In bfloat16 the weights are
bfloat16, except for updates, which are of float32 weights under autocast.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import protocol
import torch
import transformers
from workloads import AT_ONCE, GRPO, Work


class Torch:
    """The model and the works; see `protocol.serve`."""

    def __init__(self, directory: str, dtype: str = "float32"):
        torch.set_num_threads(1)
        torch.set_num_interop_threads(1)
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self.directory, self.dtype = directory, getattr(torch, dtype)
        self.model = self._load(self.dtype).eval()
        self.vocab = self.model.config.vocab_size

    def describe(self) -> dict[str, str]:
        return {"torch": torch.__version__, "transformers": transformers.__version__}

    def gemm(self, n: int) -> float:
        """GFLOP per CPU second of one n x n x n product of the engine's type."""
        a = torch.from_numpy(np.random.default_rng(0).normal(size=(n, n))).to(self.dtype)
        out = torch.empty_like(a)
        torch.matmul(a, a, out=out)
        times = [protocol.timed(lambda: torch.matmul(a, a, out=out))["cpu"] for _ in range(2)]
        return 2e-9 * n**3 / min(times)

    def logprobs(self, work: dict[str, Any]) -> list:
        work = Work(**work)
        with torch.inference_mode():
            logp = _logprobs(self.model, *self._sequences(work))
        return logp.reshape(work.prompts, work.group, work.new).double().tolist()

    def sample(self, work: Work) -> Callable[[], int]:
        prompts, mask = self._prompts(work)

        def run() -> int:
            parts = zip(prompts.split(AT_ONCE), mask.split(AT_ONCE), strict=True)
            return sum(self._generate(*part, work.new) for part in parts)

        return run

    def ragged(self, work: Work) -> Callable[[], int]:
        """Batches in the order of the prompts; a batch takes as long as its longest row."""
        lengths = torch.from_numpy(work.lengths().reshape(-1))
        inputs = [x.split(AT_ONCE) for x in (*self._prompts(work), lengths)]

        def run() -> int:
            for part, mask, limits in zip(*inputs, strict=True):
                self._generate(part, mask, work.new, _Lengths(work.prompt + limits))
            return int(lengths.sum())

        return run

    def score(self, work: Work) -> Callable[[], None]:
        inputs = self._sequences(work)

        def run() -> None:
            with torch.inference_mode():
                _logprobs(self.model, *inputs)

        return run

    def grpo(self, work: Work) -> Callable[[], dict[str, float]]:
        model = self._load(torch.float32).train()  # no dropout: the same numbers
        optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=GRPO["learning_rate"],
            weight_decay=GRPO["weight_decay"],
            fused=True,
        )
        inputs = self._sequences(work)
        with torch.inference_mode():
            logp = _logprobs(self.model, *inputs).numpy()
        shape = work.prompts, work.group, work.new
        old, ref = (torch.from_numpy(x.reshape(-1, work.new)) for x in work.moved(logp.reshape(shape)))
        advantages = torch.from_numpy(work.advantages().reshape(-1, 1))
        clip = GRPO["clip"]

        def run() -> dict[str, float]:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.dtype == torch.bfloat16):
                logp = _logprobs(model, *inputs)
            ratio = torch.exp(logp - old)
            surrogate = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
            difference = ref - logp
            kl = torch.exp(difference) - difference - 1
            loss = (GRPO["kl_coef"] * kl - surrogate).mean()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), GRPO["grad_clip"])
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return {"loss": loss.item(), "grad_norm": norm.item()}

        return run

    def _load(self, dtype: torch.dtype) -> Any:
        return transformers.AutoModelForCausalLM.from_pretrained(
            self.directory, dtype=dtype, attn_implementation="sdpa"
        )

    def _prompts(self, work: Work) -> tuple[torch.Tensor, torch.Tensor]:
        """(rows, prompt), every prompt repeated for its group and padded on the left, and its mask."""
        padding = work.prompt - work.prompt_lengths()
        tokens = work.prompt_tokens(self.vocab)
        tokens = np.stack([np.roll(row, n) for row, n in zip(tokens, padding, strict=True)])
        mask = np.arange(work.prompt) >= padding[:, None]
        return tuple(torch.from_numpy(x).long().repeat_interleave(work.group, dim=0) for x in (tokens, mask))

    def _sequences(self, work: Work) -> tuple[torch.Tensor, int, torch.Tensor | None]:
        """(rows, prompt + new), new, and the sequences' mask if some are padded."""
        completions = torch.from_numpy(work.completion_tokens(self.vocab)).long()
        rows = completions.reshape(-1, work.new)
        prompts, mask = self._prompts(work)
        # Without a mask the attention kernel knows that it is causal, which is faster.
        mask = None if mask.all() else torch.cat([mask, torch.ones_like(rows)], dim=1)
        return torch.cat([prompts, rows], dim=1), work.new, mask

    def _generate(self, prompts: torch.Tensor, mask: torch.Tensor, new: int, stop: Any = None) -> int:
        with torch.inference_mode():
            out = self.model.generate(
                prompts,
                attention_mask=mask,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=new,
                eos_token_id=None,
                pad_token_id=0,
                use_cache=True,
                stopping_criteria=transformers.StoppingCriteriaList([stop] if stop else []),
            )
        return out[:, prompts.shape[1] :].numel()


class _Lengths(transformers.StoppingCriteria):
    """Ends each row at its own length, prompt included."""

    def __init__(self, lengths: torch.Tensor):
        self.lengths = lengths

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        return input_ids.shape[1] >= self.lengths


def _logprobs(model: Any, sequences: torch.Tensor, new: int, mask: torch.Tensor | None) -> torch.Tensor:
    """(rows, new) log-probs of the last `new` tokens of each sequence (rows, t).

    mask: 0 where a sequence is padded; None if none is.
    """
    padded = {}
    if mask is not None:
        mask = mask[:, :-1]
        padded = {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    logits = model(sequences[:, :-1], logits_to_keep=new, use_cache=False, **padded).logits
    # A twentieth faster here than the gathered logits minus logsumexp.
    return torch.log_softmax(logits.float(), dim=-1).gather(-1, sequences[:, -new:, None])[..., 0]


if __name__ == "__main__":
    protocol.serve(lambda: Torch(*sys.argv[1:]))
