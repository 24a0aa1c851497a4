"""The main comparison: eight seeds of each arm on the embedded default, at equal numbers of rollouts.

    python -m genenv_jax.experiment --config=configs/ablations/suite.py --workdir=runs/suite

`:tuning` runs two other seeds, for choosing settings; `:quick` two seeds of three arms for two epochs, to
see that it works.  The contrasts that the correction for multiple tests is over are named here, beforehand.
A run takes a few minutes on a core after the base model of its seed is trained.
"""

from genenv_jax.experiments.suite import default_suite

_ARMS = {
    "genenv": "configs/ablations/genenv.py",
    "random": "configs/ablations/random.py",
    "static-64": "configs/ablations/static.py:64",
    "static-512": "configs/ablations/static.py:512",
    "selection": "configs/ablations/selection.py",
    "seed-grpo": "configs/ablations/seed_grpo.py",
    "teacher-3x": "configs/ablations/teacher.py:3.3",
}


def get_config(arg: str = ""):
    if arg not in ("", "tuning", "quick"):
        raise ValueError(f"configs/ablations/suite.py takes 'tuning' or 'quick', got {arg!r}")
    suite = default_suite()
    suite.arms = dict(_ARMS)
    suite.order = tuple(_ARMS)
    # Seed 102 is left out for 108: its base model has not learnt to write reference calls (1 % of its tasks
    # are valid, where the others' are 75 to 95 %), so there is no simulator to be trained.
    suite.seeds = (100, 101, 108, 103, 104, 105, 106, 107)
    suite.overrides = {
        "epochs": 60,
        "rollouts": 10_000,
        "export": False,
        "tensorboard": "never",
        "checkpoint": {"every": 10},
        "evaluation": {"reroll": 32},
    }
    suite.contrasts = (("genenv", "random"), ("genenv", "static-64"))
    suite.threshold_arm = "random"
    suite.jobs = 2
    if arg == "tuning":
        suite.seeds = (0, 1)
    if arg == "quick":
        suite.arms = {name: _ARMS[name] for name in ("genenv", "random", "static-64")}
        suite.order = tuple(suite.arms)
        suite.seeds = (0, 1)
        suite.overrides = {
            "epochs": 2,
            "rollouts": 0,
            "export": False,
            "tensorboard": "never",
            "warm_start": {"steps": 60},
            "curriculum": {"seeds_per_epoch": 8},
        }
    return suite
