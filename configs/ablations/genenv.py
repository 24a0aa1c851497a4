"""GenEnv as in the paper: the simulator learns by reward-weighted regression.

    python -m genenv_jax.main --config=configs/ablations/genenv.py --workdir=runs/genenv

The rest is configs/quickstart.py.  `,NAME` after that takes configs/NAME.py instead.
"""

from genenv_jax import arms


def get_config(arg: str = ""):
    return arms.arm_config(__file__, arms.genenv, arg)
