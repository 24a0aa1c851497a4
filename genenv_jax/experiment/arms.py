"""The arms of the ablations: what each one changes in any benchmark's configuration.

    genenv train --config=configs/bfcl.py --arm=random --workdir=runs/random

`teacher` trains on tasks that the benchmark generates itself.  If it cannot, a model behind any server with
OpenAI's chat completions API writes them before training
(`pip install -e '.[endpoint]'`; the key is $OPENAI_API_KEY; the budget is in tokens, prompts included):

    genenv train --config=configs/bfcl.py --arm=teacher --workdir=runs/teacher-bfcl \\
        --config.tasks.teacher.url=http://localhost:8000/v1 \\
        --config.tasks.teacher.model=Qwen/Qwen2.5-72B-Instruct --config.tasks.teacher.budget=5000000

All arms of a suite share each seed's warm start and the optimisers.  They are compared at equal numbers of
processed tokens, up to the number that every run has reached.
"""

import difflib

from ml_collections import ConfigDict

# The simulator writes all tasks, and a record's weight depends on its reward alone, not its skills.
_REWARD_ALONE = {"simulator.mixture": 0.0, "simulator.coverage": 0.0}
# It stays the initial simulator.
_FROZEN = {"simulator.train": False, "simulator.mixture": 0.0}

ARMS: dict[str, dict[str, object]] = {
    # GenEnv as configured: the simulator learns by reward-weighted regression on R_env.
    "genenv": {},
    # The paper to the letter: p̂ over a seed's variations, its k_min, β and λ, and one pass.
    "paper": {
        **_REWARD_ALONE,
        "simulator.success_rate_over": "batch",
        "simulator.variations": 4,
        "simulator.rwr_temperature": 1.0,
        "simulator.update_epochs": 1,
        "curriculum.k_min": 0.1,
        "curriculum.beta": 2.0,
    },
    # The paper's loss with GenEnv's p̂, band and weights as configured, in four passes.
    "rwr-4": {**_REWARD_ALONE, "simulator.update_epochs": 4},
    # The control: the simulator learns from all its attempted tasks alike, whatever the agent made of them.
    "self-training": {
        **_REWARD_ALONE,
        "simulator.update_epochs": 4,
        "simulator.rwr_temperature": 0.0,
        "curriculum.k_min": 1.0,
    },
    # The simulator is asked for tasks at the target success rate, and learns from their measured rates.
    "hindsight": {"simulator.method": "hindsight", "simulator.coverage": 0.0, "simulator.update_epochs": 2},
    # The same without training: what is asked for follows the agent, the simulator stays the initial one.
    "asked": {**_FROZEN, "simulator.method": "hindsight"},
    # GenEnv-Random: the simulator writes fresh tasks and is never trained; nothing follows R_env.
    "random": {**_FROZEN, "simulator.rwr_temperature": 0.0},
    # The same, but prompts that ask for a difficulty ask as GenEnv's: what is left out is the training.
    "frozen": _FROZEN,
    # GenEnv-Static: tasks that the initial simulator writes once; five per seed in the paper.
    "static-64": {**_FROZEN, "tasks.source": "static", "tasks.count": 64},
    "static-512": {**_FROZEN, "tasks.source": "static", "tasks.count": 512},
    "static": {**_FROZEN, "tasks.source": "static", "simulator.variations": 5},
    # The simulator learns by policy gradient, with its variations compared within each seed.
    "seed-grpo": {"simulator.method": "grpo", "simulator.coverage": 0.0},
    # Offline data from a stronger, fixed generator, 3.3 tasks per seed as in the paper: the benchmark's own
    # generator, or a model behind a server if tasks.teacher.url and tasks.teacher.model are set.
    "teacher": {**_FROZEN, "tasks.source": "teacher", "tasks.teacher.per_seed": 3.3},
    # GRPO on the seeds alone: what the benchmark's data teaches without generated tasks.
    "seeds": {**_FROZEN, "tasks.source": "seeds", "simulator.variations": 1, "agent.base_share": 0.0},
    # The upper bound: tasks at the difficulties that the agent solves with the target success rate.
    "oracle": {**_FROZEN, "tasks.source": "oracle"},
}

# Settings that the suites use for all arms.  Runs end after the same number of rollouts, including those of
# groups that were not trained on.  Some tasks are rolled out a second time, to measure p̂ without selection
# bias.
EQUAL_ROLLOUTS: dict[str, object] = {
    "epochs": 60,
    "rollouts": 10_000,
    "export": False,
    "tracking.trackers": (),
    "checkpoint.every": 10,
    "evaluation.reroll": 32,
}


def apply_arm(config: ConfigDict, name: str) -> None:
    """Applies an arm's changes to `config`.  Raises ValueError for an unknown name."""
    if name not in ARMS:
        close = difflib.get_close_matches(name, ARMS, 1)
        hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(ARMS)}"
        raise ValueError(f"--arm={name}: {hint}")
    config.update_from_flattened_dict(ARMS[name])
