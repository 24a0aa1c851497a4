"""The directory for what later runs of the user may need: trained models and compiled programs."""

import os
import pathlib


def user_cache() -> pathlib.Path:
    """The package's directory in the user's cache directory ($XDG_CACHE_HOME, else ~/.cache)."""
    root = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(root) / "genenv_jax"
