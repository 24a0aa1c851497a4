"""Smaller questions about the curriculum, each a suite.

    python -m genenv_jax.experiment --config=configs/ablations/studies.py:dose --workdir=runs/dose

dose      GenEnv and Random where the simulator starts out writing easy, mixed or hard tasks: what a trained
          simulator is worth depends on how wrong the initial one is
alpha     the target success rate, the rollouts a task and the estimate of p̂; fresh tasks are measured once
          more by independent rollouts (`p_rerolled_gap`)
collapse  the simulator without an anchor, with the KL penalty, a mixture floor, an entropy floor, all of
          them: see the diversity of the tasks
pace      GenEnv and Random with an agent that learns three times more slowly: a curriculum can help only
          while the frozen simulator writes tasks that are too hard, and a trained one takes epochs to adapt
skyline   tasks at the depths that the agent solves half of the time, told by the world itself: what there is
          to be had from difficulty alone
admission tasks that are proven by their checks, or all that parse, with the answers that the simulator wrote
"""

from genenv_jax.experiments.suite import default_suite

_GENENV = "configs/ablations/genenv.py:"
_RANDOM = "configs/ablations/random.py:"

# Frequencies of depths 1 to 6 among the seeds, which the simulator varies.
_SKEWS = {
    "easy": (0.4, 0.3, 0.15, 0.08, 0.05, 0.02),
    "mixed": (0.17, 0.17, 0.17, 0.17, 0.16, 0.16),
    "hard": (0.02, 0.05, 0.08, 0.15, 0.3, 0.4),
}


def _dose(suite):
    suite.arms = {
        f"{name}-{skew}": f"{file};benchmark.seed_depths={depths}"
        for skew, depths in _SKEWS.items()
        for name, file in (("genenv", _GENENV), ("random", _RANDOM))
    }
    suite.contrasts = tuple((f"genenv-{skew}", f"random-{skew}") for skew in _SKEWS)
    suite.threshold_arm = "random-mixed"


def _alpha(suite):
    suite.arms = {
        f"alpha-{round(10 * alpha)}-n-{n}-{estimate}": (
            f"{_GENENV};curriculum.alpha={alpha};agent.group_size={n};curriculum.estimate={estimate}"
        )
        for alpha in (0.3, 0.5, 0.7)
        for n in (4, 10)
        for estimate in ("mle", "posterior")
    }
    suite.contrasts = (("alpha-5-n-4-posterior", "alpha-5-n-4-mle"),)
    suite.threshold_arm = "alpha-5-n-10-mle"


def _collapse(suite):
    none = ";simulator.kl_coef=0.0"
    suite.arms = {
        "no-anchor": f"{_GENENV}{none}",
        "kl": f"{_GENENV};simulator.kl_coef=0.2",
        "mixture": f"{_GENENV}{none};simulator.mixture=0.25",
        "entropy": f"{_GENENV}{none};simulator.entropy_floor=0.5;simulator.entropy_coef=0.1",
        "all": f"{_GENENV};simulator.mixture=0.25;simulator.entropy_floor=0.5;simulator.entropy_coef=0.1",
    }
    suite.contrasts = (("kl", "no-anchor"), ("mixture", "no-anchor"))
    suite.threshold_arm = "kl"


def _pace(suite):
    suite.arms = {
        f"{name}-{pace}": f"{file};agent.learning_rate={rate}"
        for pace, rate in (("fast", 3e-4), ("slow", 1e-4))
        for name, file in (("genenv", _GENENV), ("random", _RANDOM))
    }
    suite.contrasts = (("genenv-fast", "random-fast"), ("genenv-slow", "random-slow"))
    suite.threshold_arm = "random-slow"


def _skyline(suite):
    suite.arms = {
        "genenv": "configs/ablations/genenv.py",
        "random": "configs/ablations/random.py",
        "oracle": "configs/ablations/oracle.py",
    }
    suite.contrasts = (("oracle", "random"), ("oracle", "genenv"))
    suite.threshold_arm = "random"


def _admission(suite):
    suite.arms = {name: f"{_GENENV};verification.admit={name}" for name in ("proven", "parsed")}
    suite.contrasts = (("proven", "parsed"),)
    suite.threshold_arm = "proven"


_STUDIES = {
    "dose": _dose,
    "alpha": _alpha,
    "collapse": _collapse,
    "pace": _pace,
    "skyline": _skyline,
    "admission": _admission,
}


def get_config(arg: str = ""):
    if arg not in _STUDIES:
        raise ValueError(f"configs/ablations/studies.py takes one of {list(_STUDIES)}, got {arg!r}")
    suite = default_suite()
    # The first seeds of the main comparison, whose base models most studies share.
    suite.seeds = (100, 101, 102, 103)
    suite.overrides = {
        "epochs": 60,
        "rollouts": 10_000,
        "export": False,
        "tensorboard": "never",
        "checkpoint": {"every": 10},
        "evaluation": {"reroll": 32},
    }
    suite.jobs = 2
    _STUDIES[arg](suite)
    suite.order = tuple(suite.arms)
    return suite
