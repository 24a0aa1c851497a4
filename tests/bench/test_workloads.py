import json

import jax
import numpy as np
import pytest
import random_model
from workloads import SIZES, Work, heavy_tailed_lengths, huggingface_config, with_prompts

from genenv_jax.models import huggingface
from genenv_jax.models.config import TransformerConfig


@pytest.mark.parametrize("maximum", [32, 128, 1024])
def test_heavy_tailed_lengths_have_a_quarter_of_the_maximum_as_their_mean(maximum):
    lengths = heavy_tailed_lengths(np.random.default_rng(0), (200_000,), maximum)
    assert lengths.mean() == pytest.approx(maximum / 4, rel=0.01)
    assert lengths.min() >= 1 and lengths.max() == maximum
    # The tail: the median well below the mean, and a few rows in a hundred at the limit.
    assert np.median(lengths) < 0.75 * lengths.mean()
    assert 0.01 < (lengths == maximum).mean() < 0.1


def test_the_written_model_is_one_that_we_read(tmp_path):
    shape = huggingface_config(SIZES["tiny"])
    random_model.write(tmp_path, shape)
    config = TransformerConfig.from_huggingface(huggingface.read_config(tmp_path))
    flat = [np.asarray(x) for x in jax.tree.leaves(huggingface.load_params(tmp_path, config))]
    assert sum(x.size for x in flat) == random_model.parameters(shape)
    assert all(x.std() > 0 for x in flat)  # no bias or norm is left at its initial value
    again = tmp_path / "again"
    random_model.write(again, shape)
    for path in tmp_path.glob("*.safetensors"):
        assert (again / path.name).read_bytes() == path.read_bytes()


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
