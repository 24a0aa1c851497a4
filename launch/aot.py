"""Compiles for TPU slices that this machine does not have: topology, memory and collectives.

libtpu's compiler needs no TPU.  `jax.experimental.topologies` describes a slice, a program is lowered with
abstract arguments on a mesh of its devices, and the compiled program reports its needs per chip.
"""

from __future__ import annotations

import collections
import dataclasses
import importlib.metadata
import logging
import math
import os
import re
import time
from collections.abc import Mapping
from typing import Any

import jax
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

GIB = 2**30

# Memory that one program may use, in GiB per chip: the limit that the compiler enforces if its
# messages name it (v5e, v6e), otherwise the published size.
HBM_GIB = {"v4": 32.0, "v5e": 15.75, "v5p": 95.0, "v6e": 31.24}

# Published peak rates of a chip, per second: bfloat16 operations, and bytes of memory traffic.
PEAKS = {
    "v4": (275e12, 1228e9),
    "v5e": (197e12, 819e9),
    "v5p": (459e12, 2765e9),
    "v6e": (918e12, 1640e9),
}

# Chips -> topology.  v5e and v6e are two-dimensional, v4 and v5p three-dimensional.  Cloud TPU names
# count chips for the former and TensorCores, two per chip, for the latter.
_SHAPES = {
    2: {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"},
    3: {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8"},
}
_RANK = {"v4": 3, "v5e": 2, "v5p": 3, "v6e": 2}
_ALIASES = {"v5litepod": "v5e", "v5lite": "v5e"}


@dataclasses.dataclass(frozen=True)
class Slice:
    """A TPU slice.  name: Cloud TPU's name; topology: the compiler's name; hbm: GiB per chip."""

    name: str
    topology: str
    chips: int
    hbm: float

    @property
    def peaks(self) -> tuple[float, float]:
        """Peak bfloat16 operations and bytes of memory traffic, per second and chip."""
        return PEAKS[self.topology.partition(":")[0]]


def parse_slice(text: str) -> Slice:
    """Parses "v5e:4x4" (a topology) or "v5e-16" (a Cloud TPU name; v4 and v5p count TensorCores).

    Raises ValueError for an unknown generation or size, naming the known ones.
    """
    match = re.fullmatch(r"(v\d\w*)(?::(\d+(?:x\d+)+)|-(\d+))", text.strip().lower())
    generation = _ALIASES.get(match[1], match[1]) if match else None
    if generation not in HBM_GIB:
        raise ValueError(
            f"topology {text!r}: expected a generation of {sorted(HBM_GIB)} with a shape or a size, "
            "such as v5e:4x4 or v5e-16"
        )
    rank = _RANK[generation]
    shapes, cores = _SHAPES[rank], 2 if rank == 3 else 1
    if match[2]:
        shape = match[2]
        if shape.count("x") + 1 != rank:
            raise ValueError(f"topology {text!r}: {generation} shapes have {rank} dimensions")
        chips = math.prod(map(int, shape.split("x")))
    else:
        chips, odd = divmod(int(match[3]), cores)
        if odd or chips not in shapes:
            names = [f"{generation}-{n * cores}" for n in shapes]
            raise ValueError(f"topology {text!r}: expected one of {names}, or a shape")
        shape = shapes[chips]
    return Slice(f"{generation}-{chips * cores}", f"{generation}:{shape}", chips, HBM_GIB[generation])


def compiler() -> tuple[str, str]:
    """libtpu's version, and the versions that this JAX requires if it is not one of them, else "".

    Other versions compile too, but to programs of other sizes.
    """
    required = map(Requirement, importlib.metadata.requires("jax") or ())
    wanted = next((of.specifier for of in required if of.name == "libtpu"), SpecifierSet())
    try:
        installed = importlib.metadata.version("libtpu")
    except importlib.metadata.PackageNotFoundError:  # from another package, such as libtpu-nightly
        return "of unknown version", str(wanted)
    return installed, "" if installed in wanted else str(wanted)


def slice_devices(part: Slice) -> list[Any]:
    """The slice's devices, which can be compiled for but run nothing.

    Raises RuntimeError without libtpu, and ValueError for a topology that the compiler refuses.
    """
    # libtpu asks which machine it runs on and complains if it has no TPU; here that does not matter.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("TPU_HOST_BOUNDS", "1,1,1")
    # Compiling takes no TPU, so several compilations may run at once, also beside a program using a TPU.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    try:
        import libtpu  # noqa: F401
    except ImportError:
        raise RuntimeError(
            'compiling for TPUs needs libtpu, which is not installed: pip install "jax[tpu]" '
            "(it compiles on any Linux machine, a TPU is not needed)"
        ) from None
    from jax.experimental import topologies

    logging.getLogger("jax._src.xla_bridge").setLevel(logging.ERROR)
    try:
        # Hosts have four chips, except the one-chip machine.
        host = {"chips_per_host_bounds": (1, 1, 1)} if part.chips == 1 else {}
        return list(topologies.get_topology_desc(part.topology, "tpu", **host).devices)
    except Exception as error:
        raise ValueError(f"topology {part.topology!r}: refused by the TPU compiler: {error}") from error


def place(shapes: Any, shardings: Any) -> Any:
    """Abstract arrays on a mesh: jax.ShapeDtypeStructs of `shapes` with `shardings` (a prefix tree)."""
    return jax.tree.map(
        lambda sharding, part: jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), part
        ),
        shardings,
        shapes,
        is_leaf=lambda x: isinstance(x, jax.sharding.Sharding),
    )


