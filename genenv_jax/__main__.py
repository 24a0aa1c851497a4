"""`python -m genenv_jax COMMAND ...`, see `genenv_jax.commands`."""

from genenv_jax.commands import main

if __name__ == "__main__":
    main()
