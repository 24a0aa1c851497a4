"""The simulator learns by policy gradient within the variations of each seed.

    python -m genenv_jax.main --config=configs/ablations/seed_grpo.py --workdir=runs/seed_grpo

The rest is configs/quickstart.py.  `,NAME` after that takes configs/NAME.py instead.
"""

from genenv_jax import arms


def get_config(arg: str = ""):
    return arms.arm_config(__file__, arms.seed_grpo, arg)
