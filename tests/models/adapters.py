"""Reads adapters that PEFT or `genenv_jax.models.peft` has written."""

import json

import numpy as np
import safetensors.numpy
from flax import traverse_util

from genenv_jax.models import lora, peft
from genenv_jax.parallel.rules import param_shapes


def read_config(path):
    """The rank, scale and targets of an adapter directory, targets in our order."""
    given = json.loads((path / peft.CONFIG).read_text())
    targets = tuple(name for name in lora.TARGETS if name in given["target_modules"])
    return lora.LoraConfig(given["r"], float(given["lora_alpha"]), targets)


def load(path, config):
    """An adapter directory's arrays, nested and stacked as `lora.split` gives them; none is left over."""
    tensors = safetensors.numpy.load_file(path / peft.WEIGHTS)
    adapters = {}
    for name, leaf in traverse_util.flatten_dict(lora.split(param_shapes(config))[1]).items():
        layers = [tensors.pop(peft._key(name, layer)).T for layer in range(leaf.shape[0])]
        adapters[name] = np.stack([x.reshape(leaf.shape[1:]) for x in layers])
    assert not tensors
    return traverse_util.unflatten_dict(adapters)
