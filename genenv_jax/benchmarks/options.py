"""Checks for benchmark options.  Errors name the option, its value and what was expected."""

from collections.abc import Sequence
from typing import Any


def check_choice(option: str, value: Any, known: Sequence[str]) -> None:
    """Raises ValueError unless `value` is one of the known names."""
    if value not in known:
        raise ValueError(f"{option} = {value!r}: expected one of {', '.join(known)}")


def check_names(option: str, values: Any, known: Sequence[str]) -> None:
    """Raises ValueError unless `values` is a list of known names."""
    if isinstance(values, str) or not all(value in known for value in values):
        raise ValueError(f"{option} = {values!r}: expected a list of names among {', '.join(known)}")


def check_shares(**options: Any) -> None:
    """Raises ValueError for an option that is not a number from 0 to 1."""
    for option, value in options.items():
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(f"{option} = {value!r}: expected a number in [0, 1]")


def check_integers(low: int, high: int | None = None, /, **options: Any) -> None:
    """Raises ValueError for an option that is not an integer from `low` to `high`."""
    expected = f"of at least {low}" if high is None else f"from {low} to {high}"
    for option, value in options.items():
        if type(value) is not int or value < low or (high is not None and value > high):
            raise ValueError(f"{option} = {value!r}: expected an integer {expected}")
