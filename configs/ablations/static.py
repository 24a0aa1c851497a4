"""GenEnv-Static: tasks that the initial simulator writes once; `:64`, `:512`, or `:variations`, five of each
seed as in the paper.

    python -m genenv_jax.main --config=configs/ablations/static.py:64 --workdir=runs/static

The rest is configs/quickstart.py.  `,NAME` after that takes configs/NAME.py instead.
"""

from genenv_jax import arms


def get_config(arg: str = ""):
    return arms.arm_config(__file__, arms.static, arg or "64")
