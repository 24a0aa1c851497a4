import json

import jax
import numpy as np
import pytest
import workloads
from workloads import SIZES, Work, heavy_tailed_lengths, with_prompts, works, write_model

from genenv_jax.models import huggingface
from genenv_jax.models.config import TransformerConfig
from genenv_jax.parallel.rules import param_shapes


@pytest.mark.parametrize("maximum", [32, 128, 1024])
def test_heavy_tailed_lengths_have_a_quarter_of_the_maximum_as_their_mean(maximum):
    lengths = heavy_tailed_lengths(np.random.default_rng(0), (200_000,), maximum)
    assert lengths.mean() == pytest.approx(maximum / 4, rel=0.01)
    assert lengths.min() >= 1 and lengths.max() == maximum
    # The tail: the median well below the mean, and a few rows in a hundred at the limit.
    assert np.median(lengths) < 0.75 * lengths.mean()
    assert 0.01 < (lengths == maximum).mean() < 0.1


def test_the_published_sizes_are_those_of_the_comparison():
    assert parameters_of("S") == pytest.approx(5.8e6, rel=0.01)
    assert parameters_of("M") == pytest.approx(44.6e6, rel=0.01)


def parameters_of(size):
    config = TransformerConfig.from_huggingface(workloads.huggingface_config(SIZES[size]))
    return sum(x.size for x in jax.tree.leaves(param_shapes(config)))


def test_the_written_model_is_one_that_we_read(tmp_path):
    count = write_model(tmp_path, SIZES["tiny"])
    config = TransformerConfig.from_huggingface(huggingface.read_config(tmp_path))
    params = huggingface.load_params(tmp_path, config)
    flat = [np.asarray(x) for x in jax.tree.leaves(params)]
    assert sum(x.size for x in flat) == count
    assert all(x.std() > 0 for x in flat)  # no bias or norm is left at its initial value
    again = tmp_path / "again"
    write_model(again, SIZES["tiny"])
    name = "model.safetensors"
    assert (again / name).read_bytes() == (tmp_path / name).read_bytes()


def test_every_engine_draws_the_same_inputs():
    work = Work("grpo", prompts=3, group=4, prompt=5, new=6)
    twin = Work(**json.loads(json.dumps(work.__dict__)))
    logp = np.full((3, 4, 6), -2.0, np.float32)
    for a, b in (
        (work.prompt_tokens(100), twin.prompt_tokens(100)),
        (work.completion_tokens(100), twin.completion_tokens(100)),
        (work.advantages(), twin.advantages()),
        (work.moved(logp), twin.moved(logp)),
        (work.lengths(), twin.lengths()),
    ):
        np.testing.assert_array_equal(a, b)
    assert work.prompt_tokens(100).shape == (3, 5)
    assert work.completion_tokens(100).shape == (3, 4, 6)
    np.testing.assert_allclose(work.advantages().mean(axis=1), 0.0, atol=1e-6)


def test_the_clip_acts_on_some_tokens_and_not_on_most():
    work = Work("grpo", prompts=4, group=8, prompt=5, new=128)
    logp = np.full((4, 8, 128), -2.0, np.float32)
    ratio = np.exp(logp - work.moved(logp)[0])
    outside = np.mean(np.abs(ratio - 1) > workloads.GRPO["clip"])
    assert 0.02 < outside < 0.2


def test_works_of_the_comparison_have_the_published_numbers():
    sizes = {size: works(size) for size in ("S", "M")}
    for named in sizes.values():
        assert named["sample"] == Work("sample", 8, 8, 128, 128)
        assert named["prefill"] == Work("sample", 8, 8, 128, 1)
        assert named["score"].rows == 16
        assert named["ragged"].rows == 256
    assert (sizes["S"]["grpo"].rows, sizes["M"]["grpo"].rows) == (16, 8)
    assert works("M", new=33)["sample"].new == 33
    model = works("model", prompt=100)
    assert {work.prompt for name, work in model.items() if name != "long"} == {100}
    assert model["long"] == Work("sample", 1, 8, 2_000, 32)


def test_given_prompts_are_spread_over_lengths_and_padded(tmp_path):
    prompts = [[n] * n for n in (*range(120, 60, -1), 200)]
    file = tmp_path / "prompts.json"
    work = with_prompts(Work("sample", 4, 2, 100, 5), prompts, file)
    lengths = work.prompt_lengths().tolist()
    assert lengths == [70, 80, 90, 100] and work.prompt == 100
    twin = Work(**json.loads(json.dumps(work.__dict__)))
    assert twin.prompt_lists(10) == [[n] * n for n in lengths]
    tokens = twin.prompt_tokens(10)
    assert tokens.shape == (4, 100) and (tokens[0] == [70] * 70 + [0] * 30).all()
    one = with_prompts(Work("sample", 1, 8, 150, 5), prompts, file)
    assert one.prompt_lists(10) == [[120] * 120] and one.prompt == 120
    with pytest.raises(ValueError, match="1 prompts of 140 to 200 tokens: expected 2"):
        with_prompts(Work("sample", 2, 8, 200, 5), prompts, file)
