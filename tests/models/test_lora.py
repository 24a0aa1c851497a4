"""Adapters: their mathematics, their separation from the base, and PEFT's format as the oracle."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import transformers

from genenv_jax.models import huggingface, lora, peft
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.lora import LoraConfig
from genenv_jax.models.transformer import Transformer, init_adapters
from tests import tiny
from tests.models import adapters as adapters_of
from tests.models import torch_cases as cases
from tests.models.torch_cases import padded_batch, part

RANK_3 = LoraConfig(3, 12.0)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """(directory, configuration, parameters) of a small model."""
    path = tiny.write_model(tmp_path_factory.mktemp("base") / "model", **cases.ADAPTED)
    model, params = cases.load(path)
    return path, model.config, params


def with_lora(config, adapter=RANK_3):
    return dataclasses.replace(config, lora=adapter)


def random_adapters(config, seed=0):
    """Adapters whose B is not zero."""
    shapes = jax.eval_shape(lambda key: init_adapters(config, key), jax.random.key(seed))
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(0, 0.2, x.shape), x.dtype), shapes)


init = jax.jit(init_adapters, static_argnums=0)


def logits(config, params):
    """Logits at the tokens of `padded_batch`."""
    tokens, mask = padded_batch(config.vocab_size)
    return np.asarray(cases.logits(Transformer(config), params, tokens))[mask]


def test_fresh_adapters_change_nothing_and_random_ones_do(base):
    _, config, params = base
    wide = with_lora(config)
    fresh = init(wide, jax.random.key(0))
    want = logits(config, params)
    np.testing.assert_array_equal(logits(wide, lora.join(params, fresh)), want)
    assert np.abs(logits(wide, lora.join(params, random_adapters(wide))) - want).max() > 0.1


def test_initial_a_is_that_of_peft(base):
    """Uniform on ±1/√fan_in, and B zero."""
    config = with_lora(dataclasses.replace(base[1], hidden_size=400), LoraConfig(16))
    gates = [init(config, jax.random.key(seed))["layers"]["mlp"]["gate"] for seed in (0, 1)]
    a, other = (np.asarray(gate["lora_a"]) for gate in gates)
    assert a.shape == (2, 400, 16)
    assert 0.98 / 20 < np.abs(a).max() <= 1 / 20
    assert a.std() == pytest.approx(1 / 20 / 3**0.5, rel=0.03)
    assert not np.asarray(gates[0]["lora_b"]).any()
    assert not np.array_equal(a, other)


def test_small_updates_of_a_bfloat16_base_are_in_what_is_saved(base, tmp_path):
    """Rounded to bfloat16 again, most entries would equal the base's."""
    path, config, params = base
    wide = with_lora(config, LoraConfig(3))
    adapters = jax.tree.map(lambda x: 1e-3 * x, random_adapters(wide))
    coarse = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    joined, described = lora.join(coarse, adapters), huggingface.read_config(path)
    saved = huggingface.save_model(tmp_path / "out", joined, described, lora=wide.lora)
    assert huggingface.read_config(saved)["torch_dtype"] == "float32"
    got = huggingface.load_params(saved, config)
    plain = jax.tree.map(lambda x: x.astype(jnp.float32), coarse)
    want = tiny.merge(lora.join(plain, adapters), wide.lora.scale)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9, rtol=1e-6), got, want)
    moved = jax.tree.map(lambda a, b: np.mean(np.asarray(a) != np.asarray(b)), got, plain)
    assert moved["layers"]["mlp"]["gate"]["kernel"] > 0.9


@pytest.mark.parametrize("name", cases.ADAPTERS)
def test_an_adapter_of_peft(base, tmp_path, name):
    """Read, applied, merged and written again, an adapter made by PEFT is unchanged."""
    path, config, params = base
    stored = part(cases.stored("adapters"), name)
    described = json.loads((cases.FOLDER / "configs.json").read_text())[f"adapter/{name}"]
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / peft.CONFIG).write_text(json.dumps(described))
    tiny.save_tensors(theirs / peft.WEIGHTS, part(stored, "saved"))
    wide = with_lora(config, adapters_of.read_config(theirs))
    options = cases.ADAPTERS[name]
    assert wide.lora == LoraConfig(options["r"], options["lora_alpha"], tuple(options["target_modules"]))
    adapters = adapters_of.load(theirs, wide)
    joined = lora.join(params, adapters)
    np.testing.assert_allclose(logits(wide, joined), stored["logits"], atol=1e-4)
    merged = tiny.merge(joined, wide.lora.scale)
    np.testing.assert_allclose(logits(config, merged), logits(wide, joined), atol=2e-5)
    saved = huggingface.save_model(tmp_path / "merged", merged, huggingface.read_config(path))
    tensors = safetensors.numpy.load_file(saved / "model.safetensors")
    assert tensors.keys() == part(stored, "merged").keys()
    for key, value in part(stored, "merged").items():
        np.testing.assert_allclose(tensors[key], value, atol=1e-6, err_msg=key)
    ours = peft.save_adapter(tmp_path / "ours", adapters, wide.lora, base_model="base", notes={})
    tensors = safetensors.numpy.load_file(ours / peft.WEIGHTS)
    assert tensors.keys() == part(stored, "saved").keys()
    for key, value in part(stored, "saved").items():
        np.testing.assert_array_equal(tensors[key], value, err_msg=key)
    written = json.loads((ours / peft.CONFIG).read_text())
    written["target_modules"].sort()
    assert written == {key: described[key] for key in written}


@pytest.mark.slow
def test_an_adapter_of_a_language_model_beside_a_vision_tower(tmp_path):
    """PEFT finds each of its modules by name, and none in the tower."""
    torch = pytest.importorskip("torch")
    text = tiny.config_dict("gemma3_text")
    config = with_lora(TransformerConfig.from_huggingface(text), LoraConfig(2, targets=("q_proj", "up_proj")))
    ours = peft.save_adapter(
        tmp_path, random_adapters(config), config.lora, base_model="base", notes={}, multimodal=True
    )
    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    outer = transformers.Gemma3Config(text_config=text, vision_config=vision | {"image_size": 14})
    with torch.device("meta"):
        modules = dict(transformers.AutoModelForCausalLM.from_config(outer).named_modules())
    target = re.compile(json.loads((ours / peft.CONFIG).read_text())["target_modules"])
    chosen = {name for name in modules if target.fullmatch(name)}
    keys = safetensors.numpy.load_file(ours / peft.WEIGHTS).keys()
    assert {key.removeprefix("base_model.model.").rpartition(".lora_")[0] for key in keys} == chosen
    assert len(chosen) == 2 * 3 and any("vision" in name and name.endswith(".q_proj") for name in modules)


def test_split_and_join_are_inverse(base):
    _, config, params = base
    adapters = random_adapters(with_lora(config))
    joined = lora.join(params, adapters)
    for got, want in zip(lora.split(joined), (params, adapters), strict=True):
        assert jax.tree.structure(got) == jax.tree.structure(want)
        assert all(a is b for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True))
    assert lora.join({}, params) == params


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": -1}, "rank = -1: expected between 0"),
        ({"rank": 2, "alpha": 0.0}, "alpha = 0.0: expected more than 0"),
        ({"rank": 2, "targets": ("query",)}, r"\['query'\]: expected some of \['q_proj'"),
        ({"rank": 2, "targets": ()}, "expected some of"),
        ({"rank": 2, "targets": ("q_proj", "q_proj")}, "each at most once"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        LoraConfig(**options)
