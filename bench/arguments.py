"""Types of the benchmarks' command line arguments, for argparse."""

import argparse
from collections.abc import Callable, Sequence


def numbers(text: str) -> list[int]:
    """Integers separated by commas."""
    return [int(x) for x in text.split(",")]


def some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """A type that takes names separated by commas, all of them among `known`."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [x for x in names if x not in known]:
            raise argparse.ArgumentTypeError(f"{unknown} unknown; expected some of {', '.join(known)}")
        return names

    return parse
