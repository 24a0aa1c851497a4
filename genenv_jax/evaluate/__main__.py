"""Scores a model on a benchmark's held-out tasks, or the tasks it writes as the simulator.

    genenv evaluate --config=configs/quickstart.py --run=runs/quickstart --workdir=runs/quickstart-eval

--run names a finished run, whose player is scored, --model any model.  Without both, it scores the model that
the configuration's players start from.  With --endpoint, it queries a server with OpenAI's chat completions
API (the key is read from $OPENAI_API_KEY):

    genenv evaluate --config=configs/bfcl.py --endpoint=http://localhost:8000/v1 \\
        --endpoint_model=Qwen/Qwen2.5-7B-Instruct --workdir=runs/bfcl-eval

With --answers=PATH, the answers in a file or directory for BFCL's, API-Bank's or TravelPlanner's official
evaluator are scored in place of a model's.

A model and a server get the same prompts; `config.evaluation` sets the number of samples and the
temperature.  Files in the workdir:

    predictions.jsonl   every answer (all of an episode's) and its verdict, with request, reference and prompt
    verdicts.jsonl      samples, successes and mean reward of each task
    metrics.json        the benchmark's metrics
    results.json        the same with 95 % intervals, and the facts needed to read them
    report.html         all this as a page
    official/MODE/      the first answers in files for the official evaluator, where it reads some

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

import contextlib
import pathlib

from absl import flags
from ml_collections import ConfigDict

from genenv_jax import cli
from genenv_jax.benchmarks.demonstrations import AGENT, SIMULATOR
from genenv_jax.config import use_model, validate
from genenv_jax.evaluate.agent import evaluate_agent
from genenv_jax.evaluate.official import Recorded, read_official
from genenv_jax.evaluate.opening import open_endpoint, open_policies
from genenv_jax.evaluate.simulator import evaluate_simulator
from genenv_jax.parallel import processes
from genenv_jax.players import build
from genenv_jax.results.tables import evaluation_summary
from genenv_jax.run.programs import enable_compilation_cache
from genenv_jax.run.progress import Progress
from genenv_jax.run.workdir import compare_data, compare_settings
from genenv_jax.scoring.attempts import ChatModel
from genenv_jax.system import signals
from genenv_jax.system.ownership import EVALUATION, SIMULATION, place


def run(
    config: ConfigDict,
    model_path: str,
    workdir: str,
    endpoint: str = "",
    endpoint_model: str = "",
    concurrency: int = 8,
    budget: int = 0,
    role: str = AGENT,
    answers: str = "",
) -> dict[str, dict[str, float]]:
    """Evaluates a model or an endpoint; returns its metrics, {} on all processes but the first.

    See `evaluate_agent`, and `evaluate_simulator`, which gives no intervals.  The arguments are the command's
    flags (`model_path`: `--model`, "" for the configuration's own; `budget`: `--endpoint_budget`); `config`
    is not validated yet, and `workdir` exists.

    Raises ValueError or FileNotFoundError if something is missing or invalid.
    """
    if endpoint_model and not endpoint:
        raise ValueError(f"--endpoint_model={endpoint_model}: expected --endpoint with it")
    if budget and not endpoint:
        raise ValueError(f"--endpoint_budget={budget}: expected --endpoint with it")
    if endpoint and model_path:
        raise ValueError("--model and --endpoint are both given: expected one of them")
    if answers and (endpoint or model_path or role == SIMULATOR):
        raise ValueError("--answers: expected no --model, --endpoint or --role=simulator with it")
    if answers:  # one to each task, and no model
        config.evaluation.sampled, config.evaluation.greedy = 0, True
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
    need_seeds = role == SIMULATOR or (trained and not endpoint and not answers)
    benchmark = build.make_benchmark(checked, need_seeds, bool(endpoint), bool(answers))
    compare_data(benchmark)
    tasks = checked.evaluation.tasks(benchmark, "seed" if role == SIMULATOR else "eval")
    if not tasks:
        kind = "seed" if role == SIMULATOR else "held-out"
        raise ValueError(f"benchmark {benchmark.name!r} has no {kind} tasks: expected some")
    name = endpoint_model if endpoint else answers or str(checked.model.path or "made here")
    progress = Progress(0, silent=not processes.is_writer())
    if answers:
        given, others = read_official(benchmark, tasks, pathlib.Path(answers))
        missing = len(tasks) - len(given)
        tasks = [task for task in tasks if task.id in given]
        if not tasks:
            raise ValueError(
                f"--answers={answers}: expected answers to held-out tasks, but all are to other tasks"
            )
        if missing or others:
            progress.line(
                f"{answers}: {missing:,} held-out tasks have no answer, {others:,} answers are to other tasks"
            )
        served = {"greedy": Recorded(tasks, given)}
    opened = contextlib.nullcontext(served) if served else open_policies(checked, benchmark, tasks, role)
    what = "seeds, varied by" if role == SIMULATOR else "held-out tasks, answered by"
    progress.line(f"{benchmark.name}: {len(tasks):,} {what} {name}")
    with opened as models:
        if role == SIMULATOR:
            return evaluate_simulator(checked, benchmark, tasks, models[role], progress, out)
        return evaluate_agent(checked, benchmark, tasks, models, name, progress, out)


def main() -> None:
    """The command; see the module's docstring."""
    given = flags.FLAGS
    signals.resumes.set(bool(given.endpoint))  # a server's answers are kept
    kind = SIMULATION if given.role == SIMULATOR else EVALUATION
    with cli.one_line_errors(), contextlib.ExitStack() as stack:
        model = given.model
        if given.run:
            if model:
                raise ValueError("--model and --run are both given: expected one of them")
            model = cli.player_of(given.run, given.role)
        if processes.is_writer():
            stack.enter_context(place(pathlib.Path(given.workdir), kind, "--workdir"))
        results = run(
            given.config,
            model,
            given.workdir,
            given.endpoint,
            given.endpoint_model,
            given.endpoint_concurrency,
            given.endpoint_budget,
            given.role,
            given.answers,
        )
    if given.role == SIMULATOR:
        for name, found in sorted(results.items()):
            print(f"{name:56} {found['value']:.4f}")
    elif results:
        print(*evaluation_summary(results), sep="\n")
        print(f"page: {pathlib.Path(given.workdir) / 'report.html'}")


if __name__ == "__main__":
    cli.define_config("Configuration file.")
    flags.DEFINE_enum(
        "role", AGENT, [AGENT, SIMULATOR], "Answer held-out tasks, or write tasks from the seeds."
    )
    flags.DEFINE_string("model", "", "Model directory or hub id; empty: the configuration's own.")
    flags.DEFINE_string("run", "", "Workdir of a finished run, whose player in this role is scored.")
    flags.DEFINE_string("endpoint", "", "Base URL of a server that speaks OpenAI's chat completions.")
    flags.DEFINE_string("endpoint_model", "", "Name of the model on that server.")
    flags.DEFINE_integer("endpoint_concurrency", 8, "Number of concurrent requests.", 1)
    flags.DEFINE_integer(
        "endpoint_budget",
        0,
        "Most tokens, of prompts and answers, that all answers in the workdir may cost; 0: no limit.",
        0,
    )
    flags.DEFINE_string(
        "answers", "", "File or directory of answers for the official evaluator, in place of a model."
    )
    flags.DEFINE_string("workdir", None, "Directory of the results.")
    cli.define_process_flags()
    flags.mark_flags_as_required(["config", "workdir"])
    cli.run(main)
