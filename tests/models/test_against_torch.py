"""Hugging Face's PyTorch models are the oracle for logits, gradients and the spelling of config.json.

The numbers are stored, see `torch_cases`; slow tests have torch compute them and exchange directories.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from genenv_jax.models import huggingface
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.huggingface import writer
from genenv_jax.models.transformer import Transformer
from genenv_jax.parallel.rules import param_shapes
from tests import tiny
from tests.models import torch_cases as cases
from tests.models.torch_cases import FAR_MODELS, GRADIENTS, MODELS, load, logits, padded_batch, part


@pytest.fixture(scope="module")
def stored():
    return cases.stored("models")


@pytest.fixture(scope="module")
def torch():
    """The module that makes the stored numbers."""
    pytest.importorskip("torch")
    pytest.importorskip("peft")
    from tests.models import make_references

    return make_references


def assert_masked_logits(model, params, want, scale=1.0):
    tokens, mask = padded_batch(model.config.vocab_size)
    got = np.asarray(logits(model, params, tokens))
    assert got.dtype == np.float32
    assert np.abs(want).max() > 0.5  # the model is not trivial
    np.testing.assert_allclose(got[mask], want, atol=1e-4 * scale, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_logits(tmp_path, stored, name):
    assert_masked_logits(*load(tiny.write_model(tmp_path / "model", **MODELS[name])), stored[f"model/{name}"])


@pytest.mark.parametrize("name", MODELS)
def test_config_as_transformers_spells_it(name):
    """The newest spelling and that of published files agree."""
    saved = json.loads((cases.FOLDER / "configs.json").read_text())[name]
    assert "rope_parameters" in saved and "rope_scaling" not in saved
    written = tiny.config_dict(**{k: v for k, v in MODELS[name].items() if k != "tokenizer"})
    assert TransformerConfig.from_huggingface(saved) == TransformerConfig.from_huggingface(written)


@pytest.mark.parametrize("name", FAR_MODELS)
def test_logits_at_long_positions(tmp_path, stored, name):
    path = tiny.write_model(tmp_path / "model", **FAR_MODELS[name])
    want = stored[f"far/{name}"]
    model, params = load(path)
    tokens, positions = cases.far_batch()
    np.testing.assert_allclose(logits(model, params, tokens, positions), want, atol=1e-4, rtol=0)
    # Positions and scaling matter to this model: without either, the logits differ.
    near = np.broadcast_to(np.arange(tokens.shape[1], dtype=np.int32), tokens.shape)
    assert np.abs(logits(model, params, tokens, near) - want).max() > 1e-2
    plain, _ = load(path, rope_scaling=None)
    assert np.abs(logits(plain, params, tokens, positions) - want).max() > 1e-2


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_mean_cross_entropy(tmp_path, stored, name):
    want = part(stored, f"gradients/{name}")
    remat, options = GRADIENTS[name]
    model, params = load(tiny.write_model(tmp_path / "model", **options), remat=remat)
    tokens, mask = padded_batch()

    def mean_cross_entropy(params):
        found = logits(model, params, tokens)[:, :-1]
        each = optax.softmax_cross_entropy_with_integer_labels(found, tokens[:, 1:])
        return jnp.sum(each * mask[:, 1:]) / mask[:, 1:].sum()

    value, grads = jax.jit(jax.value_and_grad(mean_cross_entropy))(params)
    np.testing.assert_allclose(value, want.pop("loss"), rtol=1e-5)

    # Read as weights, torch's gradients take our layout; the logits above vouch for the reader.
    (tmp_path / "gradients").mkdir()
    tiny.write_weights(tmp_path / "gradients", want)
    expected = huggingface.load_params(tmp_path / "gradients", model.config)
    assert jax.tree.structure(grads) == jax.tree.structure(expected)

    def compare(where, got, want):
        assert np.abs(want).max() > 1e-3, where
        np.testing.assert_allclose(got, want, atol=1e-4, rtol=0, err_msg=str(where))

    jax.tree_util.tree_map_with_path(compare, grads, expected)


def test_bfloat16_activations_stay_close(tmp_path, stored):
    model, params = load(tiny.write_model(tmp_path / "model", **MODELS["qwen2"]), dtype="bfloat16")
    tokens, mask = padded_batch()
    want, got = stored["model/qwen2"], logits(model, params, tokens)
    assert got.dtype == jnp.float32
    assert 0 < np.abs(np.asarray(got)[mask] - want).max() < 0.05 * np.abs(want).max()


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_our_directory_in_transformers(tmp_path, monkeypatch, torch, name):
    """Parameters made here and exported with an index give the same logits there."""
    hf_config = tiny.config_dict(**{k: v for k, v in MODELS[name].items() if k != "tokenizer"})
    config = TransformerConfig.from_huggingface(hf_config)
    rng = np.random.default_rng(6)
    params = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(0.3, 0.3, x.shape), jnp.float32), param_shapes(config)
    )
    monkeypatch.setattr(writer, "MAX_SHARD_BYTES", 10_000)
    path = huggingface.save_model(tmp_path / "out", params, hf_config)
    assert (path / "model.safetensors.index.json").is_file()
    theirs, info = torch.transformers.AutoModelForCausalLM.from_pretrained(
        path, attn_implementation="eager", output_loading_info=True
    )
    assert not any(info.values()), info
    assert [type(theirs).__name__] == hf_config["architectures"]
    want = torch.masked_logits(theirs.eval())
    assert_masked_logits(Transformer(config), params, want, scale=np.abs(want).max())


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_their_directory_here(tmp_path, torch, name):
    """A model made and saved by transformers, in several files."""
    theirs = torch.make(MODELS[name])
    theirs.save_pretrained(tmp_path, max_shard_size="10KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    assert_masked_logits(*load(tmp_path), torch.masked_logits(theirs))


@pytest.mark.slow
def test_the_stored_numbers_are_what_torch_computes(torch):
    """Otherwise `make references` was forgotten."""
    arrays, configs = torch.everything()
    assert json.loads((cases.FOLDER / "configs.json").read_text()) == configs
    assert {file.stem for file in cases.FOLDER.glob("*.npz")} == set(arrays)
    for name, want in arrays.items():
        found = cases.stored(name)
        assert found.keys() == want.keys()
        for key, x in want.items():
            assert found[key].dtype == x.dtype, key
            # Machines add products in different orders: rounding is on the scale of the largest.
            atol = 0 if name == "ropes" else 1e-5 * np.abs(x).max()
            np.testing.assert_allclose(found[key], x, rtol=1e-5, atol=atol, err_msg=key)
