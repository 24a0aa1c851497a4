"""SmolLM2-135M-Instruct, a real pretrained chat model, from its weights to a score on one machine.

    python -m genenv_jax.main --config=configs/smollm2.py:api_bank --workdir=runs/smollm2 \\
        --config.model.path=/models/SmolLM2-135M-Instruct

A warm start teaches it the forms of both roles on seed tasks, then agent and simulator are trained against
each other.  `:api_bank` (the default), `:bfcl` (single turns), `:alfworld` and `:dial` are the benchmarks;
the limits are the lengths of their prompts and answers in the tokens of the model.

    python -m genenv_jax.main --config=configs/smollm2.py:api_bank,cpu --workdir=runs/smollm2-cpu \\
        --config.model.path=/models/SmolLM2-135M-Instruct

has sizes for two cores: a short warm start, 16 generated tasks an epoch, 48 of the held-out tasks.

Only `:api_bank,cpu` has been run: its warm start takes 15 minutes and works, but its epochs are too small for
the players to learn from (docs/real-model.md).  The other sizes are first guesses.
"""

from genenv_jax.config import default_config

# Longest prompts and completions of each role in tokens; seeds and held-out tasks fit, with some room.
_LIMITS = {
    "api_bank": {"agent": (1408, 96), "simulator": (1152, 640), "buckets": (448, 768)},
    "bfcl": {"agent": (768, 256), "simulator": (896, 640), "buckets": (320, 576)},
    "alfworld": {"agent": (2048, 24), "simulator": (2304, 1280), "buckets": (768, 1280)},
    "dial": {"agent": (80, 80), "simulator": (80, 80), "buckets": ()},
}


def get_config(arg: str = "api_bank"):
    name, _, size = (arg or "api_bank").partition(",")
    if name == "cpu":
        name, size = "api_bank", "cpu"
    if name not in _LIMITS or size not in ("", "cpu"):
        raise ValueError(
            f"configs/smollm2.py takes one of {', '.join(_LIMITS)}, and ',cpu' after it, got {arg!r}"
        )
    config = default_config()
    config.model.path = "HuggingFaceTB/SmolLM2-135M-Instruct"
    config.benchmark.name = name
    if name == "bfcl":
        single_turns = ("simple_python", "multiple", "parallel", "parallel_multiple")
        config.benchmark.seed_categories = config.benchmark.eval_categories = single_turns
    if name != "dial":
        config.benchmark.verify_files = True
    limits = _LIMITS[name]
    config.limits.agent_prompt, config.limits.agent_response = limits["agent"]
    config.limits.simulator_prompt, config.limits.simulator_response = limits["simulator"]
    config.limits.prompt_buckets = limits["buckets"]
    config.warm_start.steps = 150
    config.warm_start.batch_size = 32
    config.warm_start.micro_batches = 4
    config.warm_start.learning_rate = 2e-4
    config.warm_start.warmup_steps = 10
    # A small model takes larger steps than the paper's 7B.
    config.agent.learning_rate = 1e-5
    config.agent.base_share = 0.0
    config.simulator.learning_rate = 1e-5
    config.simulator.success_rate_over = "task"
    # Eight attempts seldom meet the paper's band of 0.5 ± 0.1.
    config.curriculum.k_min = 0.3
    config.curriculum.seeds_per_epoch = 16
    config.simulator.batch_size = config.simulator.minibatch_size = 16
    config.simulator.micro_batches = 4
    config.agent.micro_batches = 4
    if size == "cpu":
        _cpu(config)
    return config


def _cpu(config):
    config.model.dtype = "float32"
    config.model.remat = "none"
    config.compile_ahead = False  # compiles what is used
    if config.benchmark.name == "api_bank":
        config.limits.prompt_buckets = (448, 640, 896)
    config.limits.agent_response = min(config.limits.agent_response, 64)
    config.limits.simulator_response = min(config.limits.simulator_response, 384)
    config.warm_start.steps = 20
    config.warm_start.batch_size = config.warm_start.micro_batches = 8
    config.warm_start.warmup_steps = 4
    config.warm_start.validate_every = 10
    config.warm_start.validation_share = 0.015
    config.curriculum.seeds_per_epoch = 4
    config.agent.batch_size = config.agent.minibatch_size = config.agent.micro_batches = 8
    config.simulator.batch_size = config.simulator.minibatch_size = 4
    config.evaluation.every = 5
    config.evaluation.sampled = 0
    config.evaluation.max_tasks = 48
    config.evaluation.batch_size = 8
