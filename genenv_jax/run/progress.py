"""Progress display, drawn by rich: what a run is doing, how fast, and how long it will still take."""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TextIO

from rich import progress as rich_progress
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column
from rich.text import Text

_PLAIN_EVERY = 60.0  # seconds between lines of a long phase, without a terminal
_WIDTH = 8  # smallest width of a table's column; all columns fit into 80 characters


class Progress:
    """Shows the phases of a run.

    On a terminal: one live line for the current phase, redrawn four times a second, and one table row per
    epoch.  Elsewhere: plain lines when a phase or an epoch ends, and once a minute in a long phase that
    counts units.  The display never stops a run: if the stream is closed or broken, it falls silent.

    Args:
      epochs: of the whole run; 0 for work outside a run.
      done: epochs that were complete when this process started.
      silent: show nothing; true in all processes of a run but one.
      stream: where to write; sys.stderr by default.
      clock: seconds from any origin, never decreasing.
      compiling: seconds spent on compiling so far, which estimates leave out.
    """

    def __init__(
        self,
        epochs: int,
        done: int = 0,
        silent: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        compiling: Callable[[], float] = lambda: 0.0,
    ):
        self._epochs, self._done, self._clock = epochs, done, clock
        self._compiling = compiling
        out = _Quiet(stream or sys.stderr)
        self._drawn = out.isatty() and not silent
        self._console = Console(
            file=out, quiet=silent, highlight=False, force_terminal=self._drawn, force_jupyter=False
        )
        one_line = Column(no_wrap=True, overflow="ellipsis")
        self._live = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}", markup=False, table_column=one_line),
            # On a narrow terminal the numbers stay and the bar shrinks.
            rich_progress.BarColumn(min(20, max(4, self._console.width - 76))),
            _Count(),
            rich_progress.TimeElapsedColumn(),
            rich_progress.TimeRemainingColumn(compact=True),
            console=self._console,
            transient=True,
            refresh_per_second=4,
            get_time=clock,
            disable=not self._drawn,
        )
        self._rows = 0
        # Of the epochs that this process has finished, without compiling.
        self._seconds: list[float] = []
        self.epoch_began()

    @property
    def remaining(self) -> float | None:
        """Estimated seconds to the end of the run; None before this process has finished an epoch."""
        if not self._seconds:
            return None
        epoch = statistics.fmean(self._seconds)
        return max(epoch * (self._epochs - self._done) - (self._clock() - self._began), 0.0)

    @contextlib.contextmanager
    def phase(
        self, name: str, total: int | None = None, unit: str = "items", epoch: int | None = None
    ) -> Iterator[Phase]:
        """Shows one phase.

        Args:
          name: what is being done.
          total: units to do; None if unknown.
          unit: what is counted, in the plural.
          epoch: number to show, if it is not the one after the last finished epoch.
        """
        epoch = min(self._done + 1, self._epochs) if epoch is None else epoch
        outermost = not self._live.tasks
        task = self._live.add_task(f"{self._label(epoch)}{name}", total=total, unit=unit)
        phase = Phase(self._live, self._live.tasks[-1], None if self._drawn else self.line)
        ended = "in"
        if outermost:
            self._live.start()
        try:
            yield phase
        except BaseException:
            ended = "stopped after"
            raise
        finally:
            self._live.remove_task(task)
            if outermost:
                self._live.stop()
            # On a terminal an epoch has a table row instead.
            if not self._drawn or not epoch or ended != "in":
                self.line(phase.text(ended))

    def epoch_began(self) -> None:
        """Starts the next epoch's time."""
        self._began, self._compiled = self._clock(), self._compiling()

    def epoch_done(self, epoch: int, cells: Mapping[str, str] | None = None) -> None:
        """Ends an epoch and shows its line or table row; `cells` are shown unchanged.

        The evaluation before training, epoch 0, does not count in the estimate of an epoch's time.
        """
        seconds = self._clock() - self._began
        if epoch > self._done:
            self._seconds.append(max(seconds - (self._compiling() - self._compiled), 0.0))
        self._done = epoch
        self.epoch_began()
        left = "" if self.remaining is None else format_seconds(self.remaining)
        if self._drawn:
            number = f"{epoch}/{self._epochs}"
            self._row({"epoch": number} | dict(cells or {}) | {"time": format_seconds(seconds), "left": left})
            return
        parts = [f"{self._label(epoch)}done in {format_seconds(seconds)}"]
        parts += [f"{name} {value}" for name, value in (cells or {}).items() if value]
        self.line("  ".join(parts + ([f"run left {left}"] if left else [])))

    def _row(self, cells: Mapping[str, str]) -> None:
        """Prints a row of the table, and its header every 25 rows."""
        if self._rows % 25 == 0:
            self.line("".join(_aligned(name, name) for name in cells))
        self._rows += 1
        self.line("".join(_aligned(text, name) for name, text in cells.items()))

    def _label(self, epoch: int) -> str:
        if not self._epochs:
            return ""
        return f"epoch {epoch}/{self._epochs}  " if epoch else "before training  "

    def line(self, text: str) -> None:
        """Shows a line."""
        text = "".join(c if c.isprintable() else " " for c in text)
        self._console.print(Text(text), soft_wrap=True)


class Phase:
    """One phase, as yielded by `Progress.phase`.  line: shows a line; None if the task is drawn."""

    def __init__(
        self, live: rich_progress.Progress, task: rich_progress.Task, line: Callable[[str], None] | None
    ):
        self._live, self._task, self._line = live, task, line
        self._shown = 0.0  # seconds from its start to its last line

    def advance(self, n: int = 1) -> None:
        """Counts `n` more units."""
        self._live.advance(self._task.id, n)
        seconds = self._task.elapsed or 0.0
        if self._line and seconds - self._shown >= _PLAIN_EVERY and not self._task.finished:
            self._shown = seconds
            self._line(self.text("after"))

    def text(self, ended: str) -> str:
        """Units done, time taken and rate; ended: the word before the time."""
        done, seconds = self._task.completed, self._task.elapsed or 0.0
        time_taken = f"{ended} {format_seconds(seconds)}"
        if not done:
            return f"{self._task.description}  {time_taken}"
        unit = self._task.fields["unit"]
        count = f"{done:,} {unit}" if done == self._task.total else _count(self._task)
        rate = done / max(seconds, 1e-9)
        per_second = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
        return f"{self._task.description}  {count} {time_taken}  {per_second} {unit}/s"


def _count(task: rich_progress.Task) -> str:
    """The units done, of the total; "" if the total is unknown and none is done."""
    done, unit = f"{task.completed:,}", task.fields["unit"]
    if task.total is None:
        return f"{done} {unit}" if task.completed else ""
    return f"{done}/{task.total:,} {unit}"


class _Count(rich_progress.ProgressColumn):
    def render(self, task: rich_progress.Task) -> Text:
        return Text(_count(task))


def _aligned(text: str, name: str) -> str:
    """Right-aligns text in the column of that name; the hat of p̂ has no width."""
    return " " * max(max(_WIDTH, cell_len(name) + 1) - cell_len(text), 1) + text


class _Quiet:
    """A text stream that drops what it cannot write: it may be closed or broken.

    Characters that its encoding lacks become "?".
    """

    def __init__(self, stream: TextIO):
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):  # ValueError: the stream is closed
            self._stream.write(text.encode(self.encoding, "replace").decode(self.encoding))
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def isatty(self) -> bool:
        with contextlib.suppress(AttributeError, ValueError):
            return self._stream.isatty()
        return False


def format_seconds(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss; below ten seconds with one decimal."""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
