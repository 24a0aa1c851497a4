"""Writes adapters in the PEFT library's format: adapter_config.json and adapter_model.safetensors."""

import json
import os
import pathlib
from collections.abc import Mapping

import numpy as np
import safetensors.numpy
from flax import traverse_util

from genenv_jax.models.huggingface.atomic import atomic_directory
from genenv_jax.models.huggingface.layouts import LAYOUTS
from genenv_jax.models.huggingface.tensors import all_finite
from genenv_jax.models.lora import LoraConfig
from genenv_jax.parallel import processes
from genenv_jax.typing import Params

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"

# PEFT options that change what an adapter computes, with the values that match ours.
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


def _key(path: tuple[str, ...], layer: int, multimodal: bool = False) -> str:
    """PEFT's name of our parameter ("layers", "attention", "q", "lora_a") in one layer."""
    kernel = LAYOUTS["/".join((*path[:-1], "kernel"))].key.format(layer)
    if multimodal:
        kernel = kernel.replace("model.", "model.language_model.", 1)
    return f"base_model.model.{kernel.removesuffix('weight')}lora_{path[-1][-1].upper()}.weight"


def save_adapter(
    path: str | os.PathLike,
    adapters: Params,
    lora: LoraConfig,
    *,
    base_model: str,
    notes: Mapping[str, str],
    multimodal: bool = False,
) -> pathlib.Path:
    """Writes adapters as a directory that `peft.PeftModel.from_pretrained` loads.

    The directory appears whole or not at all.  In a run with several processes, all must call this.

    Args:
      path: the directory to create; replaced as a whole if it holds a model.
      adapters: as returned by `lora.split`, with stacked layers, on any devices.
      lora: their rank, scale and targets.
      base_model: directory or hub id of the base, recorded for information.
      notes: more texts to write, by file name.
      multimodal: whether the base has a vision tower beside the language model that the adapters change.
    Raises:
      FileExistsError: `path` holds something else.
      ValueError: an adapter holds NaN or infinity.
    """
    path = pathlib.Path(path)
    tensors = {}
    for name, leaf in traverse_util.flatten_dict(adapters).items():
        stacked = processes.fetch(leaf)
        if not all_finite(stacked):
            raise ValueError(f"{'/'.join(name)} holds NaN or infinity; not written")
        for layer, x in enumerate(stacked):
            # Ours are (in…, r) and (r, out…); PEFT's are matrices (r, in) and (out, r).
            x = x.reshape(-1, lora.rank) if name[-1] == "lora_a" else x.reshape(lora.rank, -1)
            tensors[_key(name, layer, multimodal)] = np.ascontiguousarray(x.T)
    targets: str | list[str] = list(lora.targets)
    if multimodal:  # a regular expression, since the tower's projections have the same names
        targets = rf".*language_model.*\.({'|'.join(targets)})"
    described = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "target_modules": targets,
        "inference_mode": True,
    } | _PLAIN
    if processes.is_writer():
        with atomic_directory(path) as folder:
            (folder / CONFIG).write_text(json.dumps(described, indent=2) + "\n")
            for name, text in notes.items():
                (folder / name).write_text(text, encoding="utf-8")
            safetensors.numpy.save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    return path
