"""Every command of README.md, CONTRIBUTING.md, docs/, the notebooks' texts and configs/ is run, as it stands.

Bash reads a block of commands and records what it would start (`blocks`).  Each program is of one kind in
`KINDS`, whose function runs it with these arguments and stand-ins for what a test lacks: a reader's models,
directories and clouds, and hours of time.  A new command of no kind fails.
"""

import dataclasses
import functools
import re
import shutil
from collections.abc import Callable

import pytest

from tests.documented import launchers, own
from tests.documented.blocks import COMMANDS, LANGUAGES, Invocation, blocks, invocations
from tests.documented.checkout import Checkout, config_of

pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("bash", "envsubst", "git", "make")),
    reason="needs bash, envsubst, git and make",
)


def on_real_data(invocation):
    return config_of(invocation).benchmark.name not in ("dial", "dial_turns", "custom")


def alone(invocation):
    return not invocation.flag("num_processes")


def of_model(invocation):
    return not invocation.flag("endpoint") and not of_simulator(invocation)


def of_simulator(invocation):
    return invocation.flag("role") == "simulator"


@dataclasses.dataclass(frozen=True)
class Kind:
    """Commands that are run alike.

    Attributes:
      programs: values of `Invocation.program`.
      run: raises AssertionError where the command fails its purpose.
      only: which invocations of these programs.
      needs: marks and fixtures.
    """

    programs: tuple[str, ...]
    run: Callable[[Invocation, Checkout], None]
    only: Callable[[Invocation], bool] = lambda _: True
    needs: tuple[str, ...] = ()


TRAIN, EVALUATE = ("genenv_jax.main",), ("genenv_jax.evaluate",)
SLOW, DATA, RUN = "slow", "data", "finished run"

KINDS = {
    "a dry run": Kind(TRAIN, own.dry_run, lambda i: alone(i) and not on_real_data(i), (SLOW,)),
    "a dry run on real data": Kind(TRAIN, own.dry_run, lambda i: alone(i) and on_real_data(i), (SLOW, DATA)),
    "one of several processes": Kind(TRAIN, launchers.taken, lambda i: not alone(i)),
    "a warm start": Kind(("genenv_jax.supervised",), own.supervised, needs=(SLOW,)),
    "a suite": Kind(("genenv_jax.experiment",), own.experiment, needs=(SLOW,)),
    "a model": Kind(EVALUATE, own.evaluate_model, lambda i: of_model(i) and not on_real_data(i), (SLOW, RUN)),
    "a model on real data": Kind(
        EVALUATE, own.evaluate_model, lambda i: of_model(i) and on_real_data(i), (SLOW, DATA)
    ),
    "a simulator": Kind(EVALUATE, own.evaluate_simulator, of_simulator, (SLOW, DATA)),
    "a server": Kind(EVALUATE, own.evaluate_server, lambda i: bool(i.flag("endpoint")), (SLOW, DATA)),
    "a page": Kind(("genenv_jax.report",), own.report, needs=(SLOW, RUN)),
    "a session": Kind(("genenv_jax.play",), own.play, needs=(SLOW, RUN)),
    "an upload": Kind(("genenv_jax.publish",), own.publish, needs=(SLOW, RUN)),
    "a data set": Kind(("genenv_jax.datasets",), own.datasets, needs=(SLOW,)),
    "parity": Kind(("bench/parity.py",), own.parity, needs=(SLOW, DATA, "torch")),
    "what fits": Kind(("launch/aot_check.py",), own.aot_check, needs=(SLOW,)),
    "arguments alone": Kind(("bench/compare.py", "bench/gpu.py"), own.arguments_alone),
    "make": Kind(("make",), launchers.make),
    "pip": Kind(("pip",), launchers.pip),
    "of no own check": Kind(("docker", "hf"), launchers.taken),
    "kubectl": Kind(("kubectl",), launchers.kubectl),
    "sky": Kind(("sky",), launchers.sky),
    "sbatch": Kind(("sbatch",), launchers.sbatch),
    "tpu_vm.sh": Kind(("launch/tpu_vm.sh",), launchers.tpu_vm),
}
# Programs whose results the shell needs; bash has run them.
TOOLS = ("envsubst", "id", "mkdir")
# Programs that a test cannot run, and why.
NOT_RUN = {
    "vllm": "a server that needs an accelerator; tests/evaluate asks a stand-in",
    "sglang.launch_server": "likewise",
    "gcsfuse": "mounts a bucket of a cloud; tests/launch starts a stand-in",
}


