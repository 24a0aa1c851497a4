"""Your own questions and answers, from files or from a class; docs/your_benchmark.md shows both.

    genenv train --config=configs/custom.py --workdir=runs/mine \\
        --config.benchmark.train=train.jsonl --config.benchmark.held_out=held_out.jsonl

Qwen2.5-7B-Instruct plays both roles, with the paper's settings.  Each line of a file is
{"prompt": ..., "answer": ...}; `benchmark.checker` says how answers are compared: "exact", "f1", "numeric",
"last_number" or "call".  Parquet files of verl and of GenEnv's public code are read as they are.  Without
`held_out`, a fifth of `train` is held out.  With `--config.benchmark.checker=last_number` the published files
of GSM8K are read as they are (JSON lines or parquet; `question`, and `answer` with `#### 72`).

    genenv train --config=configs/custom.py --workdir=runs/units \\
        --config.benchmark.name=units:Units

uses your own class; its options are settings too.  `--config.benchmark.name=gymnasium` with
`--config.benchmark.env=lamps:Lamps` uses your own environment, turn by turn.

    genenv train --config=configs/custom.py:small --workdir=runs/mine-small \\
        --config.benchmark.train=train.jsonl --config.model.path=/models/SmolLM2-135M-Instruct

is for a chat model of 0.1 to 0.5 B parameters on one accelerator: a warm start on your questions, then 64
generated tasks per epoch.  `:small,cpu` has sizes for two cores; with these, API-Bank took 73 minutes.

    genenv train --config=configs/custom.py:scratch --workdir=runs/units-scratch \\
        --config.benchmark.name=units:Units

needs no model: as in configs/quickstart.py, a small one is made and trained on your questions, then 30 epochs
teach it more.  It is for a few hundred short questions with few wordings.  With
docs/your_benchmark.md's Units it takes eight minutes of one core, and held-out accuracy rises from .81 to .94
(random seed 1: .27 to .88).

    genenv train --config=configs/custom.py:debug --workdir=runs/mine-debug \\
        --config.benchmark.train=train.jsonl

is a two-minute smoke test on a CPU: two epochs on a few of the questions, with a small, randomly initialised
model, which solves nothing.
"""

from genenv_jax.config import default_config
from genenv_jax.configs import quickstart, smollm2
from genenv_jax.configs.recipes import debug

_VARIANTS = ("", "small", "small,cpu", "scratch", "debug")


def get_config(arg: str = ""):
    if arg not in _VARIANTS:
        raise ValueError(f"configs/custom.py takes one of {_VARIANTS}, got {arg!r}")
    if arg.startswith("small"):
        return smollm2.get_config(arg.replace("small", "custom"))
    if arg == "scratch":
        return _from_scratch()
    config = default_config()
    config.benchmark.name = "custom"
    config.model.path = "Qwen/Qwen2.5-7B-Instruct"
    if arg == "debug":
        debug(config, 384, 768, (256,))
    return config


def _from_scratch():
    """The quickstart's settings, for short questions."""
    config = quickstart.get_config()
    config.benchmark = default_config().benchmark
    config.benchmark.name = "custom"
    config.limits.agent_prompt, config.limits.agent_response = 96, 24
    config.limits.simulator_prompt, config.limits.simulator_response = 256, 64
    config.warm_start.steps = 300  # few: a model that knows all answers has nothing left to learn
    config.agent.base_share = 0.5  # a file's own questions count even if few new ones are valid
    config.epochs = 30
    config.evaluation.every = 5
    return config
