"""Helpers shared by several configurations."""

import pathlib

from ml_collections import ConfigDict


def cpu_matmul_dtype() -> str:
    """`config.model.matmul_dtype` for this machine's CPU.

    "bfloat16" if the CPU multiplies it in hardware, else "" (float32): others emulate it, which is slower.
    """
    info = pathlib.Path("/proc/cpuinfo")
    flags = info.read_text() if info.exists() else ""
    return "bfloat16" if "avx512_bf16" in flags or "amx_bf16" in flags else ""


def debug(
    config: ConfigDict,
    agent_prompt: int,
    simulator_prompt: int,
    prompt_buckets: tuple[int, ...],
    tasks: int = 12,
    batch_size: int = 4,
) -> None:
    """Changes a configuration to run on a CPU in minutes; it learns nothing.

    The model is small, created here and randomly initialised; there are two epochs, and answers are short.

    Args:
      agent_prompt, simulator_prompt, prompt_buckets: values for `config.limits`, in tokens of that model.
      tasks: maximum number of seeds, and of held-out tasks.
      batch_size: tasks per batch.
    """
    config.epochs = 2
    config.model.path = ""
    config.model.dtype = "float32"
    config.model.make.vocab_size = 2048
    config.model.make.hidden_size = 32
    config.model.make.intermediate_size = 64
    config.benchmark.max_seeds = config.benchmark.max_eval = tasks
    config.limits.agent_prompt = agent_prompt
    config.limits.simulator_prompt = simulator_prompt
    config.limits.prompt_buckets = prompt_buckets
    config.limits.agent_response = 48
    config.limits.simulator_response = 64
    config.agent.group_size = 4
    config.agent.base_share = 0.5
    config.simulator.variations = 2
    for part in (config.agent, config.simulator):
        part.batch_size = part.minibatch_size = batch_size
    config.evaluation.batch_size = batch_size


def small_curriculum(config: ConfigDict) -> None:
    """Sets the objective of a simulator whose tasks get some ten attempts each."""
    # A batch that mixes easy and hard tasks would be kept for its mean.
    config.simulator.success_rate_over = "task"
    # p̂ of ten attempts is seldom in the paper's band of 0.5 ± 0.1.  A wide band needs steep weights: at
    # λ = 1 and β = 2, those in a band of ± 0.3 differ by a sixth, which would reward nothing.
    config.curriculum.k_min = 0.3
    config.curriculum.beta = config.simulator.rwr_temperature = 4.0
