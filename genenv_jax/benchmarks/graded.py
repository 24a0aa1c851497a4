"""Partial rewards for wrong calls: the mean of name, argument names and argument values.

After ToolRL (arXiv 2504.13958), with two bounds: wrong calls earn at most half of what right ones earn, and
the mean is over the written calls or the reference calls, whichever are more.
"""

from collections.abc import Callable, Sequence, Set
from typing import Any

from genenv_jax.benchmarks.calls import MAX_CALLS

EXACT, GRADED = "exact", "graded"
REWARDS = (EXACT, GRADED)
MOST = 0.5  # for wrong calls


def partial_reward(
    calls: Sequence[Any], references: Sequence[Any], agreement: Callable[[Any, Any], float]
) -> float:
    """The reward for wrong calls, in [0, MOST].  Total.

    Each reference call, in order, takes the free call that agrees with it best; ties go to the first.  More
    than MAX_CALLS calls earn nothing.
    `agreement`: how well a call matches a reference call, in [0, 1]; an exception counts as 0.
    """
    most = max(1, len(calls), len(references))
    if most > MAX_CALLS:
        return 0.0
    free, total = list(calls), 0.0
    for reference in references:
        values = [_or_nothing(agreement, call, reference) for call in free]
        if (best := max(values, default=0.0)) > 0:
            total += best
            del free[values.index(best)]
    return MOST * total / most


def _or_nothing(agreement: Callable[[Any, Any], float], call: Any, reference: Any) -> float:
    try:
        return agreement(call, reference)
    except Exception:
        return 0.0


def agreement(given: Set[str], expected: Set[str], equal: Set[str]) -> float:
    """How well a call of the right function matches its reference call, in [0, 1].

    Args:
      given, expected: names of the call's arguments and of those of the reference call.
      equal: names in both whose values agree.
    """
    names = len(given | expected)
    return (1 + (len(given & expected) + len(equal)) / names) / 3 if names else 1.0
