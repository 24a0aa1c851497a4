"""The commands as a user calls them: bad input is one line and exit code 2, before any training."""

import errno
import importlib.metadata
import json
import logging
import os
import re
import signal
from contextlib import nullcontext
from unittest import mock

import numpy as np
import pytest
from safetensors.numpy import load_file

from genenv_jax import cli
from genenv_jax.commands import COMMANDS
from genenv_jax.run.jsonl import write_json
from genenv_jax.system.ownership import owned
from tests.commands import QUICK, ROOT, call, command
from tests.evaluate.fake_server import serve
from tests.runs import lines


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        *(
            ("main", [QUICK, *given.split()], message)
            for given, message in {
                "--config.agent.learnin_rate=1": "agent.learnin_rate.*agent.learning_rate",
                "--config.agent.group_size=many": "config.agent.group_size.*many",
                "--config.agent.group_size=1": "group_size = 1: expected at least 2",
                "--config.group_size=4": r"did you mean config\.agent\.group_size\?",
                "--arm=best": "--arm=best: expected one of .*, random, ",
                "--nodry_rn": r"--nodry_rn is not a flag; did you mean --dry_run\?$",
                "--config.benchmark.positions=1": "error: config.benchmark.positions = 1: expected an "
                "integer from 2 to 10",
                "--config.limits.agent_prompt=10": r"dial-seed-\d+ has \d+ tokens.*agent_prompt",
                "--config.mesh.tensor=3": "embedding: .* axis 'tensor' of size 3 does not divide",
                "--config.arms.random.agent.x=1": "config.arms.random.agent.x is not a setting: "
                "there is no group 'arms'",
                "--device_memory=24": "--device_memory=24: expected .* --dry_run",
                "--dry_run --device_memory=nan": "--device_memory=nan: expected a device's GiB",
                "--dry_run --device_memory=9 --config.mesh.data=9999": "mesh: 9,999 devices, .* 1,024",
                "--dry_run --device_memory=0.001": "too large: a device has 1.0 MiB; use more devices",
                "extra": "unexpected argument 'extra'",
                "--config.model.path=/no/model --config.model.make.vocab_size=0": "/no/model",
            }.items()
        ),
        ("main", [], "^error: --config is missing: expected a file such as configs/quickstart.py$"),
        ("main", ["--config="], "^error: --config is missing: expected a file"),
        ("main", ["--config.epochs=3"], "^error: --config is missing: expected a file"),
        ("main", ["--config=quickstart"], "quickstart: no such file; .*configs/quickstart.py"),
        ("main", ["--confg=x"], r"--confg is not a flag; did you mean --config\?$"),
        ("main", ["--config=configs/quickstart.py:fast"], "takes no argument"),
        ("main", ["configs/bfcl.py", QUICK], "unexpected argument 'configs/bfcl.py': expected one config"),
        ("main", ["configs/quick.py"], "quick.py: no such file; did you mean configs/quickstart.py"),
        ("evaluate", [QUICK, "--endpoint=localhost:1"], "expected a base URL"),
        ("evaluate", [QUICK, "--endpoint=http://localhost:1/v1"], "endpoint's model is empty"),
        ("evaluate", [QUICK, "--endpoint=http://h/v1", "--model=x"], "expected one of them"),
        ("evaluate", [QUICK, "--run=runs/a", "--model=x"], "--model and --run are both given: expected"),
        ("evaluate", [QUICK, "--run=/no/run"], "--run=/no/run: expected a finished run, but it has no agent"),
        ("evaluate", [QUICK, "--endpoint_model=m"], "endpoint_model=m: .*--endpoint with it"),
        ("evaluate", [QUICK, "--endpoint_budget=9"], "endpoint_budget=9: .*--endpoint with it"),
        ("evaluate", [QUICK, "--config.evaluation.sampled=-1"], "sampled = -1: expected between 0"),
        (
            "evaluate",  # before the data is loaded, which this benchmark lacks
            ["--config=configs/bfcl.py", "--endpoint=http://127.0.0.1:9/v1", "--endpoint_model=m"],
            "^error: http://127.0.0.1:9/v1: the server cannot be reached",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path, module, arguments, message):
    result = call(module, *arguments, f"--workdir={tmp_path / 'run'}")
    assert result.returncode == 2, result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "Traceback" not in result.stderr
    assert re.search(message, errors[0])
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_dry_run_for_another_machine_has_its_devices():
    done = command("main", QUICK, "--dry_run", "--device_memory=24", "--config.mesh.fsdp=4")
    assert done.returncode == 0, done.stderr
    assert "4 of 4 × cpu; mesh data 1, fsdp 4, tensor 1" in done.stdout


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:s3cret@h/v1: refused", "http://***@h/v1: refused"),
        ("https://me:s3/c@ret@h is no model", "https://***@h is no model"),
        ("hf://datasets/o/n@v1/f: missing", "hf://datasets/o/n@v1/f: missing"),
        ("'https://h/x?api_key=s3cret' y", "'https://h/x?***' y"),
        ("https://h/x#token=s3cret", "https://h/x#***"),
        ("hub: hf_s3cret_s3cret", "hub: ($HF_TOKEN)"),
        ("gs://bucket/run@1: gone", "gs://bucket/run@1: gone"),
        ("a\x1b]0;b\x07\u202e c\n d", r"a\u001b]0;b\u0007\u202e c d"),
    ],
)
def test_an_error_or_warning_shows_neither_keys_nor_controls(monkeypatch, capsys, text, shown):
    monkeypatch.setenv("HF_TOKEN", "hf_s3cret_s3cret")
    with pytest.raises(SystemExit):
        cli.fail(text)
    assert capsys.readouterr().err == f"error: {shown}\n"
    record = logging.LogRecord("absl", logging.WARNING, __file__, 1, "%s", (text,), None)
    assert " ".join(cli._Formatter().format(record).split()).endswith(shown)


