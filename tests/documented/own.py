"""Our own programs: each runs to its end, at the smallest size, or up to where it would begin to train."""

import importlib
import io
import os
import pathlib
import shutil
import sys
from collections.abc import Callable
from unittest import mock

import huggingface_hub

from genenv_jax.experiment.plan import DONE, compare_or_store, make_plan
from genenv_jax.results.suites import run_dir
from tests.benchmarks.published import published
from tests.benchmarks.small import WRITERS
from tests.commands import ROOT, command
from tests.datasets.test_datasets import served
from tests.documented.blocks import Invocation
from tests.documented.checkout import ONE_DEVICE, SHORT, Checkout
from tests.evaluate.fake_server import serve
from tests.experiment.fake_main import write_run
from tests.experiment.suites import parsed
from tests.publish.test_push import client

# One held-out task, answered once in a few tokens.
ONE_ANSWER = (
    "--config.evaluation.max_tasks=1", "--config.evaluation.sampled=0",
    "--config.evaluation.batch_size=1", "--config.limits.agent_response=4",
)  # fmt: skip


def _succeeded(done, said: str) -> None:
    assert done.returncode == 0 and said in done.stdout, f"{done.stdout[-500:]}{done.stderr[-1500:]}"


def prints(program: str, said: str, *few: str) -> Callable:
    """A check that runs a program at the smallest size and looks for `said` in its output.

    Args:
      said: "{workdir}" stands for the command's.
      few: flags that make it small.
    """

    def run(invocation: Invocation, place: Checkout) -> None:
        given = place.with_model(invocation) if invocation.flag("config") else place.arguments(invocation)
        _succeeded(place.run(program, *given, *few), said.format(workdir=invocation.flag("workdir")))

    return run


evaluate_model = prints("evaluate", "page: {workdir}/report.html", *ONE_ANSWER, *ONE_DEVICE)
evaluate_simulator = prints("evaluate", "generated/valid_share", *ONE_ANSWER, *ONE_DEVICE)
report = prints("report", "/report/report.html")
parity = prints(*("bench/parity.py", "of 2 tokens at most: 1 of 1 equal", "--lengths=60", "--new_tokens=2"))


def dry_run(invocation: Invocation, place: Checkout) -> None:
    """Everything is loaded and checked, and nothing trained."""
    arguments = place.with_model(invocation)
    if "--dry_run" not in arguments:
        arguments.append("--dry_run")
    _succeeded(place.run("main", *arguments, *ONE_DEVICE), "\nmemory ")


def supervised(invocation: Invocation, place: Checkout) -> None:
    """A model is trained for three steps."""
    _succeeded(place.run("supervised", *place.arguments(invocation), *ONE_DEVICE, *SHORT), "")
    assert (place.root / invocation.flag("out") / "model.safetensors").is_file()


def experiment(invocation: Invocation, place: Checkout) -> None:
    """Every arm's configuration is checked, and made-up finished runs are reported."""
    arguments = place.arguments(invocation)
    if not invocation.flag("config.seeds"):
        arguments.append("--config.seeds=(0,1)")
    # The made-up runs have this metric.
    arguments += ["--config.bootstrap=100", "--config.metric=eval/in_distribution/sampled/accuracy"]
    plan = make_plan(parsed(*(a for a in arguments if a.startswith("--config"))))
    workdir = place.root / invocation.flag("workdir")
    shutil.rmtree(workdir, ignore_errors=True)  # of another suite
    compare_or_store(plan, workdir)
    for gain, arm in enumerate(plan.suite.arms):
        for seed in plan.suite.seeds:
            directory = run_dir(workdir, arm, seed)
            write_run(directory, 0.1 + 0.02 * gain, seed, epochs=30)
            (directory / DONE).write_text("{}")
    _succeeded(place.run("experiment", *arguments), f"page: {invocation.flag('workdir')}/report/report.html")


def evaluate_server(invocation: Invocation, place: Checkout) -> None:
    """A server's answers are scored."""
    with serve(lambda request: "a text") as (url, requests):
        endpoint = f"--endpoint={url}"
        given = [endpoint if a.startswith("--endpoint=") else a for a in place.arguments(invocation)]
        done = place.run("evaluate", *given, *ONE_ANSWER)
    _succeeded(done, "greedy  accuracy ")
    assert {request["model"] for request in requests} == {invocation.flag("endpoint_model")}


def play(invocation: Invocation, place: Checkout) -> None:
    """The agent answers a task, and the simulator writes one."""
    with mock.patch.object(sys, "stdin", io.StringIO("/task\n/write\n/quit\n")):
        done = place.run("play", *place.arguments(invocation), *ONE_DEVICE)
    _succeeded(done, "the agent is asked:")
    assert "the simulator's variation 1 of" in done.stdout


def publish(invocation: Invocation, place: Checkout) -> None:
    """A finished run's agent is uploaded, to a stand-in for the hub."""
    hub = client()
    with (
        mock.patch.object(huggingface_hub, "HfApi", lambda token: hub),
        mock.patch.dict(os.environ, HF_TOKEN="hf_secret"),
    ):
        done = place.run("publish", *invocation.arguments)
    _succeeded(done, "https://huggingface.co/")
    created, uploaded = hub.create_repo.call_args, hub.upload_folder.call_args
    assert created.args[0] == uploaded.kwargs["repo_id"] == invocation.arguments[1]


def datasets(invocation: Invocation, place: Checkout) -> None:
    """Small files are downloaded from this machine, or are there already."""
    name = invocation.flag("name")
    base = place.root / "files" / name / (invocation.flag("manual_dir") or "served").lstrip("/")
    WRITERS[name](base)
    files = base / "bfcl" if name == "bfcl" else base
    given = [a for a in invocation.arguments if not a.startswith("--manual_dir=")]
    if invocation.flag("manual_dir"):
        given.append(f"--manual_dir={files}")
    data_dir = mock.patch.dict(os.environ, TFDS_DATA_DIR=str(place.root / "tfds"))
    with served(files) as url, published(name, files, url), data_dir:
        done = place.run("datasets", *given)
    _succeeded(done, "data set: ")


def aot_check(invocation: Invocation, place: Checkout) -> None:
    """Everything before the compiler, which needs libtpu."""
    given = place.arguments(invocation)
    if not invocation.flag("model"):
        given.append(f"--model={place.model}")
    given = [a + "/config.json" * a.startswith("--model=") for a in given]
    done = command(invocation.program, *given, "--programs=none of them", cwd=place.root)
    said = "none of them" if importlib.util.find_spec("libtpu") else 'pip install "jax[tpu]"'
    assert done.returncode == 2 and said in done.stderr, done.stderr


def arguments_alone(invocation: Invocation, place: Checkout) -> None:
    """Only parses the arguments: even the smallest measurement takes seconds, see tests/bench."""
    with mock.patch.object(sys, "path", [str(ROOT / "bench"), *sys.path]):
        module = importlib.import_module(pathlib.PurePath(invocation.program).stem)
    arguments = place.arguments(invocation)
    with mock.patch.object(sys, "argv", [invocation.program, *arguments]):
        given = module._arguments()
    for argument in arguments:
        name, _, value = argument.removeprefix("--").partition("=")
        found = getattr(given, name)
        assert (",".join(map(str, found)) if isinstance(found, list) else str(found)) == value
