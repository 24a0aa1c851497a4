"""Figures, tables and one HTML page from a run.

    genenv report WORKDIR [--out DIR]

Reads config.json, metrics.jsonl, timing.jsonl, tasks.jsonl and d_train.jsonl of a run, finished or still
running.  Needs no JAX.  `genenv experiment` compares runs.
"""

import pathlib
import sys
from collections.abc import Sequence

from genenv_jax import cli
from genenv_jax.results.figures import draw_run
from genenv_jax.results.pages import write_run_page
from genenv_jax.results.runs import load_run
from genenv_jax.results.tables import headline
from genenv_jax.system.ownership import REPORT, place, refuse_other


def main(argv: Sequence[str] | None = None) -> None:
    """Command line; `argv` lacks the program's name.  Exits with 2 for a bad workdir."""
    parser = cli.Parser(prog="genenv report", description="Figures and tables from a run.")
    parser.add_argument("workdir", help="workdir of a run")
    parser.add_argument("--out", help="directory to write (default: WORKDIR/report)")
    arguments = parser.parse_args(argv)
    with cli.one_line_errors():
        if arguments.out and "://" in arguments.out:
            raise ValueError(f"--out={arguments.out}: expected a directory")
        directory = pathlib.Path(arguments.workdir)
        out = pathlib.Path(arguments.out or directory / "report")
        refuse_other(out, REPORT, "--out")
        run = load_run(directory)
        with place(out, REPORT, "--out"):
            try:
                page = write_run_page(run, draw_run(run, out), out / "report.html")
            except OSError as error:
                cli.fail(f"cannot write to {out}: {error}", code=1)
    text = f"{headline(run).markdown()}\npage:   {page}"
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding))


if __name__ == "__main__":
    main()
