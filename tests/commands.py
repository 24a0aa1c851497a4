"""The commands as a user calls them: each in its own process, or in this one if that is enough."""

import contextlib
import importlib.metadata
import importlib.util
import io
import os
import pathlib
import runpy
import subprocess
import sys
from unittest import mock

from absl import flags

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUICK = "--config=configs/quickstart.py"

# Tests compile many programs and run each briefly, so compile time matters most.
COMPILE_FAST = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
if importlib.metadata.version("jax") < "0.11":  # an unknown XLA flag ends the process
    COMPILE_FAST += " --xla_cpu_use_fusion_emitters=false"


def _module(name):
    return name if "." in name else f"genenv_jax.{name}"


def command(module, *arguments, cwd=ROOT, **environment):
    """Runs a command, or a script of the repository, in its own process."""
    program = [module] if module.endswith(".py") else ["-m", _module(module)]
    return _python(*program, *arguments, cwd=cwd, **environment)


def printed(code, *arguments, **environment):
    """What code prints in its own process, which must succeed."""
    done = _python("-c", code, *arguments, cwd=ROOT, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _python(*arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=1800,
        env=os.environ | {"XLA_FLAGS": COMPILE_FAST} | environment, check=False,  # one device
    )  # fmt: skip


def call(module, *arguments, cwd=ROOT):
    """Runs a command, or a script of the repository, in this process; returns what `command` does."""
    known, stdout, stderr = set(flags.FLAGS), io.StringIO(), io.StringIO()
    code, before = 0, pathlib.Path.cwd()
    try:
        os.chdir(cwd)
        with (
            mock.patch.object(sys, "argv", [module, *map(str, arguments)]),
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(stderr),
        ):
            if module.endswith(".py"):
                script = ROOT / module
                path = [str(script.parent), *sys.path]  # as Python does
                with mock.patch.object(sys, "path", path):
                    runpy.run_path(str(script), run_name="__main__")
            else:
                runpy.run_module(_module(module), run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    finally:
        os.chdir(before)
        for name in set(flags.FLAGS) - known:
            delattr(flags.FLAGS, name)
        flags.FLAGS.unparse_flags()
    return subprocess.CompletedProcess(arguments, code, stdout.getvalue(), stderr.getvalue())


def load(file):
    """Imports a file of the repository."""
    spec = importlib.util.spec_from_file_location(pathlib.Path(file).stem, ROOT / file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exit_code(main, arguments):
    """The exit code of a command whose `main` takes arguments."""
    try:
        main(arguments)
    except SystemExit as end:
        return end.code
    return 0
