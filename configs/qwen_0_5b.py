"""A Qwen2.5 of 0.5 B parameters, from pretrained weights to a score on one machine.

    genenv train --config=configs/qwen_0_5b.py:bfcl --workdir=runs/qwen \\
        --config.model.path=/models/Qwen2.5-Coder-0.5B-Instruct

The benchmarks are those of configs/smollm2.py, `:api_bank` by default.  Both players are adapters.  Training
all parameters (`--config.lora.rank=0` and a tenth of the learning rates) needs 22 GiB, more than a small chip
has (docs/memory.md, "Small models on one chip").

    genenv train --config=configs/qwen_0_5b.py:bfcl --arm=seeds --config.warm_start.steps=0 \\
        --workdir=runs/control

is GRPO on the seeds alone, which takes the Coder model's held-out accuracy from .48 to .65-.75 in minutes on
one H200 (docs/results/qwen.md).  `:bfcl,cpu` has sizes for two cores and a simulator that keeps its seeds'
functions:

    genenv train --config=configs/qwen_0_5b.py:bfcl,cpu --config.agent.base_share=0.0 --workdir=runs/alone

trains only on that simulator's tasks (Coder: .48 to .67 in four epochs at commit ae93e89).  With the warm
start and two evaluations this took 100 minutes; an earlier run needed 7.7 GiB.
"""

from genenv_jax.configs import smollm2


def get_config(arg: str = "api_bank"):
    config = smollm2.get_config(arg or "api_bank")
    config.model.path = "Qwen/Qwen2.5-0.5B-Instruct"
    config.lora.rank = 32
    config.warm_start.learning_rate = 5e-4  # a few passes over few seeds
    config.warm_start.roles = "simulator"  # the agent answers as its chat template says
    config.agent.learning_rate = config.simulator.learning_rate = 2e-4
    config.simulator.temperature = 0.7  # it writes little sense at 1
    config.agent.kl_coef = 0.0  # saves the forward pass of the reference
    if not arg.endswith("cpu"):
        _fit_one_card(config)
    else:
        _fit_two_cores(config)
    return config


def _fit_one_card(config) -> None:
    """Sets sizes for adapters on one accelerator; they were run on an H200."""
    config.model.remat = "dots"
    if config.benchmark.name == "bfcl":
        config.limits.prompt_buckets = (544,)  # few programs: compiling takes longer than padding
        config.limits.agent_response = 256
    config.epochs = 12
    config.curriculum.seeds_per_epoch = 96
    config.simulator.variations = 1
    config.agent.batch_size = 32
    config.agent.minibatch_size = 4
    config.agent.micro_batches = 1
    config.evaluation.every = 3
    config.evaluation.sampled = 4
    config.evaluation.batch_size = 128


def _fit_two_cores(config) -> None:
    """Sets sizes for adapters on two cores."""
    config.model.remat = "full"  # as fast as "dots", and the process needs 2.2 GiB less
    config.warm_start.steps = 20
    config.warm_start.validate_every = 10
    config.curriculum.seeds_per_epoch = 24
    config.epochs = 5
    if config.benchmark.name == "bfcl":
        _fit_bfcl_on_two_cores(config)


def _fit_bfcl_on_two_cores(config) -> None:
    """Sets sizes for functions in pairs (docs/results/qwen.md, "The simulator's tasks alone")."""
    config.benchmark.pair_functions = True
    limits = config.limits
    # Median prompts: held-out 287 tokens, the agent's in training 427, the simulator's 690.
    limits.prompt_buckets, limits.response_buckets = (352, 544, 800), (96,)
    limits.agent_response, limits.simulator_response = 192, 160
    limits.simulator_prompt = 1152
    # Answers have 40 to 50 tokens in the mean and 192 at most: 32 rows of the agent that stay busy, not 64.
    config.sampling.batch_size, config.sampling.lanes = 8, 4
    config.agent.batch_size, config.simulator.batch_size = 24, 48
    config.warm_start.steps = 24
    config.warm_start.batch_size = config.warm_start.micro_batches = 4
    config.warm_start.validate_every = 12
    config.curriculum.seeds_per_epoch = 48
    config.simulator.variations = 2
    config.epochs = 4
    config.evaluation.every = 4
    config.evaluation.max_tasks = 0
