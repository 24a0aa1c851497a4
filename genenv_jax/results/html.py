"""Renders the templates beside this file to HTML; everything they show is escaped."""

import base64
import functools
import hashlib
import os
import pathlib
import re
from typing import Any

import jinja2
from markupsafe import Markup, escape

from genenv_jax.results.untrusted import bounded
from genenv_jax.system.keys import visible

DPI = 200  # of the figures' PNG files
_TEMPLATES = pathlib.Path(__file__).with_name("templates")


def render(template: str, **context: Any) -> str:
    """Renders a template of `results/templates` with its context to HTML.

    Everything that a template shows is escaped, and non-printing characters are spelled out.
    Model text is truncated by the caller, or in the template (`text | bounded(400)`).

    Raises jinja2.UndefinedError if the context lacks a name that the template uses.
    """
    return _environment().get_template(template).render(context)


def macro_html(macro: str, *arguments: Any) -> Markup:
    """Renders a macro of templates/macros.html to HTML."""
    return getattr(_environment().get_template("macros.html").module, macro)(*arguments)


def width(path: str | os.PathLike[str]) -> int:
    """The width in CSS pixels at which the text of a figure, of 8 points, is 12 pixels high."""
    header = pathlib.Path(path).read_bytes()[:24]
    return int.from_bytes(header[16:20], "big") * 108 // DPI


def data_uri(path: str | os.PathLike[str]) -> str:
    """A PNG file as a data URI, to embed it in a page."""
    data = base64.b64encode(pathlib.Path(path).read_bytes()).decode("ascii")
    return f"data:image/png;base64,{data}"


def _cell(text: Any) -> Markup:
    """Text of a table's cell, in which an interval is not broken."""
    return Markup(re.sub(r", (?=[^\[\]]*\])", ",&nbsp;", escape(visible(str(text)))))


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if hasattr(value, "__html__") else visible(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"bounded": bounded, "cell": _cell, "data_uri": data_uri, "width": width}
    # The only script; the pages' Content-Security-Policy allows it by its hash.
    script = _TEMPLATES.joinpath("browse.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    environment.globals |= {"script": Markup(script), "script_hash": f"sha256-{digest}"}
    return environment
