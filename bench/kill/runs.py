"""Runs that are struck or damaged, and the counts of what came of it."""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import time

from bench.kill.comparison import RECORDS, differences, leftovers, not_prefixes
from bench.kill.processes import Child, orphans
from bench.kill.strikes import DAMAGES, batches, damage

# Seconds after a phase's beginning within which it is struck.
_WITHIN = {"scoring": 0.005, "update": 0.5, "checkpoint": 0.5, "export": 0.5}
_SETTINGS = (
    *("--config.agent.batch_size=16", "--config.agent.minibatch_size=16", "--config.export=True"),
    *("--config.model.make.num_layers=1", "--config.evaluation.sampled=0", "--config.warm_start.steps=60"),
)  # fmt: skip
_LONGEST = 900.0  # seconds of one command
# What JAX says in a process in which a signal has interrupted the tracing of a function: such a one ends with
# its command, but here it was kept for the next.
_INTERRUPTED = "RecursionError: Recursively calling"


class Harness:
    """Starts the commands of one kind of run, and counts what came of the strikes."""

    def __init__(self, options: argparse.Namespace, out: pathlib.Path):
        self.options, self.out, self.rng = options, out, random.Random(options.seed)
        self.child: Child | None = None
        self.log, self.until = out / "output", time.monotonic() + 60 * options.minutes
        self.counts: collections.Counter[tuple[str, ...]] = collections.Counter()

    def arguments(self, workdir: pathlib.Path, index: int = 0, port: int = 0) -> list[str]:
        """The command of one process."""
        given = [f"--config={self.options.config}", f"--workdir={workdir}", *_SETTINGS]
        given += [
            f"--config.model.make.cache_dir={workdir.parent / 'models'}",
            f"--config.epochs={self.options.epochs}",
            f"--config.lora.rank={self.options.lora}",
            f"--config.scoring.workers={self.options.workers}",
        ]
        if self.options.processes == 2:
            given += ["--config.mesh.data=2", f"--coordinator_address=localhost:{port}"]
            given += ["--num_processes=2", f"--process_id={index}", "--heartbeat_timeout=10"]
        return given

    def run(
        self, workdir: pathlib.Path, strike: tuple[int, str] | None = None, *more: str
    ) -> tuple[int | str, str, list[str]]:
        """Runs the command until it ends, or is struck.

        Returns:
          exit code of the struck process, the phase in which it was struck ("" where it was not), and what
          it printed besides the display.
        """
        code, struck, said = self._run(workdir, strike, *more)
        if code == 1 and self.child.keep and any(_INTERRUPTED in line for line in said):
            self.child.kill()
            code, struck, said = self._run(workdir, strike, *more)
        return code, struck, said

    def _run(
        self, workdir: pathlib.Path, strike: tuple[int, str] | None, *more: str
    ) -> tuple[int | str, str, list[str]]:
        two, struck = self.options.processes == 2, ""
        with socket.create_server(("", 0)) as server:
            port = server.getsockname()[1]
        if two or self.child is None or self.child.code is not None or not self.child.keep:
            self.child = Child(keep=not two and not self.options.fresh)
        others = [Child(keep=False)] if two else []
        for i, child in enumerate((self.child, *others)):
            log = str(self.log) + (f".{i}" if i else "")
            child.pipe.send(([*self.arguments(workdir, i, port), *more], log))
        phase, code, waiting = "start", 1, self.rng.randrange(4)
        for kind, value in self.child.events(_LONGEST):
            if kind == "end":
                code = value
                break
            phase = value
            if strike and not struck and phase == strike[1]:
                if phase in ("sampling", "update") and waiting:
                    waiting -= 1
                    continue
                time.sleep(self.rng.random() * _WITHIN.get(phase, 2.0))
                if strike[0] != signal.SIGKILL and (come := list(self.child.meanwhile())):
                    kind, phase = come[-1]
                if kind == "end":
                    code = phase
                    break
                struck = phase
                os.kill(self.child.pid, strike[0])
                if strike[0] == signal.SIGKILL:
                    for other in others:
                        os.kill(other.pid, signal.SIGKILL)
        if strike and struck and strike[0] == signal.SIGKILL:
            self.child.wait()
        for other in others:
            _ = list(other.events(60.0))
        said = [x for x in self.log.read_text(errors="replace").splitlines() if not _is_display(x)]
        if left := orphans(self.child):
            self.counts["leftover processes",] += len(left)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        return code, struck, said

    def strike_all(self, reference: pathlib.Path, strikes: list[tuple[int, str]]) -> None:
        """Runs that are struck about `--per_run` times each; what came too late for one is for the next."""
        number = 0
        while strikes and time.monotonic() < self.until:
            missed: list[tuple[int, str]] = []
            for some in batches(strikes, self.options.per_run):
                if time.monotonic() < self.until:
                    missed += self.strike_one(reference, number, some)
                    number += 1
            if len(missed) == len(strikes):
                self.counts["missed",] += len(missed)
                return
            strikes = missed

    def strike_one(
        self, reference: pathlib.Path, number: int, strikes: list[tuple[int, str]]
    ) -> list[tuple[int, str]]:
        """One run, started again after each strike; the strikes before which it had ended."""
        workdir, hits = self.out / f"struck-{number}" / "run", collections.Counter()
        missed: list[tuple[int, str]] = []
        for strike in strikes:
            if missed and strike[1] != "export":  # the last commands do nothing but export
                missed.append(strike)
                continue
            if time.monotonic() > self.until:
                break
            more = ["--config.compile_ahead=" + str(strike[1] == "compile")]
            code, phase, said = self.run(workdir, strike, *more)
            exported = phase == "export" and (workdir / "simulator").is_dir()
            if not phase or code == 0 or (exported and code == -strike[0] != -signal.SIGKILL):
                missed.append(strike)  # the command had ended, and its handlers were off
                continue
            name = signal.Signals(strike[0]).name
            expected = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[strike[0]]
            lines = 0 if strike[0] == signal.SIGKILL else 1
            wrong = [f"exit code {code}"] if code != expected else []
            wrong += [f"{len(said)} lines: {said[:3]}"] if len(said) != lines else []
            wrong += not_prefixes(workdir, reference)
            if strike[0] != signal.SIGKILL:
                wrong += leftovers(workdir, workdir.parent / "models")
            hits[name, phase] += 1
            self.counts["wrong",] += bool(wrong)
            print(f"{name} {phase}: {code}{'  WRONG ' + str(wrong) if wrong else ''}", flush=True)
        code, _, said = self.run(workdir)
        wrong = [f"exit code {code}: {said[-3:]}"] if code else differences(workdir, reference)
        wrong += leftovers(workdir, workdir.parent / "models")
        print(f"run {number}: {sum(hits.values())} strikes, differs in {wrong}", flush=True)
        self.counts["runs that differ",] += bool(wrong)
        for key, count in hits.items():
            self.counts[key] += count
            self.counts[(*key, "equal")] += 0 if wrong else count
        if not wrong:
            shutil.rmtree(workdir.parent)
        return missed

    def corrupt_all(self, reference: pathlib.Path, times: int) -> None:
        """Damages every file of the newest checkpoint and every record, in copies."""
        source = self.out / "corrupt" / "run"
        shutil.copytree(reference.parent / "models", source.parent / "models", dirs_exist_ok=True)
        self.run(
            source, None, f"--config.epochs={self.options.epochs - 1}", "--config.export=False"
        )
        newest = source / "checkpoints" / str(self.options.epochs - 1)
        files = [
            *newest.rglob("*"),
            *(source / f"{name}.jsonl" for name in RECORDS),
            source / "config.json",
        ]
        names = sorted(path.relative_to(source).as_posix() for path in files if path.is_file())
        todo = [(name, how) for name in names for how in DAMAGES] * times
        self.rng.shuffle(todo)
        for name, how in todo:
            if time.monotonic() > self.until:
                break
            workdir = source.parent / "copy"
            shutil.rmtree(workdir, ignore_errors=True)
            shutil.copytree(source, workdir)
            damage(workdir / name, how, self.rng)
            code, _, said = self.run(workdir)
            kind = "checkpoint" if name.startswith("checkpoints") else name
            if code == 0:
                wrong = differences(workdir, reference)
                # Files by which nothing is judged may be lost without a word.
                outcome = (
                    f"differs in {wrong}"
                    if wrong
                    else "recovered, said"
                    if said
                    else "recovered, silent"
                )
            else:
                errors = [x for x in said if x.startswith("error: ")]
                one = code == 2 and len(errors) == 1 and "Traceback" not in "".join(said)
                outcome = "refused" if one and name in errors[0] else f"code {code}: {said[-3:]}"
            self.counts[how, kind, outcome] += 1
            print(f"{how} {name}: {outcome}", flush=True)


def _is_display(line: str) -> bool:
    return (
        not line.strip()
        or re.match(r"(epoch \d+/|before training|train base model|base model|\[Gloo\])", line)
        is not None
        or re.match(
            r"(workdir|devices|model|benchmark|run|evaluation|finished|holds|next) {2,}\S", line
        )
        is not None
    )


def table(counts: collections.Counter[tuple[str, ...]]) -> str:
    """A line for each count."""
    return "\n".join(f"{'  '.join(key)}: {count}" for key, count in sorted(counts.items()))
