"""A few hundred generated texts, finds of longer runs, and detection of planted bugs."""

import json
import pathlib

import pytest

from bench.fuzz import guard, loop, texts
from bench.fuzz.promises import BrokenPromiseError, check_score
from bench.fuzz.targets import Target
from genenv_jax.benchmarks.base import Score
from tests.benchmarks import small
from tests.commands import ROOT, command

FINDS = sorted((pathlib.Path(__file__).parent / "finds").glob("*.json"))
LIMIT = 5.0  # CPU seconds of one input: more than in a run, since other tests go on beside these


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    files = small.write(tmp_path_factory.mktemp("small"))
    return loop.all_targets(tmp_path_factory.mktemp("fuzz"), "", files, only_small=True)


def mended(target, subject, written):
    verdict = loop.run(target, subject, written, LIMIT)
    assert verdict.outcome not in (guard.CRASH, guard.HANG), (target.name, written, verdict.detail)


@pytest.mark.parametrize("find", FINDS, ids=lambda path: path.stem)
def test_what_was_found_stays_mended_at_every_target(targets, find):
    written = json.loads(find.read_text())["texts"]
    for target in targets:
        for subject in range(0, len(target.subjects), 1 + len(target.subjects) // 12):
            mended(target, subject, written if target.most > 1 else written[:1])


def test_generated_texts_have_typed_outcomes(targets):
    for target in targets:
        for index in range(10):
            mended(target, *target.draw(0, index))


def test_an_input_depends_on_seed_and_number_alone(targets):
    for target in targets[:3] + targets[-3:]:
        drawn = [target.draw(7, index) for index in range(5)]
        assert drawn == [target.draw(7, index) for index in range(5)]
        assert drawn != [target.draw(8, index) for index in range(5)]


def test_texts_are_of_many_kinds():
    rng = texts.random.Random(0)
    right = '[f(a=1, b="x")]'
    written = [texts.write(rng, [right]) for _ in range(500)]
    assert len(set(written)) > 300 and right in written
    assert max(map(len, written)) > 5_000 and any(not text.isascii() for text in written)
    assert any(text.startswith("[f(") and text.endswith(")]") and text != right for text in written)


def broken(_, written):
    (text,) = written
    if "!" in text:
        raise KeyError(text)
    while "?" in text:
        pass
    return "read"


TARGET = Target("broken", (None,), lambda _: ["Hello!"], broken)


def test_crashes_and_hangs_are_found_and_saved_smaller(tmp_path):
    written = ["What a text this is! It has many words."]
    verdict = loop.run(TARGET, 0, written, LIMIT)
    assert verdict.outcome == guard.CRASH and verdict.where.startswith("KeyError test_fuzz.py")
    loop.save(tmp_path, TARGET, 0, written, verdict)
    (saved,) = tmp_path.iterdir()
    assert json.loads(saved.read_text())["texts"] == ["!"]
    hanging = loop.run(TARGET, 0, ["What?"], 0.05)
    assert hanging.outcome == guard.HANG and hanging.seconds < 1.0
    assert loop.run(TARGET, 0, ["What."], 0.05).outcome == "read"


@pytest.mark.parametrize(
    ("score", "says"),
    [
        (Score(float("nan"), False, True, "x"), "reward"),
        (Score(1, True, True), "reward"),
        (Score(0.0, False, False, "Not a word"), "reason"),
        (Score(0.0, False, False, "malformed_task_keyerror"), "an exception in score"),
        (Score(0.0, False, True, "x", {"f1": float("inf")}), "Infinity"),
    ],
)
def test_an_outcome_that_is_not_as_promised_is_a_find(score, says):
    with pytest.raises(BrokenPromiseError, match=says):
        check_score(score)


@pytest.mark.slow
def test_the_command(tmp_path):
    done = command("bench.fuzz", "--texts=20", "--names=dial", f"--out={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert "| dial answer |" in done.stdout and "crashes 0, hangs 0" in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_process_that_dies_is_a_find_and_another_one_goes_on(tmp_path):
    program = f"""
import os, pathlib
from bench.fuzz import loop, __main__ as command
if __name__ == "__main__":
    raise SystemExit(command.main(["--texts=30", "--names=dial answer", "--out={tmp_path / "out"}"]))
else:
    from genenv_jax.benchmarks.dial.chains import Dial
    score = Dial.score
    Dial.score = lambda self, task, text: os.abort() if len(text) > 900 else score(self, task, text)
"""
    script = tmp_path / "dies.py"
    script.write_text(program)
    done = command(str(script), PYTHONPATH=str(ROOT))
    assert done.returncode == 1, done.stderr
    (saved,) = (tmp_path / "out").iterdir()
    assert len(json.loads(saved.read_text())["texts"][0]) > 900
    assert "crashes" in done.stdout and "hangs 0" in done.stdout
