"""All commands under one name: `genenv COMMAND ...`, or `python -m genenv_jax COMMAND ...`."""

import difflib
import importlib.metadata
import importlib.util
import runpy
import sys
from collections.abc import Sequence
from typing import NoReturn

_NEEDED = ("absl", "jax", "ml_collections")  # a few dependencies, to check whether all are installed

# Command: its module and its description.
COMMANDS = {
    "train": ("main", "train an agent and its simulator against each other"),
    "evaluate": ("evaluate", "score a model, or a server, on a benchmark's held-out tasks"),
    "report": ("report", "figures, tables and a page from a run"),
    "experiment": ("experiment", "arms × seeds, statistics and a page"),
    "supervised": ("supervised", "fine-tune a model on a benchmark's demonstrations: the warm start"),
    "datasets": ("datasets", "download or check the files of a benchmark"),
    "publish": ("publish", "upload an exported model to the Hugging Face hub"),
    "play": ("play", "type tasks; watch both players, the scores and the verifier"),
}


def usage() -> str:
    """What `genenv --help` prints."""
    rows = "\n".join(f"  {name:12}{text}" for name, (_, text) in COMMANDS.items())
    return (
        "usage: genenv COMMAND [ARGUMENTS]\n\n"
        f"{rows}\n\n"
        "genenv COMMAND --help says more, genenv --version names the version.  The first run:\n"
        "  genenv train --config=configs/quickstart.py --workdir=runs/quickstart"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Runs a command's module as `python -m` would; `argv` excludes the program's name."""
    name, *arguments = (sys.argv[1:] if argv is None else list(argv)) or ["--help"]
    if name in ("--help", "-h", "help"):
        print(usage())
        return
    if name == "--version":
        print(f"genenv_jax {_version()}")
        return
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(COMMANDS)}"
        _fail(f"{name!r} is not a command; {hint}")
    if not all(map(importlib.util.find_spec, _NEEDED)):
        _fail(
            f"the dependencies of genenv_jax are not installed in {sys.executable}: activate its environment "
            "(`. .venv/bin/activate`), or `pip install -e .` here"
        )
    sys.argv = [f"genenv {name}", *arguments]
    # The module must be __main__, which child processes import by name.
    runpy.run_module(f"genenv_jax.{COMMANDS[name][0]}", run_name="__main__", alter_sys=True)


def _version() -> str:
    try:
        return importlib.metadata.version("genenv_jax")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _fail(message: str) -> NoReturn:
    """Like `cli.fail`, which cannot be imported if the dependencies are missing."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)
