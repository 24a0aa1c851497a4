"""Figures, tables and one HTML page from one or many runs.

    genenv report WORKDIR [WORKDIR ...] [--out DIR]

Reads config.json, metrics.jsonl, timing.jsonl, tasks.jsonl and d_train.jsonl of each run, also of one that
is still at work; WORKDIR may be gs://BUCKET/RUN.  Several runs are overlaid; runs whose configurations differ
only in the seed are shown as their mean and range.  Needs no JAX.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import sys
from collections.abc import Sequence

from genenv_jax import cli
from genenv_jax.report.page import write_page
from genenv_jax.report.run_figures import draw
from genenv_jax.report.runs import Run, load_run
from genenv_jax.report.tables import summary_table
from genenv_jax.run.remote import Store, opened, shared


def main(argv: Sequence[str] | None = None) -> int:
    """Command line, `argv` without the program's name; returns the exit code (2: bad workdir)."""
    parser = cli.Parser(
        prog="genenv report", description="Figures and tables from one or many runs."
    )
    parser.add_argument("workdir", nargs="+", help="workdir of a run")
    parser.add_argument(
        "--out",
        help="directory to write (default: WORKDIR/report; of several runs: beside the first; of one in "
        "a bucket: as if it were in this directory)",
    )
    arguments = parser.parse_args(argv)
    with contextlib.ExitStack() as stack:
        try:
            if arguments.out and "://" in arguments.out:
                raise ValueError(f"--out={arguments.out}: expected a directory")
            runs = [_load(workdir, stack) for workdir in arguments.workdir]
        except (OSError, ValueError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        return _write(runs, arguments)


def _load(workdir: str, stack: contextlib.ExitStack) -> Run:
    directory = stack.enter_context(opened(workdir, "WORKDIR"))
    Store(directory).fetch()
    try:
        return load_run(directory)
    except (OSError, ValueError) as error:  # of a mirror, what is mirrored is to be named
        raise ValueError(str(error).replace(str(directory), workdir)) from error


def _write(runs: Sequence[Run], arguments: argparse.Namespace) -> int:
    out = pathlib.Path(arguments.out) if arguments.out is not None else _default_out(runs)
    try:
        figures = draw(runs, out)
        page = write_page(runs, figures, out / "report.html")
    except OSError as error:
        print(f"error: cannot write to {out}: {error}", file=sys.stderr)
        return 1
    text = f"{summary_table(runs)}\n\nfigure: {figures['report']}\npage:   {page}"
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding))
    return 0


def _default_out(runs: Sequence[Run]) -> pathlib.Path:
    first = runs[0].workdir
    if shared(first) != first.absolute():
        first = pathlib.Path(first.name)
    return first / "report" if len(runs) == 1 else first.resolve().parent / "report"


if __name__ == "__main__":
    sys.exit(main())
