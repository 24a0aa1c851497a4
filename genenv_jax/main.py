"""Co-evolution of an agent and its task simulator.

    python -m genenv_jax.main --config=configs/quickstart.py --workdir=runs/quickstart

A workdir that holds an interrupted run is continued.
"""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Iterator, Sequence

import jax
from absl import app, flags, logging
from ml_collections import config_flags


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Turns a user's mistake (bad value, missing file) into one line on stderr and exit code 2.

    `JAX_TRACEBACK_FILTERING=off` shows the traceback instead.
    """
    try:
        yield
    except (ValueError, FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        if jax.config.jax_traceback_filtering == "off":
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


def quiet_libraries() -> None:
    """Keeps the storage library's progress notes off the terminal, unless --verbosity is given."""
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}; settings are --config.KEY=VALUE")
    quiet_libraries()
    from genenv_jax.coevolve import Coevolution
    from genenv_jax.config import validate

    with one_line_errors():
        config = _CONFIG.value
        validate(config)
        run = Coevolution(config, pathlib.Path(flags.FLAGS.workdir))
    run.run()


if __name__ == "__main__":
    _CONFIG = config_flags.DEFINE_config_file("config", None, "Configuration file.", lock_config=True)
    flags.DEFINE_string("workdir", None, "Directory of logs, pools and checkpoints.")
    flags.mark_flags_as_required(["config", "workdir"])
    sys.exit(app.run(main))