@pytest.mark.parametrize(
    ("command", "flag", "theirs"),
    [
        ("evaluate", "--workdir", "config.json tasks.jsonl metrics.jsonl"),
        ("evaluate --role=simulator", "--workdir", "tasks.jsonl d_train.jsonl"),
        ("main", "--workdir", "endpoint.jsonl"),
        ("main --dry_run", "--workdir", "suite.json"),
        ("experiment", "--workdir", "results.json report.html"),
        ("report", "--out", "config.json metrics.jsonl"),
        ("supervised", "--out", "notes.txt"),
    ],
)
def test_a_directory_of_other_work_is_left_as_it_is(tmp_path, command, flag, theirs):
    """It is refused before anything is read or made."""
    place = tmp_path / "theirs"
    place.mkdir()
    for name in theirs.split():
        (place / name).write_text("theirs")
    module, *flags = command.split()
    config = "--config=configs/ablations/suite.py" if module == "experiment" else QUICK
    flags += ["no-run", "--out", place] if module == "report" else [config, f"{flag}={place}"]
    result = call(module, *flags)
    assert result.returncode == 2
    assert re.fullmatch(rf"error: {flag}={place} (belongs to|holds|is not empty:) .*\n", result.stderr)
    left = {path.name: path.read_text() for path in place.iterdir()}
    assert left == dict.fromkeys(theirs.split(), "theirs")
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


