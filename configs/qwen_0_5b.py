"""A Qwen2.5 of 0.5 B parameters, from pretrained weights to a score on one machine.

    genenv train --config=configs/qwen_0_5b.py:bfcl --workdir=runs/qwen

The benchmarks are those of configs/smollm2.py, `:api_bank` by default.  Both players are adapters.  Training
all parameters (`--config.lora.rank=0` and a tenth of the learning rates) needs 22 GiB, more than a small chip
has (docs/memory.md, "Small models on one chip").  The agent calls tools as its chat template says, so only
the simulator would need a warm start; both get one by default.  Nobody has run this size yet.

    genenv train --config=configs/qwen_0_5b.py:bfcl,cpu --arm=seeds --workdir=runs/control \\
        --config.model.path=/models/Qwen2.5-Coder-0.5B-Instruct --config.warm_start.steps=0

has sizes for two cores.  That command, GRPO on the seeds alone, is what has been run
(docs/results/qwen.md).
"""

from genenv_jax.configs import smollm2


def get_config(arg: str = "api_bank"):
    config = smollm2.get_config(arg or "api_bank")
    config.model.path = "Qwen/Qwen2.5-0.5B-Instruct"
    config.lora.rank = 32
    config.warm_start.learning_rate = 5e-4  # a few passes over few seeds
    if config.compile_ahead:
        config.agent.learning_rate = config.simulator.learning_rate = 1e-4
    else:
        _fit_two_cores(config)
    return config


def _fit_two_cores(config) -> None:
    """Sets sizes at which an epoch of adapters takes some minutes on two cores."""
    limits = config.limits
    config.model.remat = "none"  # 16 GB suffice, and the backward pass recomputes nothing
    if config.benchmark.name == "bfcl":
        # Of its prompts a half has 287 tokens or fewer, a twentieth more than 670.
        limits.prompt_buckets, limits.response_buckets = (352, 544, 768), (96,)
        limits.agent_response = 192
    config.agent.learning_rate = config.simulator.learning_rate = 2e-4
    config.agent.kl_coef = 0.0  # scoring would cost a pass, and adapters stay near the model
    config.curriculum.seeds_per_epoch = 24
    config.evaluation.every = 8
    config.epochs = 8
