"""Choices that stay the same for ever: by hashes of names, and not by Python's salted ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from genenv_jax.benchmarks.base import Task


def position(key: str) -> float:
    """A stable number in [0, 1) for a key: the head of its SHA-256."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64


def some(tasks: Sequence[Task], most: int | None) -> list[Task]:
    """At most `most` of the tasks, in their order; None or 0: all.

    The hash is another than that of splits, which have already sorted out where a task may be.
    """
    if not most or most >= len(tasks):
        return list(tasks)
    ids = {task.id for task in sorted(tasks, key=lambda t: position(f"order:{t.id}"))[:most]}
    return [task for task in tasks if task.id in ids]
