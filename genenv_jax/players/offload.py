"""Which weights are on the devices in which phase, and which are offloaded to host memory.

A co-evolution holds five large trees: each player's parameters and moments, and the shared reference (two,
if the simulator alone has a warm start).
Each phase computes with:

    phase              parameters   moments   reference
    sample, evaluate   own          -         -
    score              -            -         yes
    both               own          -         yes
    update             own          own       -

`MemoryConfig` says what happens to the rest.  Under LoRA the reference is the base that everything runs on,
so it always stays on the devices.
"""

import dataclasses
from typing import Any, Protocol

import jax

from genenv_jax.settings import Settings, choice

# Trees that a phase computes with, as in the table above.
NEEDS = {
    "sample": frozenset({"parameters"}),
    "score": frozenset({"reference"}),
    "both": frozenset({"parameters", "reference"}),
    "update": frozenset({"parameters", "moments"}),
}
OFFLOADS = ("none", "player", "phase")


@dataclasses.dataclass(frozen=True)
class MemoryConfig(Settings):
    """`config.memory`: the type of the optimisers' moments, and offloading to host memory.

    Attributes:
      moments: dtype of the optimisers' moments; bfloat16 halves their memory.
      offload: what is kept in host memory: "none": nothing, "player": the other player's weights and moments,
        "phase": everything that the current phase does not compute with.
    """

    moments: str = choice("float32", "bfloat16")
    offload: str = choice(*OFFLOADS)


class Resident(Protocol):
    """An owner of trees that can be moved: a player, or a reference."""

    def place(self, **on_device: bool) -> None:
        """Moves each named tree to the devices (true) or to host memory (false)."""


def loaded_trees(phase: str, offload: str, lora: bool = False) -> frozenset[str]:
    """The trees on the devices while one player is in `phase`.

    Some of "own parameters", "own moments", "other parameters", "other moments", "reference".
    """
    own = {"parameters", "moments"} if offload != "phase" else NEEDS[phase] - {"reference"}
    trees = {f"own {name}" for name in own}
    if offload == "none":
        trees |= {"other parameters", "other moments"}
    if offload != "phase" or lora or "reference" in NEEDS[phase]:
        trees.add("reference")
    return frozenset(trees)


class Offloader:
    """Moves trees between devices and host memory when the phase changes.

    offload: one of `OFFLOADS`.  lora: whether the players are adapters on the reference.
    """

    def __init__(self, offload: str = "none", lora: bool = False):
        self.offload, self._lora = offload, lora
        self._players: list[Resident] = []
        self._references: list[Resident] = []

    def add_reference(self, reference: Resident) -> None:
        """Manages a reference from now on."""
        self._references.append(reference)
        if self.offload == "phase" and not self._lora:
            reference.place(params=False)

    def add_player(self, player: Resident) -> None:
        """Manages a player from now on; unless `offload` is "none", its trees move to host memory."""
        self._players.append(player)
        if self.offload != "none":
            player.place(parameters=False, moments=False)

    def load_for(self, phase: str, player: Resident) -> None:
        """Loads what `player` needs for `phase` onto the devices, after making room for it."""
        if self.offload == "none":
            return
        trees = loaded_trees(phase, self.offload, self._lora)
        for other in self._players:
            if other is not player:
                other.place(parameters=False, moments=False)
        # Move out before moving in, so that both are never on the devices together.
        for wanted in (False, True):
            for name in ("parameters", "moments"):
                if (f"own {name}" in trees) is wanted:
                    player.place(**{name: wanted})
            if ("reference" in trees) is wanted:
                for reference in self._references:
                    reference.place(params=wanted)


def place(tree: Any, on_device: bool) -> Any:
    """Moves a tree to device memory or to page-locked host memory; shardings are kept.

    Arrays that are already there are not touched.
    """
    kind = "device" if on_device else "pinned_host"

    def move(x: jax.Array) -> jax.Array:
        if x.sharding.memory_kind == kind:
            return x
        sharding = x.sharding.with_memory_kind(kind)
        if isinstance(x, jax.ShapeDtypeStruct):  # of a dry run
            return x.update(sharding=sharding)
        return jax.device_put(x, sharding)

    return jax.tree.map(move, tree)
