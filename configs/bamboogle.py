"""Bamboogle: questions of two hops, closed book or with a search tool.

    genenv train --config=configs/bamboogle.py --workdir=runs/bamboogle \\
        --config.model.path=Qwen/Qwen2.5-7B-Instruct

Qwen2.5-7B-Instruct plays both roles, 10 epochs, batches of 64 tasks with 8 rollouts each, 4 variations
a seed.  There is no training data: a fifth of the 125 questions and their sub-questions are the seeds.
Questions whose answers these seeds give away are dropped; 102 questions are held out.

    genenv evaluate --config=configs/bamboogle.py --workdir=runs/bamboogle-eval \\
        --model=Qwen/Qwen2.5-7B-Instruct --config.benchmark.seed_fraction=0.0

evaluates on all 125, as published numbers do (the paper: 76.0 trained, 68.0 base, by a measure that it does
not name).  `accuracy` is exact match (`em`), the standard; `f1`, `sub_em`,
`precision` and `recall` stand beside it.  `--config.benchmark.judge_url=...` and `judge_model` add a
`judge`'s share of correct answers.

    genenv train --config=configs/bamboogle.py:search --workdir=runs/bamboogle-search \\
        --config.model.path=Qwen/Qwen2.5-7B-Instruct

lets the agent search for the question's own sub-questions, three times at most.  `searches` and `found` say
how often it searched, and with what success.  Agents are trained on whole searches, and the seeds are the 16
questions of two hops alone.

    genenv train --config=configs/bamboogle.py:debug --workdir=runs/bamboogle-debug

(and `:search,debug`) checks in two minutes on a CPU that the parts work together: two epochs on a few real
questions, with a small, randomly initialised model, which solves nothing.
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
        # Four answers of at most 256 tokens, and what three searches find.
        config.limits.agent_prompt, config.limits.agent_response = 512, 256
        config.limits.agent_episode = 2048
        config.limits.simulator_prompt = 1024
        config.limits.prompt_buckets = (256,)
    if arg.endswith("debug"):
        debug(config, 512, 1024, (256, 512))
    if arg == "search,debug":
        config.limits.agent_episode = 512
    return config
