"""API-Bank: the next API call of a conversation, on levels 1, 2 and 3.

    genenv train --config=configs/api_bank.py --workdir=runs/api_bank \\
        --config.model.path=Qwen/Qwen2.5-7B-Instruct

Qwen2.5-7B-Instruct plays both roles: 10 epochs, batches of 64 tasks with 8 rollouts each, 4 variations
per seed.  The seeds are the 842 sound, distinct calls of the 907 in the published training file of level 3
that no test call repeats (those of levels 1 and 2 are no longer published); all 399 + 135 + 245 test calls
are held out.

    genenv evaluate --config=configs/api_bank.py --workdir=runs/api_bank-eval \\
        --model=Qwen/Qwen2.5-7B-Instruct

writes `level-1-api/accuracy` (the headline), `level-2-api/accuracy` and `level-3-batch-inf/accuracy` for the
three levels, and `calls/accuracy` over all three.  They compare name and parameters of the call with the
gold call, with the official relaxations; each `accuracy_executed` scores the same answers by the official
execution (docs/benchmarks.md).  Levels 2 and 3 also have `accuracy_without_tool_search`,
`accuracy_tool_search_words` and `tool_search_errors`; level 3 also has `sample_accuracy`.  The splits
`level-1-response`, `level-2-response` and `level-3-batch-inf-response` in `eval_splits` give `rouge_l`.
The paper reports one number, 79.1 for the trained agent and 61.6 for the base model, and does not say for
which level; compare it with `calls/accuracy`.

    genenv train --config=configs/api_bank.py:debug --workdir=runs/api_bank-debug

is a two-minute smoke test on a CPU: two epochs on a few real records, with a small, randomly initialised
model, which solves nothing.
"""

from genenv_jax.config import default_config
from genenv_jax.configs.recipes import debug


def get_config(arg: str = ""):
    if arg not in ("", "debug"):
        raise ValueError(f"configs/api_bank.py takes no argument or 'debug', got {arg!r}")
    config = default_config()
    config.benchmark.name = "api_bank"
    config.benchmark.verify_files = True
    config.model.path = "Qwen/Qwen2.5-7B-Instruct"
    config.limits.simulator_prompt = 4608
    if arg == "debug":
        debug(config, 2048, 2048, (1024, 2048))
    return config
