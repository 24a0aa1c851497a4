"""The notebooks as they are stored."""

import os
import pathlib

import nbformat

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ("ablations", "curriculum", "smollm2")


def read(name):
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=nbformat.NO_CONVERT)


def cell(name, id_):
    return next(c.source for c in read(name).cells if c.id == id_)


def sources(name, kind):
    return [c.source for c in read(name).cells if c.cell_type == kind]


def parameters(name, accelerator=""):
    """What the cell of parameters defines, in the environment of the process."""
    values = {"os": os, "pathlib": pathlib, "ROOT": ROOT, "ACCELERATOR": accelerator}
    exec(cell(name, "parameters"), values)
    return values
