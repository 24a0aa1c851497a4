"""Programs that are not ours, or start ours elsewhere: their files exist and their arguments are accepted."""

import itertools
import re
import shlex
import shutil
import subprocess

import yaml
from packaging.requirements import Requirement

from tests.commands import ROOT
from tests.documented.blocks import Invocation
from tests.documented.checkout import PLACEHOLDERS, Checkout
from tests.launch import fake_slurm, programs, test_jobset, test_sky


def taken(invocation: Invocation, place: Checkout | None = None) -> None:
    """Files of ours that the command names exist, and genenv_jax.main accepts the arguments meant for it."""
    words = invocation.arguments
    assert all((ROOT / word).exists() for word in words if word.startswith(("launch/", "configs/")))
    if invocation.flag("config"):
        at = next(i for i, word in enumerate(words) if word.startswith("--config="))
        given = [PLACEHOLDERS.get(a, a) for a in words[at:] if a != "--dry_run"]
        programs.accepted([*given, "--workdir=run"])


def make(invocation: Invocation, place: Checkout) -> None:
    """make itself, which says what it would do."""
    command = ["make", "--dry-run", *invocation.arguments]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.strip()


def pip(invocation: Invocation, place: Checkout) -> None:
    """A pinned version is allowed by setup.py or the Makefile."""
    text = (ROOT / "setup.py").read_text() + (ROOT / "Makefile").read_text()
    for wanted in (Requirement(word) for word in invocation.arguments if "==" in word):
        (pin,) = wanted.specifier
        pins = re.findall(rf'(?<=["\s]){wanted.name}[=<>~!][\d.,<>=!~]*', text)
        ours = [Requirement(own.rstrip(",")).specifier for own in pins]
        assert any(own.contains(pin.version) for own in ours), (wanted, pins)


def kubectl(invocation: Invocation, place: Checkout) -> None:
    """The created manifest is valid."""
    if invocation.stdin:
        created = yaml.safe_load(invocation.stdin)
        assert programs.schema_errors("jobset", created) == []
        assert programs.accepted(test_jobset.container_of(created)["args"]) is True


def sky(invocation: Invocation, place: Checkout) -> None:
    """The task gets every variable that it declares, and no other."""
    taken(invocation)
    words = invocation.arguments
    given = dict(value.split("=") for flag, value in itertools.pairwise(words) if flag == "--env")
    assert set(given) == set(test_sky.TASK["envs"])
    programs.accepted([f"--config={given['CONFIG']}", "--workdir=run"])


def sbatch(invocation: Invocation, place: Checkout) -> None:
    """The script runs and passes the arguments to srun."""
    taken(invocation)
    at = invocation.arguments.index("launch/slurm.sbatch")
    cluster = fake_slurm.Cluster(place.root / "slurm")
    workdir = f"--workdir={cluster.workdir}"
    arguments = [workdir if a.startswith("--workdir=") else a for a in invocation.arguments[at + 1 :]]
    done = cluster.submit(place.root / invocation.arguments[at], *arguments)
    assert done.returncode == 0, done.stderr
    assert set(arguments) < set(shlex.split((cluster.control / "srun").read_text()))


def tpu_vm(invocation: Invocation, place: Checkout) -> None:
    """The launcher itself, which says what it would do."""
    taken(invocation)
    at = invocation.arguments.index("--")
    repository = place.root / "repository"
    for name in ("launch", "configs"):
        shutil.copytree(ROOT / name, repository / name)
    programs.committed(repository)
    words = [*invocation.arguments[:at], "--dry_run", *invocation.arguments[at:]]
    done = subprocess.run(
        [repository / invocation.program, *words],
        cwd=place.root, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "gcloud compute tpus tpu-vm create" in done.stdout, done.stderr
