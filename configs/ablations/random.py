"""GenEnv-Random: the simulator writes fresh tasks and is never trained.

    python -m genenv_jax.main --config=configs/ablations/random.py --workdir=runs/random

The rest is configs/quickstart.py.  `,NAME` after that takes configs/NAME.py instead.
"""

from genenv_jax import arms


def get_config(arg: str = ""):
    return arms.arm_config(__file__, arms.random, arg)
