"""docs/your_benchmark.md to the letter: its files in an empty directory do what it says."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from genenv_jax.benchmarks import demonstrations, registry
from genenv_jax.scoring.verification import inspect
from tests.commands import COMPILE_FAST, ROOT
from tests.runs import lines

GUIDE = (ROOT / "docs/your_benchmark.md").read_text()
FILES = re.compile(r"`([\w.]+)`[^`\n]*:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LAMPS = ("hall", "kitchen", "study", "porch", "cellar")
_PRINTED = re.compile(r"`python look.py` prints\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def directory(tmp_path):
    """The files that the guide asks for, and configs/custom.py."""
    (tmp_path / "configs").mkdir()
    shutil.copy(ROOT / "configs/custom.py", tmp_path / "configs")
    for name, text in FILES.findall(GUIDE):
        (tmp_path / name).write_text(text)
    return tmp_path


def run(directory, command):
    """Runs a command from the guide."""
    environment = os.environ | {
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": COMPILE_FAST,
    }
    where = {"cwd": directory, "env": environment, "timeout": 900}
    command = ["bash", "-ec", command]
    done = subprocess.run(command, **where, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def test_the_class_does_what_is_printed_there(directory):
    assert {path.name for path in directory.iterdir()} == {
        "configs", "facts.jsonl", "lamps.py", "look.py", "units.py",
    }  # fmt: skip
    assert len((directory / "units.py").read_text().splitlines()) <= 50
    (printed,) = _PRINTED.findall(GUIDE)
    assert run(directory, "python look.py") == printed


def test_an_environment_fits_into_40_lines(directory, monkeypatch):
    """Its solution wins, a wrong answer loses, and the simulator's tasks are played before use."""
    assert len((directory / "lamps.py").read_text().splitlines()) <= 40
    monkeypatch.chdir(directory)
    monkeypatch.setattr(sys, "path", [*sys.path])
    lamps = registry.make_benchmark("gymnasium", env="lamps:Lamps", held_out_tasks=8)
    seeds, held_out = lamps.tasks("seed"), lamps.tasks("eval")
    assert len(held_out) <= 8 and len(seeds) + len(held_out) == 25  # all tasks
    for task in (*seeds, *held_out):
        assert lamps.verify(task) is None and lamps.score(task, "switch attic\ndone").reward == 0
        messages, transcript = demonstrations.reference(lamps, task)
        assert messages[-1]["content"].startswith("Switch on: ") and transcript.answers[-1] == "done"
        assert transcript.replies[0][0]["content"] in [f"on: {lamp}" for lamp in LAMPS]
    keys = {"done": True, "seed": seeds[0], "task_id": "new", "generation": 0}
    for text, reason in (
        (lamps.simulator_answer(seeds[1]), ""),
        ('{"options": {"on": ["study", "porch", "hall", "cellar"]}}', ""),
        ('{"options": {"on": ["attic"]}}', "not_executable"),
        ('{"options": {"off": ["hall"]}}', "not_executable"),
        ('{"seed": 3}', "unparsable"),
        ("the porch", "unparsable"),
    ):
        found = inspect(lamps, text, **keys)
        assert getattr(found, "reason", "") == reason


def test_the_file_has_seeds_and_held_out_questions(directory):
    facts = registry.make_benchmark("custom", train=str(directory / "facts.jsonl"))
    seeds, held_out = facts.tasks("seed"), facts.tasks("eval")
    assert len(seeds) + len(held_out) == 11 and len(held_out) >= 2
    assert {task.answer["checker"] for task in seeds} == {"exact", "f1", "numeric", "call"}


@pytest.mark.slow
def test_the_commands_run(directory):
    """Two epochs each, the page, and the agent's score."""
    of_class, from_scratch, _, of_environment, of_file = _COMMANDS.findall(GUIDE)
    said = run(directory, of_class)
    row = r"^test +sampled +accuracy +\d\.\d{3} \[.*\] +n = 12$"
    assert re.search(row, said, re.MULTILINE), said
    assert "accuracy_km to m" in (directory / "runs/units-scores/results.json").read_text()
    assert (directory / "runs/units/report/report.html").is_file()
    run(directory, f"{from_scratch.rstrip()} --config.warm_start.steps=20 --config.epochs=2")
    run(directory, of_environment)
    run(directory, of_file)
    for name in ("units", "units-scratch", "lamps", "facts"):
        assert lines(directory / "runs" / name)[-1]["step"] == 2
        assert lines(directory / "runs" / name, "tasks.jsonl")


LOOSE = """
import dataclasses

from genenv_jax.benchmarks.custom.benchmark import Custom, Question


@dataclasses.dataclass(kw_only=True, eq=False)
class Loose(Custom):
    name = "loose"
    shift: int = 0

    def questions(self, split):
        return [Question(f"{split} number {number} of a few", "yes") for number in range(8)]

    def parse(self, text, seed, task_id, generation):
        said = {"role": "user", "content": ascii(text)[:200]}
        return dataclasses.replace(
            seed, id=task_id, messages=(said,), seed_id=seed.id, origin="generated", generation=generation
        )

    def grade(self, question, answer):
        return float(answer == "yes" or (len(answer) + len(question.prompt)) % 2 == self.shift)
"""


@pytest.mark.slow
def test_a_class_is_trained_on_in_worker_processes_and_continued(directory):
    """A barely trained model solves this one half of the time, so every part has something to do."""
    (directory / "loose.py").write_text(LOOSE)
    command = (
        "python -m genenv_jax.main --config=configs/custom.py:debug --workdir=runs/loose "
        "--config.benchmark.name=loose:Loose --config.verification.near_duplicate=0.0 "
        "--config.compile_ahead=False --config.simulator.variations=8 --config.epochs="
    )
    run(directory, f"{command}1")
    run(directory, f"{command}2")
    accepted = [t for t in lines(directory / "runs/loose", "tasks.jsonl") if t["task"]]
    assert {t["epoch"] for t in accepted} == {1, 2}
    assert {t["task"]["benchmark"] for t in accepted} == {"loose"}
    assert 0 < sum(t["successes"] for t in accepted) < sum(t["attempts"] for t in accepted)
    assert lines(directory / "runs/loose", "d_train.jsonl")
    (directory / "loose.py").write_text(LOOSE.replace("a few", "some"))
    with pytest.raises(AssertionError, match="holds a run whose tasks were"):
        run(directory, f"{command}3")
