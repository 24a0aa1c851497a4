"""Scores a model on a benchmark's held-out tasks.

    python -m genenv_jax.evaluate --config=configs/quickstart.py --model=runs/quickstart/agent \\
        --workdir=runs/quickstart-eval

Without --model it scores what the configuration's players start from.  With --endpoint it asks a server
that speaks OpenAI's chat completions (the key is read from $OPENAI_API_KEY):

    python -m genenv_jax.evaluate --config=configs/bfcl.py --endpoint=http://localhost:8000/v1 \\
        --endpoint_model=Qwen/Qwen2.5-7B-Instruct --workdir=runs/bfcl-eval

Both get the same prompts, and `config.evaluation` says how often and at what temperature they are asked.
It writes to the workdir

    predictions.jsonl   every answer (all of an episode's) and its verdict
    verdicts.jsonl      each task: samples, successes, mean reward
    metrics.json        the benchmark's metrics
    results.json        the same with bootstrap intervals, and what a reader must know about them
    report.html         all this as a page

and prints the metrics.  An endpoint's answers are kept in endpoint.jsonl: a command that was interrupted
goes on from there.  --endpoint_budget=2000000 ends it with an error when these answers have cost so many
tokens, prompts included; with a larger budget it goes on.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from absl import flags
from ml_collections import ConfigDict, config_flags

from genenv_jax import cli
from genenv_jax.benchmarks.base import Benchmark, Described, Score, Task
from genenv_jax.config import prompt_buckets, validate
from genenv_jax.evaluation.answerers import Answerer, EngineAnswerer, OnAnswer
from genenv_jax.evaluation.attempts import Attempt, Waiting, attempt
from genenv_jax.evaluation.statistics import bootstrap_intervals, evaluation_metrics
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.parallel import processes
from genenv_jax.reporting.evaluation import write_evaluation_page
from genenv_jax.run import streams
from genenv_jax.run.streams import Stream
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine, ignore
from genenv_jax.scoring.questions import FAILED_SCORES
from genenv_jax.scoring.scorer import Scorer
from genenv_jax.workdir import compare_data, compare_settings


def modes(config: ConfigDict) -> dict[str, tuple[int, float]]:
    """(samples, temperature) of each way of answering that is configured: "sampled", "greedy"."""
    wanted = {
        "sampled": (config.evaluation.sampled, config.evaluation.temperature),
        "greedy": (int(config.evaluation.greedy), 0.0),
    }
    return {mode: how for mode, how in wanted.items() if how[0]}


def evaluation_engines(
    config: ConfigDict, model: LanguageModel, put: Callable[[Any], Any] = lambda x: x
) -> dict[str, Engine]:
    """The samplers that the configuration asks for, by mode."""
    buckets = prompt_buckets(config, config.limits.agent_prompt)
    at_once = config.sampling.batch_size or config.evaluation.batch_size
    engines = {}
    for mode, (samples, temperature) in modes(config).items():
        options = SamplingParams(
            config.limits.agent_response, samples, model.eos_ids, temperature=temperature
        )
        engines[mode] = Engine(model.config, options, at_once, buckets, put, config.sampling.lanes)
    return engines


def evaluate(
    benchmark: Benchmark,
    tasks: Sequence[Task],
    answerer: Answerer,
    scorer: Scorer,
    on_answer: OnAnswer = ignore,
    waiting: Waiting = contextlib.nullcontext,
) -> tuple[dict[str, float], list[Attempt]]:
    """Attempts every task `answerer.samples` times.

    Args:
      scorer: scores while the answerer goes on.
      on_answer, waiting: see `attempt`.
    Returns:
      the benchmark's metrics over all attempts, and the attempts.  An answer that the token limit cut
      off is scored as it stands.  Among the metrics: how many answers could not be scored, by reason,
      where there were any.
    """
    attempts = attempt(benchmark, tasks, answerer, scorer, on_answer, waiting)
    failed = collections.Counter(
        a.score.reason for a in attempts if a.score.reason in FAILED_SCORES
    )
    return evaluation_metrics(benchmark, by_task(attempts)) | dict(failed), attempts


def by_task(attempts: Sequence[Attempt]) -> list[tuple[Task, list[Score]]]:
    """The scores of each task's samples; attempts are in the order of the tasks."""
    groups = itertools.groupby(attempts, key=lambda a: id(a.task))
    parts = [list(group) for _, group in groups]
    return [(part[0].task, [a.score for a in part]) for part in parts]


