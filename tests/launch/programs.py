"""Checks of launchers' files against schemas, and of the command lines that they give the program."""

import json
import pathlib
import subprocess
import sys
from unittest import mock

import jsonschema
from absl import flags

from genenv_jax import cli
from tests import commands


def schema_errors(name, value):
    """Errors of a parsed file by the stored schema of `name`."""
    schema = json.loads((pathlib.Path(__file__).parent / f"schemas/{name}.json").read_text())
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(value)]


def accepted(arguments):
    """Parses the arguments as genenv_jax.main does; returns whether it finds other processes by itself."""
    found = []

    def run(main, buckets=False):
        assert main is not None and len(flags.FLAGS(sys.argv)) == 1
        assert flags.FLAGS.config.keys() and flags.FLAGS.workdir
        found.append(flags.FLAGS.distributed == "auto")

    with mock.patch.object(cli, "run", run):
        done = commands.call("main", *arguments)
    assert done.returncode == 0, done.stderr
    return found[0]


def committed(path):
    """Makes a directory a git repository with everything committed; returns the directory."""
    identity = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "all"]):
        subprocess.run(["git", *arguments], cwd=path, check=True)
    return path
