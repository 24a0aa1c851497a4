"""BFCL, the paper's protocol: the long-context subset, each turn taken independently.

    python -m genenv_jax.main --config=configs/bfcl.py --workdir=runs/bfcl \\
        --config.model.path=Qwen/Qwen2.5-7B-Instruct

Qwen2.5-7B-Instruct plays both roles, 10 epochs, batches of 64 tasks with 8 rollouts each, 4 variations
a seed.  The records are read from $GENENV_DATA (see README); the number reported is
`multi_turn_long_context_static_match`: the calls of a turn against the reference calls, name and
arguments, in any order.

    python -m genenv_jax.main --config=configs/bfcl.py:debug --workdir=runs/bfcl-debug

runs the same code on a few of the real records with a small, randomly initialised model made on the
spot: two epochs in about two minutes on a CPU, most of it compiling.  Such a model writes no valid task;
the run shows that the parts work together and how rejections are counted.
"""

from genenv_jax.config import default_config


def get_config(arg: str = ""):
    if arg not in ("", "debug"):
        raise ValueError(f"configs/bfcl.py takes no argument or 'debug', got {arg!r}")
    config = default_config()
    config.benchmark.name = "bfcl"
    config.benchmark.version = "v4"
    config.benchmark.data_dir = ""  # where bfcl/v4 is; "": $GENENV_DATA
    config.benchmark.seed_categories = ("multi_turn_long_context",)
    config.benchmark.eval_categories = ("multi_turn_long_context",)
    config.model.path = "Qwen/Qwen2.5-7B-Instruct"
    config.limits.simulator_prompt = (
        4608  # the seed's reference calls and the instructions come on top
    )
    if arg == "debug":
        _debug(config)
    return config


def _debug(config):
    config.epochs = 2
    config.benchmark.seed_categories = ("simple_python", "parallel", "multi_turn_long_context")
    config.benchmark.eval_categories = ("simple_python", "parallel", "multi_turn_long_context")
    config.benchmark.max_seeds = 12
    config.benchmark.max_eval = 12
    config.model.path = ""
    config.model.dtype = "float32"
    config.model.make.vocab_size = 2048
    config.model.make.hidden_size = 32
    config.model.make.intermediate_size = 64
    config.limits.agent_prompt = 4096
    config.limits.simulator_prompt = 2048
    config.limits.agent_response = 48
    config.limits.simulator_response = 64
    config.limits.prompt_buckets = (256, 2048)
    config.agent.group_size = 4
    config.agent.batch_size = 4
    config.agent.minibatch_size = 4
    config.agent.base_share = 0.5
    config.simulator.variations = 2
    config.simulator.batch_size = 4
    config.simulator.minibatch_size = 4
    config.evaluation.batch_size = 4
