"""TravelPlanner, sole-planning with reference information, on the 45 training queries.

    genenv train --config=configs/travelplanner.py --workdir=runs/travelplanner \\
        --config.model.path=Qwen/Qwen2.5-7B-Instruct

Qwen2.5-7B-Instruct plays both roles, 10 epochs, 8 rollouts a task, 4 variations a seed: 27 seeds and 18
held-out queries, three and two of each level and length.  Only the training queries come with published
reference information, so that only they can be scored in full without the official flight table.  Files
are read from $GENENV_DATA or from where `genenv datasets --name=travelplanner` puts them.

Plans take up to 1,000 tokens, hence 1,280 for an answer instead of the paper's 512.  Reference
information is shortened to the prompt's 4,096 tokens; each of the 45 prompts still admits a plan that
passes all constraints.  Where final passes are too rare to learn from, `--config.benchmark.reward=micro`
rewards the share of the constraints that are passed.  Both rewards ask besides that what a plan names exists,
which the official evaluator does not always do (docs/benchmarks.md, "TravelPlanner's reward").

Metrics, with the official evaluator's names in snake case: `delivery_rate` (plans that could be read),
`commonsense_constraint_micro_pass_rate` and `..._macro_...` (8 constraints), `hard_constraint_micro_...`
and `..._macro_...` (budget and what was asked for), `final_pass_rate` (all; also as `accuracy`).
`genenv_mean` is the mean of the two micro and two macro rates, the number of the GenEnv paper (14.3 before
and 16.6 after training).  The rate of each constraint has the name of the official paper (`budget`, ...).
`grounded_final_pass_rate` and the other `grounded_...` rates are of the plans as the reward reads them.

    genenv evaluate --config=configs/travelplanner.py:train --workdir=runs/tp-train

holds out all 45: the official "train" numbers of any model.  `:validation` holds out the 180 validation
queries instead, and trains on all 45.  Their reference information and flights are not in this data; put
validation_ref_info.jsonl of the official repository into travelplanner/HEAD/database, or set
config.benchmark.flights to the path of clean_Flights_2022.csv.  Without either, the information is made
from the database without flights.  Then 143 of the 180 have a plan that passes, and results say that they
cannot be compared.

    genenv train --config=configs/travelplanner.py:debug --workdir=runs/travelplanner-debug

checks in two minutes on a CPU that the parts work together: two epochs on a few real records, with a small,
randomly initialised model, which solves nothing.
"""

from genenv_jax.config import default_config
from genenv_jax.configs.recipes import debug

_VARIANTS = ("", "debug", "train", "validation")


def get_config(arg: str = ""):
    if arg not in _VARIANTS:
        raise ValueError(f"configs/travelplanner.py takes one of {_VARIANTS}, got {arg!r}")
    config = default_config()
    config.benchmark.name = "travelplanner"
    config.benchmark.verify_files = True
    if arg == "validation":
        config.benchmark.eval = "validation"
    if arg == "train":
        config.benchmark.seed_fraction = 0.0
    config.model.path = "Qwen/Qwen2.5-7B-Instruct"
    config.limits.simulator_prompt = 4608
    config.limits.agent_response = 1280
    config.limits.simulator_response = 512
    if arg == "debug":
        debug(config, 4096, 4096, (2048,), tasks=6, batch_size=2)
        config.benchmark.prompt_chars = 6_000  # a small model's tokens are short
        config.benchmark.simulator_chars = 1_000
    return config
