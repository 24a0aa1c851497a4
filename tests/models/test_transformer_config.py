"""config.json of each family, and what is refused by name."""

import math

import jax
import pytest

from genenv_jax.models.config import FAMILIES, TransformerConfig, Window
from genenv_jax.parallel.rules import param_shapes
from tests import tiny
from tests.models.published import MODELS

GEMMA = tiny.config_dict("gemma3_text")


def read(family="qwen2", **changes):
    return TransformerConfig.from_huggingface(tiny.config_dict(family, **changes))


@pytest.mark.parametrize("name", MODELS)
def test_published_models_have_their_published_size(name):
    hf_config, count = MODELS[name]
    config = TransformerConfig.from_huggingface(hf_config)
    assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(param_shapes(config))) == count
    assert config.max_positions == hf_config["max_position_embeddings"]


def test_what_sets_the_families_apart():
    qwen2, qwen3, llama, gemma = (read(family) for family in FAMILIES)
    assert (qwen2.qkv_bias, qwen2.o_bias, qwen2.qk_norm) == (True, False, False)
    assert (qwen3.qkv_bias, qwen3.o_bias, qwen3.qk_norm) == (False, False, True)
    assert (llama.qkv_bias, llama.o_bias, llama.qk_norm) == (False, False, False)
    assert read("qwen2", attention_bias=False) == qwen2  # its biases are not an option
    for family in ("qwen3", "llama"):
        biased = read(family, attention_bias=True)
        assert biased.qkv_bias and biased.o_bias and not biased.mlp_bias
    assert read("llama", mlp_bias=True).mlp_bias
    assert gemma.qk_norm and gemma.post_norms and gemma.norm_offset and gemma.scale_embedding
    assert (gemma.activation, gemma.query_scalar) == ("gelu", 24.0)
    assert gemma.window == Window(4, (True, False, True), 10_000.0)
    for other in (qwen2, qwen3, llama):
        assert (other.activation, other.query_scalar, other.window) == ("silu", None, None)
        assert not (other.post_norms or other.norm_offset or other.scale_embedding)


def test_defaults_of_the_families():
    """What transformers assumes where config.json does not say."""

    def without(family, *keys):
        config = tiny.config_dict(family)
        return TransformerConfig.from_huggingface({k: v for k, v in config.items() if k not in keys})

    assert without("qwen3", "head_dim").head_dim == 128  # not hidden_size / num_attention_heads
    assert without("qwen2", "head_dim").head_dim == 8
    assert read("qwen2", head_dim=None).head_dim == 8
    assert without("qwen2", "max_position_embeddings").max_positions == 32_768
    assert without("llama", "max_position_embeddings").max_positions == 2_048
    assert without("llama", "rope_theta").rope_theta == 10_000.0
    assert without("llama", "num_key_value_heads").num_kv_heads == 4
    assert without("qwen2", "architectures") == read("qwen2")


def test_options_and_hash():
    config = read("qwen3", rope_scaling={"rope_type": "linear", "factor": 2})
    assert hash(config) == hash(read("qwen3", rope_scaling={"rope_type": "linear", "factor": 2.0}))
    assert TransformerConfig.from_huggingface(tiny.config_dict("qwen3"), dtype="bfloat16").dtype == "bfloat16"


def test_windows_that_are_not_in_use():
    assert read("qwen2", use_sliding_window=True, max_window_layers=2) == read("qwen2")
    assert read("qwen3", use_sliding_window=True, sliding_window=None) == read("qwen3")
    full = ["full_attention", "full_attention"]
    assert read("qwen3", use_sliding_window=True, layer_types=full) == read("qwen3")
    assert read("llama", use_sliding_window=True) == read("llama")  # it has no such option


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "qwen2_moe"},
         r"model_type 'qwen2_moe' is not .*\['gemma3_text', 'llama', 'qwen2', 'qwen3'\]"),
        ({"model_type": None}, "model_type None is not supported"),
        ({"architectures": ["Qwen2ForSequenceClassification"]},
         r"architectures \['Qwen2ForSequenceClassification'\] is not .*\['Qwen2ForCausalLM'\]"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported; expected 'silu'"),
        ({"use_sliding_window": True, "max_window_layers": 1}, "max_window_layers = 1 is not"),
        ({"layer_types": ["full_attention", "sliding_attention"]},
         r"layer_types \['sliding_attention'\] are not supported; expected 'full_attention'"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries; expected 2, one for each"),
        ({"quantization_config": {"quant_method": "fp8"}},
         "quantization_config of method 'fp8' is not supported; expected weights in float32"),
        ({"vocab_size": "320"}, "vocab_size = '320': expected an integer from 1"),
        ({"hidden_size": None}, "hidden_size = None: expected an integer from 1"),
        ({"num_key_value_heads": 2.0}, "num_key_value_heads = 2.0: expected an integer from 1"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers = 1000000: expected an integer from 1 to 1,024"),
        ({"vocab_size": 10**12}, "vocab_size = 1000000000000: expected an integer from 1 to 16,777,216"),
        ({"head_dim": 10**9}, "head_dim = 1000000000: expected"),
        ({"intermediate_size": 2**63}, "intermediate_size = "),
        ({"max_position_embeddings": 10**18}, "max_position_embeddings = "),
        ({"hidden_size": "1" * 10**6}, "hidden_size = '1{39}: expected"),
        ({"head_dim": True}, "head_dim = True: expected an integer from 1"),
        ({"num_key_value_heads": 3}, "num_attention_heads = 4 must be a multiple of .* = 3"),
        ({"head_dim": 7}, "head_dim = 7 must be even"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps = 'small': expected a positive number"),
        (GEMMA | {"hidden_activation": "silu"}, "hidden_activation 'silu' is not .*'gelu_pytorch_tanh'"),
        (GEMMA | {"final_logit_softcapping": 30.0}, "final_logit_softcapping = 30.0 is not supported"),
        (GEMMA | {"use_bidirectional_attention": True}, "use_bidirectional_attention = True is not"),
        (GEMMA | {"sliding_window": "4"}, "sliding_window = '4': expected an integer from 1"),
        (GEMMA | {"sliding_window": 2**40}, "sliding_window = 1099511627776: expected an integer from 1"),
        (GEMMA | {"query_pre_attn_scalar": float("inf")}, "query_pre_attn_scalar = inf: expected"),
        (GEMMA | {"rope_local_base_freq": "1e4"}, "rope_local_base_freq = '1e4': expected a number"),
        (GEMMA | {"layer_types": [[], {}, 3]}, "layer_types .* are not supported"),
        (GEMMA | {"query_pre_attn_scalar": -1}, "query_pre_attn_scalar = -1: expected"),
        (GEMMA | {"layer_types": None, "sliding_window_pattern": "LG"}, "sliding_window_pattern = 'LG'"),
        (GEMMA | {"layer_types": ["chunked_attention"] * 3}, "expected 'full_attention' or 'sliding_att"),
        (GEMMA | {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
         "rope_parameters.sliding_attention = .*expected no scaling"),
    ],
)  # fmt: skip
def test_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        TransformerConfig.from_huggingface(tiny.config_dict() | changes)


def test_gemmas_without_windows():
    assert read("gemma3_text", layer_types=["full_attention"] * 3).window is None
    assert read("gemma3_text", layer_types=None, sliding_window_pattern=1).window is None


def test_missing_keys():
    with pytest.raises(ValueError, match="config.json lacks vocab_size, hidden_size, intermediate"):
        TransformerConfig.from_huggingface({"model_type": "llama"})
