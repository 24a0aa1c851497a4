"""The progress display, with a clock that the tests move."""

import io

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


def epoch(progress, clock, number, seconds=30.0, summary=""):
    with progress.phase("generate", total=100, unit="tasks") as phase:
        clock.sleep(seconds)
        phase.advance(100)
    progress.epoch_done(number, summary)


def test_a_pipe_gets_one_plain_line_at_each_end(clock):
    stream = io.StringIO()
    progress = Progress(10, stream=stream, clock=clock)
    with progress.phase("evaluate", total=20, unit="answers", epoch=0) as phase:
        clock.sleep(5)
        phase.advance(20)
    progress.epoch_done(0)
    epoch(progress, clock, 1, 20.0, "valid 50%")
    with progress.phase("update"):
        clock.sleep(65)
    assert stream.getvalue().splitlines() == [
        "before training  evaluate  20 answers in 5.0 s  4 answers/s",
        "before training  done in 5.0 s",
        "epoch 1/10  generate  100 tasks in 0:20  5 tasks/s",
        "epoch 1/10  done in 0:20  valid 50%  run left 3:00",
        "epoch 2/10  update  in 1:05",
    ]


def test_what_is_cut_short_says_how_far_it_came(clock):
    stream = io.StringIO()
    progress = Progress(1, stream=stream, clock=clock)
    with pytest.raises(KeyboardInterrupt), progress.phase("generate", 64, "tasks") as phase:
        phase.advance(16)
        clock.sleep(4)
        raise KeyboardInterrupt
    line = "epoch 1/1  generate  16/64 tasks stopped after 4.0 s  4 tasks/s\n"
    assert stream.getvalue() == line


def test_the_first_epoch_compiles_and_does_not_count(clock):
    progress = Progress(10, stream=io.StringIO(), clock=clock)
    assert progress.remaining is None
    epoch(progress, clock, 1, 100.0)
    assert progress.remaining == pytest.approx(900.0)  # there is no other yet
    epoch(progress, clock, 2, 10.0)
    assert progress.remaining == pytest.approx(80.0)
    clock.sleep(4)
    assert progress.remaining == pytest.approx(76.0)
    resumed = Progress(10, done=8, stream=io.StringIO(), clock=clock)
    epoch(resumed, clock, 9, 12.0)
    assert resumed.remaining == pytest.approx(12.0)
    epoch(resumed, clock, 10, 12.0)
    assert resumed.remaining == 0.0


def test_a_terminal_has_a_bar_that_goes(clock):
    stream = Terminal()
    progress = Progress(2, stream=stream, clock=clock)
    with progress.phase("generate", total=4, unit="tasks") as phase:
        phase.advance(4)
        clock.sleep(2)
    shown = stream.getvalue()
    assert "epoch 1/2  generate" in shown and "\r" in shown and "0/4" in shown
    assert shown.splitlines()[-1].endswith("epoch 1/2  generate  4 tasks in 2.0 s  2 tasks/s")


def test_work_outside_of_a_run_has_no_epoch(clock):
    stream = io.StringIO()
    with Progress(0, stream=stream, clock=clock).phase("train base model", 3, "steps") as phase:
        clock.sleep(1)
        phase.advance(3)
    assert stream.getvalue() == "train base model  3 steps in 1.0 s  3 steps/s\n"


def test_silence(clock, capsys):
    epoch(Progress(1, silent=True, clock=clock), clock, 1)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("stream", [Broken(), Terminal()])
def test_a_display_never_stops_a_run(clock, stream):
    progress = Progress(1, stream=stream, clock=clock)
    stream.close()
    epoch(progress, clock, 1)


def test_control_characters_and_other_encodings(clock):
    raw = io.BytesIO()
    progress = Progress(1, stream=io.TextIOWrapper(raw, "ascii"), clock=clock)
    epoch(progress, clock, 1, summary="p̂ \x1b[2J")
    assert raw.getvalue().decode("ascii").splitlines()[-1].count("p?  [2J")


def test_counts_do_not_go_back(clock):
    progress = Progress(1, silent=True, clock=clock)
    with progress.phase("x") as phase, pytest.raises(ValueError, match="non-negative"):
        phase.advance(-1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0.0 s"), (0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "0:10"), (59.7, "1:00"),
     (3599, "59:59"), (3600, "1:00:00"), (7325, "2:02:05")],
)  # fmt: skip
def test_seconds(seconds, text):
    assert format_seconds(seconds) == text


def test_a_silent_progress_writes_nothing(capsys):
    progress = Progress(1, silent=True)
    with progress.phase("work", total=1) as phase:
        phase.advance()
    progress.epoch_done(1)
    assert capsys.readouterr() == ("", "")
