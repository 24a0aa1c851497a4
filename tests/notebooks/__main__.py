"""Executes the notebooks that are stored with outputs, and stores what their cells show.

    python -m tests.notebooks [NAME ...]

It takes some minutes.  The address that the notebooks clone from and that their badges name is in
CITATION.cff.
"""

import os
import pathlib
import socket
import sys
import tempfile

import nbformat

from tests.notebooks.stored import EXECUTED, NAMES, ROOT, addressed, digest, read, renamed, run_cells, shown


def main(names):
    """Stores all notebooks with the address, and those in `names` with new outputs."""
    for name in NAMES:
        notebook = addressed(read(name), name)
        if name in names:
            with tempfile.TemporaryDirectory() as runs:
                kept = nbformat.from_dict(notebook.metadata)
                environment = {"GENENV_RUNS": runs, "PYTHONPATH": str(ROOT)}
                notebook = run_cells(notebook, ROOT / "notebooks", os.environ | environment)
                places = {runs: "runs/notebooks", str(ROOT): ".", str(pathlib.Path.home()): "~"}
                notebook = renamed(notebook, places)
                assert not any(socket.gethostname() in text for text in shown(notebook)), "the host's name"
                notebook.metadata = kept | {"executed": digest(notebook)}
        nbformat.write(notebook, ROOT / "notebooks" / f"{name}.ipynb")


if __name__ == "__main__":
    main(sys.argv[1:] or EXECUTED)
