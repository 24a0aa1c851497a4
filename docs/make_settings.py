"""Writes docs/settings.md: every setting of a run, in the words of the dataclass that has it.

python docs/make_settings.py
"""

from __future__ import annotations

import dataclasses
import inspect
import pathlib
import re
from collections.abc import Iterator

from genenv_jax.config import Config
from genenv_jax.settings import Settings

PAGE = pathlib.Path(__file__).parent / "settings.md"
_HEAD = """# Settings

Written by `python docs/make_settings.py` from the dataclasses beside the code; edit these.
The value is the default, which is the paper's where the paper has one.
Change a setting with `--config.GROUP.NAME=VALUE`.
"""


def page() -> str:
    """The text of the page.  Raises KeyError for a setting that its docstring does not explain."""
    return "\n".join([_HEAD, *_group(Config, "config")])


def explained(kind: type[Settings]) -> dict[str, str]:
    """What the docstrings of a group and of its base classes say of each setting, by its name.

    An entry is "name: text" at the beginning of a line; its text ends at the next entry or an empty line.
    """
    names = "|".join(field.name for field in dataclasses.fields(kind))
    entry = re.compile(rf"(?m)^ *({names}): ")
    found: dict[str, str] = {}
    for base in kind.__mro__:
        for paragraph in inspect.cleandoc(vars(base).get("__doc__") or "").split("\n\n"):
            _, *parts = entry.split(paragraph)
            for name, text in zip(parts[::2], parts[1::2], strict=True):
                found.setdefault(name, " ".join(text.split()).rstrip("."))
    return found


def _group(kind: type[Settings], where: str) -> Iterator[str]:
    fields = dataclasses.fields(kind)
    texts = explained(kind)
    yield f"## {where}\n"
    groups = [field for field in fields if isinstance(_default(field), Settings)]
    for field in fields:
        if field not in groups:
            value = "" if _default(field) is dataclasses.MISSING else f" = `{_default(field)!r}`"
            yield f"- `{field.name}`{value}: {texts[field.name]}"
    yield ""
    for field in groups:
        yield from _group(type(_default(field)), f"{where}.{field.name}")


def _default(field: dataclasses.Field) -> object:
    return field.default


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
