import json
import re

import pytest
import transformers

from genenv_jax.benchmarks.bfcl import backends
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.models.make import has_made_tokenizer, train_tokenizer
from tests import tiny
from tests.benchmarks import bfcl_tasks
from tests.commands import call
from tests.evaluate import model_server
from tests.evaluate.fake_server import called, serve
from tests.runs import lines, run

# Chains of Dial short enough that a barely trained model gets some right.
SETTINGS = {
    "benchmark.name": "dial", "benchmark.positions": 3, "benchmark.max_depth": 2,
    "benchmark.seed_depths": (0.5, 0.5), "benchmark.deeper": (3,), "benchmark.misunderstood": 0.0,
    "model.make.vocab_size": 512, "model.make.hidden_size": 48, "model.make.num_heads": 4,
    "limits.agent_prompt": 48, "limits.agent_response": 24, "limits.simulator_prompt": 48,
    "warm_start.steps": 600, "warm_start.learning_rate": 5e-3, "warm_start.batch_size": 32,
    "evaluation.sampled": 0, "compile_ahead": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def exported(cache, tmp_path_factory):
    """agent/ of a finished run."""
    workdir = tmp_path_factory.mktemp("exported")
    run(cache, workdir, epochs=1, export=True, **SETTINGS)
    return workdir / "agent"


def evaluated(cache, out, *arguments):
    """Predictions and metrics that the command writes."""
    flags = [f"--config=tests/run_toy.py:{cache}", f"--workdir={out}"]
    flags += [f"--config.{name}={value}" for name, value in SETTINGS.items()]
    result = call("evaluate", *flags, *arguments)
    assert result.returncode == 0, result.stderr
    predictions = lines(out, "predictions.jsonl")
    for prediction in predictions:
        del prediction["prompt_tokens"]  # a server does not say
    return predictions, json.loads((out / "metrics.json").read_text())


@pytest.mark.slow
def test_a_served_export_gives_the_same_answers_and_scores(cache, exported, tmp_path):
    pytest.importorskip("torch")
    here = evaluated(cache, tmp_path / "here", f"--model={exported}")
    with model_server.serving(model_server.torch(exported)) as (url, requests):
        served = [f"--endpoint={url}", "--endpoint_model=agent"]
        served += [f"--config.model.path={exported}", "--config.model.make.vocab_size=0"]
        there = evaluated(cache, tmp_path / "there", *served)
    assert here == there
    predictions, metrics = here
    assert len(requests) == len(predictions) > 20
    assert len({p["answer"] for p in predictions}) > 10
    assert 0 < metrics["eval/in_distribution/greedy/accuracy"] < 1
    # Plain conversations: no tools, no answer format, no stop words.
    wanted = {"model", "messages", "temperature", "max_tokens", "seed", "path", "key"}
    assert all(set(request) == wanted for request in requests)


@pytest.mark.slow
def test_servers_read_made_tokenizers_otherwise(tmp_path):
    """Why cards of made models offer no serving; servers read other tokenizers as we do."""
    plain, made = (tiny.write_model(tmp_path / name) for name in ("plain", "made"))
    train_tokenizer(["one two 12 34 it's"] * 9, 280).save_pretrained(made)
    for directory, same in ((plain, True), (made, False)):
        ours = LanguageModel.load(directory).encode("one two 12  it's")
        theirs = transformers.AutoTokenizer.from_pretrained(directory).encode("one two 12  it's")
        assert (ours == theirs) == same == (not has_made_tokenizer(directory))


def knows_the_files(request):
    """The right calls for the small files of BFCL, as a server that parses calls sends them.

    Like OpenAI's server, it refuses calls without results, and results without calls.
    """
    waiting = []
    for message in request["messages"]:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return 400, {"error": {"message": f"no result of {waiting}"}}
        waiting += [call["id"] for call in message.get("tool_calls", ())]
    named = {tool["function"]["name"]: tool["function"] for tool in request["tools"]}
    *_, last = [m["content"] for m in request["messages"] if m["role"] == "user"]
    if asked := re.match(r"What is the weather in (\w+) for (\d) days", last):
        assert named["weather_get"]["parameters"]["properties"]["days"]["type"] == "integer"
        calls = [("weather_get", {"city": asked[1], "days": int(asked[2])})]
        if guests := re.search(r"table for (\d)", last):
            calls.append(("book", {"guests": int(guests[1])}))
    elif request["messages"][-1]["role"] == "tool":
        return "Done."
    else:
        place = re.search(r"Oslo|Rome|Bern|Lima|Cairo|Perth", last)[0]
        calls = {
            "Make": [("touch", {"file_name": place})],
            "Work": [("cd", {"folder": "work"}), ("ls", {})],
            "Show": [("cd", {"folder": ".."}), ("cat", {"file_name": "notes"})],
        }[last.split()[0]]
    return 200, called(*((name, json.dumps(of)) for name, of in calls))


@pytest.mark.parametrize(
    ("category", "asked"),
    [
        ("parallel", 6),
        pytest.param(
            "multi_turn_base",
            6 * 2 * 3,
            marks=pytest.mark.skipif(not backends.is_installed(), reason=backends.INSTALL),
        ),
    ],
)
def test_a_server_that_answers_with_tool_calls(tmp_path, category, asked):
    options = {
        "benchmark.data_dir": bfcl_tasks.write(tmp_path / "files"), "benchmark.verify_files": False,
        "benchmark.multi_turn_rule": "conversation", "benchmark.seed_categories": "()",
        "benchmark.eval_categories": f"('{category}',)", "evaluation.sampled": 0,
    }  # fmt: skip
    out = tmp_path / "out"
    flags = ["--config=configs/bfcl.py", f"--workdir={out}", "--endpoint_model=m"]
    flags += [f"--config.{name}={value}" for name, value in options.items()]
    with serve(knows_the_files) as (url, requests):
        result = call("evaluate", *flags, f"--endpoint={url}")
    assert result.returncode == 0, result.stderr
    assert [p["success"] for p in lines(out, "predictions.jsonl")] == [True] * 6
    assert len(requests) == asked
