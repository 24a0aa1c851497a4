"""Which strikes and damages there are, and in what order."""

from __future__ import annotations

import pathlib
import random
import signal
from collections.abc import Sequence
from typing import Any

PHASES = ("warm start", "compile", "sampling", "scoring", "update", "checkpoint", "export")
DAMAGES = ("truncate", "flip", "delete")


def plan(kills: int, signals: int, rng: random.Random) -> list[tuple[int, str]]:
    """(signal, phase) of every strike, in an order in which a run passes through the phases.

    kills: SIGKILLs, over all phases.  signals: SIGTERMs, and SIGINTs, in each phase.
    """
    strikes = [(signal.SIGKILL, PHASES[i % len(PHASES)]) for i in range(kills)]
    strikes += [(s, p) for s in (signal.SIGTERM, signal.SIGINT) for p in PHASES] * signals
    rng.shuffle(strikes)
    rank = {"warm start": 0, "export": 2}
    return sorted(strikes, key=lambda strike: rank.get(strike[1], 1))


def batches(strikes: Sequence[Any], size: int) -> list[list[Any]]:
    """Every n-th strike for each of n runs of about `size` strikes, so that each has early and late ones."""
    count = max(1, -(-len(strikes) // size))
    return [list(strikes[i::count]) for i in range(count)]


def damage(path: pathlib.Path, how: str, rng: random.Random) -> None:
    """Cuts a file short at a random byte, changes a bit of a random byte, or removes it."""
    content = bytearray(path.read_bytes())
    if how == "delete" or not content:
        path.unlink()
        return
    i = rng.randrange(len(content))
    if how == "truncate":
        content = content[:i]
    else:
        content[i] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
