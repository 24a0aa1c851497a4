"""BFCL, the paper's protocol: the long-context subset, each turn taken independently.

    genenv train --config=configs/bfcl.py --workdir=runs/bfcl \\
        --config.model.path=Qwen/Qwen2.5-7B-Instruct

Qwen2.5-7B-Instruct plays both roles: 10 epochs, batches of 64 tasks with 8 rollouts each, 4 variations
per seed; 539 seeds, and 191 held-out turns from other conversations.  The records are read from $GENENV_DATA
or from where `genenv datasets --name=bfcl` puts them, and checked against the published ones.

The paper does not say how it compares calls.  If the package with the official classes is installed,

    pip install -e '.[bfcl]' && pip install --no-deps bfcl-eval==2026.3.23

calls are executed: first the reference calls of earlier turns, then the answer.
State and results must equal the reference's, and needless calls cost reward.  The metric is
`multi_turn_long_context_turn_state`.  Otherwise the calls must equal the reference calls, in order:
`multi_turn_long_context_static_match`.  `--config.benchmark.multi_turn_rule=turn_state` (or `turn_static`)
selects the rule; the run's config.json records it.

`turn_static` also scores tasks with functions that the simulator made up; under `turn_state` a generated
task has its seed's functions, and its reference calls must run.

The whole leaderboard for any model, as its authors score it:

    genenv evaluate --config=configs/bfcl.py:official --workdir=runs/bfcl-official

holds out every category.  The AST checker scores single turns; multi-turn categories are whole conversations
(with the package above) of up to 21 answers per turn.  The Java and JavaScript categories need the extra
`bfcl` (`pip install -e '.[bfcl]'`).  Metrics have the leaderboard's names: each category, `non_live`, `live`,
`irrelevance_overall`, `multi_turn`, `overall`.  Memory and web search are not run and count 0, so `overall`
is at most 0.6.  `configs/bfcl.py:official_v3` reads the v3 records and computes the v3 aggregates, but
decodes, checks and executes answers by the v4 rules (bfcl-eval 2026.3.23), so its results differ slightly
from the v3 leaderboard.

    genenv train --config=configs/bfcl.py:conversations --workdir=runs/bfcl-conversations \\
        --config.model.path=Qwen/Qwen2.5-7B-Instruct

trains on whole conversations instead of turns, with the package above.  The agent calls, reads the results
and calls again until a turn is done; the simulator writes conversations: initial state, requests and calls.
147 conversations of multi_turn_base are the seeds, and 53 are held out.

    genenv train --config=configs/bfcl.py:debug --workdir=runs/bfcl-debug

(and `:conversations,debug`) is a smoke test of a few minutes on a CPU: two epochs on a few real records, with
a small, randomly initialised model, which solves nothing.

    genenv train --config=configs/bfcl.py:v5e-16 --workdir=runs/bfcl

(and `:v5e-1`, `:v5e-4`, `:v5e-8`, `:v6e-8`, `:v5p-8`; `:gpu-16`, `:gpu-24`, `:gpu-80` for one GPU with that
many GB, `:gpu-8x80`) uses a Qwen2.5, mesh and sizes that fit (docs/memory.md).
"""

from genenv_jax.benchmarks.bfcl import backends, categories
from genenv_jax.config import default_config
from genenv_jax.configs.recipes import SLICES, debug, fit_slice

_VARIANTS = (
    *("", "debug", "conversations", "conversations,debug", "official", "official_v3"),
    *SLICES,
)


def get_config(arg: str = ""):
    if arg not in _VARIANTS:
        raise ValueError(f"configs/bfcl.py takes one of {_VARIANTS}, got {arg!r}")
    config = default_config()
    config.benchmark.name = "bfcl"
    config.benchmark.verify_files = True
    config.benchmark.multi_turn_rule = "turn_state" if backends.is_installed() else "turn_static"
    config.model.path = "Qwen/Qwen2.5-7B-Instruct"
    config.limits.simulator_prompt = 4608  # room for the seed's reference calls and instructions
    if arg in SLICES:
        fit_slice(config, arg)
    if arg == "debug":
        debug(config, 5120, 5120, (256, 2048))
        some = ("simple_python", "parallel", "multi_turn_long_context")
        config.benchmark.seed_categories = config.benchmark.eval_categories = some
    if arg.startswith("conversations"):
        config.benchmark.multi_turn_rule = "conversation"
        config.benchmark.episodes = True
        config.benchmark.seed_categories = config.benchmark.eval_categories = ("multi_turn_base",)
        # A reference's answers and results take at most 1,100 tokens; the median is 500.
        config.limits.agent_prompt, config.limits.agent_response = 3072, 256
        config.limits.agent_episode = 3072
        config.limits.simulator_response = 2048
    if arg == "conversations,debug":
        debug(config, 3584, 5120, (2048,))
        config.limits.agent_episode = 512
    if arg.startswith("official"):
        version = "v3" if arg == "official_v3" else "v4"
        config.benchmark.version = version
        config.benchmark.multi_turn_rule = "conversation"
        config.benchmark.seed_categories = ()
        config.benchmark.eval_categories = categories.names(version)
    return config
