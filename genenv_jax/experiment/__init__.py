"""Arms × seeds: what `python -m genenv_jax.experiment` is made of."""
