"""What `python -m genenv_jax.report` is made of; reading, figures, tables and page."""