def metric_name(mode: str, name: str) -> str:
    """The metric "eval/<split>/<mode>/<metric>" of a benchmark's "<split>/<metric>".

    The split is "test" where the benchmark names none.
    """
    split, _, metric = name.rpartition("/")
    return f"eval/{split or 'test'}/{mode}/{metric}"


def verdicts(attempts: Sequence[Attempt]) -> Iterator[dict[str, Any]]:
    """One record a task: how many samples, how many succeeded, the mean reward."""
    for task, scores in by_task(attempts):
        yield {
            "task_id": task.id,
            "category": task.category,
            "samples": len(scores),
            "successes": sum(score.success for score in scores),
            "reward_mean": sum(score.reward for score in scores) / len(scores),
        }


@contextlib.contextmanager
def open_answerers(
    config: ConfigDict, benchmark: Benchmark, tasks: Sequence[Task], model_path: str
) -> Iterator[dict[str, Answerer]]:
    """Answerers by mode, of a model directory or hub id, or of the configuration's own model."""
    from genenv_jax.players import building
    from genenv_jax.players.prompts import check_prompts

    if model_path:
        config.model.path, config.model.make.vocab_size = model_path, 0
    host = building.open_model(config, benchmark)
    check_prompts(config, host.model, benchmark, (), tasks)
    with host.activate():
        params = host.load_params(config.model.dtype)
        key = streams.key(jax.random.key(config.seed), Stream.EVALUATE)
        yield {
            mode: EngineAnswerer(host.model, engine, params, key)
            for mode, engine in evaluation_engines(config, host.model, host.put).items()
        }


@contextlib.contextmanager
def open_endpoint(
    config: ConfigDict,
    url: str,
    model: str,
    concurrency: int,
    workdir: pathlib.Path,
    budget: int = 0,
) -> Iterator[dict[str, Answerer]]:
    """Answerers by mode, of a server; budget: tokens that they may spend together, 0: no limit."""
    from genenv_jax.evaluation.endpoint import Endpoint, EndpointAnswerer

    if processes.process_count() > 1:
        raise ValueError("--endpoint: expected one process, since one asks as well as several")
    workdir.mkdir(parents=True, exist_ok=True)
    server = Endpoint(
        url,
        model,
        max_tokens=config.limits.agent_response,
        cache=workdir / "endpoint.jsonl",
        max_tokens_total=budget,
    )
    yield {
        mode: EndpointAnswerer(
            server, samples, config.evaluation.batch_size, config.seed, concurrency, temperature
        )
        for mode, (samples, temperature) in modes(config).items()
    }


def run(
    config: ConfigDict,
    model_path: str,
    workdir: str,
    endpoint: str = "",
    endpoint_model: str = "",
    concurrency: int = 8,
    budget: int = 0,
) -> dict[str, float]:
    """Evaluates a model or an endpoint; returns the metrics, which the first process writes.

    budget: tokens that the endpoint may cost in all, see `Endpoint`.

    Raises ValueError or FileNotFoundError for what is missing or unfit.
    """
    from genenv_jax.players import building

    validate(config)
    compare_settings(config)
    if budget and not endpoint:
        raise ValueError(f"--endpoint_budget={budget}: expected --endpoint beside it")
    if endpoint and model_path:
        raise ValueError("--model and --endpoint are both given: expected one of them")
    # A model that is made on the spot learns from the seeds.
    made = not (endpoint or model_path or config.model.path)
    benchmark = building.make_benchmark(config, need_seeds=made)
    compare_data(benchmark)
    tasks = building.evaluation_tasks(config, benchmark)
    if not tasks:
        raise ValueError(f"benchmark {benchmark.name!r} has no held-out tasks: expected some")
    out = pathlib.Path(workdir)
    if endpoint:
        opened = open_endpoint(config, endpoint, endpoint_model, concurrency, out, budget)
        answers = endpoint_model
    else:
        opened = open_answerers(config, benchmark, tasks, model_path)
        answers = model_path or config.model.path or "made on the spot"
    metrics: dict[str, float] = {}
    attempts: dict[str, list[Attempt]] = {}
    begin = time.monotonic()
    with opened as answerers:
        for mode, answerer in answerers.items():
            with Scorer(benchmark, answerer.text, **config.scoring.to_dict()) as scorer:
                found, attempts[mode] = evaluate(benchmark, tasks, answerer, scorer)
            metrics |= {metric_name(mode, name): value for name, value in found.items()}
    if processes.is_writer():
        about = {
            "benchmark": benchmark.name,
            "model": str(answers),
            "tasks": str(len(tasks)),
            **{f"{mode} answers a task": str(how[0]) for mode, how in modes(config).items()},
            "minutes": f"{(time.monotonic() - begin) / 60:.1f}",
            **(benchmark.about() if isinstance(benchmark, Described) else {}),
        }
        write_results(config, benchmark, attempts, metrics, about, out)
    return metrics


