"""Qwen2.5-0.5B-Instruct, from pretrained weights to a score on one accelerator.

    genenv train --config=configs/qwen_0_5b.py:bfcl --workdir=runs/qwen

A warm start on the seed tasks, then co-evolution of agent and simulator, as in configs/smollm2.py.
The benchmarks are `:api_bank` (the default), `:bfcl` (single turns), `:alfworld`, `:bamboogle`,
`:travelplanner`, `:dial` and `:dial_turns`.
Both players are adapters.  Training all parameters (`--config.lora.rank=0` and a tenth of the learning rates)
needs 22 GiB, more than a small chip has (docs/memory.md, "Small models on one chip").  Nobody has run it yet.
"""

from genenv_jax.configs import smollm2


def get_config(arg: str = "api_bank"):
    config = smollm2.on_accelerator(arg or "api_bank")
    config.model.path = "Qwen/Qwen2.5-0.5B-Instruct"
    config.lora.rank = 32
    for part in (config.warm_start, config.agent, config.simulator):
        part.learning_rate *= 10  # adapters take larger steps
    config.warm_start.learning_rate = 5e-4  # a few passes over few seeds
    return config
