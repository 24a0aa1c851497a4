"""The loop: inputs for each target in turn, in processes that may die; counts, and finds as files."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import multiprocessing
import multiprocessing.connection
import pathlib
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence

from bench.fuzz import guard
from bench.fuzz.outlets import outlets
from bench.fuzz.readers import readers
from bench.fuzz.targets import Target, benchmarks, of_benchmark

_SLICE = 0.25  # CPU seconds that one target gets before the next one's turn
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
    """Every target whose name holds one of some words.

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
    """Writes a find, made smaller, unless there is one of the same place."""
    mark = f"{target.name} {verdict.outcome} {verdict.where}"
    path = (
        out
        / f"{''.join(c if c.isalnum() else '_' for c in target.name)}-{zlib.crc32(mark.encode()):08x}.json"
    )
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
            return run(target, subject, shorter, 2.0).where == verdict.where

        record["texts"] = guard.shrink(written, fails)
        path.write_text(json.dumps(record, indent=1))


def run(target: Target, subject: int, written: Sequence[str], limit: float) -> guard.Verdict:
    """One input."""
    return guard.run(lambda: target.run(target.subjects[subject], written), limit)


def _work(options: argparse.Namespace, rank: int, places, results) -> None:
    """One process: targets in turn, until time or texts are over.

    places: shared; the next input of each target, in the end the one that is being run and -1 or its target.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one
    _bound_memory(options.memory)
    with tempfile.TemporaryDirectory(prefix="fuzz") as directory:
        targets = all_targets(pathlib.Path(directory), options.names, options.small)
        died = places[-1]
        places[-1] = -1
        if died >= 0:  # the process before ended there, so it is not run again
            target, index = targets[died], places[died] - options.processes
            subject, written = target.draw(options.seed, index)
            verdict = guard.Verdict(guard.HANG if places[-2] else guard.CRASH, 0.0, _DIED)
            save(options.out, target, subject, written, verdict)
            results.send((target.name, _tally_of(verdict, written)))
        begin = time.process_time()
        while True:
            left = False
            for number, target in enumerate(targets):
                tally, until = Tally(), time.process_time() + _SLICE
                while time.process_time() < until and (index := places[number]) < options.texts:
                    left = True
                    subject, written = target.draw(options.seed, index)
                    places[number], places[-1] = index + options.processes, number
                    verdict = run(target, subject, written, options.limit)
                    places[-1] = -1
                    tally.add(verdict, written)
                    if verdict.outcome in (guard.CRASH, guard.HANG):
                        save(options.out, target, subject, written, verdict)
                results.send((target.name, tally))
            if not left or time.process_time() - begin > 60 * options.minutes:
                break
    results.send(None)


def _tally_of(verdict: guard.Verdict, written: Sequence[str]) -> Tally:
    tally = Tally()
    tally.add(verdict, written)
    return tally


def _bound_memory(gib: float) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (round(gib * 2**30),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def fuzz(options: argparse.Namespace) -> dict[str, Tally]:
    """Runs the processes; one that dies is a find, and another one goes on in its place.  Ctrl-C ends it."""
    context = multiprocessing.get_context("spawn")
    tallies: dict[str, Tally] = {}
    running = {}
    last = time.monotonic()

    def start(rank: int, places) -> None:
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(options, rank, places, send))
        process.start()
        send.close()
        running[receive] = process, rank, places

    for rank in range(options.processes):
        places = context.RawArray("q", [rank] * 256)
        places[-1] = -1
        start(rank, places)
    try:
        while running:
            for receive in multiprocessing.connection.wait(list(running)):
                try:
                    message = receive.recv()
                except EOFError:
                    process, rank, places = running.pop(receive)
                    process.join()
                    code = process.exitcode
                    if places[-1] < 0:
                        raise RuntimeError(f"a process ended with exit code {code}") from None
                    places[-2] = code == -signal.SIGPROF  # out of CPU time, in native code
                    start(rank, places)
                    continue
                if message is None:
                    running.pop(receive)[0].join()
                else:
                    tallies.setdefault(message[0], Tally()).merge(message[1])
            if time.monotonic() - last > 60:
                last = time.monotonic()
                print(summary(tallies), file=sys.stderr, flush=True)
    except KeyboardInterrupt:  # enough; what was counted is shown
        pass
    finally:
        for process, *_ in running.values():
            process.terminate()
    return tallies


def finds(tally: Tally) -> tuple[int, int]:
    """Crashes and hangs."""
    return tally.outcomes[guard.CRASH], tally.outcomes[guard.HANG]


def summary(tallies: dict[str, Tally]) -> str:
    """All targets in a line."""
    crashes, hangs = (
        sum(column) for column in zip((0, 0), *map(finds, tallies.values()), strict=True)
    )
    name, slowest = max(
        tallies.items(), key=lambda item: item[1].slowest, default=("none", Tally())
    )
    texts, seconds = (
        sum(getattr(t, key) for t in tallies.values()) for key in ("texts", "seconds")
    )
    return (
        f"{texts:,} texts, {seconds:,.0f} s of CPU time, crashes {crashes}, hangs {hangs}; "
        f"slowest {slowest.slowest * 1000:.0f} ms ({name})"
    )


def table(tallies: dict[str, Tally]) -> Iterator[str]:
    """The counts as a Markdown table, then the outcomes and the slowest text of each target."""
    yield "| target | texts | taken | refused | crashes | hangs | mean | slowest |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for name, tally in sorted(tallies.items()):
        crashes, hangs = finds(tally)
        refused = sum(
            count
            for o, count in tally.outcomes.items()
            if o.startswith(("rejected", "refused", "invalid"))
        )
        taken = tally.outcomes.total() - refused - crashes - hangs
        mean = tally.seconds / max(1, tally.outcomes.total())
        yield (
            f"| {name} | {tally.texts:,} | {taken:,} | {refused:,} | {crashes} | {hangs} | "
            f"{mean * 1000:.2f} ms | {tally.slowest * 1000:.0f} ms |"
        )
    for name, tally in sorted(tallies.items()):
        counts = ", ".join(
            f"{outcome} {count:,}" for outcome, count in tally.outcomes.most_common(12)
        )
        yield f"\n{name}: {counts}\n  slowest {tally.slowest * 1000:.0f} ms: {tally.slowest_text}"
