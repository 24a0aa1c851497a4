"""Scores a model on a benchmark's held-out tasks, or the tasks it writes as the simulator.

    genenv evaluate --config=configs/quickstart.py --model=runs/quickstart/agent \\
        --workdir=runs/quickstart-eval

Without --model, it scores the model that the configuration's players start from.  With --endpoint, it queries
a server with OpenAI's chat completions API (the key is read from $OPENAI_API_KEY):

    genenv evaluate --config=configs/bfcl.py --endpoint=http://localhost:8000/v1 \\
        --endpoint_model=Qwen/Qwen2.5-7B-Instruct --workdir=runs/bfcl-eval

Both get the same prompts; `config.evaluation` sets the number of samples and the temperature.  Files in the
workdir:

    predictions.jsonl   every answer (all of an episode's) and its verdict, with request, reference and prompt
    verdicts.jsonl      samples, successes and mean reward of each task
    metrics.json        the benchmark's metrics
    results.json        the same with 95 % intervals, and the facts needed to read them
    report.html         all this as a page

It prints accuracies, shares of valid and truncated answers, and pass@k.  An endpoint's answers are kept in
endpoint.jsonl, from which an interrupted command continues.  With --endpoint_budget=2000000 it stops with an
error once these answers have cost that many tokens, prompts included; a larger budget continues it.

    genenv evaluate --role=simulator --config=configs/smollm2.py --model=MODEL \\
        --workdir=runs/smollm2-simulator

lets the model vary seeds (`config.evaluation.max_tasks` of them, each `config.simulator.variations` times) as
in the first epoch of a run, and verifies the results:

    tasks.jsonl         every generation and its verdict, as a run writes them
    metrics.json        valid share, rejections by reason, diversity of the tasks
"""

from __future__ import annotations

import contextlib
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence

from absl import flags
from ml_collections import ConfigDict

from genenv_jax import cli, signals
from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.config import Config, use_model, validate
from genenv_jax.evaluate.held_out import evaluate, metric_name, warm_up
from genenv_jax.evaluate.results import write_results
from genenv_jax.evaluate.simulator import AGENT, SIMULATOR, evaluate_simulator
from genenv_jax.evaluate.summary import cut_off, summary
from genenv_jax.ownership import EVALUATION, SIMULATION, place
from genenv_jax.parallel import processes
from genenv_jax.players import build
from genenv_jax.players.lengths import check_prompts
from genenv_jax.players.policy import Policy
from genenv_jax.run.programs import enable_compilation_cache
from genenv_jax.run.progress import Progress
from genenv_jax.run.workdir import compare_data, compare_settings
from genenv_jax.scoring.attempts import Attempt, ChatModel
from genenv_jax.scoring.scorer import Scorer
from genenv_jax.supervised import base_model


def modes_of(config: Config, role: str) -> dict[str, tuple[int, float]]:
    """(samples, temperature) by mode; the simulator's only mode is named after its role."""
    if role == SIMULATOR:
        return {role: config.simulator.draws}
    return config.evaluation.modes()


@contextlib.contextmanager
def open_policies(
    config: Config, benchmark: Benchmark, tasks: Sequence[Task], role: str
) -> Iterator[dict[str, ChatModel]]:
    """Policies of the configuration's model by mode; tasks: those it answers, or the seeds it varies."""
    mesh = build.open_mesh(config)
    host = build.open_model(config, base_model(config, benchmark, mesh), mesh)
    seeds, held_out = (tasks, ()) if role == SIMULATOR else ((), tasks)
    check_prompts(config.limits, host.model, benchmark, seeds, held_out)
    max_concurrent = config.sampling.batch_size or config.evaluation.batch_size
    with host.activate():
        params = host.load_params(config.model.dtype)
        yield {
            mode: build.make_policy(config, host, params, role, *how, max_concurrent)
            for mode, how in modes_of(config, role).items()
        }


def open_endpoint(
    config: Config,
    url: str,
    model: str,
    role: str,
    concurrency: int,
    workdir: pathlib.Path,
    budget: int,
) -> dict[str, ChatModel]:
    """Chat models by mode, for a server that is reachable or whose answers are kept.

    budget: tokens that they may spend together; 0: no limit.
    """
    from genenv_jax.players.endpoint import Endpoint, EndpointModel

    if processes.process_count() > 1:
        raise ValueError("--endpoint: expected one process, since one asks as well as several")
    _, longest, _ = config.limits.of(role)
    cache = workdir / "endpoint.jsonl"
    server = Endpoint(
        url,
        model,
        max_tokens=longest,
        cache=cache,
        max_tokens_total=budget,
        thinking=config.model.thinking,
    )
    server.reach()
    size, seed = config.evaluation.batch_size, config.seed
    return {
        mode: EndpointModel(server, samples, size, seed, concurrency, temperature)
        for mode, (samples, temperature) in modes_of(config, role).items()
    }


def compile_policies(
    chat_models: Mapping[str, ChatModel],
    benchmark: Benchmark,
    tasks: Sequence[Task],
    progress: Progress,
) -> None:
    """Compiles what policies need for the tasks, as a separate phase."""
    policies = [a for a in chat_models.values() if isinstance(a, Policy)]
    if not policies:
        return
    steps = warm_up(policies, benchmark, tasks, lambda: policies[0].params)
    with progress.phase("compile", len(steps), "parts") as display:
        for step in steps:
            step()
            display.advance()


