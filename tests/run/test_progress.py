"""The progress display, with a clock that the tests move."""

import io
import re
import time

import pytest

from genenv_jax.run.progress import Progress, format_seconds


class Clock:
    """Seconds that pass only when told to."""

    now = 1000.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Broken(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


@pytest.fixture
def clock():
    return Clock()


def epoch(progress, clock, number, seconds=30.0, cells=None):
    with progress.phase("generate", total=100, unit="tasks") as phase:
        clock.sleep(seconds)
        phase.advance(100)
    progress.epoch_done(number, cells)


def test_a_pipe_gets_one_plain_line_at_each_end(clock):
    stream = io.StringIO()
    progress = Progress(10, stream=stream, clock=clock)
    with progress.phase("evaluate", total=20, unit="answers", epoch=0) as phase:
        clock.sleep(5)
        phase.advance(20)
    progress.epoch_done(0)
    epoch(progress, clock, 1, 20.0, {"p̂": "", "valid": "50%"})
    with progress.phase("update"):
        clock.sleep(65)
    assert stream.getvalue().splitlines() == [
        "before training  evaluate  20 answers in 5.0 s  4 answers/s",
        "before training  done in 5.0 s",
        "epoch 1/10  generate  100 tasks in 0:20  5 tasks/s",
        "epoch 1/10  done in 0:20  valid 50%  run left 3:00",
        "epoch 2/10  update  in 1:05",
    ]


def test_a_long_phase_and_one_that_is_cut_short_say_how_far_they_came(clock):
    stream = io.StringIO()
    progress = Progress(1, stream=stream, clock=clock)
    with pytest.raises(KeyboardInterrupt), progress.phase("interact", 8, "rollouts") as phase:
        for _ in range(4):
            clock.sleep(25)
            phase.advance()
        raise KeyboardInterrupt
    with Progress(0, stream=stream, clock=clock).phase("train base model", 3, "steps") as phase:
        clock.sleep(1)
        phase.advance(3)
    assert stream.getvalue().splitlines() == [
        "epoch 1/1  interact  3/8 rollouts after 1:15  0.04 rollouts/s",
        "epoch 1/1  interact  4/8 rollouts stopped after 1:40  0.04 rollouts/s",
        "train base model  3 steps in 1.0 s  3 steps/s",  # outside of a run
    ]


def test_the_time_left_leaves_compiling_out(clock):
    compiled = [0.0]
    progress = Progress(10, stream=io.StringIO(), clock=clock, compiling=lambda: compiled[0])
    assert progress.remaining is None
    clock.sleep(500)  # before the first epoch
    progress.epoch_done(0)
    assert progress.remaining is None
    compiled[0] = 90.0
    epoch(progress, clock, 1, 10.0)
    assert progress.remaining == pytest.approx(0.0)  # all of it was compiling
    progress = Progress(10, stream=io.StringIO(), clock=clock, compiling=lambda: compiled[0])
    progress.epoch_began()
    compiled[0] += 90.0
    epoch(progress, clock, 1, 100.0)
    assert progress.remaining == pytest.approx(90.0)
    epoch(progress, clock, 2, 10.0)
    assert progress.remaining == pytest.approx(80.0)
    clock.sleep(4)
    assert progress.remaining == pytest.approx(76.0)
    resumed = Progress(10, done=8, stream=io.StringIO(), clock=clock)
    epoch(resumed, clock, 9, 12.0)
    assert resumed.remaining == pytest.approx(12.0)
    epoch(resumed, clock, 10, 12.0)
    assert resumed.remaining == 0.0


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


def test_a_terminal_has_a_line_that_goes(clock, terminal):
    """Each epoch leaves one row; a phase before the first one leaves a line."""
    progress = Progress(2, stream=terminal, clock=clock)
    with progress.phase("compile", total=4, unit="parts", epoch=0) as phase:
        clock.sleep(4.5)
        phase.advance(3)
        clock.sleep(3.5)
        progress._live.refresh()
        phase.advance()
    drawn = terminal.getvalue()
    assert "3/4 parts" in drawn and "0:00:08" in drawn and "\x1b[2K" in drawn
    assert "before training  compile  4 parts in 8.0 s  0.5 parts/s\n" in drawn
    progress.epoch_done(0, {"held-out": "0.25"})
    epoch(progress, clock, 1, 30.0, {"held-out": "0.31"})
    lines = [re.split(r"\x1b\[\S*[a-zA-Z]", line)[-1] for line in terminal.getvalue().splitlines()]
    rows = [line for line in lines if line.startswith("  ")]
    assert rows[0].split() == ["epoch", "held-out", "time", "left"]
    assert rows[1].split() == ["0/2", "0.25", "8.0", "s"]
    assert rows[2].split() == ["1/2", "0.31", "0:30", "0:30"]
    assert "generate" not in rows[2] and not progress._live.live.is_started


def test_the_longest_line_fits_eighty_columns(clock, terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    progress = Progress(20, done=19, stream=terminal, clock=clock)
    with progress.phase("interact and update agent", 5700, "rollouts") as phase:
        for _ in range(2):
            clock.sleep(4.0)
            phase.advance(500)
            progress._live.refresh()
    drawn = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", d) for d in terminal.getvalue().split("\r")]
    (line,) = {d.rstrip() for d in drawn if "1,000/5,700" in d}
    assert line.startswith("epoch 20/20  interact") and line.endswith("0:00:08 00:38")
    assert len(line) <= 80 and not any("\n" in d.strip("\n") for d in drawn)


def test_the_line_is_redrawn_by_a_clock(terminal):
    """While a phase makes no progress."""
    with Progress(1, stream=terminal).phase("compile", total=4, unit="parts"):
        before = len(terminal.getvalue())
        deadline = time.monotonic() + 20
        while len(terminal.getvalue()) == before:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_phases_inside_one_another_and_a_failure_leave_no_line(clock, terminal):
    progress = Progress(1, stream=terminal, clock=clock)
    with pytest.raises(KeyboardInterrupt), progress.phase("update"), progress.phase("score", 3):
        raise KeyboardInterrupt
    lines = [line.split("\x1b[2K")[-1] for line in terminal.getvalue().splitlines()]
    assert [line for line in lines if "stopped" in line] == [
        "epoch 1/1  score  stopped after 0.0 s",
        "epoch 1/1  update  stopped after 0.0 s",
    ]
    assert not progress._live.live.is_started
    assert "\x1b[?25h" in terminal.getvalue()  # the cursor is back


def test_a_display_never_stops_a_run(clock, capsys):
    """Silent, into a broken pipe, into a terminal that is closed, and where characters cannot be shown."""
    epoch(Progress(1, silent=True, clock=clock), clock, 1)
    assert capsys.readouterr() == ("", "")
    for stream in (Broken(), Terminal()):
        progress = Progress(1, stream=stream, clock=clock)
        stream.close()
        epoch(progress, clock, 1)
    raw = io.BytesIO()
    progress = Progress(1, stream=io.TextIOWrapper(raw, "ascii"), clock=clock)
    epoch(progress, clock, 1, cells={"p̂": "\x1b[2J"})
    assert raw.getvalue().decode("ascii").splitlines()[-1].count("p?  [2J")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0.0 s"), (0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "0:10"), (59.7, "1:00"),
     (3599, "59:59"), (3600, "1:00:00"), (7325, "2:02:05")],
)  # fmt: skip
def test_seconds(seconds, text):
    assert format_seconds(seconds) == text
