"""A command of genenv_jax on the toy benchmark, as a process of its own.

As a script it takes the command's name, with `:Talking` another class of tests/toy.py, and its flags; as a
configuration file it is `--config=tests/run_toy.py` or `--config=tests/run_toy.py:CACHE_DIR`.
"""

import runpy
import sys

from genenv_jax.benchmarks import registry
from tests.runs import toy_config


def get_config(cache_dir: str = ""):
    registry._BENCHMARKS.setdefault("toy", ("tests.toy", "Drawing"))
    return toy_config(cache_dir)


if __name__ == "__main__":
    command, _, toy = sys.argv.pop(1).partition(":")
    registry._BENCHMARKS["toy"] = ("tests.toy", toy or "Drawing")
    runpy.run_module(f"genenv_jax.{command}", run_name="__main__")
