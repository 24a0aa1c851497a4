"""The loop: inputs for each target in turn, in processes that may die; counts, and finds as files."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import multiprocessing
import pathlib
import resource
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence

from bench.fuzz import guard
from bench.fuzz.outlets import outlets
from bench.fuzz.readers import readers
from bench.fuzz.targets import Target, benchmarks, of_benchmark
from bench.tables import markdown

_SLICE = 0.25  # CPU seconds that one target gets before the next one's turn
_LIMIT = 2.0  # of one text
_MEMORY = 3 * 2**30  # bytes
_DIED = "the process died"
_SHOWN = 90  # characters of the slowest text in the table


@dataclasses.dataclass
class Tally:
    """What became of a target's texts."""

    texts: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    slowest_text: str = ""
    outcomes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def add(self, verdict: guard.Verdict, written: Sequence[str]) -> None:
        """Counts one input."""
        self.texts += len(written)
        self.seconds += verdict.seconds
        self.outcomes[verdict.outcome] += 1
        if verdict.seconds > self.slowest:
            self.slowest, text = verdict.seconds, max(written, key=len, default="")
            self.slowest_text = f"{len(text)} characters: {text[:_SHOWN]!r}"

    def merge(self, other: Tally) -> None:
        """Adds another process's counts."""
        self.texts += other.texts
        self.seconds += other.seconds
        self.outcomes += other.outcomes
        if other.slowest > self.slowest:
            self.slowest, self.slowest_text = other.slowest, other.slowest_text


def all_targets(
    directory: pathlib.Path,
    names: str = "",
    small: pathlib.Path | None = None,
    only_small: bool = False,
) -> list[Target]:
    """Every target whose name contains a given word.

    Args:
      directory: for what targets write.
      names: separated by commas; "" for all.
      small, only_small: see `benchmarks`.
    """
    wanted = names.split(",")
    found = [*readers(), *outlets(directory / "outlets")]
    for name, benchmark in benchmarks(wanted, small, only_small):
        found += of_benchmark(name, benchmark)
    return [target for target in found if any(word in target.name for word in wanted)]


def save(out: pathlib.Path, target: Target, subject: int, written: Sequence[str], verdict) -> None:
    """Shrinks and writes a find, unless there is one from the same place."""
    mark = f"{target.name} {verdict.outcome} {verdict.where}"
    name = "".join(c if c.isalnum() else "_" for c in target.name)
    path = out / f"{name}-{zlib.crc32(mark.encode()):08x}.json"
    if path.exists():
        return
    record = {
        "target": target.name,
        "subject": getattr(target.subjects[subject], "id", ""),
        "outcome": verdict.outcome,
        "where": verdict.where,
        "detail": verdict.detail,
        "texts": list(written),
    }
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1))
    if verdict.outcome == guard.CRASH and verdict.where != _DIED:  # that would end this process too

        def fails(shorter: Sequence[str]) -> bool:
            return run(target, subject, shorter, _LIMIT).where == verdict.where

        record["texts"] = guard.shrink(written, fails)
        path.write_text(json.dumps(record, indent=1))


def run(target: Target, subject: int, written: Sequence[str], limit: float) -> guard.Verdict:
    """One input."""
    return guard.run(lambda: target.run(target.subjects[subject], written), limit)


