"""Model cards: the README.md of an exported directory, which says what it is and how to use it.

They hold facts from the settings and metrics.jsonl, but no model-written text, no local path and no time, so
that a repeated or continued run writes the same bytes.
"""

import collections
import functools
import hashlib
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from genenv_jax.benchmarks import data_files
from genenv_jax.config import Config
from genenv_jax.models.huggingface.directory import CARD, on_hub
from genenv_jax.models.make import has_made_tokenizer
from genenv_jax.publish import provenance
from genenv_jax.run.jsonl import read_json
from genenv_jax.run.metrics import read_steps

PAPER = "arxiv:2512.19682"  # the hub turns such a tag into a link
BIBTEX = """\
@article{guo2025genenv,
  title   = {{GenEnv}: Difficulty-Aligned Co-Evolution Between {LLM} Agents
             and Environment Simulators},
  author  = {Guo, Jiacheng and Yang, Ling and Chen, Peter and Xiao, Qixin and Wang, Yinjie
             and Juan, Xinzhe and Qiu, Jiahao and Shen, Ke and Wang, Mengdi},
  journal = {arXiv preprint arXiv:2512.19682},
  year    = {2025}
}"""

_WRITTEN = ("generated/valid_share", "generated/p_hat_mean", "generated/p_hat_in_band")


def of_run(
    config: Config, workdir: pathlib.Path, start: pathlib.Path, tasks: int, tools: str, commit: str, role: str
) -> dict[str, str]:
    """The arguments of `Player.export` for the files besides the weights of a finished run.

    Args:
      workdir: its config.json and metrics.jsonl are read.
      start: directory of the model that the players started from.
      tasks: number of held-out tasks that are scored.
      tools: how the agent was shown its tools, from `Benchmark.about`; "" if it has none.
      commit: the code's commit when the run began.
      role: "agent" or "simulator".
    """
    metrics = read_steps(workdir / "metrics.jsonl")
    last = metrics[max(metrics)]
    totals = {name: last.get(f"{name}/total") for name in ("rollouts", "tokens")}
    trained = role == "agent" or config.trains_simulator
    context = {
        "fingerprint": read_json(workdir / "config.json", "settings").get("fingerprint", ""),
        "trained": trained,
        "commit": commit,
        "scores": _scores(metrics),
        "tasks": tasks,
        "tools": tools,
        "modes": config.evaluation.modes(),
        "written": _of_epochs(metrics) if role == "simulator" else None,
        "spent": {"epochs": last["step"]}
        | {f"{name} in all": f"{value:,.0f}" for name, value in totals.items() if value is not None}
        | {"seed": config.seed},
    }
    found = {"card": _render(role, config, start, context)}
    if config.lora.rank:
        found["adapter_card"] = _render(role, config, start, context, adapter=True)
        # After a warm start, nobody else has the base model.
        found["base_model"] = "" if config.warm_start.steps else base_id(config)
    return found


def of_warm_start(
    config: Config, start: pathlib.Path | None, best: Mapping[str, float] | None = None, tools: str = ""
) -> str:
    """The card of a model that `genenv_jax.supervised` has trained.

    Args:
      start: directory of the model that was trained; None: a newly made model.
      best: the step that was kept and its losses, by name.
      tools: see `of_run`.
    """
    spent = {
        "steps": config.warm_start.steps,
        **{f"best {k}": v for k, v in (best or {}).items()},
        "seed": config.seed,
    }
    context = {"fingerprint": "", "trained": True, "scores": None, "written": None}
    context |= {"spent": spent, "commit": provenance.commit(), "tools": tools}
    return _render("warm start", config, start, context)


def base_id(config: Config) -> str:
    """The hub id in `config.model.path`; "" if that is a directory or empty."""
    return config.model.path if on_hub(config.model.path) else ""


def _render(
    role: str, config: Config, start: pathlib.Path | None, context: Mapping[str, Any], adapter: bool = False
) -> str:
    from huggingface_hub import ModelCard, ModelCardData  # slow

    benchmark = config.benchmark["name"]
    data = ModelCardData(
        base_model=base_id(config) or None,
        library_name="peft" if adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["genenv", "reinforcement-learning", role.replace(" ", "-"), benchmark, PAPER],
        **_license(start),
    )
    lengths = {player: config.limits.of(player) for player in ("agent", "simulator")}
    longest = {player: prompt + max(answers) for player, (prompt, *answers) in lengths.items()}
    sources, table = _sources(benchmark)
    text = _template().render(
        **{"tasks": 0, "modes": {}, **context},
        card_data=data.to_yaml(),
        role=role,
        adapter=adapter,
        config=config,
        benchmark=benchmark,
        base=_base(config),
        settings=provenance.settings(config),
        sources=sources,
        table=table,
        verified=bool(config.benchmark.get("verify_files")),
        # Servers can load its tokenizer with AutoTokenizer.
        standard=start is not None and not has_made_tokenizer(start),
        thinks=start is not None and _thinks(start),
        limits=_limits(role, config),
        length=longest.get(role) or max(longest.values()),
        response=lengths["simulator" if role == "simulator" else "agent"][1],
        versions=provenance.versions(),
        bibtex=BIBTEX,
    )
    return str(ModelCard(text))  # raises if the front matter cannot be read back


