"""The main comparison: eight seeds of each arm on the embedded default, at equal numbers of tokens.

    python -m genenv_jax.experiment --config=configs/ablations/suite.py --workdir=runs/suite

`:tuning` runs two other seeds, for choosing settings; `:quick` two seeds of three arms for two epochs, to
see that it works.  The contrasts that the correction for multiple tests is over are named here, beforehand.
A run takes a few minutes on a core after the base model of its seed is trained.  It ends after 10,000
rollouts, and what is compared is what all runs have reached.
"""

from genenv_jax.experiment.arms import ARMS, EQUAL_ROLLOUTS
from genenv_jax.experiment.plan import default_suite

_NAMES = ("genenv", "random", "static-64", "static-512", "selection", "seed-grpo")
_ARMS = {name: ARMS[name] for name in _NAMES} | {"teacher-3x": ARMS["teacher"]}
# A world that a small model learns in a minute.
_QUICK = {
    "epochs": 2,
    "export": False,
    "tracking.trackers": (),
    "warm_start.steps": 350,
    "warm_start.learning_rate": 5e-3,
    "warm_start.warmup_steps": 20,
    "model.make.num_layers": 2,
    "benchmark.positions": 4,
    "benchmark.max_depth": 4,
    "benchmark.deeper": (5,),
    "benchmark.seed_depths": (0.3, 0.3, 0.2, 0.2),
    "benchmark.eval_per_depth": 8,
    "agent.base_share": 0.5,  # rollouts even where so young a simulator writes no tasks
}


def get_config(arg: str = ""):
    if arg not in ("", "tuning", "quick"):
        raise ValueError(f"configs/ablations/suite.py takes 'tuning' or 'quick', got {arg!r}")
    if arg == "quick":
        suite = default_suite({name: ARMS[name] for name in _NAMES[:3]}, _QUICK)
    else:
        suite = default_suite(_ARMS, EQUAL_ROLLOUTS)
    # Seed 102 is left out for 108: its base model has not learnt to write reference calls (1 % of its tasks
    # are valid, where the others' are 75 to 95 %), so there is no simulator to be trained.
    suite.seeds = (0, 1) if arg else (100, 101, 108, 103, 104, 105, 106, 107)
    suite.contrasts = (("genenv", "random"), ("genenv", "static-64"))
    suite.threshold_arm = "random"
    suite.jobs = 2
    return suite
