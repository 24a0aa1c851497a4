"""Model cards: what they say is what the run has recorded, and nothing else leaves the machine."""

import hashlib
import html
import subprocess
import sys

import jax
import pytest
import yaml
from huggingface_hub import ModelCard

from genenv_jax.benchmarks import data_files
from genenv_jax.config import validate
from genenv_jax.models.make import train_tokenizer
from genenv_jax.publish import card, provenance
from genenv_jax.run.jsonl import write_json, write_jsonl
from tests import tiny
from tests.commands import ROOT
from tests.runs import toy_config

METRICS = [
    {"step": 0, "eval/test/greedy/accuracy": 0.25, "eval/test/greedy/depth_1": 0.5},
    {"step": 1, "generated/valid_share": 0.5, "generated/p_hat_mean": 0.125},
    {
        "step": 2, "eval/test/greedy/accuracy": 1 / 3, "eval/test/greedy/depth_1": 1.0,
        "eval/test/sampled/accuracy": None, "generated/valid_share": 0.75, "rollouts/total": 320,
        "tokens/total": 40960,
    },
]  # fmt: skip
HUB = {"model.path": "Qwen/Qwen2.5-7B-Instruct", "model.make.vocab_size": 0}


@pytest.fixture
def make(tmp_path):
    """The cards of a run with settings by dotted key."""
    tiny.write_model(tmp_path / "base")
    write_jsonl(tmp_path / "metrics.jsonl", METRICS)
    write_json(tmp_path / "config.json", {"fingerprint": "ab" * 32})

    def make(role="agent", tools="as text", **overrides):
        config = validate(toy_config(tmp_path / "cache", overrides))
        return card.of_run(
            config, tmp_path, tmp_path / "base", tasks=4, tools=tools, commit="c0ffee", role=role
        )

    return make


def test_a_card_says_where_tools_are_shown(make):
    assert "the text describes the tools" in make()["card"]
    shown = make(tools="in the chat template, calls of the form hermes")["card"]
    assert "tools are given to it as its `tools`" in shown and "--tool-call-parser" in shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["/v/python3", "-m", "genenv_jax.main", "--a=b c"], "python3 -m genenv_jax.main '--a=b c'"),
        (["/v/python3", "/v/genenv", "train", "--key=sk-1234567"], "genenv train --key=($OPENAI_API_KEY)"),
    ],
)
def test_what_a_page_says_of_the_command(tmp_path, monkeypatch, given, shown):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1234567")
    monkeypatch.setattr(sys, "orig_argv", given)
    made = provenance.made_with(validate(toy_config(tmp_path / "cache", {"seed": 3})), jax.devices()[:1])
    assert made["command"] == shown and made["machine"].startswith("1 × cpu, ")
    assert "config.seed = 3  (default: 0)" in made["settings"].splitlines()
    assert f"jax {jax.__version__}" in made["code"]


def test_the_scores_are_those_of_metrics(make):
    found = ModelCard(make()["card"])
    assert "| `eval/test/greedy/accuracy` | 0.250 | 0.333 |" in found.text
    assert "| `eval/test/sampled/accuracy` | – | – |" in found.text
    assert "depth_1" not in found.text  # parts of an accuracy
    assert "after epoch 2" in found.text and "4 tasks that were not trained on" in found.text
    for line in ("epochs: 2", "rollouts in all: 320", "tokens in all: 40,960", "commit: `c0ffee`"):
        assert f"- {line}\n" in found.text
    assert "config.agent.group_size = 4  (default: 8)\n" in found.text
    assert "ab" * 32 in found.text and "nothing is downloaded" in found.text


@pytest.mark.parametrize("category", ["a|b", "a`b|", "`", "a\\|b", "**a** | [x](y)", "<b>|", "*a* <i>"])
def test_a_category_with_markdown_is_one_cell(make, tmp_path, category):
    """Read back as GitHub does: pipes separate cells even within code."""
    name = f"eval/test/greedy/accuracy_{category}"
    write_jsonl(tmp_path / "metrics.jsonl", [{"step": step, name: 0.5} for step in (0, 1)])
    (row,) = [line for line in make()["card"].splitlines() if "0.500" in line]
    _, cell, *values = (part.strip() for part in row.split("|"))
    assert values == ["0.500", "0.500", ""]
    if cell.startswith("`"):
        assert cell == f"`{name}`" and "`" not in category
    else:
        assert html.unescape(cell) == f"<code>{name}</code>"
        assert not set(r"\`|*[<") & set(cell.removeprefix("<code>").removesuffix("</code>"))


def test_the_front_matter_names_the_base_and_its_licence(make, tmp_path):
    (tmp_path / "base" / "README.md").write_text("---\nlicense: other\nlicense_name: own\n---\n")
    data = ModelCard(make(**HUB)["card"]).data.to_dict()
    assert data == {
        "base_model": "Qwen/Qwen2.5-7B-Instruct", "library_name": "transformers", "license": "other",
        "license_name": "own", "pipeline_tag": "text-generation",
        "tags": ["genenv", "reinforcement-learning", "agent", "toy", "arxiv:2512.19682"],
    }  # fmt: skip


@pytest.mark.parametrize("text", [b"no front matter", b"---\n[\n---\n", b"\xff", b"---\n- a\n---\n"])
def test_a_base_whose_card_is_broken_has_no_licence(make, tmp_path, text):
    (tmp_path / "base" / "README.md").write_bytes(text)
    assert ModelCard(make(**HUB)["card"]).data.license is None


