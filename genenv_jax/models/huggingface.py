"""Model directories in Hugging Face format: found, read, written and fingerprinted.

A parameter here is a Linen kernel with its input axes first and its layers stacked in front; there
it is one (out, in) matrix a layer.  `_LAYOUTS` holds the correspondence for both directions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from flax import traverse_util
from jax.experimental import multihost_utils

from genenv_jax.models.config import TransformerConfig
from genenv_jax.parallel.rules import param_shapes
from genenv_jax.typing import Array, Params

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
GENERATION = "generation_config.json"
_FLOATS = ("F32", "BF16", "F16")
_HUB_FILES = ("*.json", "*.safetensors", "*.jinja", "merges.txt", "tokenizer.model")


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Where a parameter stands in a checkpoint.

    `key` is its name there, with {} for the layer; `ours` its axes here and `theirs` those there,
    in the letters of genenv_jax.typing, adjacent axes that share one axis there in one word.
    """

    key: str
    ours: str
    theirs: tuple[str, ...]

    @property
    def stacked(self) -> bool:
        return "{}" in self.key

    @property
    def swapped(self) -> bool:
        return "".join(self.theirs) != self.ours

    def keys(self, num_layers: int) -> list[str]:
        return [self.key.format(i) for i in range(num_layers)] if self.stacked else [self.key]

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape there of a parameter that has `shape` here (one layer)."""
        size = dict(zip(self.ours, shape, strict=True))
        return tuple(math.prod(size[axis] for axis in word) for word in self.theirs)

    def read(
        self,
        read: Callable[[tuple[slice, ...]], np.ndarray],
        shape: tuple[int, ...],
        index: tuple[slice, ...],
    ) -> np.ndarray:
        """The part `index` of one layer of shape `shape`, reading no more rows than it needs."""
        size = dict(zip(self.ours, shape, strict=True))
        part = {a: s.indices(size[a])[:2] for a, s in zip(self.ours, index, strict=True)}
        region = []
        for first, *rest in self.theirs:
            inner = math.prod(size[axis] for axis in rest)
            region.append(slice(part[first][0] * inner, part[first][1] * inner))
            size[first] = part[first][1] - part[first][0]
            part[first] = (0, size[first])
        x = read(tuple(region))
        x = _transpose(x) if self.swapped else x
        return x.reshape([size[a] for a in self.ours])[tuple(slice(*part[a]) for a in self.ours)]

    def write(self, x: np.ndarray) -> np.ndarray:
        """One layer of the parameter as it stands there; contiguous."""
        shape = self.their_shape(x.shape)
        if self.swapped:
            return _transpose(x.reshape(shape[::-1]))
        return np.ascontiguousarray(x.reshape(shape))


def _layout(key: str, axes: str) -> _Layout:
    ours, theirs = axes.split(" -> ")
    return _Layout(key, ours, tuple(theirs.split()))


_LAYER = "model.layers.{}."
_LAYOUTS = {
    "embedding": _layout("model.embed_tokens.weight", "vd -> v d"),
    "layers/attention_norm/scale": _layout(_LAYER + "input_layernorm.weight", "d -> d"),
    "layers/attention/q/kernel": _layout(_LAYER + "self_attn.q_proj.weight", "dnh -> nh d"),
    "layers/attention/q/bias": _layout(_LAYER + "self_attn.q_proj.bias", "nh -> nh"),
    "layers/attention/k/kernel": _layout(_LAYER + "self_attn.k_proj.weight", "dkh -> kh d"),
    "layers/attention/k/bias": _layout(_LAYER + "self_attn.k_proj.bias", "kh -> kh"),
    "layers/attention/v/kernel": _layout(_LAYER + "self_attn.v_proj.weight", "dkh -> kh d"),
    "layers/attention/v/bias": _layout(_LAYER + "self_attn.v_proj.bias", "kh -> kh"),
    "layers/attention/o/kernel": _layout(_LAYER + "self_attn.o_proj.weight", "nhd -> d nh"),
    "layers/mlp_norm/scale": _layout(_LAYER + "post_attention_layernorm.weight", "d -> d"),
    "layers/mlp/gate/kernel": _layout(_LAYER + "mlp.gate_proj.weight", "df -> f d"),
    "layers/mlp/up/kernel": _layout(_LAYER + "mlp.up_proj.weight", "df -> f d"),
    "layers/mlp/down/kernel": _layout(_LAYER + "mlp.down_proj.weight", "fd -> d f"),
    "norm/scale": _layout("model.norm.weight", "d -> d"),
    "lm_head/kernel": _layout("lm_head.weight", "dv -> v d"),
}
_EMBEDDING, _HEAD = _LAYOUTS["embedding"].key, _LAYOUTS["lm_head/kernel"].key


def _transpose(x: np.ndarray) -> np.ndarray:
    """Contiguous transpose of a matrix; in strips, about four times as fast as one assignment."""
    out = np.empty(x.shape[::-1], x.dtype)
    for row in range(0, x.shape[0], 64):
        out[:, row : row + 64] = x[row : row + 64].T
    return out


def _all_finite(x: np.ndarray) -> bool:
    """Whether x, of a type in `_FLOATS`, holds neither NaN nor infinity."""
    if x.dtype.itemsize == 2:  # all bits of the exponent set; three times as fast as np.isfinite
        exponent = 0x7C00 if x.dtype == np.float16 else 0x7F80
        return bool((x.view(np.uint16) & 0x7FFF).max(initial=0) < exponent)
    return bool(np.isfinite(x).all())


def _flat_shapes(config: TransformerConfig) -> dict[str, tuple[int, ...]]:
    flat = traverse_util.flatten_dict(param_shapes(config), sep="/")
    return {name: leaf.shape for name, leaf in flat.items()}


def _some(names) -> str:
    names = sorted(names)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def resolve(path_or_hub_id: str | os.PathLike, revision: str | None = None) -> pathlib.Path:
    """The local directory of a model: the argument itself, or a download from the Hugging Face hub.

    Only configuration, tokenizer and safetensors files at the top of the repository are fetched.
    Raises FileNotFoundError, naming what was tried, where neither exists or the hub is unreachable.
    """
    # Imported here: it is slow, and a local directory does not need it.
    import huggingface_hub

    path = pathlib.Path(path_or_hub_id).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        raise NotADirectoryError(f"{path} is a file; expected the model directory that holds it")
    try:
        return pathlib.Path(
            huggingface_hub.snapshot_download(
                str(path_or_hub_id),
                revision=revision,
                allow_patterns=list(_HUB_FILES),
                ignore_patterns=["*/*"],
            )
        )
    except Exception as error:  # HTTP, cache, name and offline errors share no useful base class
        reason = " ".join(str(error).split())[:300]
        raise FileNotFoundError(
            f"{path_or_hub_id} is neither a directory nor a model on the hub; tried the directory "
            f"{path.absolute()} and the hub repository {str(path_or_hub_id)!r} "
            f"(revision {revision or 'main'}): {type(error).__name__}: {reason}"
        ) from error


def _read_json(file: pathlib.Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not valid JSON: {error}") from error
    if type(value) is not dict:
        raise ValueError(f"{file} holds a JSON {type(value).__name__}; expected an object")
    return value


def read_config(path: str | os.PathLike) -> dict[str, Any]:
    """The dict in `path`/config.json.

    Raises FileNotFoundError for a missing directory or file and ValueError for anything but a JSON
    object.
    """
    path = pathlib.Path(path)
    if not path.is_dir():
        raise FileNotFoundError(f"model directory {path} does not exist")
    if not (path / "config.json").is_file():
        raise FileNotFoundError(
            f"{path} holds no config.json; expected a Hugging Face model directory"
        )
    return _read_json(path / "config.json")


def read_generation_config(path: str | os.PathLike) -> dict[str, Any]:
    """The dict in `path`/generation_config.json, empty where there is no such file."""
    file = pathlib.Path(path) / GENERATION
    return _read_json(file) if file.is_file() else {}


def _weight_files(path: pathlib.Path) -> dict[pathlib.Path, set[str] | None]:
    """The safetensors files of a model, each with the keys its index promises (None: no index)."""
    if (path / WEIGHTS).is_file():
        return {path / WEIGHTS: None}
    index = path / INDEX
    if not index.is_file():
        found = _some(f.name for f in path.iterdir()) if path.is_dir() else ""
        raise FileNotFoundError(
            f"{path} holds neither {WEIGHTS} nor {INDEX}; expected safetensors weights"
            + (f", found {found}" if found else "")
        )
    keys = _read_json(index).get("weight_map")
    if not isinstance(keys, dict) or not keys:
        raise ValueError(f"{index} lacks 'weight_map'; expected an object from key to file name")
    files: dict[pathlib.Path, set[str] | None] = {}
    for key, name in keys.items():
        # A file name that leaves the directory is refused, not followed.
        if not isinstance(name, str) or pathlib.PurePath(name).name != name:
            raise ValueError(f"{index}: {key} is mapped to {name!r}; expected a plain file name")
        if not (path / name).is_file():
            raise FileNotFoundError(f"{path / name} is missing; {index} expects {key} in it")
        files.setdefault(path / name, set()).add(key)
    return dict(sorted(files.items()))


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """A tensor on disk, not yet read."""

    file: pathlib.Path
    key: str
    view: Any  # safetensors' slice object

    def read(self, region: tuple[slice, ...]) -> np.ndarray:
        """Reads a part; raises ValueError where it is damaged or holds NaN or infinity."""
        try:
            x = self.view[region]
        except (safetensors.SafetensorError, OSError) as error:
            raise ValueError(f"{self.file}: {self.key} cannot be read: {error}") from error
        if not _all_finite(x):
            raise ValueError(
                f"{self.file}: {self.key} holds NaN or infinity; expected finite weights"
            )
        return x


@contextlib.contextmanager
def _open_tensors(path: pathlib.Path) -> Iterator[dict[str, _Tensor]]:
    """All tensors of a model by key; only headers are read."""
    tensors: dict[str, _Tensor] = {}
    with contextlib.ExitStack() as stack:
        for file, promised in _weight_files(path).items():
            try:
                handle = stack.enter_context(safetensors.safe_open(file, framework="np"))
                views = {key: handle.get_slice(key) for key in handle.keys()}  # noqa: SIM118
            except (safetensors.SafetensorError, OSError) as error:
                raise ValueError(
                    f"{file} is not a whole safetensors file (truncated or damaged): {error}"
                ) from error
            if promised is not None and promised != set(views):
                lacks, extra = promised - set(views), set(views) - promised
                raise ValueError(
                    f"{file} differs from {INDEX}: "
                    + "; ".join(
                        [f"missing key {_some(lacks)}"] * bool(lacks)
                        + [f"unexpected key {_some(extra)}"] * bool(extra)
                    )
                )
            for key, view in views.items():
                tensors[key] = _Tensor(file, key, view)
        yield tensors


def _check_tensors(
    path: pathlib.Path, tensors: Mapping[str, _Tensor], config: TransformerConfig
) -> None:
    """Every key known, every parameter present, shapes and types right; before anything is read."""
    expected: dict[str, tuple[int, ...]] = {}
    for name, shape in _flat_shapes(config).items():
        layout = _LAYOUTS[name]
        their_shape = layout.their_shape(shape[layout.stacked :])
        expected |= dict.fromkeys(layout.keys(config.num_layers), their_shape)
    optional = {}
    if config.tie_embeddings:
        optional = {_HEAD: expected[_EMBEDDING]}
    if missing := expected.keys() - tensors.keys():
        key = min(missing)
        raise ValueError(
            f"{path}: missing key {_some(missing)}; expected {key} of shape {expected[key]}"
        )
    if unexpected := tensors.keys() - expected.keys() - optional.keys():
        raise ValueError(
            f"{tensors[min(unexpected)].file}: unexpected key {_some(unexpected)}; expected only "
            f"the {len(expected)} tensors of a model with {config.num_layers} layers"
        )
    for key, tensor in tensors.items():
        shape = tuple(tensor.view.get_shape())
        if shape != (want := (expected | optional)[key]):
            raise ValueError(f"{tensor.file}: {key} has shape {shape}; expected {want}")
        if tensor.view.get_dtype() not in _FLOATS:
            raise ValueError(
                f"{tensor.file}: {key} has type {tensor.view.get_dtype()}; expected one of "
                f"{', '.join(_FLOATS)}"
            )


def load_params(
    path: str | os.PathLike,
    config: TransformerConfig,
    shardings: Params | None = None,
    param_dtype: Any = jnp.float32,
) -> Params:
    """Reads the weights of a model directory into the parameters of `Transformer(config)`.

    Tensors are read one at a time.  With shardings a process reads only the rows that its own
    devices hold, each once.  Every key of the checkpoint is used exactly once and every parameter
    is filled; a tied checkpoint may carry lm_head.weight if it equals the embedding.

    Args:
      path: directory with model.safetensors, or with model.safetensors.index.json and its shards;
        the tensors are float32, bfloat16 or float16.
      config: the model's shape.
      shardings: a tree of shardings as `param_shardings` gives, or None for the default device.
      param_dtype: type of the parameters.
    Returns:
      Nested dicts of arrays, as `init_params` makes them, without Linen's boxes.
    Raises:
      FileNotFoundError: the weights, or a shard that the index names, are missing.
      ValueError: a file is damaged; a key is missing or unexpected; a tensor has the wrong shape or
        type, or holds NaN or infinity; a carried lm_head differs from the tied embedding.
    """
    path = pathlib.Path(path)
    dtype = jnp.dtype(param_dtype)
    shapes = _flat_shapes(config)
    places = dict.fromkeys(shapes)
    if shardings is not None:
        places = traverse_util.flatten_dict(shardings, sep="/")
        if places.keys() != shapes.keys():
            wrong = places.keys() ^ shapes.keys()
            raise ValueError(f"shardings do not fit the parameters: {_some(wrong)}")
    with _open_tensors(path) as tensors:
        _check_tensors(path, tensors, config)
        params = {
            name: _load_leaf(_LAYOUTS[name], shape, config, tensors, places[name], dtype)
            for name, shape in shapes.items()
        }
    return traverse_util.unflatten_dict(params, sep="/")


def _load_leaf(
    layout: _Layout,
    shape: tuple[int, ...],
    config: TransformerConfig,
    tensors: Mapping[str, _Tensor],
    sharding: jax.sharding.Sharding | None,
    dtype: np.dtype,
) -> Array:
    keys = layout.keys(config.num_layers)
    done: dict[tuple[tuple[int, int], ...], np.ndarray] = {}

    def read(key: str, index: tuple[slice, ...]) -> np.ndarray:
        return layout.read(tensors[key].read, shape[layout.stacked :], index)

    def part(index: tuple[slice, ...]) -> np.ndarray:
        bounds = tuple(s.indices(n)[:2] for s, n in zip(index, shape, strict=True))
        if bounds in done:  # another device holds a copy of this part
            return done[bounds]
        if layout.stacked:
            out = np.empty([stop - start for start, stop in bounds], dtype)
            for row, key in zip(out, keys[slice(*bounds[0])], strict=True):
                row[...] = read(key, index[1:])
        else:
            out = read(layout.key, index)
            if layout.key == _EMBEDDING and config.tie_embeddings and _HEAD in tensors:
                _check_tied(tensors, out, read(_HEAD, index))
            out = out.astype(dtype)
        done[bounds] = out
        return out

    if sharding is None:
        return jax.device_put(part((slice(None),) * len(shape)))
    return jax.make_array_from_callback(shape, sharding, part, dtype=dtype)


def _check_tied(tensors: Mapping[str, _Tensor], embedding: np.ndarray, head: np.ndarray) -> None:
    if not np.array_equal(embedding, head):
        raise ValueError(
            f"{tensors[_HEAD].file}: {_HEAD} differs from {_EMBEDDING}, but config.json says "
            "tie_word_embeddings = true; expected equal tensors"
        )


def save_model(
    path: str | os.PathLike,
    params: Params,
    hf_config: Mapping[str, Any],
    tokenizer: Any = None,
    *,
    generation_config: Mapping[str, Any] | None = None,
    dtype: Any = None,
    max_shard_bytes: int = 5_000_000_000,
    overwrite: bool = False,
) -> pathlib.Path:
    """Writes a model directory that Hugging Face transformers and vLLM load.

    The directory appears whole or not at all: it is written beside its place, flushed and renamed.
    In a run of several processes all must call this; the first one writes.

    Args:
      path: the directory to make.
      params: parameters as `load_params` gives them, on any devices.
      hf_config: the dict of a config.json that describes them.
      tokenizer: a transformers tokenizer to save beside the weights, if any.
      generation_config: contents of generation_config.json; its "eos_token_id" defaults to that of
        `hf_config`, then to the tokenizer's.
      dtype: type on disk; the parameters' own by default.
      max_shard_bytes: above this size the weights are split into several files with an index.
      overwrite: replace `path` where it exists.
    Returns:
      `path`.
    Raises:
      FileExistsError: `path` exists, is not an empty directory, and `overwrite` is false.
      ValueError: the parameters do not fit `hf_config`, or hold NaN or infinity in `dtype`.
    """
    path = pathlib.Path(path)
    if not overwrite and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} exists; give another place or overwrite it explicitly")
    config = TransformerConfig.from_huggingface(hf_config)
    flat = traverse_util.flatten_dict(params, sep="/")
    have = {name: tuple(leaf.shape) for name, leaf in flat.items()}
    if wrong := sorted(dict(have.items() ^ _flat_shapes(config).items())):
        name = wrong[0]
        raise ValueError(
            f"parameters do not fit the configuration: {name} has shape {have.get(name)}, expected "
            f"{_flat_shapes(config).get(name)}"
        )
    dtype = jnp.dtype(dtype if dtype is not None else flat["embedding"].dtype)
    generation = dict(generation_config or {})
    if generation.get("eos_token_id") is None:
        eos = hf_config.get("eos_token_id")
        generation["eos_token_id"] = (
            getattr(tokenizer, "eos_token_id", None) if eos is None else eos
        )
    # transformers before 4.56 knows the old name only; later ones read both.
    described = {k: v for k, v in hf_config.items() if k != "dtype"} | {"torch_dtype": dtype.name}

    writer = jax.process_index() == 0
    with _atomic_directory(path) if writer else contextlib.nullcontext() as folder:
        if writer:
            _write_json(folder / "config.json", described)
            _write_json(folder / GENERATION, generation)
            if tokenizer is not None:
                tokenizer.save_pretrained(folder)
        _save_weights(folder, flat, config, dtype, max_shard_bytes)
    return path


def _save_weights(
    folder: pathlib.Path | None,
    flat: Mapping[str, Array],
    config: TransformerConfig,
    dtype: np.dtype,
    max_shard_bytes: int,
) -> None:
    """Writes the tensors shard by shard; with folder None it only takes part in the gathering."""
    # In the order of the layers, so that a reader finds a layer in one shard.
    entries = [(None, name) for name in flat if not _LAYOUTS[name].stacked]
    entries += [
        (layer, name)
        for layer in range(config.num_layers)
        for name in flat
        if _LAYOUTS[name].stacked
    ]
    shards: list[list[tuple[int | None, str]]] = [[]]
    total = filled = 0
    for layer, name in entries:
        size = math.prod(flat[name].shape[layer is not None :]) * dtype.itemsize
        if shards[-1] and filled + size > max_shard_bytes:
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
            x = _to_host(flat[name], layer)
            if folder is not None:
                key = _LAYOUTS[name].key.format(layer)
                tensors[key] = _LAYOUTS[name].write(x.astype(dtype))
                weight_map[key] = file
                if not _all_finite(tensors[key]):
                    raise ValueError(f"{key} holds NaN or infinity as {dtype.name}; not written")
        if folder is not None:
            safetensors.numpy.save_file(tensors, folder / file, metadata={"format": "pt"})
    if folder is not None and len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        _write_json(folder / INDEX, index)


def _to_host(x: Array | np.ndarray, layer: int | None) -> np.ndarray:
    """A parameter, or one layer of it, whole on this host."""
    if isinstance(x, np.ndarray):
        return x if layer is None else x[layer]
    if layer is not None:
        x = jax.lax.dynamic_index_in_dim(x, layer, keepdims=False)
    if not x.is_fully_addressable:
        x = multihost_utils.process_allgather(x, tiled=True)
    return np.asarray(x)


def _write_json(file: pathlib.Path, value: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextlib.contextmanager
def _atomic_directory(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A new directory beside `path` that takes its place when the block ends without an error."""
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    aside = path.with_name(f".{path.name}.{os.getpid()}.old")
    for leftover in (temporary, aside):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for item in (*temporary.rglob("*"), temporary):
            _flush(item)
        if path.exists():  # a directory cannot be renamed onto one that holds files
            path.rename(aside)
        try:
            temporary.rename(path)
        except OSError:
            if aside.exists():
                aside.rename(path)
            raise
        _flush(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if path.exists():
            shutil.rmtree(aside, ignore_errors=True)


def _flush(item: pathlib.Path) -> None:
    descriptor = os.open(item, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fingerprint(path: str | os.PathLike) -> str:
    """SHA-256 (hex) of a model directory: config.json, tokenizer.json if any, and weights.

    Files are read in pieces; their names and sizes count, the directory's own name does not.
    Raises FileNotFoundError where the configuration or the weights are missing.
    """
    path = pathlib.Path(path)
    read_config(path)
    files = [path / "config.json", path / "tokenizer.json", *_weight_files(path)]
    digest = hashlib.sha256()
    for file in files:
        if not file.is_file():
            continue
        digest.update(f"{file.name}:{file.stat().st_size}\n".encode())
        with file.open("rb") as stream:
            while piece := stream.read(1 << 22):
                digest.update(piece)
    return digest.hexdigest()