@pytest.mark.parametrize("name", ["file", "file/below", "n" * 250])
def test_a_place_that_cannot_be_written_is_named_before_any_work(tmp_path, monkeypatch, name):
    (tmp_path / "file").touch()
    monkeypatch.setattr("genenv_jax.players.build.make_benchmark", None)
    result = call("supervised", QUICK, f"--out={tmp_path / name}")
    assert result.returncode == 2 and re.match(r"error: .*(file|nnn)", result.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("module", ["main", "evaluate"])
def test_a_workdir_has_one_owner(tmp_path, module):
    """And must be a directory.  Both are checked before anything is read or made."""
    with owned(tmp_path / "run.lock", "it"):
        result = call(module, QUICK, f"--workdir={tmp_path}")
    assert result.returncode == 2
    who = rf"process {os.getpid()} on host \S+ since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert re.fullmatch(rf"error: --workdir={tmp_path} is in use by {who} .*\n", result.stderr)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    result = call(module, QUICK, f"--workdir={tmp_path / 'file'}")
    assert result.returncode == 2
    assert result.stderr == f"error: --workdir={tmp_path / 'file'} is a file: expected a directory\n"


@pytest.mark.parametrize(
    ("command", "name", "what"),
    [
        ("main", "SIGTERM", "continues from there"),
        ("main", "SIGINT", "continues from there"),
        ("evaluate", "SIGTERM", "starts over"),
        ("evaluate --endpoint=http://127.0.0.1:9/v1", "SIGTERM", "continues from there"),
        ("evaluate --role=simulator", "SIGTERM", "starts over"),
    ],
)
def test_a_signal_before_the_work_is_one_line(tmp_path, monkeypatch, command, name, what, interruptible):
    """It says whether anything is kept; the directory is locked meanwhile and left as it was."""

    def interrupted(*_, **__):
        assert (tmp_path / "run.lock").exists()
        signal.raise_signal(signal.Signals[name])

    module, *flags = command.split()
    step = "coevolve.Coevolution" if module == "main" else "config.validate"
    monkeypatch.setattr(f"genenv_jax.{step}", interrupted)
    result = call(module, QUICK, *flags, f"--workdir={tmp_path}")
    assert result.returncode == 128 + signal.Signals[name]
    assert result.stderr == f"ended by {name}; the same command {what}\n"
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_full_is_one_line(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr("genenv_jax.coevolve.Coevolution", lambda *_: write_json(config, {}))
    config = tmp_path / "run" / "config.json"
    monkeypatch.setattr("genenv_jax.run.workdir.lock", lambda path: path.mkdir() or nullcontext())
    result = call("main", QUICK, f"--workdir={tmp_path / 'run'}")
    assert result.returncode == 1  # a launcher starts it again
    assert result.stderr == f"error: [Errno 28] No space left on device: '{config}'\n"
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "No space left", "d_env.jsonl"), 1),
        (FloatingPointError("kl = inf"), 2),
        (TimeoutError("three of four came"), 1),
    ],
)
def test_what_may_pass_has_its_own_exit_code_in_mid_run(tmp_path, monkeypatch, error, code):
    """launch/jobset.yaml restarts the run on every code but 2."""
    fails = mock.Mock(**{"return_value.run.side_effect": error})
    monkeypatch.setattr("genenv_jax.coevolve.Coevolution", fails)
    monkeypatch.setattr("genenv_jax.dry_run.overview", lambda *_: {})
    result = call("main", QUICK, f"--workdir={tmp_path}")
    assert result.returncode == code
    assert result.stderr.splitlines()[-1] == f"error: {error}"


@pytest.mark.parametrize(
    ("module", "flags", "message"),
    [
        ("main", [QUICK], "--workdir is missing: expected the directory of the run"),
        ("evaluate", [QUICK], "--workdir is missing: expected the directory of the results"),
        ("supervised", [QUICK], "--out is missing: expected the directory of the trained model"),
        ("datasets", [], "--name is missing: expected one of alfworld, api_bank, .*"),
        ("report", [], "the following arguments are required: workdir; .*"),
        ("main", [QUICK, "--workdir=gs://b/run"], "--workdir=gs://b/run: expected a directory.*"),
        ("evaluate", [QUICK, "--workdir=gs://b/run"], "--workdir=gs://b/run: expected a dir.*"),
        ("supervised", [QUICK, "--out=gs://b/run"], "--out=gs://b/run: expected a directory.*"),
    ],
)
def test_what_a_command_requires_is_named(module, flags, message):
    result = call(module, *flags)
    assert not (ROOT / "gs:").exists()
    assert result.returncode == 2 and re.fullmatch(f"error: {message}\n", result.stderr)


