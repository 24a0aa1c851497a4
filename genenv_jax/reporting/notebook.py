"""What the notebooks need beside the library: commands as child processes, and figures in the page."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping

from genenv_jax.reporting.html import image
from genenv_jax.reporting.untrusted import escape

_CSS = (
    "<style>.genenv td,.genenv th{text-align:left!important;vertical-align:top}"
    ".genenv td.n,.genenv th.n{text-align:right!important}"
    ".genenv h2{font-size:1.1em;font-weight:bold}.genenv .note{color:#777}</style>"
)
_PATIENCE = 120.0  # seconds that a command may take to end in good order


def run(module: str, *arguments: str) -> None:
    """Runs `python -m genenv_jax.MODULE ARGUMENTS` and prints what it says as it says it.

    A process of its own, so that it has the accelerator to itself and gives it back at its end.  What
    interrupts the caller ends the command too, as SIGTERM does: a run can be continued.

    Raises:
      RuntimeError: it failed; what it said stands above.
    """
    command = [sys.executable, "-m", f"genenv_jax.{module}", *map(str, arguments)]
    print("$ python", " ".join(command[1:]), flush=True)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,  # an interrupt reaches it once, through here
    )
    try:
        for line in process.stdout:
            print(line, end="", flush=True)
        code = process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    if code:
        raise RuntimeError(f"genenv_jax.{module} ended with exit code {code}; its message is above")


def part(html: str) -> str:
    """HTML of the reports for an output cell, whose own style would align all cells to the right."""
    return f"{_CSS}<div class=genenv>{html}</div>"


def figure(figures: Mapping[str, pathlib.Path], name: str, width: int = 1000) -> str:
    """HTML of one figure, no more than `width` pixels wide; says so where it was not drawn."""
    if name not in figures:
        return f"<p><i>{escape(name)}: not recorded by these runs, so not drawn.</i></p>"
    return f'<div style="max-width:{width}px;background:white">{image(figures[name], name)}</div>'
