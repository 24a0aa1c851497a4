"""Loads the weights of a model directory: checks them and streams them to their devices."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.huggingface.directory import some_of
from genenv_jax.models.huggingface.layouts import LAYOUTS, Layout, flat_shapes
from genenv_jax.models.huggingface.streaming import Index, fill
from genenv_jax.models.huggingface.tensors import FLOATS, Tensor, list_tensors
from genenv_jax.typing import Array, Params

_EMBEDDING, _HEAD = LAYOUTS["embedding"].key, LAYOUTS["lm_head/kernel"].key


def _check(path: pathlib.Path, tensors: Mapping[str, Tensor], config: TransformerConfig) -> None:
    """Checks, before reading, that all keys are known, no parameter is missing, shapes and dtypes match."""
    expected: dict[str, tuple[int, ...]] = {}
    for name, shape in flat_shapes(config).items():
        layout = LAYOUTS[name]
        their_shape = layout.their_shape(shape[layout.stacked :])
        expected |= dict.fromkeys(layout.keys(config.num_layers), their_shape)
    optional = {_HEAD: expected[_EMBEDDING]} if config.tie_embeddings else {}
    if missing := expected.keys() - tensors.keys():
        key = min(missing)
        raise ValueError(f"{path}: missing key {some_of(missing)}; expected {key} of shape {expected[key]}")
    if unexpected := tensors.keys() - expected.keys() - optional.keys():
        raise ValueError(
            f"{tensors[min(unexpected)].file}: unexpected key {some_of(unexpected)}; expected only "
            f"the {len(expected)} tensors of a model with {config.num_layers} layers"
        )
    for key, tensor in tensors.items():
        if tensor.shape != (want := (expected | optional)[key]):
            raise ValueError(f"{tensor.file}: {key} has shape {tensor.shape}; expected {want}")
        if tensor.dtype not in FLOATS:
            raise ValueError(
                f"{tensor.file}: {key} has type {tensor.dtype}; expected one of {', '.join(FLOATS)}"
            )


def load_params(
    path: str | os.PathLike,
    config: TransformerConfig,
    shardings: Params | None = None,
    param_dtype: Any = jnp.float32,
) -> Params:
    """Reads the weights of a model directory into the parameters of `Transformer(config)`.

    Tensors are read block by block, straight into device memory: the host holds no more than one
    block.  With shardings, a process reads only the rows that its own devices hold, each once.  Every
    checkpoint key is used exactly once and every parameter is filled; a tied checkpoint may contain
    lm_head.weight if it equals the embedding.

    Args:
      path: directory with model.safetensors, or with model.safetensors.index.json and its shards;
        the tensors are float32, bfloat16 or float16.
      config: the model's shape; its adapters, if any, are not part of a checkpoint.
      shardings: a tree of shardings from `param_shardings`, or None for the default device.
      param_dtype: dtype of the parameters: float32, bfloat16 or float16.
    Returns:
      Nested dicts of arrays, as from `init_params`, without Linen's boxes.
    Raises:
      FileNotFoundError: the weights, or a shard that the index names, are missing.
      ValueError: a file is damaged; a key is missing or unexpected; a tensor has the wrong shape or
        dtype, or holds NaN or infinity; an lm_head differs from the tied embedding.
    """
    path = pathlib.Path(path)
    shapes = flat_shapes(config)
    places = dict.fromkeys(shapes) if shardings is None else traverse_util.flatten_dict(shardings, sep="/")
    tensors = _text_model(list_tensors(path))
    _check(path, tensors, config)
    params = {
        name: _load_leaf(LAYOUTS[name], shape, config, tensors, places[name], jnp.dtype(param_dtype))
        for name, shape in shapes.items()
    }
    return traverse_util.unflatten_dict(params, sep="/")


def _text_model(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The text model's tensors of a multimodal model, under their plain names."""
    for prefix in ("language_model.model.", "model.language_model."):
        found = {
            f"model.{key.removeprefix(prefix)}": tensor
            for key, tensor in tensors.items()
            if key.startswith(prefix)
        }
        if found:
            return found
    return tensors


def _load_leaf(
    layout: Layout,
    shape: tuple[int, ...],
    config: TransformerConfig,
    tensors: Mapping[str, Tensor],
    sharding: jax.sharding.Sharding | None,
    dtype: np.dtype,
) -> Array:
    keys = layout.keys(config.num_layers)
    carried_head = config.tie_embeddings and layout.key == _EMBEDDING and _HEAD in tensors

    def read_layer(key: str, index: Index) -> np.ndarray:
        x = layout.read(tensors[key].read, shape[layout.stacked :], index)
        # Not every accelerator supports float16; float32 holds all its values.
        return x.astype(np.float32) if x.dtype == np.float16 else x

    def read(index: Index) -> np.ndarray:
        if layout.stacked:
            layers = [read_layer(key, index[1:]) for key in keys[index[0]]]
            return layers[0][None] if len(layers) == 1 else np.stack(layers)  # np.stack would copy one
        x = read_layer(layout.key, index)
        if carried_head and not np.array_equal(x, read_layer(_HEAD, index)):
            raise ValueError(
                f"{tensors[_HEAD].file}: {_HEAD} differs from {_EMBEDDING}, but config.json says "
                "tie_word_embeddings = true; expected equal tensors"
            )
        return x

    return fill(
        read, shape, dtype, sharding, stacked=layout.stacked, row_axis=layout.stacked + layout.row_axis
    )
