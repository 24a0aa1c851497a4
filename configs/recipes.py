"""Helpers shared by several configurations."""

import pathlib
from typing import Any

from ml_collections import ConfigDict

# For each TPU slice: chips, model, rank of the adapters (0: all parameters) and memory.offload.  The TPU
# compiler confirms that each fits with prompts of 4,608 tokens (docs/memory.md).  GPU entries are derived
# from its figures for TPU chips of 31 GiB.
SLICES = {
    "v5e-1": (1, "Qwen2.5-1.5B", 32, "none"),
    "v5e-4": (4, "Qwen2.5-7B", 32, "none"),
    "v5e-8": (8, "Qwen2.5-14B", 32, "none"),
    "v5e-16": (16, "Qwen2.5-7B", 0, "player"),
    "v6e-8": (8, "Qwen2.5-7B", 0, "none"),
    "v5p-8": (4, "Qwen2.5-7B", 0, "none"),
    "gpu-16": (1, "Qwen2.5-0.5B", 32, "none"),
    "gpu-24": (1, "Qwen2.5-1.5B", 32, "none"),
    "gpu-80": (1, "Qwen2.5-7B", 32, "none"),
    "gpu-8x80": (8, "Qwen2.5-7B", 0, "none"),
}


def slice_settings(rank: int, chips: int) -> tuple[tuple[int, int, int], dict[str, Any]]:
    """The mesh (data, fsdp, tensor) and the settings of a run on a TPU slice, whatever the model.

    With adapters, the gradient is small, so accumulating it is free: one prompt per chip at a time.  In
    full training, a second gradient would cost more than a prompt, so a step has a single micro-batch,
    and half as many prompts on fewer than 16 chips; one chip takes prompts one by one.
    """
    few = chips < 16
    mesh = (1, min(chips, 16), max(1, chips // 16))
    minibatch = 16 if rank or not few else 8
    micro = minibatch // mesh[1] if rank or chips == 1 else 1
    changes: dict[str, Any] = {
        "model.attention": "splash",
        "memory.moments": "float32" if rank else "bfloat16",
    }
    for player in ("agent", "simulator"):
        changes[f"{player}.minibatch_size"] = minibatch
        changes[f"{player}.micro_batches"] = max(1, micro)
        if few:
            changes[f"{player}.batch_size"] = 32
    return mesh, changes


def fit_slice(config: ConfigDict, name: str) -> None:
    """Sets model, adapters, mesh and sizes for the TPU slice or the GPUs `name` of `SLICES`."""
    chips, model, config.lora.rank, config.memory.offload = SLICES[name]
    config.model.path = f"Qwen/{model}-Instruct"
    (config.mesh.data, config.mesh.fsdp, config.mesh.tensor), changes = slice_settings(
        config.lora.rank, chips
    )
    config.update_from_flattened_dict(changes)
    if name.startswith("gpu"):
        config.model.attention = "auto"
    if config.lora.rank:
        config.agent.learning_rate = config.simulator.learning_rate = 1e-4


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
    # A batch that mixes easy and hard tasks would be kept because of its mean.
    config.simulator.success_rate_over = "task"
    # p̂ of ten attempts is seldom in the paper's band of 0.5 ± 0.1.  A wide band needs steep weights: at
    # λ = 1 and β = 2, weights in a band of ± 0.3 differ by only a sixth, which would reward nothing.
    config.curriculum.k_min = 0.3
    config.curriculum.beta = config.simulator.rwr_temperature = 4.0
