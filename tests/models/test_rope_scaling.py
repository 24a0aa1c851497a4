"""Rotary frequencies and their scalings; transformers' own functions are the oracle, see `torch_cases`."""

import numpy as np
import pytest

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.rope import inverse_frequencies, rope_tables, spell_rope
from tests import tiny
from tests.models import torch_cases as cases
from tests.models.torch_cases import HEADS, LLAMA3, ROPE_POSITIONS, SCALINGS, YARN


def config_of(**changes):
    return TransformerConfig.from_huggingface(tiny.config_dict("llama", **changes))


@pytest.fixture(scope="module")
def stored():
    return cases.stored("ropes")


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize(("head_dim", "theta"), HEADS)
def test_inverse_frequencies(stored, name, head_dim, theta):
    rope, positions = SCALINGS[name]
    config = config_of(
        head_dim=head_dim, rope_theta=theta, rope_scaling=rope, max_position_embeddings=positions
    )
    want = stored[f"{name}/{head_dim}"]
    got = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
    assert got.dtype == np.float32
    # The same bits, except at most one power that torch rounds the other way.
    np.testing.assert_allclose(got, want, rtol=3e-7, atol=0)
    assert np.sum(got != want) <= 1
    assert config.rope_scaling.attention_factor == stored[f"{name}/factor"]
    hash(config)  # static arguments of jit are hashed


@pytest.mark.parametrize("name", ["", *SCALINGS])
def test_tables_at_32k(stored, name):
    """The oracle's cosines and sines, where rounding the frequency would show most."""
    rope, positions = SCALINGS[name] if name else (None, 32_768)
    config = config_of(head_dim=64, rope_scaling=rope, max_position_embeddings=positions)
    got = rope_tables(ROPE_POSITIONS[None, None], 64, config.rope_theta, config.rope_scaling)
    for ours, theirs in zip(got, stored[f"tables/{name}"], strict=True):
        assert ours.shape == (1, 1, len(ROPE_POSITIONS), 1, 32)
        np.testing.assert_allclose(ours[0, 0, :, 0], theirs, atol=2e-6)


@pytest.mark.parametrize("spelling", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("name", ["", *SCALINGS])
def test_what_is_saved_is_read_in_either_spelling(name, spelling):
    """transformers 4 reads only "rope_theta" and "rope_scaling"."""
    rope, positions = SCALINGS[name] if name else ({"rope_type": "default"}, 512)
    given = tiny.config_dict("llama", max_position_embeddings=positions)
    del given["rope_theta"]
    given |= {spelling: rope | {"rope_theta": 7e5}}
    saved = given | spell_rope(given)
    both = {"rope_theta", "rope_scaling", "rope_parameters"}
    for left_out in (set(), {"rope_parameters"}, {"rope_theta", "rope_scaling"}):
        assert both <= saved.keys() and "rope_theta" not in (saved["rope_scaling"] or {})
        config = {key: value for key, value in saved.items() if key not in left_out}
        read = TransformerConfig.from_huggingface(config)
        assert read == TransformerConfig.from_huggingface(given) and read.rope_theta == 7e5


def test_spellings_that_disagree():
    config = tiny.config_dict("llama", rope_parameters=LLAMA3, rope_scaling=LLAMA3 | {"factor": 9.0})
    with pytest.raises(ValueError, match="rope_parameters and rope_scaling disagree: .*factor"):
        TransformerConfig.from_huggingface(config)


def test_a_length_is_saved_where_transformers_4_looks_for_it():
    rope = {key: value for key, value in LLAMA3.items() if not key.startswith("original")}
    given = tiny.config_dict("llama", rope_scaling=rope, original_max_position_embeddings=256)
    assert spell_rope(given)["rope_scaling"]["original_max_position_embeddings"] == 256


def test_length_at_the_top_level_goes_first(stored):
    config = config_of(rope_scaling=YARN, original_max_position_embeddings=1024)
    assert config.rope_scaling.original_max_positions == 1024
    got = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
    np.testing.assert_allclose(got, stored["top level"], rtol=3e-7)


def test_no_scaling():
    assert config_of().rope_scaling is None
    assert config_of(rope_scaling=None).rope_scaling is None
    config = config_of(rope_scaling={"rope_type": "default"}, partial_rotary_factor=1.0)
    assert config == config_of()
    config = tiny.config_dict("llama", rope_parameters={"rope_theta": 5.0, "rope_type": "default"})
    assert TransformerConfig.from_huggingface(config).rope_theta == 5.0  # not the top level's


@pytest.mark.parametrize(
    ("name", "positions"),
    [("qwen2.5-yarn", 131_072), ("qwen3-yarn", 131_072), ("llama-3.1", 131_072), ("linear", 8192)],
)
def test_context_length(name, positions):
    rope, given = SCALINGS[name]
    assert config_of(rope_scaling=rope, max_position_embeddings=given).max_positions == positions


@pytest.mark.parametrize(
    ("rope", "message"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, r"rope type 'dynamic' is not supported; .*'yarn'"),
        ({"rope_type": "longrope"}, r"rope type 'longrope' is not supported; expected one of \["),
        ({"type": "su"}, "rope type 'su' is not supported"),
        ({"rope_type": []}, r"rope type \[\] is not supported"),
        ({"rope_type": "default", "mrope_section": [1]}, "'default' has 'mrope_section', which is"),
        ({"full_attention": {"rope_type": "default"}}, "has 'full_attention', which is not"),
        ({"rope_type": "linear"}, "rope_scaling of rope type 'linear' lacks factor"),
        ({"rope_type": "llama3", "factor": 8.0}, "lacks high_freq_factor, low_freq_factor"),
        ({"rope_type": "linear", "factor": 0}, r"rope_scaling.factor = 0: expected a number above 0"),
        ({"rope_type": "linear", "factor": "4"}, r"rope_scaling.factor = '4': expected a number"),
        ({"rope_type": "linear", "factor": True}, r"factor = True: expected a number"),
        ({"rope_type": "linear", "factor": float("inf")}, "factor = inf: expected a finite number"),
        (LLAMA3 | {"high_freq_factor": 1.0}, "high_freq_factor = 1 must be above low_freq_factor = 1"),
        (YARN | {"original_max_position_embeddings": 0}, "original_max_.* = 0: expected a number"),
        (YARN | {"beta_fats": 3}, "has 'beta_fats', which is not supported; expected some of"),
        (YARN | {"mscale": 0.7}, "has 'mscale', which is not supported; expected some of"),
        ({"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}, "partial_rotary_.* = 0.5"),
        ("linear", "rope_scaling = 'linear': expected an object"),
        ({"rope_theta": "big"}, "rope_theta = 'big': expected a number above 1"),
    ],
)
def test_what_we_do_not_have(rope, message):
    with pytest.raises(ValueError, match=message):
        config_of(rope_scaling=rope)
    with pytest.raises(ValueError, match=r"partial_rotary_factor = 0.25 is not supported"):
        config_of(partial_rotary_factor=0.25)
