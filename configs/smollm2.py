"""SmolLM2-135M-Instruct, a real pretrained chat model, from its weights to a score on one machine.

    genenv train --config=configs/smollm2.py:api_bank --workdir=runs/smollm2 \\
        --config.model.path=/models/SmolLM2-135M-Instruct

A warm start teaches it the forms of both roles on seed tasks, then agent and simulator are trained against
each other.  `:api_bank` (the default), `:bfcl` (single turns), `:alfworld`, `:bamboogle`, `:travelplanner`,
`:dial` and `:dial_turns` are the benchmarks; the limits are the lengths of their prompts and answers in the
tokens of the model.

    genenv train --config=configs/smollm2.py:api_bank,cpu --workdir=runs/smollm2-cpu \\
        --config.model.path=/models/SmolLM2-135M-Instruct

has sizes for two cores: a short warm start, 16 generated tasks an epoch, 96 of the held-out tasks.

Products take bfloat16 operands there, which pays on CPUs with AVX512_BF16; on others set
`--config.model.matmul_dtype=""`.

`:api_bank,cpu` has been run: 50 minutes for the warm start, 23 for ten epochs, 17 GB.  Expect a fifth of the
held-out calls, from 0, by the warm start, no more by the epochs, and p̂ from .4 to .6 (docs/results/).
`:bfcl,cpu`, with a warm start of 80 steps: 37 minutes, 28 for ten epochs, 15 GB: .47 of the held-out single
turns by the warm start, from 0, no more by the epochs; one in four generated tasks is valid, p̂ .1 to .5.
`:dial_turns,cpu`, with steps of eight prompts: 45 minutes, 25 for ten epochs (with other work), 10 GiB;
.64 of the episodes by the warm start, from 0, and no more by the epochs.
The other sizes are first guesses; of `:api_bank` the TPU compiler says that it fits (docs/memory.md).
"""

from genenv_jax.config import default_config, small_model_on_cpu, small_model_settings


def get_config(arg: str = "api_bank"):
    name, _, size = (arg or "api_bank").partition(",")
    if name == "cpu":
        name, size = "api_bank", "cpu"
    if size not in ("", "cpu"):
        raise ValueError(f"configs/smollm2.py takes a benchmark, and ',cpu' after it, got {arg!r}")
    config = default_config()
    config.model.path = "HuggingFaceTB/SmolLM2-135M-Instruct"
    small_model_settings(config, name)
    if size == "cpu":
        small_model_on_cpu(config)
    return config
