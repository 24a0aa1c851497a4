"""A real model beside transformers on torch: logits, greedy answers, and the sampler's log-probs.

    python bench/parity.py --config=configs/smollm2.py:api_bank \\
        --config.model.path=/models/SmolLM2-135M-Instruct

The prompts are those of held-out tasks, with the lengths asked for or the next shorter ones.  Logits and
greedy answers are computed in float32.  Then answers are sampled in bfloat16, as a run samples them, and
scored in bfloat16, as its update scores them: the difference is rounding, and the ratio of GRPO starts that
far from 1.  The same is done with only the products' operands in bfloat16.  Exit code 1 if logits differ by
more than 1e-3 or a greedy answer differs.
"""

import dataclasses
import os
import pathlib
import sys

import numpy as np
from absl import flags

_ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT))

from genenv_jax import cli  # noqa: E402

_TOLERANCE = 1e-3  # of a logit


def nearest(prompts: list[list[int]], lengths: list[int]) -> list[list[int]]:
    """For each length, the longest prompt that is not longer; the shortest if all are."""
    ordered = sorted(prompts, key=len)
    return [next((p for p in reversed(ordered) if len(p) <= length), ordered[0]) for length in lengths]


def main() -> None:
    """Compares and prints."""
    import jax
    import jax.numpy as jnp
    import torch
    import transformers

    from genenv_jax.config import validate
    from genenv_jax.models.language_model import LanguageModel
    from genenv_jax.models.scoring import score_completions
    from genenv_jax.models.transformer import Transformer
    from genenv_jax.players.build import make_benchmark
    from genenv_jax.sampling.draw import SamplingParams
    from genenv_jax.sampling.engine import Engine

    options = flags.FLAGS
    with cli.one_line_errors():
        config = validate(options.config)
        benchmark = make_benchmark(config)
        model = LanguageModel.load(config.model.path, dtype="float32")
    tasks = benchmark.tasks("eval")
    encoded = [model.encode_messages(benchmark.agent_messages(task)) for task in tasks]
    prompts = nearest(encoded, [int(length) for length in options.lengths])
    params = model.load_params()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        model.path, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    print(
        f"{model.path.name}, prompts of {', '.join(str(len(p)) for p in prompts)} tokens; "
        f"jax {jax.__version__}, torch {torch.__version__}, transformers {transformers.__version__}"
    )

    @jax.jit
    def logits(params, tokens):
        decoder, variables = Transformer(model.config), {"params": params}
        positions = jnp.arange(tokens.shape[-1])[None, None]
        hidden, _ = decoder.apply(variables, tokens, positions)
        return decoder.apply(variables, hidden[:, 0], method="logits")[0]

    gaps = []
    for prompt in prompts:
        with torch.inference_mode():
            want = theirs(torch.tensor([prompt])).logits[0].numpy()
        gaps.append(float(np.abs(logits(params, jnp.asarray([[prompt]])) - want).max()))
    print(f"logits, float32: largest difference {max(gaps):.1e}, of values up to {np.abs(want).max():.1f}")

    new = options.new_tokens
    widths = (max(map(len, prompts)),)
    greedy = Engine(model.config, SamplingParams(new, 1, model.eos_ids, temperature=0.0), 1, widths)
    ours = greedy(params, prompts, jax.random.key(0))
    equal = 0
    for i, prompt in enumerate(prompts):
        with torch.inference_mode():
            out = theirs.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
                do_sample=False,
                max_new_tokens=new,
                eos_token_id=list(model.eos_ids),
                pad_token_id=model.pad_id,
            )
        equal += out[0, len(prompt) :].tolist() == ours.completion(i, 0).content
    print(f"greedy answers of {new} tokens at most: {equal} of {len(prompts)} equal")

    for how in ({"dtype": "bfloat16"}, {"matmul_dtype": "bfloat16"}):
        rounded = dataclasses.replace(model.config, **how)
        engine = Engine(rounded, SamplingParams(new, 8, model.eos_ids), len(prompts), widths)
        rollouts = engine(params, prompts, jax.random.key(0))
        batch = rollouts.batch(widths, len(prompts))
        scored = np.asarray(score_completions(params, batch, rounded))
        exact = np.asarray(score_completions(params, batch, model.config))
        mask = np.asarray(batch.mask) > 0
        name = " ".join(f"{key} {value}" for key, value in how.items())
        for other, values in (("the trainer", scored), ("float32", exact)):
            gap = np.abs(rollouts.logprobs - values)[mask]
            print(
                f"{name}: log-probs of {mask.sum()} tokens, sampler against {other}: "
                f"mean {gap.mean():.1e}, 99 % {np.quantile(gap, 0.99):.1e}, largest {gap.max():.1e} nats"
            )
    sys.exit(0 if max(gaps) <= _TOLERANCE and equal == len(prompts) else 1)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    cli.define_config("Configuration file: benchmark and model.")
    flags.DEFINE_list("lengths", ["200", "300", "450", "600"], "Lengths of the prompts in tokens.")
    flags.DEFINE_integer("new_tokens", 48, "Longest answers.", 1)
    flags.mark_flags_as_required(["config"])
    cli.run(main)