def run(
    config: ConfigDict,
    model_path: str,
    workdir: str,
    endpoint: str = "",
    endpoint_model: str = "",
    concurrency: int = 8,
    budget: int = 0,
    role: str = AGENT,
) -> dict[str, dict[str, float]]:
    """Evaluates a model or an endpoint; returns its metrics, {} on all processes but the first.

    See `write_results`, and `evaluate_simulator`, which gives no intervals.

    Args:
      config: a run's configuration, not validated yet.
      model_path: directory or hub id; "": the configuration's own model.
      workdir: directory of the results, which exists.
      budget: tokens that the endpoint may spend in total, see `Endpoint`.
      role: "agent" or "simulator".
    Raises:
      ValueError, FileNotFoundError: something is missing or invalid.
    """
    if budget and not endpoint:
        raise ValueError(f"--endpoint_budget={budget}: expected --endpoint beside it")
    if endpoint and model_path:
        raise ValueError("--model and --endpoint are both given: expected one of them")
    if model_path:
        use_model(config, model_path)
    checked = validate(config)
    compare_settings(checked.to_dict())
    if checked.compilation_cache:
        enable_compilation_cache()
    out = pathlib.Path(workdir)
    served: dict[str, ChatModel] = {}
    if endpoint:  # before the data, which may be slow to load
        served = open_endpoint(checked, endpoint, endpoint_model, role, concurrency, out, budget)
    # A model that is made or trained here is trained on the seeds.
    trained = not checked.model.path or checked.warm_start.steps > 0
    need_seeds = role == SIMULATOR or (trained and not endpoint)
    benchmark = build.make_benchmark(checked, need_seeds, server=bool(endpoint))
    compare_data(benchmark)
    tasks = checked.evaluation.tasks(benchmark, "seed" if role == SIMULATOR else "eval")
    if not tasks:
        kind = "seed" if role == SIMULATOR else "held-out"
        raise ValueError(f"benchmark {benchmark.name!r} has no {kind} tasks: expected some")
    answers = endpoint_model if endpoint else checked.model.path or "made here"
    opened = contextlib.nullcontext(served)
    if not endpoint:
        opened = open_policies(checked, benchmark, tasks, role)
    metrics: dict[str, float] = {}
    attempts: dict[str, list[list[Attempt]]] = {}
    prompt_tokens: dict[str, int | None] = {}
    begin, modes = time.monotonic(), checked.evaluation.modes()
    progress = Progress(0, silent=not processes.is_writer())
    if role == SIMULATOR:
        progress.line(f"{benchmark.name}: {len(tasks):,} seeds, varied by {answers}")
        with opened as chat_models:
            return evaluate_simulator(
                checked, benchmark, tasks, chat_models[SIMULATOR], progress, out
            )
    progress.line(f"{benchmark.name}: {len(tasks):,} held-out tasks, answered by {answers}")
    with opened as chat_models:
        compile_policies(chat_models, benchmark, tasks, progress)
        for mode, chat_model in chat_models.items():
            if not prompt_tokens:
                prompt_tokens = {
                    t.id: chat_model.tokens(benchmark.agent_messages(t)) for t in tasks
                }
            total = len(tasks) * modes[mode][0]
            with (
                Scorer(benchmark, chat_model.text, checked.scoring) as scorer,
                progress.phase(f"evaluate ({mode})", total, "answers") as display,
            ):
                found, attempts[mode] = evaluate(
                    benchmark,
                    tasks,
                    chat_model,
                    scorer,
                    lambda *_, display=display: display.advance(),
                )
            metrics |= {metric_name(mode, name): value for name, value in found.items()}
    if not processes.is_writer():
        return {}
    limits = checked.limits
    reached = f"config.limits.agent_response = {limits.agent_response} tokens"
    if warning := cut_off(attempts, reached):
        progress.line(warning)
        if limits.agent_episode:
            progress.line(
                f"or, in episodes, at config.limits.agent_episode = {limits.agent_episode}"
            )
    about = {
        "benchmark": benchmark.name,
        "model": str(answers),
        "tasks": str(len(tasks)),
        **{f"{mode} answers a task": str(samples) for mode, (samples, _) in modes.items()},
        "minutes": f"{(time.monotonic() - begin) / 60:.1f}",
        **benchmark.about(),
    }
    return write_results(benchmark, attempts, metrics, about, checked.seed, out, prompt_tokens)


def main() -> None:
    """The command; see the module's docstring."""
    given = flags.FLAGS
    signals.resumes.set(bool(given.endpoint))  # a server's answers are kept
    kind = SIMULATION if given.role == SIMULATOR else EVALUATION
    with cli.one_line_errors(), contextlib.ExitStack() as stack:
        if processes.is_writer():
            stack.enter_context(place(pathlib.Path(given.workdir), kind, "--workdir"))
        results = run(
            given.config,
            given.model,
            given.workdir,
            given.endpoint,
            given.endpoint_model,
            given.endpoint_concurrency,
            given.endpoint_budget,
            given.role,
        )
    if given.role == SIMULATOR:
        for name, found in sorted(results.items()):
            print(f"{name:56} {found['value']:.4f}")
    elif results:
        print(*summary(results), sep="\n")
        print(f"page: {pathlib.Path(given.workdir) / 'report.html'}")


if __name__ == "__main__":
    cli.define_config("Configuration file.")
    flags.DEFINE_enum(
        "role", AGENT, [AGENT, SIMULATOR], "Answer held-out tasks, or write tasks from the seeds."
    )
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
