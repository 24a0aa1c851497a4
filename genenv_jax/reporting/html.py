"""The parts of which pages are made: pages that need no other file and load nothing."""

from __future__ import annotations

import base64
import pathlib
from collections.abc import Sequence

from genenv_jax.reporting.untrusted import escape

_CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 72rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
img { width: 100%; height: auto; } .figures { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); } figure { margin: 0; }
table { border-collapse: collapse; margin: .6rem 0 1.4rem; }
th, td { padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #ddd; text-align: left; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: #f6f6f6; padding: .6rem; overflow: auto; max-height: 24rem; white-space: pre-wrap;
  overflow-wrap: anywhere; unicode-bidi: isolate; font-size: 13px; }
.task { border-left: 4px solid #0072B2; padding-left: .9rem; margin: 1.2rem 0; }
.note { color: #666; }
.bar { background: #0072B2; height: .7rem; min-width: 1px; } .scale { width: 12rem; }
.facts td:first-child { color: #666; white-space: nowrap; }
"""


def document(title: str, parts: Sequence[str]) -> str:
    """A whole page around the `parts` of its body, which are HTML; empty ones are left out.

    Its Content-Security-Policy forbids scripts and loads from anywhere.
    """
    head = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">",
        f"<title>{escape(title)}</title><style>{_CSS}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
    ]
    return "\n".join(part for part in (*head, *parts, "</body></html>\n") if part)


def facts_table(facts: Sequence[tuple[str, str]]) -> str:
    """Names and what is said of them, as text."""
    rows = (f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in facts)
    return f"<table class=facts>{''.join(rows)}</table>"


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text; all columns but the first are numbers."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if index else ''}>{escape(cell)}</{tag}>"
            for index, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', header)}</tr>{body}</table>"


def image(path: pathlib.Path, alt: str) -> str:
    """A PNG file as part of the page."""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img src="data:image/png;base64,{data}" alt="{escape(alt)}">'
