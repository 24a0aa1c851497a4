"""Where every parameter of published Qwen2.5, Qwen3 and Llama models lives on a mesh of (2, 2, 2).

The files in golden_shardings/ hold the intended shardings.  A change of the rules or of the model shows
here, with the name of each parameter that it moves.  After an intended change,

    python -m tests.parallel.test_golden_shardings

writes them anew.
"""

import json
import pathlib

import pytest
from flax import traverse_util
from jax.sharding import AbstractMesh, AxisType

from genenv_jax.models.config import TransformerConfig
from genenv_jax.parallel import rules
from genenv_jax.parallel.mesh import AXES
from tests.models.published import MODELS

FOLDER = pathlib.Path(__file__).parent / "golden_shardings"
GOLDEN = {"qwen2": "Qwen2.5-7B", "qwen3": "Qwen3-8B", "llama": "Llama-3.1-8B"}


def specs(model):
    """Parameter path -> PartitionSpec as a JSON list, one entry for each dimension."""
    config = TransformerConfig.from_huggingface(MODELS[model][0])
    mesh = AbstractMesh((2, 2, 2), AXES, axis_types=(AxisType.Auto,) * 3)
    flat = traverse_util.flatten_dict(rules.param_shardings(config, mesh), sep="/")
    return {name: list(sharding.spec) for name, sharding in sorted(flat.items())}


@pytest.mark.parametrize("family", GOLDEN)
def test_parameters_live_where_they_were_meant_to(family):
    golden = json.loads((FOLDER / f"{family}.json").read_text())
    assert golden["model"] == GOLDEN[family]
    assert golden["mesh"] == dict.fromkeys(AXES, 2)
    assert json.loads(json.dumps(specs(GOLDEN[family]))) == golden["specs"]


if __name__ == "__main__":
    for family, model in GOLDEN.items():
        lines = ",\n".join(f'  "{name}": {json.dumps(spec)}' for name, spec in specs(model).items())
        mesh = json.dumps(dict.fromkeys(AXES, 2))
        text = f'{{"model": "{model}", "mesh": {mesh}, "specs": {{\n{lines}\n}}}}\n'
        (FOLDER / f"{family}.json").write_text(text)
