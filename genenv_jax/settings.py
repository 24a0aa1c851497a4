"""Groups of settings: frozen dataclasses next to the code that uses them, with bounds for their values.

    @dataclasses.dataclass(frozen=True)
    class CheckpointConfig(Settings):
        every: int = within(1, low=1)  # epochs
        storage: str = choice("local", "remote")

`genenv_jax.config` collects them.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any


def within(default: Any, low: float, high: float | None = None) -> Any:
    """A field for a finite number from `low` to `high`, inclusive; None: no upper bound."""
    return dataclasses.field(default=default, metadata={"low": low, "high": high})


def choice(default: Any, *others: Any) -> Any:
    """A field whose value is its default or one of `others`."""
    return dataclasses.field(default=default, metadata={"choices": (default, *others)})


@dataclasses.dataclass(frozen=True)
class Settings:
    """A group of settings.  A subclass may check combinations of its settings in its `__post_init__`.

    Raises ValueError, whose message begins with the setting's name, for a value out of bounds.
    """

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value, bounds = getattr(self, field.name), field.metadata
            if "low" in bounds:
                low, high = bounds["low"], bounds["high"]
                if not (math.isfinite(value) and low <= value and (high is None or value <= high)):
                    expected = f"at least {low}" if high is None else f"between {low} and {high}"
                    raise ValueError(f"{field.name} = {value!r}: expected {expected}")
            choices = bounds.get("choices")
            if choices and not any(type(value) is type(c) and value == c for c in choices):
                raise ValueError(f"{field.name} = {value!r}: expected one of {list(choices)}")


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens a nested configuration to dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