def write_results(
    config: ConfigDict,
    benchmark: Benchmark,
    attempts: Mapping[str, Sequence[Attempt]],
    metrics: Mapping[str, float],
    about: Mapping[str, str],
    out: pathlib.Path,
) -> None:
    """Writes the files that the module's docstring names."""
    out.mkdir(parents=True, exist_ok=True)
    intervals: dict[str, tuple[float, float]] = {}
    for mode, made in attempts.items():
        resamples = config.evaluation.resamples
        found = bootstrap_intervals(benchmark, by_task(made), resamples, seed=config.seed)
        intervals |= {metric_name(mode, name): ends for name, ends in found.items()}
    results = {
        "about": dict(about),
        "metrics": {
            name: {"value": value}
            | (
                dict(zip(("low", "high"), intervals[name], strict=True))
                if name in intervals
                else {}
            )
            for name, value in metrics.items()
        },
        "intervals": f"95 % bootstrap over tasks, {config.evaluation.resamples} resamples; where all tasks "
        "have one verdict there is nothing to resample, and both ends are equal",
    }
    _write_lines(
        out / "predictions.jsonl",
        ({"mode": mode} | a.record() for mode, made in attempts.items() for a in made),
    )
    _write_lines(
        out / "verdicts.jsonl",
        ({"mode": mode} | record for mode, made in attempts.items() for record in verdicts(made)),
    )
    for name, content in (("metrics.json", dict(metrics)), ("results.json", results)):
        (out / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    write_evaluation_page(out)


def _write_lines(path: pathlib.Path, records: Iterator[dict[str, Any]]) -> None:
    with path.open("w") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def main() -> None:
    """The command; see the module's docstring."""
    given = flags.FLAGS
    with cli.one_line_errors():
        metrics = run(
            CONFIG.value,
            given.model,
            given.workdir,
            given.endpoint,
            given.endpoint_model,
            given.endpoint_concurrency,
            given.endpoint_budget,
        )
    if not processes.is_writer():
        return
    results = json.loads((pathlib.Path(given.workdir) / "results.json").read_text())["metrics"]
    for name in sorted(metrics):
        found = results[name]
        interval = f"  [{found['low']:.4f}, {found['high']:.4f}]" if "low" in found else ""
        print(f"{name:56} {found['value']:.4f}{interval}")


if __name__ == "__main__":
    CONFIG = config_flags.DEFINE_config_file("config", None, "Configuration file.")
    flags.DEFINE_string("model", "", "Model directory or hub id; empty: the configuration's own.")
    flags.DEFINE_string(
        "endpoint", "", "Base URL of a server that speaks OpenAI's chat completions."
    )
    flags.DEFINE_string("endpoint_model", "", "Name of the model on that server.")
    flags.DEFINE_integer("endpoint_concurrency", 8, "Requests on their way at the same time.", 1)
    flags.DEFINE_integer(
        "endpoint_budget",
        0,
        "Tokens, of prompts and answers, that the answers in the workdir may cost in all; 0: no limit.",
        0,
    )
    flags.DEFINE_string("workdir", None, "Directory of the results.")
    cli.define_process_flags()
    flags.mark_flags_as_required(["config", "workdir"])
    cli.run(main)