def test_no_place_of_the_machine_is_in_it(make, tmp_path):
    local = HUB | {"model.path": str(tmp_path / "base"), "benchmark.data_dir": "~/data"}
    teacher = {"tasks.teacher.url": "http://inner:8000/v1", "tasks.teacher.model": "a/b"}
    teacher["tasks.source"] = "teacher"
    found = make(**local, **teacher, **{"lora.rank": 2})
    for text in (found["card"], found["adapter_card"]):
        assert str(tmp_path) not in text and "~/data" not in text and "inner" not in text
        assert "config.model.path = (a path)" in text
        assert "config.tasks.teacher.url = (an address)" in text
        assert "config.tasks.teacher.model = 'a/b'" in text
        assert ModelCard(text).data.base_model is None


def test_how_it_is_served(make, tmp_path):
    """Not with a tokenizer that was made here, which AutoTokenizer reads differently."""
    assert "vllm serve DIRECTORY_OR_NAME" in make()["card"]
    assert "--max-model-len 134 " in make()["card"]
    train_tokenizer(["one two 12 34 it's"] * 9, 280).save_pretrained(tmp_path / "base")
    text = make()["card"]
    assert "vllm serve" not in text and "--endpoint" not in text
    assert "AutoTokenizer, which vLLM and SGLang use, does not split" in text


def test_a_template_that_lets_the_model_think_is_named(make, tmp_path):
    assert "enable_thinking" not in make()["card"]
    thinks = tiny.CHAT_TEMPLATE + "{{ 'no' if enable_thinking is defined else 'yes' }}"
    tiny.write_tokenizer(tmp_path / "base", chat_template=thinks)
    for thinking, given in ((False, "false"), (True, "true")):
        text = make(**{"model.thinking": thinking})["card"]
        assert f"`enable_thinking={thinking}`" in text
        assert f"--default-chat-template-kwargs '{{\"enable_thinking\": {given}}}'` to vLLM" in text


def test_adapters_have_a_card_of_their_own(make):
    found = make(**HUB, **{"lora.rank": 2, "warm_start.steps": 0})
    data = ModelCard(found["adapter_card"]).data
    assert (data.library_name, data.base_model) == ("peft", "Qwen/Qwen2.5-7B-Instruct")
    assert "AutoPeftModelForCausalLM" in found["adapter_card"]
    assert found["base_model"] == "Qwen/Qwen2.5-7B-Instruct"
    # After a warm start the adapters no longer belong to that model.
    assert make(**HUB, **{"lora.rank": 2})["base_model"] == ""


def test_the_simulator(make):
    text = make("simulator")["card"]
    assert "| of an epoch | epoch 1 | epoch 2 |" in text
    assert "| `generated/valid_share` | 0.500 | 0.750 |" in text
    assert "| `generated/p_hat_mean` | 0.125 | – |" in text
    assert "not trained: it is the base" not in text
    for still in ({"tasks.source": "static"}, {"simulator.train": False}):
        assert "not trained: it is the base" in make("simulator", **still)["card"]


def test_published_data_is_named_with_its_commit_and_checksum(make):
    text = make(**{"benchmark.name": "travelplanner", "benchmark.verify_files": True})["card"]
    table = data_files.table("travelplanner").read_bytes()
    assert hashlib.sha256(table).hexdigest() in text and "checked the files that it read" in text
    for source in data_files.sources("travelplanner"):
        owner, name, commit = source.url.split("/")[3:6]
        assert f"- https://github.com/{owner}/{name}/tree/{commit} (" in text


def test_a_warm_start(tmp_path):
    config = validate(toy_config(tmp_path, HUB))
    text = card.of_warm_start(config, tmp_path, {"step": 40, "loss": 1.5, "validation/agent": 1.25})
    assert ModelCard(text).data.base_model == "Qwen/Qwen2.5-7B-Instruct"
    assert "fine-tuned for 150 steps" in text and "- best validation/agent: 1.25\n" in text
    made = card.of_warm_start(validate(toy_config(tmp_path)), None)
    assert "random weights and trained for 150 steps" in made and str(tmp_path) not in made


def test_the_commit_is_that_of_our_own_checkout(tmp_path, monkeypatch):
    """Not that of a repository that happens to contain the environment."""
    file = tmp_path / "genenv_jax" / "publish" / "provenance.py"
    file.parent.mkdir(parents=True)
    file.write_text("1\n")
    monkeypatch.setattr(provenance, "_ROOT", tmp_path)
    monkeypatch.setattr(provenance, "__file__", str(file))
    monkeypatch.setattr(provenance, "_of_installation", lambda: "from pip")
    commit = provenance.commit.__wrapped__

    def git(*arguments):
        own = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", tmp_path, *arguments]
        return subprocess.run(own, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "theirs")
    assert commit() == "from pip"
    git("add", ".")
    git("commit", "-q", "-m", "ours")
    assert commit() == git("rev-parse", "HEAD")
    file.write_text("2\n")
    assert commit() == git("rev-parse", "HEAD") + " and changes"


def test_the_paper_is_cited_alike_everywhere():
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    paper = found["preferred-citation"]
    names = " and ".join(f"{a['family-names']}, {a['given-names']}" for a in paper["authors"])
    plain = " ".join(card.BIBTEX.replace("{GenEnv}", "GenEnv").replace("{LLM}", "LLM").split())
    assert f"author = {{{names}}}" in plain and f"title = {{{paper['title']}}}" in plain
    assert paper["journal"] in plain and f"year = {{{paper['year']}}}" in plain
    assert "(CITATION.cff)" in (ROOT / "README.md").read_text(encoding="utf-8")  # which it does not repeat
    assert f'version="{found["version"]}"' in (ROOT / "setup.py").read_text(encoding="utf-8")
