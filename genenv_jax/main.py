"""Co-evolution of an agent and its task simulator.

    python -m genenv_jax.main --config=configs/quickstart.py --workdir=runs/quickstart

A workdir that holds an interrupted run is continued.  On several hosts the same command is started on
each, with --coordinator_address, --num_processes and --process_id, or with --distributed=auto; the
workdir must lie on storage that all of them see.
"""

from __future__ import annotations

import pathlib

from absl import flags
from ml_collections import config_flags

from genenv_jax import cli


def main() -> None:
    """Checks the configuration, loads what it names, and trains."""
    from genenv_jax.coevolve import Coevolution
    from genenv_jax.config import validate

    with cli.one_line_errors():
        config = CONFIG.value
        validate(config)
        run = Coevolution(config, pathlib.Path(flags.FLAGS.workdir))
    run.run()


if __name__ == "__main__":
    CONFIG = config_flags.DEFINE_config_file("config", None, "Configuration file.")
    flags.DEFINE_string("workdir", None, "Directory of logs, pools and checkpoints.")
    cli.define_process_flags()
    flags.mark_flags_as_required(["config", "workdir"])
    cli.run(main)
