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

from genenv_jax.experiment.arms import ARMS, EQUAL_ROLLOUTS
from genenv_jax.experiment.plan import default_suite

# Frequencies of depths 1 to 6 among the seeds, which the simulator varies.
_SKEWS = {
    "easy": (0.4, 0.3, 0.15, 0.08, 0.05, 0.02),
    "mixed": (0.17, 0.17, 0.17, 0.17, 0.16, 0.16),
    "hard": (0.02, 0.05, 0.08, 0.15, 0.3, 0.4),
}
_PAIR = ("genenv", "random")
_MIXTURE = {"simulator.mixture": 0.25}
_ENTROPY = {"simulator.entropy_floor": 0.5, "simulator.entropy_coef": 0.1}
_NO_KL = {"simulator.kl_coef": 0.0}

# Name: (arms, contrasts, the arm whose final score is the threshold).
_STUDIES = {
    "dose": (
        {
            f"{name}-{skew}": ARMS[name] | {"benchmark.seed_depths": depths}
            for skew, depths in _SKEWS.items()
            for name in _PAIR
        },
        tuple((f"genenv-{skew}", f"random-{skew}") for skew in _SKEWS),
        "random-mixed",
    ),
    "alpha": (
        {
            f"alpha-{round(10 * alpha)}-n-{n}-{estimate}": {
                "curriculum.alpha": alpha,
                "agent.group_size": n,
                "curriculum.estimate": estimate,
            }
            for alpha in (0.3, 0.5, 0.7)
            for n in (4, 10)
            for estimate in ("mle", "posterior")
        },
        (("alpha-5-n-4-posterior", "alpha-5-n-4-mle"),),
        "alpha-5-n-10-mle",
    ),
    "collapse": (
        {
            "no-anchor": _NO_KL,
            "kl": {"simulator.kl_coef": 0.2},
            "mixture": _NO_KL | _MIXTURE,
            "entropy": _NO_KL | _ENTROPY,
            "all": _MIXTURE | _ENTROPY,
        },
        (("kl", "no-anchor"), ("mixture", "no-anchor")),
        "kl",
    ),
    "pace": (
        {
            f"{name}-{pace}": ARMS[name] | {"agent.learning_rate": rate}
            for pace, rate in (("fast", 3e-4), ("slow", 1e-4))
            for name in _PAIR
        },
        (("genenv-fast", "random-fast"), ("genenv-slow", "random-slow")),
        "random-slow",
    ),
    "skyline": (
        {name: ARMS[name] for name in (*_PAIR, "oracle")},
        (("oracle", "random"), ("oracle", "genenv")),
        "random",
    ),
    "admission": (
        {name: {"verification.admit": name} for name in ("proven", "parsed")},
        (("proven", "parsed"),),
        "proven",
    ),
}


def get_config(arg: str = ""):
    if arg not in _STUDIES:
        raise ValueError(f"configs/ablations/studies.py takes one of {list(_STUDIES)}, got {arg!r}")
    arms, contrasts, threshold_arm = _STUDIES[arg]
    suite = default_suite(arms, EQUAL_ROLLOUTS)
    suite.contrasts, suite.threshold_arm = contrasts, threshold_arm
    # The first seeds of the main comparison, whose base models most studies share.
    suite.seeds = (100, 101, 102, 103)
    suite.jobs = 2
    return suite
