"""The main comparison: eight seeds of each arm on the embedded default, at equal numbers of tokens.

    genenv experiment --config=configs/ablations/suite.py --workdir=runs/suite
    genenv experiment --config=configs/ablations/suite.py:growth --workdir=runs/growth

The seed tasks of the first are mostly too hard for the agent.  Those of `:growth` have one or two calls, and
what counts is the held-out tasks with more than any seed.  `:quick`: two seeds of three arms for two epochs,
to see that it works.  The contrasts that the correction for multiple tests is over are named beforehand.
A run takes a minute on a core after the base model of its seed is trained.  It ends after 10,000 rollouts,
of `:growth` 20,000, and what is compared is what all runs have reached.
"""

from genenv_jax.experiment.arms import ARMS, EQUAL_ROLLOUTS
from genenv_jax.experiment.plan import default_suite

_HARD = {
    **{name: ARMS[name] for name in ("genenv", "paper", "random", "static-64", "static-512")},
    "teacher-3x": ARMS["teacher"],
}
_GROW = {"curriculum.growth.share": 0.75}
_GROWTH = {
    "genenv": _GROW,
    "no-growth": {},
    **{name: ARMS[name] for name in ("paper", "random", "static-64", "static-512")},
    "frozen-growth": _GROW | ARMS["random"],
    "teacher-3x": ARMS["teacher"],
}
# Twice as long: the seeds teach enough at first.
_SHALLOW = {
    "benchmark.seed_depths": (0.6, 0.4, 0.0, 0.0, 0.0, 0.0),
    "epochs": 120,
    "rollouts": 20_000,
}
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
    if arg not in ("", "growth", "quick"):
        raise ValueError(f"configs/ablations/suite.py takes 'growth' or 'quick', got {arg!r}")
    if arg == "quick":
        suite = default_suite(
            {name: ARMS[name] for name in ("genenv", "random", "static-64")}, _QUICK
        )
        suite.contrasts = (("genenv", "random"), ("genenv", "static-64"))
        suite.seeds = (0, 1)
    elif arg == "growth":
        suite = default_suite(_GROWTH, EQUAL_ROLLOUTS | _SHALLOW)
        suite.metric = "eval/in_distribution/sampled/beyond_seeds"
        suite.contrasts = tuple(("genenv", name) for name in ("random", "no-growth"))
    else:
        suite = default_suite(_HARD, EQUAL_ROLLOUTS)
        suite.contrasts = tuple(("genenv", name) for name in ("random", "paper", "static-512"))
    if arg != "quick":
        # A base model that writes less than half of its tasks validly, before any update, is left out
        # (`genenv evaluate --role=simulator --config.seed=S`): 207, of which 26 % are valid, for 208.
        suite.seeds = (200, 201, 202, 203, 204, 205, 206, 208)
    suite.threshold_arm = "random"
    suite.jobs = 2
    return suite
