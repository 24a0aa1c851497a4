"""Helpers for the notebooks: commands as child processes, and what output cells show.  Needs IPython."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from IPython.display import Image, Markdown

from genenv_jax.results.answers import changes
from genenv_jax.results.examples import compared, generated, nearest_tasks, shares, verdicts
from genenv_jax.results.html import render, width
from genenv_jax.results.runs import P_HAT, Run

_REASONS = 20  # examples of rejections
_TEXT_LIMIT = 1200  # characters per answer in a comparison


def run(module: str, *arguments: str) -> None:
    """Runs `python -m MODULE ARGUMENTS` and prints its output as it arrives.

    It is a separate process, so that it has the accelerator to itself and releases it at the end.  An
    interrupt reaches it too; a run can be continued afterwards.

    Raises RuntimeError if the command failed.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    print("$ python", " ".join(command[1:]), flush=True)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
        except BaseException:
            process.terminate()  # it shuts down cleanly; leaving the block waits for that
            raise
    if process.returncode:
        raise RuntimeError(f"{module} ended with exit code {process.returncode}; its message is above")


def part(macro: str, *arguments: Any) -> str:
    """Renders a macro of templates/macros.html to HTML for an output cell, with the pages' style."""
    return render("fragment.html", macro=macro, arguments=arguments)


def figure(figures: Mapping[str, pathlib.Path], name: str) -> Image | Markdown:
    """One figure for an output cell, or a note if it was not drawn."""
    found = figures.get(name)
    return Image(found, width=width(found)) if found else Markdown(f"{name}: not recorded")


def texts_by_success(run: Run, targets: Sequence[float] = (0.1, 0.5, 0.9)) -> str:
    """For an early, a middle and the last epoch, the task whose p̂ is nearest to each target, as HTML."""
    nearest = ", ".join(f"{P_HAT} ≈ {target:g}" for target in targets)
    tasks = generated(run, nearest_tasks(run, targets))
    return part("tasks", f"Nearest to {nearest}:" if tasks else "not recorded", (), tasks)


def rejection_table(run: Run) -> str:
    """How often generations were rejected for each reason, with one example of each, as HTML."""
    found = verdicts(run)
    rows = [row for row in shares(found) if row[0] != "accepted"]
    tasks = generated(run, [of[0] for verdict, of in found.items() if verdict != "accepted"][:_REASONS])
    return part("tasks", "Rejected generations, with one of each kind:", rows, tasks)


def compare_answers(
    before: Mapping[str, Mapping[str, Any]],
    after: Mapping[str, Mapping[str, Any]],
    prompts: Mapping[str, str],
    shown: int = 2,
) -> str:
    """How many tasks were learnt, lost, always or never solved, and some of each, as HTML.

    Args:
      before, after: from `read_answers`; tasks in both are compared.
      prompts: task id to the task in words, if known.
      shown: how many tasks of each kind to show, spread over their categories.
    """
    kinds, chosen = changes(before, after), []
    for ids in kinds.values():
        step = max(1, len(ids) // max(shown, 1))
        chosen += ids[step // 2 :: step][:shown]
    pair = [
        {i: of[i] | {"request": prompts.get(i) or of[i].get("request") or i} for i in chosen}
        for of in (before, after)
    ]
    return part("answers", shares(kinds), compared(*pair, _TEXT_LIMIT))
