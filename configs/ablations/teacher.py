"""Offline data of the benchmark's own generator; `:1.8` or `:3.3` tasks for each seed.

    python -m genenv_jax.main --config=configs/ablations/teacher.py:3.3 --workdir=runs/teacher

The rest is configs/quickstart.py.  `,NAME` after that takes configs/NAME.py instead.
"""

from genenv_jax import arms


def get_config(arg: str = ""):
    return arms.arm_config(__file__, arms.teacher, arg or "3.3")
