"""progress.py with a clock that the tests move."""

from __future__ import annotations

import io
import math
import os
import re

import pytest

from genenv_jax.progress import Progress, format_seconds


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Terminal(io.StringIO):
    def isatty(self):
        return True


def rewrites(text):
    """What each rewrite of a live line leaves on the screen's last line."""
    return [part.rstrip() for part in text.split("\r")[1:]]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(autouse=True)
def columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")


def run_epoch(progress, clock, epoch, generate=10.0, update=20.0, other=0.0):
    with progress.phase("generate", total=100, unit="tasks") as phase:
        clock.sleep(generate)
        phase.advance(100)
    with progress.phase("update"):
        clock.sleep(update)
    clock.sleep(other)
    progress.epoch_done(epoch)


def test_a_pipe_gets_one_plain_line_at_each_end(clock):
    stream = io.StringIO()
    progress = Progress(10, stream=stream, clock=clock)
    with progress.phase("generate", total=256, unit="tasks") as phase:
        for _ in range(256):
            clock.sleep(0.25)
            phase.advance()
        assert stream.getvalue() == ""
    with progress.phase("update agent"):
        clock.sleep(5)
    clock.sleep(1)
    progress.epoch_done(1, summary="p̂ 0.48  held-out 0.55")
    assert stream.getvalue().splitlines() == [
        "epoch 1/10  generate  256 tasks in 1:04  4 tasks/s",
        "epoch 1/10  update agent  in 5.0 s",
        "epoch 1/10  done in 1:10  p̂ 0.48  held-out 0.55  run left 10:30",
    ]
    assert all(c == "\n" or c.isprintable() for c in stream.getvalue())


def test_a_terminal_gets_a_live_line_five_times_a_second(clock):
    stream = Terminal()
    progress = Progress(3, stream=stream, clock=clock)
    with progress.phase("rollouts", total=1000, unit="rollouts") as phase:
        for _ in range(1000):
            clock.sleep(0.01)
            phase.advance()
    lines = rewrites(stream.getvalue())
    assert 45 <= len(lines) <= 52  # ten seconds: at most 50 redraws, the first and the last line
    assert lines[0] == "epoch 1/3  rollouts  0/1,000 rollouts  (0%)  elapsed 0.0 s"
    shown = [
        re.fullmatch(
            r"epoch 1/3  rollouts  (\d+|1,000)/1,000 rollouts  \((\d+)%\)  100 rollouts/s  "
            r"elapsed (\S+(?: s)?)  phase left (\S+(?: s)?)",
            line,
        )
        for line in lines[1:-1]
    ]
    assert all(shown)
    assert lines[-1] == "epoch 1/3  rollouts  1,000 rollouts in 0:10  100 rollouts/s"
    assert stream.getvalue().endswith("\n")
    assert stream.getvalue().count("\n") == 1


def test_a_shorter_line_wipes_the_longer_one(clock):
    stream = Terminal()
    progress = Progress(1, stream=stream, clock=clock)
    with progress.phase("generate") as phase:
        clock.sleep(0.9)
        phase.advance(3)  # 3.33 items/s
        clock.sleep(0.6)
        phase.advance(3)  # 4 items/s
        progress.write("a note")
    _, _, longer, shorter, *rest = stream.getvalue().split("\r")
    assert len(shorter.rstrip()) < len(longer)
    assert len(shorter) == len(longer)
    note = rest[0].partition("\n")[0]
    assert note.rstrip() == "a note"
    assert len(note) >= len(shorter.rstrip())


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (
            120,
            "epoch 2/3  generate  50/100 tasks  (50%)  10 tasks/s  elapsed 5.0 s  "
            "phase left 5.0 s  run left 0:55",
        ),
        (80, "epoch 2/3  generate  50/100 tasks  10 tasks/s  phase left 5.0 s  run left 0:55"),
        (70, "epoch 2/3  generate  50/100 tasks  phase left 5.0 s  run left 0:55"),
        (56, "generate  50/100 tasks  phase left 5.0 s  run left 0:55"),
        (12, "generate  5"),
    ],
)
def test_the_live_line_fits_the_terminal(clock, monkeypatch, columns, line):
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    progress = Progress(3, stream=stream, clock=clock)
    run_epoch(progress, clock, 1)
    with progress.phase("generate", total=100, unit="tasks") as phase:
        clock.sleep(5)
        phase.advance(50)
        assert rewrites(stream.getvalue())[-1] == line
        assert len(line) < columns


def test_phase_numbers(clock):
    progress = Progress(1, stream=io.StringIO(), clock=clock)
    with progress.phase("generate", total=40) as phase:
        assert (phase.rate, phase.remaining) == (None, None)
        clock.sleep(5)
        phase.advance(10)
        assert (phase.elapsed, phase.rate, phase.remaining) == (5.0, 2.0, 15.0)
        phase.advance(40)  # more than announced: nothing is left, never less
        assert phase.remaining == 0.0
        with pytest.raises(ValueError, match="non-negative"):
            phase.advance(-1)
    clock.sleep(100)
    assert phase.elapsed == 5.0


def test_seconds_by_phase_of_the_current_epoch(clock):
    progress = Progress(2, stream=io.StringIO(), clock=clock)
    with progress.phase("generate"):
        clock.sleep(3)
    with progress.phase("update"):
        clock.sleep(1)
    with progress.phase("generate"):
        clock.sleep(2)
        assert progress.seconds == {"generate": 5.0, "update": 1.0}
    assert progress.seconds == {"generate": 5.0, "update": 1.0}
    progress.seconds["generate"] = 0.0
    assert progress.seconds["generate"] == 5.0
    progress.epoch_done(1)
    assert progress.seconds == {}


