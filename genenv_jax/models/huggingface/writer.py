"""Saves parameters as a model directory that Hugging Face transformers and vLLM load."""

import contextlib
import json
import math
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from flax import traverse_util
from jax.experimental import multihost_utils

from genenv_jax.models.config import TransformerConfig, with_defaults
from genenv_jax.models.huggingface.atomic import atomic_directory
from genenv_jax.models.huggingface.directory import GENERATION, INDEX, TOKENIZER, WEIGHTS, tokenizer_files
from genenv_jax.models.huggingface.layouts import LAYOUTS
from genenv_jax.models.huggingface.tensors import all_finite
from genenv_jax.models.lora import LoraConfig, merge_kernel, split
from genenv_jax.models.rope import spell_rope
from genenv_jax.parallel import processes
from genenv_jax.typing import Array, Params

MAX_SHARD_BYTES = 5_000_000_000


def save_model(
    path: str | os.PathLike,
    params: Params,
    hf_config: Mapping[str, Any],
    tokenizer: Any = None,
    *,
    generation_config: Mapping[str, Any] | None = None,
    lora: LoraConfig | None = None,
    notes: Mapping[str, Mapping[str, Any] | str] | None = None,
) -> pathlib.Path:
    """Writes a model directory that Hugging Face transformers and vLLM load.

    The directory appears whole or not at all: it is written under a temporary name, flushed and renamed.
    Weights larger than `MAX_SHARD_BYTES` are split into several files with an index.
    Process 0 writes.  If arrays are spread over several processes, all of them must call this.

    Args:
      path: the directory to create; replaced as a whole if it holds a model.
      params: parameters as from `load_params`, on any devices.
      hf_config: the dict of a config.json that describes them.
      tokenizer: a transformers tokenizer to save with the weights; or a model directory, whose tokenizer
        files are copied unchanged, because older versions of transformers, and servers that pin them, may
        not read files that a newer version saved.  None: no tokenizer.
      generation_config: contents of generation_config.json; its "eos_token_id" defaults to that of
        `hf_config`, then to the tokenizer's.
      lora: `params` also hold these adapters, which are merged, and written, in float32, layer by layer.
      notes: more files to write, by name: a text, or an object to write as JSON.
    Returns:
      `path`.
    Raises:
      FileExistsError: `path` holds something else.
      FileNotFoundError: `tokenizer` is a directory without a tokenizer.json.
      ValueError: the parameters hold NaN or infinity.
    """
    path = pathlib.Path(path)
    config = TransformerConfig.from_huggingface(hf_config)
    base, trained = split(params) if lora else (params, {})
    flat = traverse_util.flatten_dict(base, sep="/")
    pairs = traverse_util.flatten_dict(trained, sep="/")
    adapters = {
        name.removesuffix("lora_a") + "kernel": (a, pairs[name.removesuffix("a") + "b"], lora.scale)
        for name, a in pairs.items()
        if name.endswith("lora_a")
    }
    dtype = jnp.dtype(jnp.float32 if lora else flat["embedding"].dtype)
    generation = dict(generation_config or {})
    if generation.get("eos_token_id") is None:
        eos = hf_config.get("eos_token_id")
        generation["eos_token_id"] = getattr(tokenizer, "eos_token_id", None) if eos is None else eos
    # Published configurations have their authors' path in _name_or_path.
    described = {k: v for k, v in hf_config.items() if k not in ("dtype", "_name_or_path")}
    # transformers before 4.56 knows only the old name; later versions read both.
    described |= {"torch_dtype": dtype.name} | spell_rope(with_defaults(hf_config))

    writer = processes.is_writer()
    with atomic_directory(path) if writer else contextlib.nullcontext() as folder:
        if writer:
            _write_json(folder / "config.json", described)
            _write_json(folder / GENERATION, generation)
            for name, note in (notes or {}).items():
                if isinstance(note, str):
                    (folder / name).write_text(note, encoding="utf-8")
                else:
                    _write_json(folder / name, note)
            if isinstance(tokenizer, pathlib.Path):
                for file in (tokenizer / TOKENIZER, *tokenizer_files(tokenizer)):
                    target = folder / file.relative_to(tokenizer)
                    target.parent.mkdir(exist_ok=True)
                    shutil.copyfile(file, target)
            elif tokenizer is not None:
                tokenizer.save_pretrained(folder)
        _save_weights(folder, flat, adapters, config, dtype)
    arrays = [leaf for leaf in flat.values() if isinstance(leaf, jax.Array)]
    if not all(array.is_fully_addressable for array in arrays):
        # All processes return once the directory is complete.  Its path may differ between them.
        multihost_utils.sync_global_devices(f"saved {path.name}")
    return path


def _save_weights(
    folder: pathlib.Path | None,
    flat: Mapping[str, Array],
    adapters: Mapping[str, tuple[Array, Array, float]],
    config: TransformerConfig,
    dtype: np.dtype,
) -> None:
    """Writes the tensors shard by shard; if `folder` is None, only takes part in gathering them.

    adapters: A, B and the scale, by the name of the kernel they are added to.
    """
    # In layer order, so that a layer usually lies in one shard.
    entries = [(None, name) for name in flat if not LAYOUTS[name].stacked]
    entries += [(layer, name) for layer in range(config.num_layers) for name in flat if LAYOUTS[name].stacked]
    shards: list[list[tuple[int | None, str]]] = [[]]
    total = filled = 0
    for layer, name in entries:
        size = math.prod(flat[name].shape[layer is not None :]) * dtype.itemsize
        if shards[-1] and filled + size > MAX_SHARD_BYTES:
            shards.append([])
            filled = 0
        shards[-1].append((layer, name))
        filled += size
        total += size
    weight_map = {}
    for number, shard in enumerate(shards, start=1):
        one = len(shards) == 1
        file = WEIGHTS if one else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        tensors = {}
        for layer, name in shard:
            x = processes.fetch(_layer(flat[name], layer, adapters.get(name)))
            if folder is not None:
                key = LAYOUTS[name].key.format(layer)
                tensors[key] = LAYOUTS[name].write(x.astype(dtype))
                weight_map[key] = file
                if not all_finite(tensors[key]):
                    raise ValueError(f"{key} holds NaN or infinity as {dtype.name}; not written")
        if folder is not None:
            safetensors.numpy.save_file(tensors, folder / file, metadata={"format": "pt"})
    if folder is not None and len(shards) > 1:
        _write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})


def _layer(
    x: Array | np.ndarray, layer: int | None, adapter: tuple[Array, Array, float] | None
) -> Array | np.ndarray:
    """A parameter, or one layer of it merged with its adapter."""
    if adapter:
        *pair, scale = adapter
        one = [jax.lax.dynamic_index_in_dim(leaf, layer) for leaf in (x, *pair)]
        x, layer = merge_kernel(*one, scale), 0
    if layer is None:
        return x
    if isinstance(x, np.ndarray):
        return x[layer]
    return jax.lax.dynamic_index_in_dim(x, layer, keepdims=False)


def _write_json(file: pathlib.Path, value: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
