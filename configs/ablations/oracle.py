"""The skyline: tasks at the difficulties that the agent solves half of the time.

    python -m genenv_jax.main --config=configs/ablations/oracle.py --workdir=runs/oracle

The rest is configs/quickstart.py.  `,NAME` after that takes configs/NAME.py instead.
"""

from genenv_jax import arms


def get_config(arg: str = ""):
    return arms.arm_config(__file__, arms.oracle, arg)
