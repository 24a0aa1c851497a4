"""What the program itself makes of a command line that a launcher gives it."""

import sys
from unittest import mock

from absl import flags

from genenv_jax import cli
from tests import commands


def accepted(arguments):
    """Parses the arguments as genenv_jax.main does; returns whether it finds other processes by itself."""
    found = []

    def run(main, buckets=False):
        rest = flags.FLAGS(sys.argv)
        assert main is not None and len(rest) == 1
        assert flags.FLAGS.config.keys() and flags.FLAGS.workdir
        found.append(flags.FLAGS.distributed == "auto")

    with mock.patch.object(cli, "run", run):
        done = commands.call("main", *arguments)
    assert done.returncode == 0, done.stderr
    return found[0]
