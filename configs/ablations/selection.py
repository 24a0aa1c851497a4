"""A frozen simulator, and training on the half of its tasks whose measured p̂ is closest to alpha; `:4`
keeps a quarter.

    python -m genenv_jax.main --config=configs/ablations/selection.py --workdir=runs/selection

The rest is configs/quickstart.py.  `,NAME` after that takes configs/NAME.py instead.
"""

from genenv_jax import arms


def get_config(arg: str = ""):
    return arms.arm_config(__file__, arms.selection, arg)
