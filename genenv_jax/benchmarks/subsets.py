"""Subsets chosen by hashes of ids, so that they are the same in every run and version."""

import hashlib
from collections.abc import Sequence

from genenv_jax.benchmarks.task import Task


def stable_position(key: str) -> float:
    """A stable number in [0, 1) for a key: the head of its SHA-256."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64


def stable_subset(tasks: Sequence[Task], most: int) -> list[Task]:
    """At most `most` of the tasks, in their order; 0: all.

    The hash differs from that of splits, because tasks of one split are already selected by the latter.
    """
    if not most or most >= len(tasks):
        return list(tasks)
    ids = {task.id for task in sorted(tasks, key=lambda t: stable_position(f"order:{t.id}"))[:most]}
    return [task for task in tasks if task.id in ids]
