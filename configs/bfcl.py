"""BFCL, the paper's protocol: the long-context subset, each turn taken independently.

    genenv train --config=configs/bfcl.py --workdir=runs/bfcl \\
        --config.model.path=Qwen/Qwen2.5-7B-Instruct

Qwen2.5-7B-Instruct plays both roles, 10 epochs, batches of 64 tasks with 8 rollouts each, 4 variations
a seed: 539 seeds, 191 held-out turns of other conversations.  The records are read from $GENENV_DATA or
from where `genenv datasets --name=bfcl` puts them, and compared with the published ones.

The paper does not say how it compares calls.  Where the package of the official classes is installed,

    pip install --no-deps bfcl-eval==2026.3.23 && pip install mpmath==1.3.0

(without its dependencies), calls are executed: first the reference calls of earlier turns, then the answer.
State and results must equal the reference's, and needless calls cost reward.  The metric is
`multi_turn_long_context_turn_state`.  Elsewhere the calls must equal the reference calls, in their order:
`multi_turn_long_context_static_match`.  `--config.benchmark.multi_turn_rule=turn_state` (or `turn_static`)
chooses; the choice stands in the run's config.json.

`turn_static` also judges tasks with functions that the simulator made up; under `turn_state` a generated
task has its seed's functions, and its reference calls must run.

The whole leaderboard, as its authors score it, of any model:

    genenv evaluate --config=configs/bfcl.py:official --workdir=runs/bfcl-official

holds out every category.  The AST checker judges single turns; multi-turn categories are whole conversations
(with the package above) of up to 21 answers a turn.  The categories in Java and JavaScript need the extra
`bfcl` (`pip install -e '.[bfcl]'`).  Metrics have the leaderboard's names: each category, `non_live`, `live`,
`irrelevance_overall`, `multi_turn`, `overall`.  Memory and web search are not run and count 0, so that
`overall` is at most 0.6.  `configs/bfcl.py:official_v3` reads the records of v3 and forms its aggregates;
answers are decoded, checked and executed by the rules of v4 (bfcl-eval 2026.3.23), so that
its numbers are not quite those of the v3 leaderboard.

    genenv train --config=configs/bfcl.py:conversations --workdir=runs/bfcl-conversations \\
        --config.model.path=Qwen/Qwen2.5-7B-Instruct

trains on whole conversations instead of turns, with the package above: an agent calls, reads the results and
calls again until a turn is done, and the simulator writes conversations: initial state, requests and calls.
147 conversations of multi_turn_base are the seeds, 53 are held out.

    genenv train --config=configs/bfcl.py:debug --workdir=runs/bfcl-debug

(and `:conversations,debug`) checks in some minutes on a CPU that the parts work together: two epochs on a few
real records, with a small, randomly initialised model, which solves nothing.
"""

from genenv_jax.benchmarks.bfcl import backends
from genenv_jax.benchmarks.bfcl.categories import categories
from genenv_jax.config import default_config
from genenv_jax.configs.recipes import debug

_VARIANTS = ("", "debug", "conversations", "conversations,debug", "official", "official_v3")


def get_config(arg: str = ""):
    if arg not in _VARIANTS:
        raise ValueError(f"configs/bfcl.py takes one of {_VARIANTS}, got {arg!r}")
    config = default_config()
    config.benchmark.name = "bfcl"
    config.benchmark.verify_files = True
    config.benchmark.multi_turn_rule = "turn_state" if backends.is_installed() else "turn_static"
    config.model.path = "Qwen/Qwen2.5-7B-Instruct"
    config.limits.simulator_prompt = 4608  # the seed's reference calls and instructions come on top
    if arg == "debug":
        debug(config, 5120, 5120, (256, 2048))
        some = ("simple_python", "parallel", "multi_turn_long_context")
        config.benchmark.seed_categories = config.benchmark.eval_categories = some
    if arg.startswith("conversations"):
        config.benchmark.multi_turn_rule = "conversation"
        config.benchmark.episodes = True
        config.benchmark.seed_categories = config.benchmark.eval_categories = ("multi_turn_base",)
        # Answers and results of a reference take 1,100 tokens at most, 500 in the middle.
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
        config.benchmark.eval_categories = categories(version)
    return config
