"""Which weights are on the devices in which phase, and which wait in host memory.

A co-evolution holds five large trees: parameters and moments of each player, and the reference that they
share.  What a phase computes with:

    phase              parameters   moments   reference
    sample, evaluate   own          -         -
    score              -            -         yes
    both               own          -         yes
    update             own          own       -

`config.memory.offload` says what becomes of the rest: "none" leaves it where it is; "player" keeps the
other player's trees in host memory; "phase" keeps everything there that the table does not name.  Under
LoRA the reference is the base that everything runs on, so it always stays.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import jax

from genenv_jax.settings import Settings, choice

# What a phase computes with, as in the table above.
NEEDS = {
    "sample": frozenset({"parameters"}),
    "score": frozenset({"reference"}),
    "both": frozenset({"parameters", "reference"}),
    "update": frozenset({"parameters", "moments"}),
}
OFFLOADS = ("none", "player", "phase")


@dataclasses.dataclass(frozen=True)
class MemoryConfig(Settings):
    """`config.memory`: what the optimisers keep, and where.

    Attributes:
      moments: type of the optimisers' moments; bfloat16 halves them.
      offload: what waits in host memory: "none": nothing, "player": the other player's weights and moments,
        "phase": all that a phase does not compute with.
    """

    moments: str = choice("float32", "bfloat16")
    offload: str = choice(*OFFLOADS)


class Resident(Protocol):
    """An owner of trees that can be moved: a player, or the reference that players share."""

    def place(self, **on_device: bool) -> None:
        """Moves each tree named to the devices (true) or to host memory (false)."""


def loaded_trees(phase: str, offload: str, lora: bool = False) -> frozenset[str]:
    """The trees on the devices while one player is in `phase`.

    Returns:
      some of "own parameters", "own moments", "other parameters", "other moments", "reference".
    """
    own = {"parameters", "moments"} if offload != "phase" else NEEDS[phase] - {"reference"}
    trees = {f"own {name}" for name in own}
    if offload == "none":
        trees |= {"other parameters", "other moments"}
    if offload != "phase" or lora or "reference" in NEEDS[phase]:
        trees.add("reference")
    return frozenset(trees)


class Offloader:
    """Moves trees between devices and host memory at the phases' boundaries.

    Args:
      offload: one of `OFFLOADS`.
      lora: whether the players are adapters on the reference.
    """

    def __init__(self, offload: str = "none", lora: bool = False):
        self.offload, self._lora = offload, lora
        self._players: list[Resident] = []
        self._reference: Resident | None = None

    def add_reference(self, reference: Resident) -> None:
        """Takes charge of the reference."""
        self._reference = reference
        if self.offload == "phase" and not self._lora:
            reference.place(params=False)

    def add_player(self, player: Resident) -> None:
        """Takes charge of a player; its trees wait in host memory where that is configured."""
        self._players.append(player)
        if self.offload != "none":
            player.place(parameters=False, moments=False)

    def load_for(self, phase: str, player: Resident) -> None:
        """Brings to the devices what `player` needs for `phase`, after making room for it."""
        if self.offload == "none":
            return
        trees = loaded_trees(phase, self.offload, self._lora)
        for other in self._players:
            if other is not player:
                other.place(parameters=False, moments=False)
        # First out, then in: otherwise both would be there for a moment.
        for wanted in (False, True):
            for name in ("parameters", "moments"):
                if (f"own {name}" in trees) is wanted:
                    player.place(**{name: wanted})
            if self._reference is not None and ("reference" in trees) is wanted:
                self._reference.place(params=wanted)


def place(tree: Any, on_device: bool) -> Any:
    """The tree in device memory or in page-locked host memory, with its shardings kept.

    Arrays that are there already are not touched.
    """
    kind = "device" if on_device else "pinned_host"

    def move(x: jax.Array) -> jax.Array:
        if x.sharding.memory_kind == kind:
            return x
        return jax.device_put(x, x.sharding.with_memory_kind(kind))

    return jax.tree.map(move, tree)
