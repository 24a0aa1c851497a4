"""Qwen2.5-0.5B-Instruct from its weights to a score on one accelerator.

    python -m genenv_jax.main --config=configs/qwen_0_5b.py:bfcl --workdir=runs/qwen

A warm start on the seed tasks, then agent and simulator against each other, as in configs/smollm2.py.
`:api_bank` (the default), `:bfcl` (single turns), `:alfworld` and `:dial` are the benchmarks.  The TPU
compiler says what fits (docs/memory.md, "Small models on one chip"); nobody has run it yet.
"""

from genenv_jax.config import default_config, small_model_settings


def get_config(arg: str = "api_bank"):
    config = default_config()
    config.model.path = "Qwen/Qwen2.5-0.5B-Instruct"
    small_model_settings(config, arg or "api_bank")
    return config
