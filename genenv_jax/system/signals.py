"""SIGTERM and SIGINT end a command with exit code 143 or 130; a block can defer them until it has ended.

Needs no JAX.
"""

import contextlib
import contextvars
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

_AGAIN = 0.05  # seconds until a lost signal is repeated
BOTH = (signal.SIGTERM, signal.SIGINT)
# Whether a command that a signal ends has kept its work; `say` reports it.
resumes = contextvars.ContextVar("resumes", default=True)


class Ended(SystemExit):
    """A signal ended the command."""


def end(signum: int, frame: Any = None) -> None:
    """A handler: raises Ended(128 + signum), so that open context managers are closed."""
    raise Ended(128 + signum)


def say(code: Any) -> None:
    """Prints one line that a signal ended the command, if the exit code says so."""
    if code in (128 + signum for signum in BOTH):
        name = signal.Signals(code - 128).name
        what = "continues from there" if resumes.get() else "starts over"
        print(f"ended by {name}; the same command {what}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def ending(*which: int) -> Iterator[None]:
    """Makes these signals `end` the main thread within the block; does nothing in other threads."""
    before = sys.unraisablehook

    def repeat(unraisable: Any) -> None:
        """Sends the signal again if Python drops its exception, as in a weak reference's callback."""
        code = getattr(unraisable.exc_value, "code", None)
        if code not in (128 + signum for signum in which):
            before(unraisable)
            return
        main = threading.main_thread().ident
        threading.Timer(_AGAIN, signal.pthread_kill, (main, code - 128)).start()

    with _handled(which, end):
        sys.unraisablehook = repeat
        try:
            yield
        finally:
            sys.unraisablehook = before


@contextlib.contextmanager
def held(*which: int) -> Iterator[list[int]]:
    """Defers both signals, or `which`, until the block has ended, even by an exception.

    Yields those that have come so far; the first is delivered then.
    """
    came: list[int] = []
    try:
        with _handled(which or BOTH, lambda signum, _: came.append(signum)):
            yield came
    finally:
        if came:
            signal.raise_signal(came[0])


@contextlib.contextmanager
def _handled(which: tuple[int, ...], handler: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Keep ignoring a signal that a shell or nohup made the process ignore.
    heard = [signum for signum in which if signal.getsignal(signum) is not signal.SIG_IGN]
    previous = {signum: signal.signal(signum, handler) for signum in heard}
    try:
        yield
    finally:
        for signum, before in previous.items():
            if before is not None:  # else it was not set from Python
                signal.signal(signum, before)