def _thinks(start: pathlib.Path) -> bool:
    """Whether the chat template of a model directory has a switch for thinking, like Qwen3's."""
    files = (start / name for name in ("chat_template.jinja", "tokenizer_config.json"))
    return any("enable_thinking" in file.read_text("utf-8") for file in files if file.is_file())


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(pathlib.Path(__file__).with_name("card.jinja").read_text(encoding="utf-8"))


def _base(config: Config) -> str:
    """The base model in words."""
    steps, hub = config.warm_start.steps, base_id(config)
    if not config.model.path:
        return f"none; made with random weights and trained for {steps} steps on demonstrations"
    words = f"[{hub}](https://huggingface.co/{hub})" if hub else "a model in a local directory"
    return words + (f", fine-tuned for {steps} steps on demonstrations" if steps else "")


def _license(start: pathlib.Path | None) -> dict[str, str]:
    """The licence named in the card of the model in `start`; {} if it names none."""
    from huggingface_hub import metadata_load

    try:
        found = (start and metadata_load(start / CARD)) or {}
    except Exception:  # a third party's file: it may be unreadable, not text, or not YAML
        return {}
    names = ("license", "license_name", "license_link")
    return {name: found[name] for name in names if isinstance(found.get(name), str)}


def _scores(metrics: Mapping[int, Mapping[str, Any]]) -> dict[str, Any] | None:
    """The first and the last evaluation: their accuracies if there are any, else all metrics."""
    evaluated = [step for step, record in metrics.items() if any(n.startswith("eval/") for n in record)]
    if not evaluated:
        return None
    first, last = metrics[evaluated[0]], metrics[evaluated[-1]]
    names = sorted({n for n in (*first, *last) if n.startswith("eval/")})
    names = [n for n in names if n.rpartition("/")[2].startswith("accuracy")] or names
    return {
        "step": evaluated[-1],
        "rows": [(_code(n), _number(first.get(n)), _number(last.get(n))) for n in names],
    }


def _of_epochs(metrics: Mapping[int, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Metrics of the tasks that the simulator wrote in the first and the last epoch."""
    epochs = [step for step, record in metrics.items() if _WRITTEN[0] in record]
    if not epochs:
        return None
    first, last = epochs[0], epochs[-1]
    rows = [(n, _number(metrics[first].get(n)), _number(metrics[last].get(n))) for n in _WRITTEN]
    return {"first": first, "last": last, "rows": rows}


def _code(name: str) -> str:
    """A metric's name as code in a Markdown table; a category in it may hold Markdown of its own."""
    if not re.search(r"[`|\\]", name):
        return f"`{name}`"
    return f"<code>{''.join(c if c.isalnum() else f'&#{ord(c)};' for c in name)}</code>"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _sources(benchmark: str) -> tuple[list[tuple[str, int, str]], str]:
    """(repository at its commit, files, bytes) of the published data files, and their table's digest."""
    try:
        files = data_files.sources(benchmark)
    except FileNotFoundError:  # its tasks are generated
        return [], ""
    sizes: dict[str, list[int]] = collections.defaultdict(list)
    for file in files:
        owner, name, commit = file.url.split("/", 6)[3:6]
        sizes[f"https://github.com/{owner}/{name}/tree/{commit}"].append(file.size)
    table = hashlib.sha256(data_files.table(benchmark).read_bytes()).hexdigest()
    return [(place, len(of), f"{sum(of):,}") for place, of in sizes.items()], table


def _limits(role: str, config: Config) -> Sequence[str]:
    """The lengths used in training, one line per role."""
    lines = []
    for player in ("agent", "simulator"):
        if role in (player, "warm start"):
            prompt, answer, episode = config.limits.of(player)
            line = f"prompts of up to {prompt} tokens and answers of up to {answer} as the {player}"
            more = f", in episodes of up to {episode} tokens after the prompt" if episode else ""
            lines.append(line + more)
    return lines
