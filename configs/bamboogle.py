"""Bamboogle: two-hop questions, closed book or with a search tool.

    genenv train --config=configs/bamboogle.py --workdir=runs/bamboogle \\
        --config.model.path=Qwen/Qwen2.5-7B-Instruct

Qwen2.5-7B-Instruct plays both roles: 10 epochs, batches of 64 tasks with 8 rollouts each, 4 variations
per seed.  There is no training data: a fifth of the 125 questions, with their sub-questions, are the seeds,
except those that give a held-out question away; 102 questions are held out.

    genenv evaluate --config=configs/bamboogle.py --workdir=runs/bamboogle-eval \\
        --model=Qwen/Qwen2.5-7B-Instruct --config.benchmark.seed_fraction=0.0

evaluates on all 125 questions, like published results (the paper: 76.0 trained, 68.0 base, by a measure that
it does not name).  `accuracy` is exact match (`em`), the standard; `f1`, `sub_em`, `precision` and `recall`
are reported too.  `--config.benchmark.judge_url=...` and `judge_model` add `judge`, the share of answers that
a judge model calls correct.

    genenv train --config=configs/bamboogle.py:search --workdir=runs/bamboogle-search \\
        --config.model.path=Qwen/Qwen2.5-7B-Instruct

lets the agent search for the question's own sub-questions, at most three times.  `searches` and `found` count
its searches and the sub-questions they found.  Agents are trained on whole episodes, and the seeds are only
the 16 two-hop questions.

    genenv train --config=configs/bamboogle.py:debug --workdir=runs/bamboogle-debug

(and `:search,debug`) is a two-minute smoke test on a CPU: two epochs on a few real questions, with a small,
randomly initialised model, which solves nothing.
"""

from genenv_jax.config import default_config
from genenv_jax.configs.recipes import debug

_VARIANTS = ("", "search", "debug", "search,debug")


def get_config(arg: str = ""):
    if arg not in _VARIANTS:
        raise ValueError(f"configs/bamboogle.py takes one of {_VARIANTS}, got {arg!r}")
    config = default_config()
    config.benchmark.name = "bamboogle"
    config.benchmark.verify_files = True
    config.model.path = "Qwen/Qwen2.5-7B-Instruct"
    config.limits.simulator_prompt = 4608
    if arg.startswith("search"):
        config.benchmark.mode = "search"
        # Four answers of at most 256 tokens each, and the results of three searches.
        config.limits.agent_prompt, config.limits.agent_response = 512, 256
        config.limits.agent_episode = 2048
        config.limits.simulator_prompt = 1024
        config.limits.prompt_buckets = (256,)
    if arg.endswith("debug"):
        debug(config, 512, 1024, (256, 512))
    if arg == "search,debug":
        config.limits.agent_episode = 512
    return config