@functools.cache
def shown() -> dict[tuple, Invocation]:
    """What the documentation starts, by program, arguments and input; each at its first appearance."""
    found = {}
    for block in blocks():
        if block.language == COMMANDS:
            for one in invocations(block):
                found.setdefault((one.program, one.arguments, one.stdin), one)
    return found


@functools.cache
def _module(invocation):
    """The invocation's program; for a command of `genenv`, the module that it runs."""
    program = invocation.program.replace("genenv ", "genenv_jax.")
    return "genenv_jax.main" if program == "genenv_jax.train" else program


def kinds_of(invocation):
    """Names of the invocation's kinds; exactly one, if all is well."""
    return [
        name for name, kind in KINDS.items() if _module(invocation) in kind.programs and kind.only(invocation)
    ]


def test_every_block_says_whether_it_holds_commands():
    programs = {program for kind in KINDS.values() for program in kind.programs} | {"python"}
    started = re.compile(rf"(?:{'|'.join(map(re.escape, sorted(programs)))}) ")
    for block in blocks():
        where = f"{block.page}:{block.line}"
        assert block.language in LANGUAGES, f"{where}: expected one of {LANGUAGES} behind the fence"
        if block.language != COMMANDS:
            assert not any(map(started.match, block.text.splitlines())), f"{where}: has a command"


def test_every_command_is_of_one_kind():
    assert len(shown()) > 60
    for invocation in shown().values():
        if invocation.program in (*TOOLS, *NOT_RUN):
            assert kinds_of(invocation) == []
            continue
        assert len(kinds_of(invocation)) == 1, (
            f"{invocation.where}: {invocation.program} {' '.join(invocation.arguments)}: expected one "
            f"kind of command, found {kinds_of(invocation)}; see KINDS"
        )


def test_every_kind_is_shown():
    """An entry above that no page uses is obsolete."""
    assert {name for invocation in shown().values() for name in kinds_of(invocation)} == set(KINDS)
    assert {*TOOLS, *NOT_RUN} <= {invocation.program for invocation in shown().values()}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return Checkout.make(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    place = Checkout.make(tmp_path_factory.mktemp("finished"))
    place.make_run()
    return place


def _case(name):
    marks = [getattr(pytest.mark, mark) for mark in KINDS[name].needs if mark in (SLOW, DATA)]
    return pytest.param(name, marks=marks, id=name)


@pytest.mark.parametrize("name", [_case(name) for name in KINDS])
def test_commands(name, request, checkout):
    """All commands of a kind run before the failed ones are named."""
    kind, failed = KINDS[name], []
    if DATA in kind.needs:
        request.getfixturevalue("monkeypatch").setenv("GENENV_DATA", str(request.getfixturevalue("data_dir")))
    if "torch" in kind.needs:
        pytest.importorskip("torch")
    place = request.getfixturevalue("finished") if RUN in kind.needs else checkout
    ran = set()
    for invocation in shown().values():
        # Some differ only in a model's name, which `arguments` replaces.
        alike = (invocation.program.split()[-1], *sorted(place.arguments(invocation)), invocation.stdin)
        if name in kinds_of(invocation) and alike not in ran:
            ran.add(alike)
            try:
                kind.run(invocation, place)
            except Exception as error:
                words = " ".join([invocation.program, *invocation.arguments])
                failed.append(f"{invocation.where}: {words}\n{type(error).__name__}: {error}")
    assert not failed, "\n\n".join(failed)
