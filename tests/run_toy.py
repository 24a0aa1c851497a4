"""A command of genenv_jax on the toy benchmark, as a process of its own.

As a script it takes the command's name and its flags; as a configuration file it is
`--config=tests/run_toy.py:CACHE_DIR`.
"""

import runpy
import sys

from tests.runs import toy_config


def get_config(cache_dir: str):
    return toy_config(cache_dir)


if __name__ == "__main__":
    from genenv_jax.benchmarks import registry

    registry._BENCHMARKS["toy"] = ("tests.toy", "Drawing")
    command = sys.argv.pop(1)
    runpy.run_module(f"genenv_jax.{command}", run_name="__main__")
