"""Hugging Face's PyTorch model is the oracle for logits and gradients."""

import dataclasses
import functools
import itertools
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
from genenv_jax.parallel.rules import param_shapes
from tests import tiny

torch.set_num_threads(2)
LENGTHS = np.array([11, 7, 1])
ROPES = {
    "default": None,
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {  # Llama 3.1's, on a shorter first context, so that all three of its bands are used
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "yarn": {  # the recipe of Qwen's model cards
        "type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "yarn-mscale": {
        "rope_type": "yarn",
        "factor": 16.0,
        "original_max_position_embeddings": 2048,
        "mscale": 0.7,
        "mscale_all_dim": 1.3,
        "beta_fast": 24,
        "beta_slow": 2,
        "truncate": False,
    },
}


def load_torch(path):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


def load_jax(path, **options):
    config = TransformerConfig.from_huggingface(huggingface.read_config(path))
    config = dataclasses.replace(config, **options)
    return Transformer(config), huggingface.load_params(path, config)


def padded_batch(vocab_size, seed=1):
    """Right-padded tokens (3, 11) and their mask.  The padding is an ordinary token on purpose."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, vocab_size, (len(LENGTHS), LENGTHS.max()), dtype=np.int32)
    return tokens, np.arange(tokens.shape[1]) < LENGTHS[:, None]


@functools.partial(jax.jit, static_argnums=0)
def jax_logits(model, params, tokens, positions=None):
    if positions is None:
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    variables = {"params": params}
    hidden, _ = model.apply(variables, tokens[:, None], positions[:, None])
    return model.apply(variables, hidden[:, 0], method="logits")


# Every layer type of every family: biases where a family may have them, norms of queries and keys,
# heads wider than their share of the model.
VARIANTS = {
    "qwen2": ("qwen2", {"num_key_value_heads": 1, "rope_theta": 1_000_000.0}),
    "qwen2-deep": ("qwen2", {"num_hidden_layers": 3, "rms_norm_eps": 1e-5}),
    "qwen2-head_dim": ("qwen2", {"num_key_value_heads": 4, "hidden_size": 24, "head_dim": 10}),
    "qwen3": ("qwen3", {}),
    "qwen3-biases": ("qwen3", {"attention_bias": True, "num_key_value_heads": 1}),
    "llama": ("llama", {"rms_norm_eps": 1e-5}),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 10}),
    "llama-heads": ("llama", {"num_key_value_heads": None}),
}


@pytest.mark.parametrize(  # the others stand in the tests of whole directories below
    ("variant", "tied"),
    [("qwen2", True), ("qwen2-deep", False), ("qwen3", True), ("llama-biases", True)],
)
def test_logits(tmp_path, variant, tied):
    family, shape = VARIANTS[variant]
    path = tiny.write_model(
        tmp_path / "model",
        family=family,
        seed=3,
        tie_word_embeddings=tied,
        tokenizer=False,
        **shape,
    )
    model, params = load_jax(path)
    tokens, mask = padded_batch(model.config.vocab_size)
    with torch.no_grad():
        want = load_torch(path)(
            input_ids=torch.from_numpy(tokens).long(), attention_mask=torch.from_numpy(mask).long()
        ).logits.numpy()
    got = np.asarray(jax_logits(model, params, tokens))
    assert got.dtype == np.float32
    assert np.abs(want[mask]).max() > 0.5  # logits of a model that says something
    np.testing.assert_allclose(got[mask], want[mask], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("family", "rope"),
    [*(("qwen2", rope) for rope in ROPES), ("qwen3", "yarn"), ("llama", "llama3")],
)
def test_logits_at_long_positions(tmp_path, family, rope):
    """A few early tokens, then a leap to the end of 32k, in one sequence."""
    path = tiny.write_model(
        tmp_path / "model",
        family=family,
        seed=4,
        tokenizer=False,
        rope_theta=1_000_000.0,
        max_position_embeddings=32_768,
        rope_scaling=ROPES[rope],
    )
    model, params = load_jax(path)
    rng = np.random.default_rng(5)
    tokens = rng.integers(0, model.config.vocab_size, (2, 48), dtype=np.int32)
    row = np.concatenate([np.arange(8), np.arange(32_768 - 40, 32_768)])
    positions = np.broadcast_to(row, tokens.shape).astype(np.int32)
    with torch.no_grad():
        want = load_torch(path)(
            input_ids=torch.from_numpy(tokens).long(),
            # Without a mask the leap would be taken for a second, packed sequence.
            attention_mask=torch.ones(tokens.shape, dtype=torch.long),
            position_ids=torch.from_numpy(positions).long(),
        ).logits.numpy()
    got = jax_logits(model, params, tokens, positions)
    np.testing.assert_allclose(got, want, atol=1e-4, rtol=0)
    # The positions and the scaling matter to this model: without them it says something else.
    plain, _ = load_jax(path, rope_scaling=None)
    assert np.abs(jax_logits(model, params, tokens) - want).max() > 1e-2
    if ROPES[rope] is not None:
        assert np.abs(jax_logits(plain, params, tokens, positions) - want).max() > 1e-2


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


@pytest.mark.parametrize(
    ("variant", "tied", "remat", "rope"),
    [
        ("qwen2-deep", False, "none", "default"),
        ("qwen3-biases", True, "full", "yarn"),
        ("llama-biases", False, "dots", "llama3"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("qwen2", True, "full", "yarn"),
                ("qwen2-head_dim", True, "dots", "default"),
                ("qwen3", False, "none", "default"),
                ("llama", False, "none", "linear"),
            )
        ),
    ],
)
def test_gradients_of_mean_cross_entropy(tmp_path, variant, tied, remat, rope):
    family, shape = VARIANTS[variant]
    path = tiny.write_model(
        tmp_path / "model",
        family=family,
        tie_word_embeddings=tied,
        tokenizer=False,
        rope_scaling=ROPES[rope],
        **shape,
    )
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
    # Some of them without the reader.
    n, h, d = model.config.num_heads, model.config.head_dim, model.config.hidden_size
    q = want["model.layers.1.self_attn.q_proj.weight"]  # (n * h, d)
    got = np.asarray(grads["layers"]["attention"]["q"]["kernel"][1])
    np.testing.assert_allclose(got, q.reshape(n, h, d).transpose(2, 0, 1), atol=1e-4)
    down = want["model.layers.0.mlp.down_proj.weight"]
    np.testing.assert_allclose(grads["layers"]["mlp"]["down"]["kernel"][0], down.T, atol=1e-4)
    if family == "qwen3":
        k_norm = want["model.layers.1.self_attn.k_norm.weight"]
        got = grads["layers"]["attention"]["k_norm"]["scale"][1]
        np.testing.assert_allclose(got, k_norm, atol=1e-4)


def test_bfloat16_activations_stay_close(tmp_path):
    path = tiny.write_model(tmp_path / "model", tokenizer=False)
    exact, params = load_jax(path)
    rough, _ = load_jax(path, dtype="bfloat16")
    tokens, mask = padded_batch(exact.config.vocab_size)
    want, got = jax_logits(exact, params, tokens), jax_logits(rough, params, tokens)
    assert got.dtype == jnp.float32
    error = np.abs(np.asarray(got - want))[mask]
    assert 0 < error.max() < 0.05 * np.abs(np.asarray(want)[mask]).max()


@pytest.mark.parametrize(
    ("variant", "rope"), list(zip(VARIANTS, itertools.cycle(ROPES), strict=False))
)
def test_our_directory_in_transformers(tmp_path, variant, rope):
    """Parameters that were made here, exported with an index, say the same there."""
    family, shape = VARIANTS[variant]
    hf_config = tiny.config_dict(family, **shape) | {"rope_scaling": ROPES[rope]}
    config = TransformerConfig.from_huggingface(hf_config)
    rng = np.random.default_rng(6)
    params = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(0.3, 0.3, x.shape), jnp.float32), param_shapes(config)
    )
    path = huggingface.save_model(tmp_path / "out", params, hf_config, max_shard_bytes=20_000)
    assert (path / "model.safetensors.index.json").is_file()
    theirs, info = transformers.AutoModelForCausalLM.from_pretrained(
        path, attn_implementation="eager", output_loading_info=True
    )
    assert not any(info.values()), info
    assert [type(theirs).__name__] == hf_config["architectures"]
    tokens, mask = padded_batch(config.vocab_size)
    with torch.no_grad():
        want = theirs.eval()(
            input_ids=torch.from_numpy(tokens).long(), attention_mask=torch.from_numpy(mask).long()
        ).logits.numpy()
    got = np.asarray(jax_logits(Transformer(config), params, tokens))
    np.testing.assert_allclose(got[mask], want[mask], atol=1e-4 * np.abs(want).max(), rtol=0)


@pytest.mark.parametrize(
    ("variant", "rope"), list(zip(VARIANTS, itertools.cycle(ROPES), strict=False))
)
def test_their_directory_here(tmp_path, variant, rope):
    """A model made and saved by transformers, with its config.json in its newest spelling."""
    family, shape = VARIANTS[variant]
    hf_config = tiny.config_dict(family, **shape) | {"rope_scaling": ROPES[rope]}
    torch.manual_seed(7)
    theirs = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(hf_config.pop("model_type"), **hf_config),
        attn_implementation="eager",
    ).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0.3 if parameter.ndim == 1 else 0.0, 0.3)
    theirs.save_pretrained(tmp_path / "out", max_shard_size="20KB")
    saved = huggingface.read_config(tmp_path / "out")
    assert "rope_parameters" in saved and "rope_scaling" not in saved
    model, params = load_jax(tmp_path / "out")
    tokens, mask = padded_batch(model.config.vocab_size)
    with torch.no_grad():
        want = theirs(
            input_ids=torch.from_numpy(tokens).long(), attention_mask=torch.from_numpy(mask).long()
        ).logits.numpy()
    got = np.asarray(jax_logits(model, params, tokens))
    np.testing.assert_allclose(got[mask], want[mask], atol=1e-4, rtol=0)
