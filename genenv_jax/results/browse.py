"""Lists that a reader can filter and page through: what they show, and how long they may get.

The page holds each item once, as HTML; without JavaScript it is a plain list.
"""

import collections
import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from markupsafe import Markup

from genenv_jax.results.html import macro_html

_LONGEST, _SHORTEST = 6000, 300  # characters of one text
_TEXTS = 8  # texts per item, roughly
_CHOICES = 200  # maximum per filter

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Filter:
    """A control above a list that selects items by the value of their attribute `data-key`.

    Attributes:
      key: name of the attribute, in lower-case letters.
      label: shown to the reader.
      choices: the values and their counts; empty: a range of numbers from 0 to 1.
    """

    key: str
    label: str
    choices: Sequence[tuple[str, int]] = ()


def choices(key: str, label: str, values: Iterable[str], by_count: bool = True) -> Filter:
    """A filter by the values that occur: the most frequent first, or all in the order given."""
    counts = collections.Counter(values)
    return Filter(key, label, counts.most_common(_CHOICES) if by_count else list(counts.items()))


@dataclasses.dataclass(frozen=True)
class Browser:
    """A list as the macro "browser" shows it: rendered items in order, and the total number of items."""

    name: str
    filters: Sequence[Filter]
    items: Sequence[Markup]
    total: int


def spread(records: Sequence[T], kind_of: Callable[[T], Hashable]) -> list[int]:
    """Indices of records, ordered so that any prefix holds all kinds as evenly as possible."""
    members: dict[Hashable, list[int]] = collections.defaultdict(list)
    for index, record in enumerate(records):
        members[kind_of(record)].append(index)
    ranked = [(rank, index) for of in members.values() for rank, index in enumerate(of)]
    return [index for _, index in sorted(ranked)]


def browser(
    name: str,
    macro: str,
    records: Sequence[Mapping[str, Any]],
    kind_of: Callable[[Mapping[str, Any]], Hashable],
    filters: Sequence[Filter],
    budget: int,
    total: int | None = None,
) -> Browser:
    """Renders records with a macro (record, characters per text) until their HTML has `budget` bytes.

    If not all fit, texts are shortened, then some records are left out, evenly over the kinds.

    name: what the items are called on the page ("tasks").
    total: total number of items, if `records` are not all of them.
    """
    limit = max(_SHORTEST, min(_LONGEST, budget // (_TEXTS * max(1, len(records)))))
    found: dict[int, Markup] = {}
    for index in spread(records, kind_of):
        item = macro_html(macro, records[index], limit)
        budget -= len(item.encode("utf-8"))
        if budget < 0:
            break
        found[index] = item
    items = [found[index] for index in sorted(found)]
    return Browser(name, filters, items, len(records) if total is None else total)