def test_remaining_time_of_the_run(clock):
    progress = Progress(4, stream=io.StringIO(), clock=clock)
    assert progress.remaining is None
    with progress.phase("evaluate", epoch=0):
        clock.sleep(500)
    progress.epoch_done(0)
    assert progress.remaining is None  # the evaluation before training is no epoch
    run_epoch(progress, clock, 1, generate=100, update=100)  # compiles
    assert progress.remaining == pytest.approx(3 * 200)
    run_epoch(progress, clock, 2, generate=10, update=20, other=2)
    assert progress.remaining == pytest.approx(32 + 32)
    with progress.phase("generate", total=100, unit="tasks") as phase:
        clock.sleep(4)
        assert progress.remaining == pytest.approx(32 + 6 + 20 + 2)  # no rate yet: the usual time
        phase.advance(50)
        assert progress.remaining == pytest.approx(32 + 4 + 20 + 2)  # 4 s left at this rate
        clock.sleep(4)
        phase.advance(50)
    assert progress.remaining == pytest.approx(32 + 20 + 2)
    with progress.phase("update"):
        clock.sleep(50)
        assert progress.remaining == pytest.approx(32 + 2)  # later than usual, never negative
    progress.epoch_done(3)
    run_epoch(progress, clock, 4)
    assert progress.remaining == 0.0


def test_a_resumed_run_counts_only_its_own_epochs(clock):
    stream = io.StringIO()
    progress = Progress(10, stream=stream, start_epoch=7, clock=clock)
    assert progress.remaining is None
    run_epoch(progress, clock, 8)
    assert progress.remaining == pytest.approx(2 * 30)
    assert stream.getvalue().startswith("epoch 8/10  generate")


def test_before_training_is_named(clock):
    stream = io.StringIO()
    progress = Progress(2, stream=stream, clock=clock)
    with progress.phase("evaluate", total=2, unit="tasks", epoch=0) as phase:
        clock.sleep(1)
        phase.advance(2)
    progress.epoch_done(0, summary="held-out 0.31")
    assert stream.getvalue().splitlines() == [
        "before training  evaluate  2 tasks in 1.0 s  2 tasks/s",
        "before training  done in 1.0 s  held-out 0.31",
    ]


def test_a_failure_passes_through_and_is_shown(clock):
    stream = io.StringIO()
    progress = Progress(1, stream=stream, clock=clock)
    with pytest.raises(KeyError), progress.phase("update", total=9, unit="steps") as phase:
        clock.sleep(2)
        phase.advance(4)
        raise KeyError("lost")
    assert stream.getvalue() == "epoch 1/1  update  4/9 steps stopped after 2.0 s  2 steps/s\n"
    with progress.phase("update"):  # the display is free again
        pass


def test_misuse_is_refused(clock):
    with pytest.raises(ValueError, match="start_epoch 3"):
        Progress(2, stream=io.StringIO(), start_epoch=3, clock=clock)
    progress = Progress(2, stream=io.StringIO(), start_epoch=1, clock=clock)
    with progress.phase("generate"):
        with (
            pytest.raises(RuntimeError, match="'update' begins inside phase 'generate'"),
            progress.phase("update"),
        ):
            raise AssertionError("unreachable")
        with pytest.raises(RuntimeError, match="ends inside phase"):
            progress.epoch_done(1)
    for epoch in (0, 3):
        with pytest.raises(ValueError, match=f"epoch {epoch} is not in 1..2"):
            progress.epoch_done(epoch)


def test_control_characters_do_not_reach_the_stream(clock):
    stream = io.StringIO()
    progress = Progress(1, stream=stream, clock=clock)
    progress.epoch_done(1, summary="a\x1b[2Jb\r\nc\u202e")
    assert stream.getvalue().count("\n") == 1
    assert all(c == "\n" or c.isprintable() for c in stream.getvalue())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_narrow_encoding_does_not_stop_the_run(clock, encoding):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    Progress(1, stream=stream, clock=clock).epoch_done(1, summary="p̂ 0.5")
    stream.flush()
    assert raw.getvalue().startswith(b"epoch 1/1  done in 0.0 s  p? 0.5")


def test_a_closed_or_broken_stream_does_not_stop_the_run(clock):
    closed = io.StringIO()
    progress = Progress(2, stream=closed, clock=clock)
    closed.close()
    run_epoch(progress, clock, 1)
    reader, writing = os.pipe()
    with os.fdopen(writing, "w") as broken:
        progress = Progress(2, stream=broken, clock=clock)
        os.close(reader)
        run_epoch(progress, clock, 1)
        assert progress.remaining == pytest.approx(30)
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)  # so that closing can flush


def test_the_default_stream_is_stderr_at_that_moment(clock, capsys):
    Progress(1, clock=clock).write("hello")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "hello\n")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1e-9, "0.0 s"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "0:10"),
        (59.6, "1:00"),
        (3599.7, "1:00:00"),
        (90_061, "25:01:01"),
    ],
)
def test_format_seconds(seconds, text):
    assert not math.isnan(seconds)
    assert format_seconds(seconds) == text


def test_work_outside_a_run_does_not_claim_that_nothing_is_left():
    stream = io.StringIO()
    with Progress(0, stream).phase("train base model", total=2, unit="steps") as phase:
        phase.advance(2)
    assert "train base model" in stream.getvalue()
    assert "run left" not in stream.getvalue()