def test_all_commands_have_one_name(tmp_path, monkeypatch):
    """`genenv` lists them and runs each like its module."""
    listed = call("__main__")
    assert listed.returncode == 0 and call("__main__", "--help").stdout == listed.stdout
    for name, (module, _) in COMMANDS.items():
        assert re.search(rf"^  {name} ", listed.stdout, re.M)
        place = ROOT / "genenv_jax" / module
        assert place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()
    plain = call("main", QUICK, "--print_config")
    for config in (QUICK, "configs/quickstart.py"):
        through = call("__main__", "train", config, "--print_config")
        assert through.returncode == 0 and through.stdout == plain.stdout
    version = importlib.metadata.version("genenv_jax")
    assert call("__main__", "--version").stdout == f"genenv_jax {version}\n"
    with monkeypatch.context() as patch:
        patch.setattr("genenv_jax.commands._NEEDED", ("absl", "no_such_package"))
        bare = call("__main__", "train", QUICK)
    assert bare.returncode == 2 and len(bare.stderr.splitlines()) == 1
    assert "are not installed in" in bare.stderr and "pip install -e ." in bare.stderr
    wrong = call("__main__", "trian")
    assert wrong.returncode == 2
    assert wrong.stderr == "error: 'trian' is not a command; did you mean train?\n"
    helped = command("__main__", "train", "-h")
    assert helped.returncode == 0 and "\n    genenv train --config=" in helped.stdout
    assert "'None'" not in helped.stdout
    for flag in ("--config", "--workdir", "--arm", "--dry_run", "--num_processes"):
        assert re.search(rf"^  {flag}\b|^  --\[no\]{flag[2:]}:", helped.stdout, re.M), flag


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def get_config()\n  pass", r"SyntaxError: expected ':' \(mine.py, line 1\)$"),
        ("import nothere", r"ModuleNotFoundError: No module named 'nothere' \(mine.py:1\)$"),
        (
            "def get_config():\n  return gruop",
            r"NameError: .*'gruop' is not defined \(mine.py:2 in get_config\)$",
        ),
        ("def get_config():\n  return {}", "get_config returns dict: expected a ConfigDict$"),
        ("x = 1", "no get_config: expected a function that returns a ConfigDict$"),
        ("raise SystemExit(0)", r"SystemExit: 0 \(mine.py:1\)$"),
        ("import signal; signal.raise_signal(15)", None),  # a machine that goes is no mistake
    ],
)
def test_a_mistake_in_a_configuration_file_is_one_line(tmp_path, text, message):
    file = tmp_path / "mine.py"
    file.write_text(f"{text}\n")
    result = command("__main__", "train", str(file), "--dry_run")
    if not message:
        assert result.returncode == 143 and result.stderr.startswith("ended by SIGTERM")
        return
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1
    assert re.match(f"error: --config={file}: {message}", result.stderr)


def test_what_a_configuration_changes_is_shown():
    result = call(
        *("main", QUICK, "--print_config", "--arm=random"),
        *("--config.agent.learning_rate=1e-4", "--config.benchmark.grasp=0.1"),
        "--config.export=False",
    )
    assert result.returncode == 0, result.stderr
    shown = result.stdout.splitlines()
    assert "config.agent.learning_rate = 0.0001  (default: 1e-06)" in shown
    assert "config.benchmark.grasp = 0.1  (default: 0.3)" in shown
    assert "config.simulator.train = False  (default: True)" in shown
    assert not any("curriculum.alpha" in line for line in shown)  # the paper's
    for wrong in ("tasks.teacher.url=http://me:s3cret@h/v1", "agent.learning_rat=1"):
        refused = call("main", QUICK, "--print_config", f"--config.{wrong}")
        assert refused.returncode == 2 and wrong.partition("=")[0] in refused.stderr
        assert "s3cret" not in refused.stdout + refused.stderr


