"""Progress display: what a run does now, how fast, and how long it still takes."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO

_SECONDS_BETWEEN_DRAWS = 0.2  # at most 5 redraws a second


class Phase:
    """One phase of an epoch, as `Progress.phase` yields it.

    Attributes:
      name: what is being done ("generate", "rollouts", ...).
      total: units to do, or None where that is not known.
      unit: what is counted, in the plural ("tasks", "rollouts").
      done: units done so far.
    """

    def __init__(
        self, progress: Progress, name: str, total: int | None, unit: str, label: str, start: float
    ):
        self.name = name
        self.total = total
        self.unit = unit
        self.done = 0
        self._progress = progress
        self._label = label
        self._start = start
        self._end: float | None = None

    def advance(self, n: int = 1) -> None:
        """Counts `n` more units; 0 only redraws.  Raises ValueError where `n` is negative."""
        if n < 0:
            raise ValueError(f"advance takes a non-negative number, not {n}")
        self.done += n
        self._progress._draw(self)

    @property
    def elapsed(self) -> float:
        """Seconds since the phase began; fixed once it has ended."""
        end = self._progress._clock() if self._end is None else self._end
        return end - self._start

    @property
    def rate(self) -> float | None:
        """Units per second, or None before the first unit."""
        return self.done / self.elapsed if self.done and self.elapsed > 0 else None

    @property
    def remaining(self) -> float | None:
        """Seconds to the end of the phase at the rate so far, or None where it is not known."""
        rate = self.rate
        if rate is None or self.total is None:
            return None
        return max(self.total - self.done, 0) / rate


class Progress:
    """Shows the phases of a run on a terminal or in a log.

    On a terminal one live line is rewritten with a carriage return, at most 5 times a second.
    Anywhere else each phase and each epoch writes one plain line when it ends, free of control
    characters.  A display never stops a run: where the stream is closed or broken it falls silent.

    Args:
      total_epochs: epochs of the whole run.
      stream: where to write; sys.stderr by default.
      start_epoch: epochs that were complete when this process started (a resumed run).
      clock: seconds from any origin, never decreasing.
      silent: times the phases and shows nothing, as all processes of a run but one do.

    Raises:
      ValueError: `start_epoch` outside 0 to `total_epochs`.
    """

    def __init__(
        self,
        total_epochs: int,
        stream: TextIO | None = None,
        start_epoch: int = 0,
        clock: Callable[[], float] = time.monotonic,
        silent: bool = False,
    ):
        if not 0 <= start_epoch <= total_epochs:
            raise ValueError(f"start_epoch {start_epoch} is not in 0..{total_epochs}")
        self._total_epochs = total_epochs
        self._completed = start_epoch
        self._stream: TextIO | None = sys.stderr if stream is None else stream
        if silent:
            self._stream = None
        self._live = _is_terminal(self._stream)
        self._clock = clock
        self._epoch_start = clock()
        self._phase: Phase | None = None
        self._seconds: dict[str, float] = {}
        # One (seconds, seconds by phase) for each training epoch that this process finished.
        self._history: list[tuple[float, dict[str, float]]] = []
        self._drawn_at: float | None = None
        self._drawn = ""

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by phase name in the current epoch, the running phase included (a copy)."""
        seconds = dict(self._seconds)
        if self._phase is not None:
            seconds[self._phase.name] = seconds.get(self._phase.name, 0.0) + self._phase.elapsed
        return seconds

    @property
    def remaining(self) -> float | None:
        """Estimated seconds to the end of the run; None before this process finished an epoch.

        The epochs ahead take the mean of the finished ones, without this process's first where
        there are others, because it compiles.  In the current epoch, phases ahead and the time
        between phases take their mean in those epochs, and the running phase goes on at its rate.
        """
        if self._completed == self._total_epochs:
            return 0.0
        if not self._history:
            return None
        epochs = self._history[1:] or self._history
        ahead = (self._total_epochs - self._completed - 1) * statistics.fmean(
            seconds for seconds, _ in epochs
        )
        spent = self.seconds
        for name in {name for _, phases in epochs for name in phases}:
            usual = statistics.fmean(phases.get(name, 0.0) for _, phases in epochs)
            if self._phase is not None and name == self._phase.name:
                if self._phase.remaining is None:
                    ahead += max(usual - spent[name], 0.0)
            elif name not in spent:
                ahead += usual
        if self._phase is not None:
            ahead += self._phase.remaining or 0.0
        # Time between the phases: checkpoints, logs.
        usual = statistics.fmean(seconds - sum(phases.values()) for seconds, phases in epochs)
        between = self._clock() - self._epoch_start - sum(spent.values())
        return ahead + max(usual - between, 0.0)

    @contextlib.contextmanager
    def phase(
        self,
        name: str,
        total: int | None = None,
        unit: str = "items",
        epoch: int | None = None,
    ) -> Iterator[Phase]:
        """Times one phase; phases of one name add up within an epoch.

        Args:
          name: what is being done; the key in `seconds`.
          total: units to do, or None where that is not known.
          unit: what is counted, in the plural.
          epoch: number to show, where it is not the one after the last finished epoch; 0 shows
            "before training".

        Raises:
          RuntimeError: another phase is running.
        """
        if self._phase is not None:
            raise RuntimeError(f"phase {name!r} begins inside phase {self._phase.name!r}")
        number = min(self._completed + 1, self._total_epochs) if epoch is None else epoch
        label = f"epoch {number}/{self._total_epochs}" if number else "before training"
        phase = Phase(self, name, total, unit, label, self._clock())
        self._phase = phase
        self._draw(phase)
        ended = "in"
        try:
            yield phase
        except BaseException:
            ended = "stopped after"
            raise
        finally:
            phase._end = self._clock()
            self._seconds[name] = self._seconds.get(name, 0.0) + phase.elapsed
            self._phase = None
            self._line(self._ended(phase, ended))

    def epoch_done(self, epoch: int, summary: str = "") -> None:
        """Ends an epoch: writes its line and clears `seconds`.

        Args:
          epoch: number of completed epochs.  Where it is no larger than before (the evaluation
            before training, epoch 0), its time does not count in the estimate of an epoch.
          summary: a few words for the reader, shown as they are.

        Raises:
          RuntimeError: a phase is running.
          ValueError: `epoch` outside the finished to the total number of epochs.
        """
        if self._phase is not None:
            raise RuntimeError(f"epoch {epoch} ends inside phase {self._phase.name!r}")
        if not self._completed <= epoch <= self._total_epochs:
            raise ValueError(f"epoch {epoch} is not in {self._completed}..{self._total_epochs}")
        now = self._clock()
        seconds = now - self._epoch_start
        if epoch > self._completed:
            self._history.append((seconds, dict(self._seconds)))
        self._completed = epoch
        self._epoch_start = now
        self._seconds = {}
        label = f"epoch {epoch}/{self._total_epochs}" if epoch else "before training"
        parts = [f"{label}  done in {format_seconds(seconds)}"]
        self._line("  ".join(parts + ([summary] if summary else []) + self._run_left()))

    def write(self, text: str) -> None:
        """Writes one line of text without tearing the live line."""
        self._line(text)

    def _run_left(self) -> list[str]:
        # Work outside a run of epochs (a warm start) cannot tell what comes after it.
        remaining = self.remaining if self._total_epochs else None
        return [] if remaining is None else [f"run left {format_seconds(remaining)}"]

    def _ended(self, phase: Phase, ended: str) -> str:
        parts = [phase._label, phase.name]
        time_taken = f"{ended} {format_seconds(phase.elapsed)}"
        if phase.done or phase.total:
            short = phase.total is not None and phase.done != phase.total
            done = f"{phase.done:,}/{phase.total:,}" if short else f"{phase.done:,}"
            parts.append(f"{done} {phase.unit} {time_taken}")
        else:
            parts.append(time_taken)
        if phase.rate is not None:
            parts.append(f"{_format_rate(phase.rate)} {phase.unit}/s")
        return "  ".join(parts + self._run_left())

    def _running(self, phase: Phase, width: int) -> str:
        """The live line; where it is too wide, the less needed parts go first."""
        parts = {"label": phase._label, "name": phase.name}
        if phase.total:
            share = min(phase.done / phase.total, 1.0)
            parts["done"] = f"{phase.done:,}/{phase.total:,} {phase.unit}"
            parts["share"] = f"({share:.0%})"
        elif phase.done:
            parts["done"] = f"{phase.done:,} {phase.unit}"
        if phase.rate is not None:
            parts["rate"] = f"{_format_rate(phase.rate)} {phase.unit}/s"
        parts["elapsed"] = f"elapsed {format_seconds(phase.elapsed)}"
        if phase.remaining is not None:
            parts["left"] = f"phase left {format_seconds(phase.remaining)}"
        if self.remaining is not None:
            parts["run"] = f"run left {format_seconds(self.remaining)}"
        for part in ("share", "elapsed", "rate", "label"):
            if len("  ".join(parts.values())) > width:
                parts.pop(part, None)
        return _printable("  ".join(parts.values()))[:width]

    def _draw(self, phase: Phase) -> None:
        if not self._live:
            return
        now = self._clock()
        if self._drawn_at is not None and now - self._drawn_at < _SECONDS_BETWEEN_DRAWS:
            return
        self._drawn_at = now
        # A line as wide as the terminal would wrap, and a carriage return would not undo that.
        width = max(shutil.get_terminal_size().columns - 1, 1)
        text = self._running(phase, width)
        self._put("\r" + text.ljust(len(self._drawn)))
        self._drawn = text

    def _line(self, text: str) -> None:
        start = "\r" if self._live and self._drawn else ""
        self._put(start + _printable(text).ljust(len(self._drawn) if start else 0) + "\n")
        self._drawn = ""

    def _put(self, text: str) -> None:
        if self._stream is None:
            return
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream is closed
            self._stream = None


def format_seconds(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss, and one decimal below ten seconds."""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _format_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (AttributeError, ValueError):
        return False


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
