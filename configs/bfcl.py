"""BFCL, the paper's protocol: the long-context subset, each turn taken independently.

    python -m genenv_jax.main --config=configs/bfcl.py --workdir=runs/bfcl \\
        --config.model.path=Qwen/Qwen2.5-7B-Instruct

Qwen2.5-7B-Instruct plays both roles, 10 epochs, batches of 64 tasks with 8 rollouts each, 4 variations
a seed: 539 seeds, 191 held-out turns of other conversations.  The records are read from $GENENV_DATA or
from where `python -m genenv_jax.datasets --name=bfcl` puts them, and compared with the published ones.  The
number reported is `multi_turn_long_context_static_match`: the calls of a turn against the reference calls,
name and arguments, in any order.  The paper does not publish its rule; this one needs no further package
and also judges tasks with functions that the simulator made up.

    --config.benchmark.multi_turn_rule=turn_state

executes the calls instead (`multi_turn_long_context_turn_state`): the reference calls of the turns before,
then the answer; state and results must be the reference's.  It needs the package of the official classes,
without its dependencies:

    pip install --no-deps bfcl-eval==2026.3.23 && pip install mpmath==1.3.0

The whole leaderboard, as its authors score it, of any model:

    python -m genenv_jax.evaluate --config=configs/bfcl.py:official --workdir=runs/bfcl-official

holds out every category: single turns by the AST checker, multi-turn categories as whole conversations (the
package above) of up to 21 answers a turn.  Metrics have the leaderboard's names: each category, `non_live`,
`live`, `irrelevance_overall`, `multi_turn`, `overall`.  Memory and web search are not run and count 0, so
that `overall` is at most 0.6.  `configs/bfcl.py:official_v3` is the older version.

    python -m genenv_jax.main --config=configs/bfcl.py:debug --workdir=runs/bfcl-debug

runs the same code on a few of the real records with a small, randomly initialised model: two epochs
in about two minutes on a CPU, most of it compiling.  Such a model writes no valid task;
the run shows that the parts work together and how rejections are counted.
"""

from genenv_jax.benchmarks.bfcl.categories import categories
from genenv_jax.config import debug_settings, default_config

_VARIANTS = ("", "debug", "official", "official_v3")


def get_config(arg: str = ""):
    if arg not in _VARIANTS:
        raise ValueError(f"configs/bfcl.py takes one of {_VARIANTS}, got {arg!r}")
    config = default_config()
    config.benchmark.name = "bfcl"
    config.benchmark.verify_files = True
    config.model.path = "Qwen/Qwen2.5-7B-Instruct"
    config.limits.simulator_prompt = 4608  # the seed's reference calls and instructions come on top
    if arg == "debug":
        debug_settings(config, 4096, 2048, (256, 2048))
        some = ("simple_python", "parallel", "multi_turn_long_context")
        config.benchmark.seed_categories = config.benchmark.eval_categories = some
    if arg.startswith("official"):
        version = "v3" if arg == "official_v3" else "v4"
        config.benchmark.version = version
        config.benchmark.multi_turn_rule = "conversation"
        config.benchmark.seed_categories = ()
        config.benchmark.eval_categories = categories(version)
    return config