# The default run, shortened.
SHORT = [
    QUICK, "--config.model.make.num_layers=1", "--config.warm_start.steps=20",
    "--config.curriculum.seeds_per_epoch=4", "--config.benchmark.eval_per_depth=4",
    "--config.compilation_cache=False",
]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One epoch of it, finished."""
    directory = tmp_path_factory.mktemp("finished")
    result = command(
        "main", *SHORT, f"--workdir={directory / 'run'}", "--config.epochs=1",
        f"--config.model.make.cache_dir={directory / 'models'}",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return directory


def test_a_run_leaves_what_the_documentation_lists(finished):
    result = command("report", finished / "run")
    assert result.returncode == 0, result.stderr
    assert (finished / "run" / "report" / "report.html").is_file()
    names = {path.name for path in (finished / "run").iterdir()}
    listed = re.search(r"```text\nrun/\n(.*?)```", (ROOT / "docs" / "running.md").read_text(), re.S)[1]
    assert {line.split()[0].rstrip("/") for line in listed.splitlines()} <= names


def test_supervised_writes_the_model_that_main_caches(finished, tmp_path):
    result = call("supervised", *SHORT, f"--out={tmp_path / 'base'}")
    assert result.returncode == 0, result.stderr
    (cached,) = (finished / "models").iterdir()
    name = "tokenizer.json"
    assert (tmp_path / "base" / name).read_bytes() == (cached / name).read_bytes()
    made, kept = (load_file(path / "model.safetensors") for path in (tmp_path / "base", cached))
    assert made.keys() == kept.keys()
    for weight in made:
        # This process has eight devices, the other had one, so sums are split differently.
        np.testing.assert_allclose(made[weight], kept[weight], atol=1e-4)


def test_evaluate_asks_a_server(tmp_path):
    config = [QUICK, "--config.evaluation.max_tasks=6", "--config.evaluation.sampled=2"]
    config += ["--endpoint_model=m", f"--workdir={tmp_path}"]
    with serve(lambda request: f"{request['seed'] + 10}") as (url, requests):
        # Both modes share one budget; the answers that it paid for are kept.
        limited = [f"--endpoint={url}", "--endpoint_budget=125", "--endpoint_concurrency=1"]
        result = call("evaluate", *config, *limited)
        assert result.returncode == 2 and len(requests) == 13
        assert "130 tokens are spent, the limit is 125" in result.stderr.splitlines()[-1]
        result = call("evaluate", *config, f"--endpoint={url}")
        assert result.returncode == 0, result.stderr
        assert len(requests) == 18  # two sampled and a greedy answer each
        assert sorted({request["temperature"] for request in requests}) == [0.0, 1.0]
        assert call("evaluate", *config, f"--endpoint={url}").stdout == result.stdout and len(requests) == 18
    printed = result.stdout.splitlines()
    assert re.match(r"\w+ +sampled +accuracy +0\.\d{3} \[0.*\] +n = \d$", printed[0])
    assert max(map(len, printed[:-1])) <= 80 and printed[-1].startswith("page: ")
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["about"]["model"] == "m" and results["about"]["tasks"] == "6"
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert set(metrics) == set(results["metrics"])
    assert any(name.endswith("/sampled/pass@2") for name in metrics)
    assert [v["samples"] for v in lines(tmp_path, "verdicts.jsonl")] == [2] * 6 + [1] * 6
    predictions = lines(tmp_path, "predictions.jsonl")
    first = predictions[0]
    assert len(predictions) == 18
    tools, *said = first["prompt"]  # tools are sent beside the messages
    sent = [(request["messages"], request["tools"]) for request in requests]
    assert (said, json.loads(tools["content"])) in sent
    assert first["prompt"][-1]["content"] == first["request"]
    assert first["prompt_tokens"] is None  # the server has the tokenizer
    assert "<h2>Metrics</h2>" in (tmp_path / "report.html").read_text()


def test_evaluate_scores_an_exported_player(finished, tmp_path):
    result = call("evaluate", *SHORT, f"--run={finished / 'run'}", f"--workdir={tmp_path}")
    assert result.returncode == 0, result.stderr
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    logged = lines(finished / "run")[-1]
    greedy = {k: v for k, v in metrics.items() if "/greedy/" in k}
    assert greedy and all(logged[name] == value for name, value in greedy.items())
    said = [line.split()[0] for line in result.stderr.splitlines()]
    assert said.index("compile") < said.index("evaluate")
    predictions = lines(tmp_path, "predictions.jsonl")
    assert len(predictions) % 5 == 0  # four sampled answers and a greedy one per task
    assert all(p["prompt_tokens"] > 0 for p in predictions)


@pytest.mark.parametrize(
    "page", ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]
)
def test_the_files_of_a_page_and_its_commands_exist(page):
    """Links, make targets and modules; tests/documented runs commands in code blocks."""
    text, folder = (ROOT / page).read_text(), (ROOT / page).parent
    for path in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text):
        assert re.match(r"https?:", path) or (folder / path).exists(), path
    for path, anchor in re.findall(r"\]\(([^)\s#]*)#([^)\s]+)\)", text):
        if not re.match(r"https?:", path):
            target = (folder / path) if path else ROOT / page
            titles = re.findall(r"^#+ (.+)$", target.read_text(), re.M)
            slugs = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in slugs, f"{path}#{anchor}"
    for target in re.findall(r"`make ([\w-]+)`", text):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), target
    for module in re.findall(r"python -m ((?:genenv_jax|bench|tests)[\w.]*)", text):
        place = ROOT / module.replace(".", "/")
        assert place.with_suffix(".py").is_file() or (place / "__main__.py").is_file(), module
