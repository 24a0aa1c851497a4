"""Hugging Face's PyTorch model is the oracle for logits and gradients."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
import transformers

from genenv_jax.models import huggingface
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.transformer import Transformer
from tests import tiny

torch.set_num_threads(2)
LENGTHS = np.array([11, 7, 1])


def load_torch(path):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


def load_jax(path, **options):
    config = TransformerConfig.from_huggingface(huggingface.read_config(path), **options)
    return Transformer(config), huggingface.load_params(path, config)


def padded_batch(vocab_size, seed=1):
    """Right-padded tokens (3, 11) and their mask.  The padding is an ordinary token on purpose."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, vocab_size, (len(LENGTHS), LENGTHS.max()), dtype=np.int32)
    return tokens, np.arange(tokens.shape[1]) < LENGTHS[:, None]


def jax_logits(model, params, tokens):
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    variables = {"params": params}
    hidden, _ = model.apply(variables, tokens[:, None], positions[:, None])
    return model.apply(variables, hidden[:, 0], method="logits")


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        {"num_key_value_heads": 1, "rope_theta": 1_000_000.0},
        {"num_key_value_heads": 2, "num_hidden_layers": 3, "rms_norm_eps": 1e-5},
        {"num_key_value_heads": 4, "hidden_size": 24, "head_dim": 10},
    ],
)
def test_logits(tmp_path, tied, shape):
    path = tiny.write_model(
        tmp_path / "model", seed=3, tie_word_embeddings=tied, tokenizer=False, **shape
    )
    model, params = load_jax(path)
    tokens, mask = padded_batch(model.config.vocab_size)
    with torch.no_grad():
        want = load_torch(path)(
            input_ids=torch.from_numpy(tokens).long(), attention_mask=torch.from_numpy(mask).long()
        ).logits.numpy()
    got = np.asarray(jax.jit(jax_logits, static_argnums=0)(model, params, tokens))
    assert got.dtype == np.float32
    assert np.abs(want[mask]).max() > 0.5  # logits of a model that says something
    np.testing.assert_allclose(got[mask], want[mask], atol=1e-4, rtol=0)


def test_rope_theta_as_transformers_5_writes_it(tmp_path):
    path = tiny.write_model(tmp_path / "model", tokenizer=False)
    config = huggingface.read_config(path)
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": config.pop("rope_theta") / 7}
    (path / "config.json").write_text(json.dumps(config))
    model, params = load_jax(path)
    tokens, mask = padded_batch(model.config.vocab_size)
    with torch.no_grad():
        want = load_torch(path)(input_ids=torch.from_numpy(tokens).long()).logits.numpy()
    got = np.asarray(jax_logits(model, params, tokens))
    np.testing.assert_allclose(got[mask], want[mask], atol=1e-4, rtol=0)


@pytest.mark.parametrize(("tied", "remat"), [(False, "none"), (True, "full"), (True, "dots")])
def test_gradients_of_mean_cross_entropy(tmp_path, tied, remat):
    path = tiny.write_model(tmp_path / "model", tie_word_embeddings=tied, tokenizer=False)
    model, params = load_jax(path, remat=remat)
    tokens, mask = padded_batch(model.config.vocab_size)
    labels = np.where(mask, tokens, -100)[:, 1:]

    oracle = load_torch(path)
    logits = oracle(
        input_ids=torch.from_numpy(tokens).long(), attention_mask=torch.from_numpy(mask).long()
    ).logits
    loss = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), torch.from_numpy(labels).long().flatten()
    )
    loss.backward()
    want = {name: p.grad.numpy() for name, p in oracle.named_parameters()}

    def mean_cross_entropy(params):
        logits = jax_logits(model, params, tokens)[:, :-1]
        each = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(labels, 0))
        return jnp.sum(each * mask[:, 1:]) / mask[:, 1:].sum()

    value, grads = jax.jit(jax.value_and_grad(mean_cross_entropy))(params)
    np.testing.assert_allclose(value, loss.item(), rtol=1e-5)

    # Read as weights, torch's gradients take our layout; the logits above vouch for the reader.
    (tmp_path / "gradients").mkdir()
    tiny.write_weights(tmp_path / "gradients", want)
    expected = huggingface.load_params(tmp_path / "gradients", model.config)
    assert jax.tree.structure(grads) == jax.tree.structure(expected)

    def compare(where, got, want):
        assert np.abs(want).max() > 1e-3, where
        np.testing.assert_allclose(got, want, atol=1e-4, rtol=0, err_msg=str(where))

    jax.tree_util.tree_map_with_path(compare, grads, expected)
    # Two of them without the reader.
    q = want["model.layers.1.self_attn.q_proj.weight"]  # (n * h, d)
    got = np.asarray(grads["layers"]["attention"]["q"]["kernel"][1])
    np.testing.assert_allclose(got, q.reshape(4, 8, 32).transpose(2, 0, 1), atol=1e-4)
    down = want["model.layers.0.mlp.down_proj.weight"]
    np.testing.assert_allclose(grads["layers"]["mlp"]["down"]["kernel"][0], down.T, atol=1e-4)


def test_bfloat16_activations_stay_close(tmp_path):
    path = tiny.write_model(tmp_path / "model", tokenizer=False)
    exact, params = load_jax(path)
    rough, _ = load_jax(path, dtype="bfloat16")
    tokens, mask = padded_batch(exact.config.vocab_size)
    want, got = jax_logits(exact, params, tokens), jax_logits(rough, params, tokens)
    assert got.dtype == jnp.float32
    error = np.abs(np.asarray(got - want))[mask]
    assert 0 < error.max() < 0.05 * np.abs(np.asarray(want)[mask]).max()
