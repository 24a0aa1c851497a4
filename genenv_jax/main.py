"""Co-evolution of an agent and its task simulator.

    genenv train --config=configs/quickstart.py --workdir=runs/quickstart

An interrupted run in the workdir is resumed; only one run at a time may use it.  --arm=NAME applies an arm of
the ablations (`genenv_jax.experiment.arms`).  --print_config only prints the settings that differ from the
paper's defaults.  --dry_run only loads and checks everything and prints what the run would do and cost; exit
code 2: it does not fit into the devices' memory, or that of --device_memory.

On several hosts, start the same command on each, with --coordinator_address, --num_processes and
--process_id, or with --distributed=auto.  The workdir must lie on storage that all hosts see.
"""

import contextlib
import math
import pathlib
import sys
from collections.abc import Mapping
from typing import TextIO

from absl import flags

from genenv_jax import cli
from genenv_jax.system import signals
from genenv_jax.system.keys import visible


def main() -> None:
    """Checks the configuration, loads what it names, and trains."""
    from genenv_jax.coevolve import Coevolution
    from genenv_jax.config import changes, validate
    from genenv_jax.dry_run import TOO_LARGE, dry_run, outcome, overview
    from genenv_jax.experiment.arms import apply_arm
    from genenv_jax.parallel import processes
    from genenv_jax.run.workdir import lock
    from genenv_jax.system.keys import without_keys

    given = flags.FLAGS
    with contextlib.ExitStack() as stack:
        with cli.one_line_errors():
            if given.arm:
                apply_arm(given.config, given.arm)
            if given.print_config:
                validate(given.config)
                for key, (value, default) in changes(given.config).items():
                    print(without_keys(f"config.{key} = {value!r}  (default: {default!r})"))
                return
            config = validate(given.config)
            memory = given.device_memory
            if memory is not None and not (given.dry_run and 0 < memory < math.inf):
                raise ValueError(f"--device_memory={memory:g}: expected a device's GiB, with --dry_run")
            if given.dry_run:
                signals.resumes.set(False)
                workdir = pathlib.Path(given.workdir) if given.workdir else None
                said = dry_run(config, workdir, memory and memory * 2**30)
                too_large = said.pop(TOO_LARGE, None)
                if processes.is_writer():
                    show(said, sys.stdout)
                if too_large:
                    raise ValueError(f"the run is too large: {too_large}")
                return
            if not given.workdir:
                raise ValueError("--workdir is missing: expected the directory of the run")
            workdir = pathlib.Path(given.workdir)
            stack.enter_context(lock(workdir))
            run = Coevolution(config, workdir)
        if processes.is_writer():
            show({"workdir": given.workdir} | overview(config, run), sys.stderr)
        # Exit code 1 tells launchers to restart the run after a machine failure; a diverged update would
        # diverge again.
        with cli.one_line_errors((FloatingPointError,)), cli.one_line_errors((OSError,), code=1):
            run.run()
        if processes.is_writer():
            show(outcome(config, given.workdir), sys.stderr)


def show(lines: Mapping[str, str], stream: TextIO) -> None:
    """Prints titles and texts."""
    for title, text in lines.items():
        print(f"{title:12}{visible(text)}", file=stream)


if __name__ == "__main__":
    cli.define_config("Configuration file.")
    flags.DEFINE_string("workdir", None, "Directory of logs, pools and checkpoints.")
    flags.DEFINE_string("arm", "", "Arm of the ablations: its settings are applied on top.")
    flags.DEFINE_bool("print_config", False, "Show what differs from the defaults; train nothing.")
    flags.DEFINE_bool("dry_run", False, "Load and check everything, say what it costs; train nothing.")
    flags.DEFINE_float("device_memory", None, "GiB of a device, for --dry_run.  Default: this machine's.", 0)
    cli.define_process_flags()
    flags.mark_flag_as_required("config")
    cli.run(main)