def _work(options: argparse.Namespace, places, results) -> None:
    """The process that runs the texts: targets in turn, until time or texts run out.

    places: shared; the next input of each target, and last the target that is being run, or -1.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(prefix="fuzz") as directory:
        targets = all_targets(pathlib.Path(directory), options.names, options.small)
        begin, left = time.process_time(), True
        while left and time.process_time() - begin < 60 * options.minutes:
            left = False
            for number, target in enumerate(targets):
                tally, until = Tally(), time.process_time() + _SLICE
                while time.process_time() < until and (index := places[number]) < options.texts:
                    left = True
                    subject, written = target.draw(options.seed, index)
                    places[number], places[-1] = index + 1, number
                    verdict = run(target, subject, written, _LIMIT)
                    places[-1] = -1
                    tally.add(verdict, written)
                    if verdict.outcome in (guard.CRASH, guard.HANG):
                        save(options.out, target, subject, written, verdict)
                results.send((target.name, tally))
    results.send(None)


def _died(options: argparse.Namespace, places, outcome: str) -> tuple[str, Tally]:
    """Saves the input that ended a process, which is not run again; returns its target's name and tally."""
    with tempfile.TemporaryDirectory(prefix="fuzz") as directory:
        targets = all_targets(pathlib.Path(directory), options.names, options.small)
        target, tally = targets[places[-1]], Tally()
        subject, written = target.draw(options.seed, places[places[-1]] - 1)
    verdict = guard.Verdict(outcome, 0.0, _DIED)
    save(options.out, target, subject, written, verdict)
    tally.add(verdict, written)
    places[-1] = -1
    return target.name, tally


def fuzz(options: argparse.Namespace) -> dict[str, Tally]:
    """Runs a process; if it dies, that is a find, and another one continues.  Ctrl-C ends it."""
    context = multiprocessing.get_context("spawn")
    tallies: dict[str, Tally] = {}
    places = context.RawArray("q", 256)
    places[-1] = -1
    last, message = time.monotonic(), ("", Tally())
    while message:
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(options, places, send))
        process.start()
        send.close()
        try:
            while message := receive.recv():
                tallies.setdefault(message[0], Tally()).merge(message[1])
                if time.monotonic() - last > 60:
                    last = time.monotonic()
                    print(summary(tallies), file=sys.stderr, flush=True)
        except KeyboardInterrupt:  # enough; what was counted is shown
            message = None
        except EOFError:
            process.join()
            if places[-1] < 0:
                raise RuntimeError(f"a process ended with exit code {process.exitcode}") from None
            hung = process.exitcode == -signal.SIGPROF  # out of CPU time, in native code
            name, tally = _died(options, places, guard.HANG if hung else guard.CRASH)
            tallies.setdefault(name, Tally()).merge(tally)
        finally:
            process.terminate()
    return tallies


def finds(tally: Tally) -> tuple[int, int]:
    """Crashes and hangs."""
    return tally.outcomes[guard.CRASH], tally.outcomes[guard.HANG]


def summary(tallies: dict[str, Tally]) -> str:
    """All targets in a line."""
    every = tallies.values()
    crashes, hangs = (sum(column) for column in zip((0, 0), *map(finds, every), strict=True))
    name = max(tallies, key=lambda name: tallies[name].slowest, default="none")
    slowest = tallies.get(name, Tally()).slowest
    return (
        f"{sum(t.texts for t in every):,} texts, {sum(t.seconds for t in every):,.0f} s of CPU time, crashes "
        f"{crashes}, hangs {hangs}; slowest {slowest * 1000:.0f} ms ({name})"
    )


def table(tallies: dict[str, Tally]) -> str:
    """The counts as a Markdown table, then the outcomes and the slowest text of each target."""
    rows, details = [], []
    for name, tally in sorted(tallies.items()):
        crashes, hangs = finds(tally)
        kinds = ("rejected", "refused", "invalid")
        refused = sum(n for outcome, n in tally.outcomes.items() if outcome.startswith(kinds))
        counts = tally.texts, tally.outcomes.total() - refused - crashes - hangs, refused
        mean = tally.seconds / max(1, tally.outcomes.total())
        times = f"{mean * 1000:.2f} ms", f"{tally.slowest * 1000:.0f} ms"
        rows.append([name, *(f"{n:,}" for n in (*counts, crashes, hangs)), *times])
        common = ", ".join(f"{outcome} {n:,}" for outcome, n in tally.outcomes.most_common(12))
        details.append(f"{name}: {common}\n  slowest {times[1]}: {tally.slowest_text}")
    columns = ("target", "texts", "taken", "refused", "crashes", "hangs", "mean", "slowest")
    return "\n\n".join([markdown(columns, rows), *details])
