import collections
import json
import random
import re
import signal

import pytest
import tensorstore

from bench.kill.comparison import differences, not_prefixes
from bench.kill.runs import PHASES, batches, plan
from tests.commands import command


def test_the_plan_has_every_strike_and_follows_from_the_seed():
    strikes = plan(20, 3, random.Random(1))
    counts = collections.Counter(strikes)
    for phase in PHASES:
        assert counts[signal.SIGTERM, phase] == counts[signal.SIGINT, phase] == 3
        assert counts[signal.SIGKILL, phase] in (2, 3)
    assert strikes == plan(20, 3, random.Random(1)) != plan(20, 3, random.Random(2))
    phases = [phase for _, phase in strikes]
    assert phases[0] == "warm start" and phases[-1] == "export"
    runs = batches(strikes, 20)
    assert collections.Counter(s for run in runs for s in run) == counts
    assert max(map(len, runs)) <= 20
    for run in runs:
        assert run[0][1] == "warm start" and run[-1][1] == "export"
    assert batches([], 20) == [[]]


@pytest.fixture
def workdirs(tmp_path):
    """The compared parts of two runs; they differ only where runs may."""
    for i, name in enumerate(("a", "b")):
        workdir = tmp_path / name / "run"
        for item in ("agent", "simulator"):
            directory = workdir / "checkpoints" / "1" / item
            directory.mkdir(parents=True)
            spec = {"driver": "ocdbt", "base": f"file://{directory}/"}
            tensorstore.KvStore.open(spec).result().write("x/0", b"weights").result()
        (workdir / "checkpoints" / "1" / "host").mkdir()
        settings = {"seed": 0, "export": bool(i), "cache": str(workdir.parent / "models")}
        host = {
            "parts": {"settings": settings},
            "offsets": {"timing": i, "tasks": 5},
            "digests": {"timing": i},
        }
        (workdir / "checkpoints" / "1" / "host" / "metadata").write_text(json.dumps(host))
        (workdir / "config.json").write_text(json.dumps(settings))
        (workdir / "tasks.jsonl").write_text("1\n2\n3\n")
        (workdir / "timing.jsonl").write_text(str(i))
    return [tmp_path / name / "run" for name in ("a", "b")]


def test_the_comparison_finds_a_difference(workdirs):
    a, b = workdirs
    assert differences(a, b) == [] and not_prefixes(a, b) == []
    spec = {"driver": "ocdbt", "base": f"file://{a / 'checkpoints/1/agent'}/"}
    tensorstore.KvStore.open(spec).result().write("x/0", b"others").result()
    (a / "agent").mkdir()
    (a / "agent" / "config.json").touch()
    (a / "config.json").write_text(json.dumps(json.loads((a / "config.json").read_text()) | {"seed": 1}))
    (a / "tasks.jsonl").write_text("1\n2")
    wrong = ["agent/config.json", "checkpoints/1/agent/x/0", "config.json", "tasks.jsonl"]
    assert differences(a, b) == differences(b, a) == wrong
    assert not_prefixes(a, b) == []
    (a / "tasks.jsonl").write_text("1\n3\n")
    assert not_prefixes(a, b) == ["tasks.jsonl"]


@pytest.mark.slow
def test_a_few_strikes_of_each_kind(tmp_path):
    flags = [
        "--config=tests/run_toy.py", "--kills=3", "--signals=1", "--epochs=2", f"--out={tmp_path}",
        "--per_run=100",
    ]  # fmt: skip
    done = command("bench.kill", *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"(SIG\w+) .*  equal: (\d+)", done.stdout)
    assert {name for name, _ in found} == {"SIGKILL", "SIGTERM", "SIGINT"}
    assert sum(int(count) for _, count in found) >= 10