def shard_bytes(tree: Any) -> int:
    """Bytes of one device's shards of abstract arrays that have shardings."""
    return sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree))


@dataclasses.dataclass(frozen=True)
class Footprint:
    """Memory that a compiled program needs on one chip, in bytes.

    outputs: those not written over donated arguments.  aliased: those that are.
    total = arguments + temporaries + outputs + code.  If the program does not compile for lack of
    memory, `error` is the compiler's reason, total is what it says the program needs, and the parts
    are None.
    collectives: operations by kind in the compiled text, with each loop body counted once; None if the
    compiler cannot print the program.
    """

    total: int
    arguments: int | None = None
    temporaries: int | None = None
    outputs: int | None = None
    aliased: int | None = None
    code: int | None = None
    collectives: Mapping[str, int] | None = None
    seconds: float = 0.0
    error: str = ""


_COLLECTIVE = re.compile(
    r" (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
# "Used 20.5G of 15.75G hbm", or "total memory required for HLO temporaries (57.44G) exceeds ..."
_NEEDED = re.compile(
    r"(?:Used|memory required for HLO temporaries) \(?([\d.]+)([KMG]?)\)?"
    r"(?: of |.{0,40}available HBM \()([\d.]+)[KMG]?"
)


def measure(lowered: jax.stages.Lowered) -> Footprint:
    """Compiles a lowered program and reports what it needs on one chip.

    Raises whatever the compiler raises, except when the program exceeds the chip's memory.
    """
    start = time.perf_counter()
    try:
        compiled = lowered.compile()
    except Exception as error:
        needed = _NEEDED.search(str(error))
        if not needed:
            raise
        return Footprint(
            total=int(float(needed[1]) * _UNITS[needed[2]]),
            seconds=time.perf_counter() - start,
            error=f"does not compile: needs {needed[1]}{needed[2]}",
        )
    seconds = time.perf_counter() - start
    memory = compiled.memory_analysis()
    outputs = memory.output_size_in_bytes - memory.alias_size_in_bytes
    parts = (memory.argument_size_in_bytes, memory.temp_size_in_bytes, outputs)
    return Footprint(
        sum(parts) + memory.generated_code_size_in_bytes,
        *parts,
        memory.alias_size_in_bytes,
        memory.generated_code_size_in_bytes,
        collectives(compiled),
        seconds,
    )


def collectives(compiled: jax.stages.Compiled) -> dict[str, int] | None:
    """Collective operations by kind; None if the compiler cannot print the program."""
    try:
        text = compiled.as_text()
    except Exception:  # libtpu 0.0.5x cannot print some programs for v5p and v6e
        return None
    return dict(sorted(collections.Counter(_COLLECTIVE.findall(text)).items()))
