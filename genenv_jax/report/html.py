"""HTML from the templates beside this file, with everything escaped that they show."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import pathlib
from typing import Any

import jinja2
from markupsafe import Markup

from genenv_jax.report.untrusted import bounded, visible

_TEMPLATES = pathlib.Path(__file__).with_name("templates")


def render(template: str, **context: Any) -> str:
    """A template of `report/templates` with its context, as HTML.

    Everything that a template shows is escaped, and characters that do not print are spelled out.
    What a model wrote is bounded by the caller, or in the template (`text | bounded(400)`).

    Raises:
      jinja2.UndefinedError: the context lacks a name that the template uses.
    """
    return _environment().get_template(template).render(context)


def macro_html(macro: str, *arguments: Any) -> Markup:
    """A macro of templates/macros.html as HTML."""
    return getattr(_environment().get_template("macros.html").module, macro)(*arguments)


def data_uri(path: str | os.PathLike[str]) -> str:
    """A PNG file as the address of an image that a page carries within itself."""
    data = base64.b64encode(pathlib.Path(path).read_bytes()).decode("ascii")
    return f"data:image/png;base64,{data}"


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
    environment.filters |= {"bounded": bounded, "data_uri": data_uri}
    # The one script, which the pages' policy allows by its hash.
    script = _TEMPLATES.joinpath("browse.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    environment.globals |= {"script": Markup(script), "script_hash": f"sha256-{digest}"}
    return environment
