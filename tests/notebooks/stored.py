"""The notebooks as they are stored, and how they are executed."""

import hashlib
import json
import os
import pathlib
import re

import nbformat

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ("curriculum", "ablations", "smollm2")
EXECUTED = ("curriculum", "ablations")  # stored with outputs: they need minutes, and neither data nor weights
_COLAB = "https://colab.research.google.com"


def read(name):
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=nbformat.NO_CONVERT)


def cell(name, id_):
    return next(c.source for c in read(name).cells if c.id == id_)


def sources(name, kind):
    return [c.source for c in read(name).cells if c.cell_type == kind]


def parameters(name, accelerator=""):
    """What the "parameters" cell defines in this process's environment."""
    values = {"os": os, "pathlib": pathlib, "ROOT": ROOT, "ACCELERATOR": accelerator}
    exec(cell(name, "parameters"), values)
    return values


def repository(citation=None):
    """The address in CITATION.cff, or in its text; "" where there is none yet."""
    text = (ROOT / "CITATION.cff").read_text("utf-8") if citation is None else citation
    found = re.search(r"^repository-code: (\S+)$", text, re.MULTILINE)
    return found[1] if found else ""


def addressed(notebook, name, address=None):
    """The notebook with the repository's address, and with a badge if there is one."""
    address = repository() if address is None else address
    title, install = notebook.cells[:2]
    line = f'"GENENV_REPOSITORY", {json.dumps(address)})'
    install.source = re.sub(r'"GENENV_REPOSITORY", "[^"]*"\)', line, install.source)
    title.source = re.sub(r"\A\[!\[.*\n\n", "", title.source)
    if address:
        place = (
            f"{_COLAB}/github/{address.removeprefix('https://github.com/')}/blob/main/notebooks/{name}.ipynb"
        )
        badge = f"[![Open in Colab]({_COLAB}/assets/colab-badge.svg)]({place})"
        title.source = f"{badge}\n\n{title.source}"
    return notebook


def run_cells(notebook, directory, environment):
    """The notebook with outputs, executed in a directory."""
    from nbclient import NotebookClient  # `make test` reads the notebooks without the package

    options = {"timeout": 1200, "kernel_name": "python3", "coalesce_streams": True, "record_timing": False}
    resources = {"metadata": {"path": str(directory)}}
    return NotebookClient(notebook, resources=resources, **options).execute(env=environment)


def renamed(notebook, places):
    """The notebook with paths in its outputs replaced by other names."""
    for held, kind in _texts(notebook):
        for place, name in places.items():
            held[kind] = held[kind].replace(place, name)
    return notebook


def digest(notebook):
    """Of the notebook's code: outputs of other code are out of date."""
    code = "\0".join(c.source for c in notebook.cells if c.cell_type == "code")
    return hashlib.sha256(code.encode()).hexdigest()


def shown(notebook):
    """All texts that its cells show."""
    return [held[kind] for held, kind in _texts(notebook)]


def _texts(notebook):
    for output in (output for c in notebook.cells if c.cell_type == "code" for output in c.outputs):
        for held in (output, output.get("data", {})):
            yield from ((held, kind) for kind in held if kind == "text" or kind.startswith("text/"))
