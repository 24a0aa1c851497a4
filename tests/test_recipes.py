import csv
import math
import re

import pytest

from genenv_jax.config import validate
from genenv_jax.configs.recipes import SLICES
from genenv_jax.experiment.plan import load_config
from tests.commands import ROOT


def cells():
    """Rows of the TPU compiler's table by (model, mode, slice)."""
    with (ROOT / "docs/results/memory.csv").open() as file:
        return {(row["model"], row["mode"], row["slice"]): row for row in csv.DictReader(file)}


@pytest.mark.parametrize("name", SLICES)
def test_a_recipe_is_a_cell_that_fits(name):
    config = validate(load_config(f"configs/bfcl.py:{name}", "config"))
    model = config.model.path.removeprefix("Qwen/").removesuffix("-Instruct")
    rank, mesh = config.lora.rank, config.mesh
    gpus = re.fullmatch(r"gpu-(8x)?(\d+)", name)
    slice_ = ("v6e-8" if gpus[1] else "v6e-1") if gpus else name
    cell = cells()[model, f"LoRA {rank}" if rank else "full", slice_]
    if gpus:  # JAX takes three quarters of memory
        assert float(cell["none"]) < 0.75 * int(gpus[2]) * 1e9 / 2**30 and config.memory.offload == "none"
    else:
        assert cell["fits with"] == config.memory.offload
    assert cell["mesh"] == f"{mesh.data}×{mesh.fsdp}×{mesh.tensor}"
    *micro, rows = map(int, cell["prompts a step"].split(" × "))
    steps = math.prod(micro)
    assert (config.agent.micro_batches, config.agent.minibatch_size) == (steps, steps * rows)
    assert config.simulator.minibatch_size == config.agent.minibatch_size
