"""Makes text from a model or a damaged file safe to show."""

import json
from typing import Any


def bounded(text: Any, limit: int = 4000) -> str:
    """str(text), cut after `limit` characters with a note of how many are missing."""
    try:
        text = str(text)
    except RecursionError:
        return "(nested too deeply)"
    more = len(text) - limit
    return text if more <= 0 else f"{text[:limit]} … ({more:,} more characters)"


def readable(value: Any) -> str:
    """A JSON value, or text that is a JSON object or list, as indented lines; other text unchanged."""
    text = isinstance(value, str)
    if text and value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return json.dumps(json.loads(value) if text else value, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return value if text else "(nested too deeply)"


def shown_in_figure(text: str, limit: int = 40) -> str:
    """Text for matplotlib, which would read "$" as mathematics and hide labels that begin with "_"."""
    text = text if len(text) <= limit else f"{text[: limit - 1]}…"
    text = "".join(c if c.isprintable() else "?" for c in text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def table_cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return "".join(c if c.isprintable() else " " for c in text).replace("|", "\\|")
