"""An exported agent behind a server answers as it does here."""

import json

import pytest
import transformers

from genenv_jax.models.language_model import LanguageModel
from genenv_jax.models.make import has_made_tokenizer, train_tokenizer
from tests import tiny
from tests.commands import call
from tests.evaluate import model_server
from tests.runs import lines, run

# Short chains of Dial, of which so young a model gets some right.
SETTINGS = {
    "benchmark.name": "dial",
    "benchmark.positions": 3,
    "benchmark.max_depth": 2,
    "benchmark.seed_depths": (0.5, 0.5),
    "benchmark.deeper": (3,),
    "benchmark.misunderstood": 0.0,
    "model.make.vocab_size": 512,
    "model.make.hidden_size": 32,
    "limits.agent_prompt": 48,
    "limits.agent_response": 24,
    "limits.simulator_prompt": 48,
    "warm_start.steps": 600,
    "warm_start.learning_rate": 5e-3,
    "warm_start.batch_size": 32,
    "evaluation.sampled": 0,
    "compile_ahead": False,
}


@pytest.fixture(scope="module")
def exported(cache, tmp_path_factory):
    """agent/ of a finished run."""
    workdir = tmp_path_factory.mktemp("exported")
    run(cache, workdir, epochs=1, export=True, **SETTINGS)
    return workdir / "agent"


def evaluated(cache, out, *arguments):
    """What the command writes, place for place."""
    flags = [f"--config=tests/run_toy.py:{cache}", f"--workdir={out}"]
    flags += [f"--config.{name}={value}" for name, value in SETTINGS.items()]
    result = call("evaluate", *flags, *arguments)
    assert result.returncode == 0, result.stderr
    predictions = lines(out, "predictions.jsonl")
    for prediction in predictions:
        del prediction["prompt_tokens"]  # a server does not say
    return predictions, json.loads((out / "metrics.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("runs_it", ["ours", "torch"])
def test_a_served_export_gives_the_same_answers_and_scores(cache, exported, tmp_path, runs_it):
    if runs_it == "torch":
        pytest.importorskip("torch")
    here = evaluated(cache, tmp_path / "here", f"--model={exported}")
    answer = getattr(model_server, runs_it)(exported, width=48)
    with model_server.serving(answer) as (url, requests):
        there = evaluated(cache, tmp_path / "there", f"--endpoint={url}", "--endpoint_model=agent")
    assert here == there
    predictions, metrics = here
    assert len(requests) == len(predictions) > 20
    assert len({p["answer"] for p in predictions}) > 10
    assert 0 < metrics["eval/in_distribution/greedy/accuracy"] < 1
    # Plain conversations: no tools, no format of the answer, no stop words.
    wanted = {"model", "messages", "temperature", "max_tokens", "seed", "path", "key"}
    assert all(set(request) == wanted for request in requests)


@pytest.mark.slow
def test_servers_read_made_tokenizers_otherwise(tmp_path, tiny_model):
    """Why the cards of made models do not offer to serve them; others are read as they are here."""
    made = tiny.write_model(tmp_path / "made")
    train_tokenizer(["one two 12 34 it's"] * 9, 280).save_pretrained(made)
    for directory, same in ((tiny_model, True), (made, False)):
        ours = LanguageModel.load(directory).encode("one two 12  it's")
        theirs = transformers.AutoTokenizer.from_pretrained(directory).encode("one two 12  it's")
        assert (ours == theirs) == same == (not has_made_tokenizer(directory))
