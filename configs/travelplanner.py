"""TravelPlanner, sole-planning with reference information, on the 45 training queries.

    genenv train --config=configs/travelplanner.py --workdir=runs/travelplanner \\
        --config.model.path=Qwen/Qwen2.5-7B-Instruct

Qwen2.5-7B-Instruct plays both roles: 10 epochs, 8 rollouts per task, 4 variations per seed; 27 seeds and 18
held-out queries, three and two for each level and length.  Only the training queries come with published
reference information, so only they can be scored in full without the official flight table.  Files are
read from $GENENV_DATA or from where `genenv datasets --name=travelplanner` puts them.

Plans take up to 1,000 tokens, so the answer limit is 1,280 instead of the paper's 512.  Reference
information is shortened to the prompt's 4,096 tokens; each of the 45 prompts still admits a plan that
passes all constraints.  If final passes are too rare to learn from, `--config.benchmark.reward=micro`
rewards the share of constraints passed.  Both rewards also require that everything a plan names exists,
which the official evaluator does not always check (docs/benchmarks.md, "TravelPlanner").

Metrics, with the official evaluator's names in snake case: `delivery_rate` (plans that could be read),
`commonsense_constraint_micro_pass_rate` and `..._macro_...` (8 constraints), `hard_constraint_micro_...`
and `..._macro_...` (budget and explicit requests), `final_pass_rate` (all constraints; also as `accuracy`).
`genenv_mean` is the mean of the two micro and two macro rates, the number in the GenEnv paper (14.3 before
and 16.6 after training).  The rate of each constraint has the official paper's name (`budget`, ...).
`grounded_final_pass_rate` and the other `grounded_...` rates score the plans as the reward reads them.

    genenv evaluate --config=configs/travelplanner.py:train --workdir=runs/tp-train

holds out all 45: the official "train" results of any model.  `:validation` holds out the 180 validation
queries instead and trains on all 45.  This data lacks their reference information and flights: put
validation_ref_info.jsonl from the official repository into travelplanner/HEAD/database, or set
config.benchmark.flights to the path of clean_Flights_2022.csv.  Without either, the reference information
is made from the database without flights.  Then 143 of the 180 queries have a plan that passes, and results
say that they cannot be compared.

    genenv train --config=configs/travelplanner.py:debug --workdir=runs/travelplanner-debug

is a two-minute smoke test on a CPU: two epochs on a few real records, with a small, randomly initialised
model, which solves nothing.
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
