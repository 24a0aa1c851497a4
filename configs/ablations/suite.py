"""The main comparison: eight random seeds of each arm on the embedded default, at equal tokens and rollouts.

    genenv experiment --config=configs/ablations/suite.py --workdir=runs/suite
    genenv experiment --config=configs/ablations/suite.py:growth --workdir=runs/growth

The seed tasks of the first are mostly too hard for the agent.  Those of `:growth` have one or two calls; its
metric is success on held-out tasks with more calls than any seed task.  `:quick` is a smoke test: two random
seeds of three arms for two epochs.  The contrasts in the multiple-testing correction are fixed in advance.
A run takes a minute on one core once the base model for its random seed is trained.  It ends after 10,000
rollouts (`:growth`: 20,000), and runs are compared at a point that all of them have reached.  Tokens and
rollouts are both primary: the first command with `--report_only --config.cost=rollouts` writes the report
over rollouts.
"""

from genenv_jax.experiment.arms import ARMS, EQUAL_ROLLOUTS
from genenv_jax.experiment.plan import default_suite

_HARD = {
    **{name: ARMS[name] for name in ("genenv", "paper", "rwr-4", "self-training", "random")},
    **{name: ARMS[name] for name in ("static-64", "static-512")},
    "teacher-3x": ARMS["teacher"],
}
_GROW = {"curriculum.growth.share": 0.75}
_GROWTH = {
    "genenv": _GROW,
    "no-growth": {},
    **{name: ARMS[name] for name in ("rwr-4", "random", "static-64", "static-512")},
    "frozen-growth": _GROW | ARMS["random"],
    "teacher-3x": ARMS["teacher"],
}
# Twice as long, since the seeds teach enough at first.
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
    "model.make.num_layers": 2,
    "benchmark.positions": 4,
    "benchmark.max_depth": 4,
    "benchmark.deeper": (5,),
    "benchmark.seed_depths": (0.3, 0.3, 0.2, 0.2),
    "benchmark.eval_per_depth": 8,
    "agent.base_share": 0.5,  # gives rollouts even if a barely trained simulator writes no valid tasks
}


def get_config(arg: str = ""):
    if arg not in ("", "growth", "quick"):
        raise ValueError(f"configs/ablations/suite.py takes 'growth' or 'quick', got {arg!r}")
    if arg == "quick":
        suite = default_suite({name: ARMS[name] for name in ("genenv", "random", "static-64")}, _QUICK)
        suite.contrasts = (("genenv", "random"), ("genenv", "static-64"))
        suite.seeds = (0, 1)
    elif arg == "growth":
        suite = default_suite(_GROWTH, EQUAL_ROLLOUTS | _SHALLOW)
        suite.metric = "eval/in_distribution/sampled/beyond_seeds"
        suite.contrasts = tuple(("genenv", name) for name in ("random", "no-growth"))
    else:
        suite = default_suite(_HARD, EQUAL_ROLLOUTS)
        suite.contrasts = tuple(("genenv", name) for name in ("random", "paper", "static-512"))
        suite.contrasts += (("rwr-4", "self-training"),)
    if arg != "quick":
        # A base model is left out if fewer than half of its tasks are valid before any update, measured in
        # random's first epoch.
        suite.seeds = (200, 201, 202, 203, 204, 205, 206, 207)
    suite.jobs = 2
    return suite
