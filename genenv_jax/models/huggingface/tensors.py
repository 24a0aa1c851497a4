"""Tensors in safetensors files, described by the headers and read part by part."""

import dataclasses
import pathlib

import numpy as np
import safetensors

from genenv_jax.models.huggingface.directory import INDEX, refuse_pointer, some_of, weight_files

FLOATS = ("F32", "BF16", "F16")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor on disk, not yet read.  `dtype` is safetensors' name for its dtype."""

    file: pathlib.Path
    key: str
    shape: tuple[int, ...]
    dtype: str

    def read(self, region: tuple[slice, ...]) -> np.ndarray:
        """Reads a part; raises ValueError if it is damaged or holds NaN or infinity.

        The file is opened for this part only, so that no more of it stays mapped than needed.
        """
        try:
            with safetensors.safe_open(self.file, framework="np") as handle:
                x = handle.get_slice(self.key)[region]
        except (safetensors.SafetensorError, OSError) as error:
            raise ValueError(f"{self.file}: {self.key} cannot be read: {error}") from error
        if not all_finite(x):
            raise ValueError(f"{self.file}: {self.key} holds NaN or infinity; expected finite weights")
        return x


def list_tensors(path: pathlib.Path) -> dict[str, Tensor]:
    """All tensors of a model directory by key; reads only the headers.

    Raises FileNotFoundError if weights or shards are missing, and ValueError, naming the file, if one
    is damaged or differs from the index.
    """
    tensors: dict[str, Tensor] = {}
    for file, promised in weight_files(path).items():
        refuse_pointer(file)
        try:
            with safetensors.safe_open(file, framework="np") as handle:
                views = {key: handle.get_slice(key) for key in handle.keys()}  # noqa: SIM118
                found = {
                    key: Tensor(file, key, tuple(view.get_shape()), view.get_dtype())
                    for key, view in views.items()
                }
        except (safetensors.SafetensorError, OSError) as error:
            raise ValueError(
                f"{file} is not a whole safetensors file (truncated or damaged): {error}"
            ) from error
        if promised is not None and promised != found.keys():
            lacks, extra = promised - found.keys(), found.keys() - promised
            raise ValueError(
                f"{file} differs from {INDEX}: "
                + "; ".join(
                    [f"missing key {some_of(lacks)}"] * bool(lacks)
                    + [f"unexpected key {some_of(extra)}"] * bool(extra)
                )
            )
        tensors |= found
    return tensors


def all_finite(x: np.ndarray) -> bool:
    """Whether x, of a dtype in `FLOATS`, holds neither NaN nor infinity."""
    if x.dtype.itemsize == 2:  # tests for an all-ones exponent: three times faster than np.isfinite
        exponent = 0x7C00 if x.dtype == np.float16 else 0x7F80
        return bool((x.view(np.uint16) & 0x7FFF).max(initial=0) < exponent)
    return bool(np.isfinite(x).all())
