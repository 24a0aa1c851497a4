"""Progress display: what a run does now, how fast, and how long it still takes; drawn by tqdm."""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from tqdm import tqdm


class Progress:
    """Shows the phases of a run.

    On a terminal, a bar for the phase under way.  Anywhere else, and when a phase or an epoch ends, one plain
    line.  A display never stops a run: where the stream is closed or broken it falls silent.

    Args:
      epochs: of the whole run; 0 for work outside of one.
      done: epochs that were complete when this process started.
      silent: shows nothing, as all processes of a run but one do.
      stream: where to write; sys.stderr by default.
      clock: seconds from any origin, never decreasing.
    """

    def __init__(
        self,
        epochs: int,
        done: int = 0,
        silent: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._epochs, self._done, self._clock = epochs, done, clock
        self._stream = None if silent else (stream or sys.stderr)
        self._began = clock()
        self._seconds: list[float] = []  # of the epochs that this process has finished

    @property
    def remaining(self) -> float | None:
        """Estimated seconds to the end of the run; None before this process has finished an epoch.

        At the pace of the finished ones, without this process's first where there are others, since it
        compiles.
        """
        if not self._seconds:
            return None
        epoch = statistics.fmean(self._seconds[1:] or self._seconds)
        left = epoch * (self._epochs - self._done) - (self._clock() - self._began)
        return max(left, 0.0)

    @contextlib.contextmanager
    def phase(
        self, name: str, total: int | None = None, unit: str = "items", epoch: int | None = None
    ) -> Iterator[Phase]:
        """Shows one phase.

        Args:
          name: what is being done.
          total: units to do, or None where that is not known.
          unit: what is counted, in the plural.
          epoch: number to show, where it is not the one after the last finished epoch.
        """
        label = self._label(min(self._done + 1, self._epochs) if epoch is None else epoch)
        phase = Phase(self._bar(f"{label}{name}", total, unit))
        began = self._clock()
        ended = "in"
        try:
            yield phase
        except BaseException:
            ended = "stopped after"
            raise
        finally:
            phase.close()
            seconds = self._clock() - began
            text = f"{label}{name}  {ended} {format_seconds(seconds)}"
            if phase.done:
                short = total is not None and phase.done != total
                done = f"{phase.done:,}/{total:,}" if short else f"{phase.done:,}"
                rate = phase.done / max(seconds, 1e-9)
                text = f"{label}{name}  {done} {unit} {ended} {format_seconds(seconds)}"
                text += f"  {rate:,.0f} {unit}/s" if rate >= 100 else f"  {rate:.3g} {unit}/s"
            self.line(text)

    def epoch_done(self, epoch: int, summary: str = "") -> None:
        """Ends an epoch with a line of its own; `summary` is shown as it is.

        The evaluation before training, epoch 0, does not count in the estimate of an epoch.
        """
        now = self._clock()
        if epoch > self._done:
            self._seconds.append(now - self._began)
        parts = [f"{self._label(epoch)}done in {format_seconds(now - self._began)}"]
        self._done, self._began = epoch, now
        if summary:
            parts.append(summary)
        if self.remaining is not None:
            parts.append(f"run left {format_seconds(self.remaining)}")
        self.line("  ".join(parts))

    def _label(self, epoch: int) -> str:
        if not self._epochs:
            return ""
        return f"epoch {epoch}/{self._epochs}  " if epoch else "before training  "

    def _bar(self, text: str, total: int | None, unit: str) -> Any:
        live = self._stream is not None and _is_terminal(self._stream)
        return tqdm(
            total=total,
            desc=text,
            unit=f" {unit}",
            file=self._stream or sys.stderr,
            disable=not live,
            leave=False,
            dynamic_ncols=True,
        )

    def say(self, text: str) -> None:
        """Shows a line about the epoch under way."""
        self.line(f"{self._label(min(self._done + 1, self._epochs))}{text}")

    def line(self, text: str) -> None:
        """Shows a line, between phases."""
        if self._stream is None:
            return
        text = "".join(c if c.isprintable() else " " for c in text)
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream is closed
            self._stream = None


class Phase:
    """One phase, as `Progress.phase` yields it.

    Attributes:
      done: units done so far.
    """

    def __init__(self, bar: Any):
        self._bar, self.done = bar, 0

    def advance(self, n: int = 1) -> None:
        """Counts `n` more units.  Raises ValueError where `n` is negative."""
        if n < 0:
            raise ValueError(f"advance takes a non-negative number, not {n}")
        self.done += n
        with contextlib.suppress(OSError, ValueError):
            self._bar.update(n)

    def close(self) -> None:
        """Takes the bar away."""
        with contextlib.suppress(OSError, ValueError):
            self._bar.close()


def format_seconds(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss, and one decimal below ten seconds."""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False
