"""A Qwen2.5 of 0.5 B parameters, from pretrained weights to a score on one machine.

    genenv train --config=configs/qwen_0_5b.py:bfcl --workdir=runs/qwen

The benchmarks are those of configs/smollm2.py, `:api_bank` by default.  Both players are adapters.  Training
all parameters (`--config.lora.rank=0` and a tenth of the learning rates) needs 22 GiB, more than a small chip
has (docs/memory.md, "Small models on one chip").  The agent calls tools as its chat template says, so only
the simulator would need a warm start; both get one by default.

    genenv train --config=configs/qwen_0_5b.py:bfcl,cpu --arm=seeds --workdir=runs/control \\
        --config.model.path=/models/Qwen2.5-Coder-0.5B-Instruct --config.warm_start.steps=0

is GRPO on the seeds alone, with sizes for two cores.  It was started and not finished (docs/results/qwen.md).
Nothing else has been run.
"""

from genenv_jax.configs import smollm2


def get_config(arg: str = "api_bank"):
    config = smollm2.get_config(arg or "api_bank")
    config.model.path = "Qwen/Qwen2.5-0.5B-Instruct"
    config.lora.rank = 32
    config.warm_start.learning_rate = 5e-4  # a few passes over few seeds
    if not arg.endswith("cpu"):
        config.agent.learning_rate = config.simulator.learning_rate = 1e-4
    else:
        _fit_two_cores(config)
    return config


def _fit_two_cores(config) -> None:
    """Sets sizes for adapters on two cores."""
    config.model.remat = "dots"  # a sixth fewer operations than "full", for 2.4 GiB
    limits = config.limits
    if config.benchmark.name == "bfcl":
        # Of its prompts a half has 287 tokens or fewer, a twentieth more than 670.
        limits.prompt_buckets, limits.response_buckets = (352, 544, 768), (96,)
        limits.agent_response = 192
    config.agent.learning_rate = config.simulator.learning_rate = 4e-4
    config.agent.kl_coef = 0.0  # saves the forward pass of the reference
    config.curriculum.seeds_per_epoch = 24
    config.evaluation.every = 5
    config.epochs = 5
