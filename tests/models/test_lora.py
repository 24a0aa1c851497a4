"""Adapters: their mathematics, their separation from the base, and PEFT's format as the oracle."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import peft as hf_peft
import pytest
import safetensors.numpy
import torch

from genenv_jax.models import huggingface, lora, peft
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.lora import LoraConfig
from genenv_jax.models.transformer import Transformer, init_adapters
from tests import tiny
from tests.models.test_against_torch import jax_logits, load_torch, padded_batch

RANK_3 = LoraConfig(3, 12.0)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """(directory, configuration, parameters) of a small model."""
    path = tiny.write_model(tmp_path_factory.mktemp("base") / "model", seed=5)
    config = TransformerConfig.from_huggingface(huggingface.read_config(path))
    return path, config, huggingface.load_params(path, config)


def with_lora(config, adapter=RANK_3):
    return dataclasses.replace(config, lora=adapter)


def random_adapters(config, seed=0):
    """Adapters whose B is not zero."""
    adapters = init_adapters(config, jax.random.key(seed))
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(0, 0.2, x.shape), x.dtype), adapters)


def logits(config, params):
    tokens, _ = padded_batch(config.vocab_size)
    return np.asarray(jax.jit(jax_logits, static_argnums=0)(Transformer(config), params, tokens))


def test_fresh_adapters_change_nothing_and_random_ones_do(base):
    _, config, params = base
    wide = with_lora(config)
    fresh = init_adapters(wide, jax.random.key(0))
    want = logits(config, params)
    np.testing.assert_array_equal(logits(wide, lora.join(params, fresh)), want)
    moved = logits(wide, lora.join(params, random_adapters(wide)))
    assert np.abs(moved - want).max() > 0.1


def test_initial_a_is_that_of_peft(base):
    """Uniform on ±1/√fan_in, and B zero."""
    config = with_lora(dataclasses.replace(base[1], hidden_size=400), LoraConfig(16))
    adapters = init_adapters(config, jax.random.key(0))
    a = np.asarray(adapters["layers"]["mlp"]["gate"]["lora_a"])
    assert a.shape == (2, 400, 16)
    assert 0.98 / 20 < np.abs(a).max() <= 1 / 20
    assert a.std() == pytest.approx(1 / 20 / 3**0.5, rel=0.03)
    assert not np.asarray(adapters["layers"]["mlp"]["gate"]["lora_b"]).any()
    other = init_adapters(config, jax.random.key(1))["layers"]["mlp"]["gate"]["lora_a"]
    assert not np.array_equal(a, other)


@pytest.mark.parametrize("targets", [lora.TARGETS, ("q_proj", "v_proj"), ("o_proj", "down_proj")])
def test_merged_weights_give_the_same_logits(base, targets):
    _, config, params = base
    wide = with_lora(config, LoraConfig(3, 12.0, targets))
    adapters = random_adapters(wide)
    modules = {path[2].key for path, _ in jax.tree_util.tree_leaves_with_path(adapters)}
    assert modules == {name.removesuffix("_proj") for name in targets}
    joined = lora.join(params, adapters)
    merged = lora.merge(joined, wide.lora)
    assert jax.tree.structure(merged) == jax.tree.structure(params)
    np.testing.assert_allclose(logits(config, merged), logits(wide, joined), atol=2e-5)


def test_split_and_join_are_inverse(base):
    _, config, params = base
    adapters = random_adapters(with_lora(config))
    joined = lora.join(params, adapters)
    for got, want in zip(lora.split(joined), (params, adapters), strict=True):
        assert jax.tree.structure(got) == jax.tree.structure(want)
        assert all(a is b for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True))
    assert lora.join({}, params) == params
    with pytest.raises(ValueError, match="lora_a is in both trees"):
        lora.join(joined, adapters)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank = 0: expected at least 1"),
        ({"rank": 2, "alpha": 0.0}, "alpha = 0.0: expected more than 0"),
        ({"rank": 2, "targets": ("query",)}, r"\['query'\]: expected some of \['q_proj'"),
        ({"rank": 2, "targets": ()}, "expected some of"),
        ({"rank": 2, "targets": ("q_proj", "q_proj")}, "each at most once"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        LoraConfig(**options)


@pytest.mark.parametrize("targets", [lora.TARGETS, ("k_proj", "up_proj")])
def test_peft_loads_what_we_save(base, tmp_path, targets):
    path, config, params = base
    wide = with_lora(config, LoraConfig(3, 12.0, targets))
    adapters = random_adapters(wide)
    out = peft.save_adapter(tmp_path / "adapter", adapters, wide.lora, base_model=str(path))
    model = hf_peft.PeftModel.from_pretrained(load_torch(path), out).eval()
    tokens, mask = padded_batch(config.vocab_size)
    with torch.no_grad():
        want = model(
            input_ids=torch.from_numpy(tokens).long(), attention_mask=torch.from_numpy(mask).long()
        ).logits.numpy()
    got = logits(wide, lora.join(params, adapters))
    np.testing.assert_allclose(got[mask], want[mask], atol=1e-4)
    merged = model.merge_and_unload().state_dict()
    ours = lora.merge(lora.join(params, adapters), wide.lora)
    saved = huggingface.save_model(tmp_path / "merged", ours, huggingface.read_config(path))
    tensors = safetensors.numpy.load_file(saved / "model.safetensors")
    assert tensors.keys() == merged.keys()
    for key, value in merged.items():
        np.testing.assert_allclose(tensors[key], value.numpy(), atol=1e-6, err_msg=key)


def test_we_load_what_peft_saves(base, tmp_path):
    path, config, params = base
    torch.manual_seed(0)
    settings = hf_peft.LoraConfig(
        r=2, lora_alpha=6, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM"
    )
    model = hf_peft.get_peft_model(load_torch(path), settings).eval()
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(tmp_path / "adapter")
    wide = with_lora(config, peft.read_lora_config(tmp_path / "adapter"))
    assert wide.lora == LoraConfig(2, 6.0, ("q_proj", "down_proj"))
    adapters = peft.load_adapter(tmp_path / "adapter", wide)
    tokens, mask = padded_batch(config.vocab_size)
    with torch.no_grad():
        want = model(
            input_ids=torch.from_numpy(tokens).long(), attention_mask=torch.from_numpy(mask).long()
        ).logits.numpy()
    got = logits(wide, lora.join(params, adapters))
    np.testing.assert_allclose(got[mask], want[mask], atol=1e-4)


def test_round_trip_and_types(base, tmp_path):
    _, config, _ = base
    wide = with_lora(config)
    adapters = random_adapters(wide)
    out = peft.save_adapter(tmp_path / "a", adapters, RANK_3, base_model="base")
    jax.tree.map(np.testing.assert_array_equal, peft.load_adapter(out, wide), adapters)
    half = peft.save_adapter(tmp_path / "b", adapters, RANK_3, base_model="base", dtype="bfloat16")
    jax.tree.map(
        lambda got, want: np.testing.assert_allclose(got, want, rtol=2**-8),
        peft.load_adapter(half, wide), adapters,
    )  # fmt: skip
    with pytest.raises(FileExistsError, match="exists"):
        peft.save_adapter(tmp_path / "a", adapters, RANK_3, base_model="base")


def test_bad_adapters(base, tmp_path):
    _, config, _ = base
    wide = with_lora(config)
    adapters = random_adapters(wide)
    out = peft.save_adapter(tmp_path / "a", adapters, RANK_3, base_model="base")
    good, weights = json.loads((out / peft.CONFIG).read_text()), out / peft.WEIGHTS
    tensors = safetensors.numpy.load_file(weights)
    key = min(tensors)

    for changes, message in [
        ({"peft_type": "IA3"}, "peft_type 'IA3'; expected 'LORA'"),
        ({"use_dora": True}, "use_dora = True is not supported; expected False"),
        ({"bias": "all"}, "bias = 'all' is not supported; expected 'none'"),
        ({"target_modules": ["c_attn"]}, "c_attn"),
        ({"target_modules": ".*proj"}, "a list 'target_modules'"),
        ({"r": "8"}, "expected an int 'r'"),
        ({"lora_alpha": "x"}, "lora_alpha = 'x'; expected a number"),
        ({"rank_pattern": {"q_proj": 4}}, "rank_pattern"),
    ]:
        (out / peft.CONFIG).write_text(json.dumps(good | changes))
        with pytest.raises(ValueError, match=message):
            peft.read_lora_config(out)
    (out / peft.CONFIG).unlink()
    with pytest.raises(FileNotFoundError, match="adapter_config.json does not exist"):
        peft.read_lora_config(out)

    def rewritten(tensors, message):
        safetensors.numpy.save_file(tensors, weights)
        with pytest.raises(ValueError, match=message):
            peft.load_adapter(out, wide)

    rewritten({k: v for k, v in tensors.items() if k != key}, f"missing key {key}")
    rewritten(tensors | {"extra": tensors[key]}, "unexpected key extra")
    rewritten(tensors | {key: tensors[key][:1]}, "has shape .* expected")
    rewritten(tensors | {key: tensors[key] * np.nan}, "holds NaN")
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        peft.load_adapter(out, wide)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="adapter_model.safetensors does not exist"):
        peft.load_adapter(out, wide)
