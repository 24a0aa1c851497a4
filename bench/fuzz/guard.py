"""Runs one input within bounded CPU time: it passes, crashes or hangs.  Shrinks finds."""

import contextlib
import dataclasses
import pathlib
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence

_ROOT = pathlib.Path(__file__).resolve().parents[2] / "genenv_jax"
_HARD = 5.0  # times the limit, after which the process is ended: native code heeds no signal
CRASH, HANG = "crash", "hang"


class _TooLongError(BaseException):
    """The limit is over; `except Exception` in the code under test does not catch it."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became of one input.

    Attributes:
      outcome: a word that is counted: "accepted", "rejected: REASON", ...; CRASH or HANG for a find.
      seconds: CPU time.
      where: for a find, the exception's type and the last line of the package that it came through.
      detail: for a find, the end of the traceback.
    """

    outcome: str
    seconds: float
    where: str = ""
    detail: str = ""


def run(function: Callable[[], str], limit: float) -> Verdict:
    """Calls `function`, which returns an outcome; whatever it raises is a find.

    Args:
      limit: CPU seconds after which it counts as hanging.
    """
    begin = time.process_time()
    try:
        with _bounded(limit):
            outcome = function()
    except _TooLongError as error:
        where = _where(error)
        return Verdict(HANG, time.process_time() - begin, where, f"more than {limit:g} s in {where}")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        detail = "".join(traceback.format_exception(error))[-3000:]
        where = f"{type(error).__name__} {_where(error)}"
        return Verdict(CRASH, time.process_time() - begin, where, detail)
    return Verdict(outcome, time.process_time() - begin)


@contextlib.contextmanager
def _bounded(limit: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_PROF, _HARD * limit)  # its default action ends the process
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGVTALRM, before)


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if pathlib.Path(f.filename).is_relative_to(_ROOT)] or frames
    if not ours:
        return "?"
    return f"{pathlib.Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}"


def shrink(texts: Sequence[str], fails: Callable[[Sequence[str]], bool], seconds: float = 20.0) -> list[str]:
    """Shorter texts that still fail, found by leaving out ever smaller parts.

    Args:
      texts: of one input.
      fails: whether an input is the same find.
      seconds: CPU time that may be spent.
    """
    best, end = list(texts), time.process_time() + seconds
    for index in reversed(range(len(best))):  # whole texts first
        shorter = best[:index] + best[index + 1 :]
        if shorter and time.process_time() < end and fails(shorter):
            best = shorter
    for index in range(len(best)):
        size = len(best[index]) // 2
        while size:
            at = 0
            while at < len(best[index]) and time.process_time() < end:
                shorter = list(best)
                shorter[index] = best[index][:at] + best[index][at + size :]
                if fails(shorter):
                    best = shorter
                else:
                    at += size
            size //= 2
    return best
