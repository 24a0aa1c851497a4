"""Adapters in the format of the PEFT library: adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from flax import traverse_util

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.huggingface.atomic import atomic_directory
from genenv_jax.models.huggingface.directory import read_json
from genenv_jax.models.huggingface.layouts import LAYOUTS
from genenv_jax.models.lora import TARGETS, LoraConfig, split
from genenv_jax.parallel import processes
from genenv_jax.parallel.rules import param_shapes
from genenv_jax.typing import Params

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"

# Options of PEFT that change what an adapter computes, with the values that ours has.
_PLAIN = {
    "bias": "none",
    "fan_in_fan_out": False,
    "use_rslora": False,
    "use_dora": False,
    "modules_to_save": None,
    "layers_to_transform": None,
    "rank_pattern": {},
    "alpha_pattern": {},
}


def _key(path: tuple[str, ...], layer: int) -> str:
    """PEFT's name of our parameter ("layers", "attention", "q", "lora_a") in one layer."""
    kernel = LAYOUTS["/".join((*path[:-1], "kernel"))].key.format(layer)
    return f"base_model.model.{kernel.removesuffix('weight')}lora_{path[-1][-1].upper()}.weight"


def save_adapter(
    path: str | os.PathLike,
    adapters: Params,
    lora: LoraConfig,
    *,
    base_model: str,
    dtype: Any = None,
    overwrite: bool = False,
    notes: Mapping[str, str] | None = None,
) -> pathlib.Path:
    """Writes adapters as a directory that `peft.PeftModel.from_pretrained` loads.

    It appears whole or not at all.  In a run of several processes all must call this.

    Args:
      path: the directory to make.
      adapters: as `lora.split` gives them, layers stacked, on any devices.
      lora: their rank, scale and targets.
      base_model: directory or hub id of the base, for the reader's information.
      dtype: type on disk; the parameters' own by default.
      overwrite: replace `path` where it exists.
      notes: texts to write beside them, by name of the file.
    Raises:
      FileExistsError: `path` exists and `overwrite` is false.
      ValueError: an adapter holds NaN or infinity.
    """
    path = pathlib.Path(path)
    if not overwrite and path.exists():
        raise FileExistsError(f"{path} exists; give another place or overwrite it explicitly")
    tensors = {}
    for name, leaf in traverse_util.flatten_dict(adapters).items():
        stacked = processes.fetch(leaf)
        stacked = stacked if dtype is None else stacked.astype(jnp.dtype(dtype))
        if not np.isfinite(stacked.astype(np.float32)).all():
            raise ValueError(f"{'/'.join(name)} holds NaN or infinity; not written")
        for layer, x in enumerate(stacked):
            # Ours are (in…, r) and (r, out…); PEFT's are the matrices (r, in) and (out, r).
            x = x.reshape(-1, lora.rank) if name[-1] == "lora_a" else x.reshape(lora.rank, -1)
            tensors[_key(name, layer)] = np.ascontiguousarray(x.T)
    described = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "target_modules": list(lora.targets),
        "inference_mode": True,
    } | _PLAIN
    if processes.is_writer():
        with atomic_directory(path) as folder:
            (folder / CONFIG).write_text(json.dumps(described, indent=2) + "\n")
            for name, text in (notes or {}).items():
                (folder / name).write_text(text, encoding="utf-8")
            safetensors.numpy.save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    return path


def read_lora_config(path: str | os.PathLike) -> LoraConfig:
    """The rank, scale and targets of an adapter directory.

    Raises FileNotFoundError where there is none, and ValueError for an adapter of another kind or with
    an option that ours lacks, naming it.
    """
    file = pathlib.Path(path) / CONFIG
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist; expected an adapter in PEFT's format")
    given = read_json(file)
    if given.get("peft_type") != "LORA":
        raise ValueError(f"{file}: peft_type {given.get('peft_type')!r}; expected 'LORA'")
    for option, value in _PLAIN.items():
        if (given.get(option) or None) != (value or None) and given.get(option) != value:
            raise ValueError(
                f"{file}: {option} = {given[option]!r} is not supported; expected {value!r}"
            )
    targets = given.get("target_modules")
    if targets == "all-linear":
        targets = TARGETS
    rank = given.get("r")
    if not isinstance(targets, (list, tuple)) or type(rank) is not int or rank < 1:
        raise ValueError(f"{file}: expected a positive int 'r' and a list 'target_modules'")
    alpha = given.get("lora_alpha", 8)
    if not isinstance(alpha, (int, float)):
        raise ValueError(f"{file}: lora_alpha = {alpha!r}; expected a number")
    try:
        # In our order, since PEFT keeps a set.
        known = [name for name in TARGETS if name in targets]
        unknown = [name for name in targets if name not in TARGETS]
        return LoraConfig(rank, float(alpha), (*known, *unknown))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def load_adapter(path: str | os.PathLike, config: TransformerConfig) -> Params:
    """Reads an adapter directory for the decoder `config`, whose `lora` is `read_lora_config`'s.

    Returns:
      float32 host arrays, nested and stacked as `lora.split` gives them.
    Raises:
      FileNotFoundError: the weights are missing.
      ValueError: damaged file, missing or unexpected key, wrong shape, NaN or infinity.
    """
    file = pathlib.Path(path) / WEIGHTS
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist; expected an adapter in PEFT's format")
    try:
        tensors = safetensors.numpy.load_file(file)
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(f"{file} is not a whole safetensors file: {error}") from error
    shapes = adapter_shapes(config)
    adapters = {}
    for name, shape in shapes.items():
        rank = config.lora.rank
        theirs = math.prod(shape[1:]) // rank
        theirs = (rank, theirs) if name[-1] == "lora_a" else (theirs, rank)
        layers = []
        for layer in range(shape[0]):
            key = _key(name, layer)
            x = tensors.pop(key, None)
            if x is None:
                raise ValueError(f"{file}: missing key {key} of shape {theirs}")
            if x.shape != theirs:
                raise ValueError(f"{file}: {key} has shape {x.shape}; expected {theirs}")
            x = x.astype(np.float32)
            if not np.isfinite(x).all():
                raise ValueError(f"{file}: {key} holds NaN or infinity")
            layers.append(x.T.reshape(shape[1:]))
        adapters[name] = np.stack(layers)
    if tensors:
        raise ValueError(
            f"{file}: unexpected key {min(tensors)}; expected adapters of {config.lora}"
        )
    return traverse_util.unflatten_dict(adapters)


def adapter_shapes(config: TransformerConfig) -> dict[tuple[str, ...], tuple[int, ...]]:
    """Shape of each adapter of `config`, by path."""
    flat = traverse_util.flatten_dict(split(param_shapes(config))[1])
    return {name: leaf.shape for name, leaf in flat.items()}
