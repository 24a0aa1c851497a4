"""Programs that are not ours, or start ours elsewhere: their arguments are read as they would read them."""

from __future__ import annotations

import argparse
import pathlib
import re
import shlex
import shutil
import string
import subprocess
import sys

import yaml
from packaging.requirements import Requirement

from tests.commands import ROOT
from tests.documented.blocks import Invocation
from tests.documented.checkout import PLACEHOLDERS, Checkout
from tests.launch import fake_slurm, programs, test_jobset, test_sky


def _parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)


def _parse(parser: argparse.ArgumentParser, arguments) -> argparse.Namespace:
    try:
        return parser.parse_args(list(arguments))
    except (argparse.ArgumentError, SystemExit) as error:
        raise AssertionError(f"{list(arguments)}: {error}") from None


def _taken(arguments) -> bool:
    """Whether genenv_jax.main finds other processes by itself; it must take the arguments."""
    return programs.accepted([PLACEHOLDERS.get(a, a) for a in arguments])


def make(invocation: Invocation, place: Checkout) -> None:
    """make itself, which says what it would do."""
    done = subprocess.run(
        ["make", "--dry-run", *invocation.arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.strip(), done.stderr


def pip(invocation: Invocation, place: Checkout) -> None:
    """A directory is our package; a requirement is one that setup.py or the Makefile has."""
    command, *rest = invocation.arguments
    assert command == "install"
    parser = _parser()
    parser.add_argument("-e", dest="directory")
    parser.add_argument("--no-deps", action="store_true")
    parser.add_argument("requirements", nargs="*", type=Requirement)
    given = _parse(parser, rest)
    assert given.directory or given.requirements
    if given.directory:
        assert (place.root / given.directory / "setup.py").is_file()
    text = (ROOT / "setup.py").read_text() + (ROOT / "Makefile").read_text()
    for wanted in given.requirements:
        (pin,) = wanted.specifier
        pins = re.findall(rf'(?<=["\s]){wanted.name}[=<>~!][\d.,<>=!~]*', text)
        ours = [Requirement(own.rstrip(",")).specifier for own in pins]
        assert pin.operator == "==" and any(own.contains(pin.version) for own in ours), (
            wanted,
            pins,
        )


def docker(invocation: Invocation, place: Checkout) -> None:
    """An image is built from the Dockerfile with arguments that it has, and started with some of main's."""
    command, *rest = invocation.arguments
    if command == "push":
        (name,) = rest
        assert re.fullmatch(r"[\w./-]+:\w+", name), name
        return
    parser = _parser()
    if command == "build":
        parser.add_argument("--build-arg", action="append", default=[])
        parser.add_argument("--tag", required=True)
        parser.add_argument("context")
        given = _parse(parser, rest)
        dockerfile = (place.root / given.context / "Dockerfile").read_text()
        for argument in given.build_arg:
            name, _, value = argument.partition("=")
            assert f"\nARG {name}=" in dockerfile, argument
            assert f'"{value}": [' in (ROOT / "setup.py").read_text(), argument
        return
    assert command == "run", command
    for name in ("hostname", "user", "env", "volume"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rm", action="store_true")
    parser.add_argument("image")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = _parse(parser, rest)
    source, target = given.volume.split(":")
    assert pathlib.Path(source).is_absolute() and re.fullmatch(r"\d+", given.user)
    (workdir,) = (a.partition("=")[2] for a in given.arguments if a.startswith("--workdir="))
    assert workdir.startswith(f"{target}/") and given.env == f"HOME={target}"
    assert _taken(given.arguments) is False


def kubectl(invocation: Invocation, place: Checkout) -> None:
    """What is created is valid, and what is asked about is what is created."""
    verb, *rest = invocation.arguments
    manifest = string.Template(test_jobset.MANIFEST.read_text())
    environment = dict(invocation.environment)
    parser = _parser()
    if verb == "logs":
        parser.add_argument("--follow", action="store_true")
        parser.add_argument("--selector", required=True)
        labels = dict(pair.split("=") for pair in _parse(parser, rest).selector.split(","))
        assert labels["jobset.sigs.k8s.io/jobset-name"] == environment["NAME"]
        assert set(labels) == {
            "jobset.sigs.k8s.io/jobset-name",
            "batch.kubernetes.io/job-completion-index",
        }
        return
    assert verb == "create", verb
    if rest[0] == "secret":
        parser.add_argument("words", nargs=3)
        parser.add_argument("--from-literal", required=True)
        given = _parse(parser, rest)
        (container,) = test_jobset.pod_of(test_jobset.render())["containers"]
        kept = [item["valueFrom"] for item in container["env"] if "valueFrom" in item]
        (key,) = (item["secretKeyRef"] for item in kept)
        assert given.words == ["secret", "generic", key["name"]]
        assert given.from_literal.partition("=")[0] == key["key"]
        return
    parser.add_argument("--dry-run", choices=("client", "server", "none"))
    parser.add_argument("-f", dest="file", required=True)
    assert _parse(parser, rest).file == "-"
    assert invocation.stdin == manifest.substitute(environment)
    created = yaml.safe_load(invocation.stdin)
    assert programs.schema_errors("jobset", created) == []
    assert _taken(test_jobset.container_of(created)["args"]) is True


def sky(invocation: Invocation, place: Checkout) -> None:
    """The task gets all that it asks for, and nothing else."""
    parser = _parser()
    parser.add_argument("words", nargs=2)
    parser.add_argument("task", type=pathlib.Path)
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--secret", action="append", default=[])
    given = _parse(parser, invocation.arguments)
    assert given.words == ["jobs", "launch"]
    task = yaml.safe_load((place.root / given.task).read_text())
    assert task == test_sky.TASK
    values = dict(pair.split("=", 1) for pair in given.env)
    assert set(values) == set(task["envs"]) and set(given.secret) <= set(task["secrets"])
    assert _taken([f"--config={values['CONFIG']}", "--workdir=run"]) is False


def sbatch(invocation: Invocation, place: Checkout) -> None:
    """The script runs, and what it gives srun to start is our program."""
    parser = _parser()
    for name in ("nodes", "gpus-per-node", "ntasks-per-node"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--time", required=True)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = _parse(parser, invocation.arguments)
    assert re.fullmatch(r"\d\d:\d\d:\d\d", given.time)
    assert given.gpus_per_node == given.ntasks_per_node  # one process a GPU
    cluster = fake_slurm.Cluster(place.root / "slurm")
    workdir = f"--workdir={cluster.workdir}"
    arguments = [workdir if a.startswith("--workdir=") else a for a in given.arguments]
    done = cluster.submit(place.root / given.script, *arguments)
    assert done.returncode == 0, done.stderr
    words = shlex.split((cluster.control / "srun").read_text())
    program = words[words.index("genenv_jax.main") + 1 :]
    assert set(arguments) < set(program) and _taken(program) is True


def tpu_vm(invocation: Invocation, place: Checkout) -> None:
    """The launcher itself, which says what it would do."""
    at = invocation.arguments.index("--")
    own, program = invocation.arguments[:at], invocation.arguments[at + 1 :]
    repository = place.root / "repository"
    for name in ("launch", "configs"):
        shutil.copytree(ROOT / name, repository / name)
    identity = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "all"]):
        subprocess.run(["git", *arguments], cwd=repository, check=True)
    done = subprocess.run(
        [repository / invocation.program, *own, "--dry_run", "--", *program],
        cwd=place.root, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "gcloud compute tpus tpu-vm create" in done.stdout, done.stderr
    assert _taken([*program, "--workdir=run"]) is True


def hf(invocation: Invocation, place: Checkout) -> None:
    """The hub's own program knows the command."""
    program = pathlib.Path(sys.executable).with_name("hf")
    done = subprocess.run(
        [program, *invocation.arguments, "--help"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "token" in done.stdout, done.stderr
