"""SmolLM2-135M-Instruct, a real chat model, from pretrained weights to a score on one machine.

    genenv train --config=configs/smollm2.py:api_bank --workdir=runs/smollm2 \\
        --config.model.path=/models/SmolLM2-135M-Instruct

A warm start on seed tasks teaches it the output formats of both roles; then agent and simulator co-evolve.
The benchmarks are `:api_bank` (the default), `:bfcl` (single turns), `:alfworld`, `:bamboogle`,
`:travelplanner`, `:dial`, `:dial_turns` and `:custom`; the limits fit the lengths of their prompts and
answers in the model's tokens.

    genenv train --config=configs/smollm2.py:api_bank,cpu --workdir=runs/smollm2-cpu \\
        --config.model.path=/models/SmolLM2-135M-Instruct

has sizes for two cores: a short warm start, 16 generated tasks per epoch, 96 held-out tasks.  Matmuls take
bfloat16 operands where the CPU multiplies them in hardware (AVX512_BF16).

`:api_bank,cpu` has been run: 50 minutes for the warm start, 23 for ten epochs, 17 GB.  The warm start raises
held-out accuracy from 0 to a fifth, the epochs add nothing, and p̂ goes from .4 to .6 (docs/results/).
`:bfcl,cpu`, with a warm start of 80 steps: 37 minutes, 28 for ten epochs, 15 GB.  The warm start raises
held-out single turns from 0 to .47, the epochs add nothing; a quarter of the tasks are valid; p̂: .1 to .5.
`:dial_turns,cpu`, with steps of eight prompts: 45 minutes, 25 for ten epochs (on a busy machine), 10 GiB.
The warm start raises held-out success from 0 to .64, and the epochs add nothing.
The other sizes are first guesses; the TPU compiler confirms that `:api_bank` fits (docs/memory.md).
"""

from ml_collections import ConfigDict

from genenv_jax.config import default_config
from genenv_jax.configs.recipes import cpu_matmul_dtype, small_curriculum

# For each benchmark: the longest prompt and completion of the agent and of the simulator, and prompt buckets,
# in tokens of a byte-level vocabulary of 50,000 to 150,000; seeds and held-out tasks fit with some margin.
_LENGTHS = {
    "api_bank": ((1408, 144), (1152, 640), (448, 768)),
    "bfcl": ((1088, 352), (1408, 640), (448, 768)),
    "alfworld": ((2048, 24), (2304, 1280), (768, 1280)),
    "bamboogle": ((256, 64), (416, 192), (128, 224)),
    "travelplanner": ((4224, 1024), (3200, 512), ()),
    "dial": ((576, 288), (80, 80), (208,)),
    "dial_turns": ((608, 64), (96, 128), (256,)),
    "custom": ((768, 256), (1152, 640), (320, 576)),
}
_SINGLE_TURNS = ("simple_python", "multiple", "parallel", "parallel_multiple")
_OPTIONS = {
    "api_bank": {"verify_files": True},
    "bfcl": {
        "seed_categories": _SINGLE_TURNS,
        "eval_categories": _SINGLE_TURNS,
        "verify_files": True,
    },
    "alfworld": {"verify_files": True},
    "bamboogle": {"verify_files": True},
    "travelplanner": {"verify_files": True},
    # As in configs/dial_turns.py: a small model must compute every position in a program.
    "dial_turns": {
        "positions": 4,
        "max_depth": 3,
        "deeper": (4,),
        "seed_depths": (0.2, 0.4, 0.4),
        "num_seeds": 512,
    },
}


def get_config(arg: str = "api_bank"):
    name, _, size = (arg or "api_bank").partition(",")
    if name == "cpu":
        name, size = "api_bank", "cpu"
    if size not in ("", "cpu"):
        raise ValueError(f"configs/smollm2.py takes a benchmark, and ',cpu' after it, got {arg!r}")
    config = on_accelerator(name)
    if size == "cpu":
        _fit_two_cores(config)
    return config


def on_accelerator(benchmark: str) -> ConfigDict:
    """The configuration for a pretrained chat model of 0.1 to 0.5 B parameters on one accelerator.

    Raises ValueError for a benchmark that is not in `_LENGTHS`.
    """
    if benchmark not in _LENGTHS:
        raise ValueError(f"benchmark {benchmark!r}: expected one of {', '.join(_LENGTHS)}")
    config = default_config()
    config.model.path = "HuggingFaceTB/SmolLM2-135M-Instruct"
    config.benchmark.name = benchmark
    config.benchmark.update(_OPTIONS.get(benchmark, {}))
    limits = config.limits
    agent, simulator, limits.prompt_buckets = _LENGTHS[benchmark]
    limits.agent_prompt, limits.agent_response = agent
    limits.simulator_prompt, limits.simulator_response = simulator
    if benchmark == "dial_turns":
        limits.agent_episode = 448
    config.warm_start.steps = 150
    config.warm_start.batch_size = 32
    config.warm_start.micro_batches = 4
    config.warm_start.learning_rate = 2e-4
    # A small model needs larger steps than the paper's 7B model.
    config.agent.learning_rate = config.simulator.learning_rate = 1e-5
    config.agent.groups = "informative"
    config.agent.micro_batches = config.simulator.micro_batches = 4
    config.simulator.batch_size = config.simulator.minibatch_size = 16
    small_curriculum(config)
    config.curriculum.seeds_per_epoch = 16
    return config


def _fit_two_cores(config: ConfigDict) -> None:
    """Sets sizes at which a 0.1 B parameter model trains on two cores within two hours."""
    config.model.dtype = "float32"
    config.model.matmul_dtype = cpu_matmul_dtype()
    config.compile_ahead = False  # compile only what is used
    limits = config.limits
    if config.benchmark.name == "api_bank":
        limits.prompt_buckets = (288, 416, 512, 640, 768)
    limits.response_buckets = (32, 256, 320)
    if config.benchmark.name not in ("bfcl", "travelplanner"):  # whose answers are longer
        limits.agent_response = min(limits.agent_response, 64)
    limits.simulator_response = min(limits.simulator_response, 384)
    config.warm_start.steps = 120
    config.warm_start.batch_size = config.warm_start.micro_batches = 16
    config.warm_start.validation_share = 0.02
    config.warm_start.validate_every = 40
    config.curriculum.seeds_per_epoch = 4
    config.agent.batch_size = 8
    config.agent.minibatch_size = config.agent.micro_batches = 4
    config.simulator.batch_size = 4
    config.simulator.minibatch_size = config.simulator.micro_batches = 4
    # About 30 steps in total.
    config.agent.learning_rate = config.simulator.learning_rate = 2e-5
    config.evaluation.every = 5
    config.evaluation.sampled = 0
    config.evaluation.max_tasks = 96
    # Small, for prompts with worked examples (2,400 tokens); the process takes 14.7 GB.
    config.evaluation.batch_size = 16
