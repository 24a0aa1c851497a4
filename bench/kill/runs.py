"""Runs that are struck, and the counts of the results."""

import argparse
import collections
import os
import pathlib
import random
import re
import shutil
import signal
import time
from collections.abc import Sequence
from typing import Any

from bench.kill.comparison import differences, leftovers, not_prefixes
from bench.kill.processes import Child, orphans

PHASES = ("warm start", "compile", "sampling", "scoring", "update", "checkpoint", "export")
# Seconds after a phase's beginning within which it is struck.
_WITHIN = {"scoring": 0.005, "update": 0.5, "checkpoint": 0.5, "export": 0.5}
_SETTINGS = (
    *("--config.agent.batch_size=16", "--config.agent.minibatch_size=16", "--config.export=True"),
    *("--config.model.make.num_layers=1", "--config.evaluation.sampled=0", "--config.warm_start.steps=60"),
)  # fmt: skip
_LONGEST = 900.0  # seconds of one command
_EXIT_CODES = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143, signal.SIGINT: 130}
_DISPLAY = re.compile(
    r"\s*$|(epoch \d+/|before training|train base model|base model|\[Gloo\])"
    r"|(workdir|devices|model|benchmark|run|evaluation|finished|holds|next) {2,}\S"
)

Strike = tuple[int, str]  # signal, phase


def plan(kills: int, signals: int, rng: random.Random) -> list[Strike]:
    """All strikes, in an order in which a run passes through the phases.

    kills: SIGKILLs, over all phases.  signals: SIGTERMs, and SIGINTs, in each phase.
    """
    strikes = [(signal.SIGKILL, PHASES[i % len(PHASES)]) for i in range(kills)]
    strikes += [(s, p) for s in (signal.SIGTERM, signal.SIGINT) for p in PHASES] * signals
    rng.shuffle(strikes)
    rank = {"warm start": 0, "export": 2}
    return sorted(strikes, key=lambda strike: rank.get(strike[1], 1))


def batches(strikes: Sequence[Any], size: int) -> list[list[Any]]:
    """Every n-th strike for each of n runs of about `size` strikes, so that each has early and late ones."""
    count = max(1, -(-len(strikes) // size))
    return [list(strikes[i::count]) for i in range(count)]


class Harness:
    """Starts the commands of one kind of run, and counts what came of the strikes.

    Args:
      options: of the command line.
      settings: further arguments of the runs.
      out: where everything is written.
    """

    def __init__(self, options: argparse.Namespace, settings: Sequence[str], out: pathlib.Path):
        self.options, self.settings, self.out = options, settings, out
        self.rng = random.Random(options.seed)
        self.until = time.monotonic() + 60 * options.minutes
        self.counts: collections.Counter[tuple[str, ...]] = collections.Counter()

    def run(
        self, workdir: pathlib.Path, strike: Strike | None = None, *more: str
    ) -> tuple[int, str, list[str]]:
        """Runs the command until it ends, or is struck.

        Returns:
          exit code, the phase in which it was struck ("" if it was not), and what it printed besides the
          display.
        """
        log, struck, waiting = self.out / "output", "", self.rng.randrange(4)
        made = f"--config.model.make.cache_dir={workdir.parent / 'models'}"
        given = [f"--config={self.options.config}", f"--workdir={workdir}", made, *_SETTINGS]
        given += [f"--config.epochs={self.options.epochs}", *self.settings, *more]
        child = Child(given, log)
        for phase in child.phases(_LONGEST):
            if struck or not strike or phase != strike[1]:
                continue
            if phase in ("sampling", "update") and waiting:
                waiting -= 1
                continue
            time.sleep(self.rng.random() * _WITHIN.get(phase, 2.0))
            struck = [phase, *child.begun()][-1]
            os.kill(child.pid, strike[0])
        code = child.wait()
        lines = log.read_text(errors="replace").splitlines()
        if left := orphans():
            self.counts["leftover processes",] += len(left)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        return code, struck, [line for line in lines if not _DISPLAY.match(line)]

    def strike_all(self, reference: pathlib.Path, strikes: list[Strike]) -> None:
        """Runs that are struck about `--per_run` times each; strikes too late for one go to the next."""
        number = 0
        while strikes and time.monotonic() < self.until:
            missed: list[Strike] = []
            for some in batches(strikes, self.options.per_run):
                if time.monotonic() < self.until:
                    missed += self.strike_one(reference, number, some)
                    number += 1
            if len(missed) == len(strikes):
                self.counts["missed",] += len(missed)
                return
            strikes = missed

    def strike_one(self, reference: pathlib.Path, number: int, strikes: list[Strike]) -> list[Strike]:
        """One run, started again after each strike; returns strikes that came after its end."""
        workdir, hits = self.out / f"struck-{number}" / "run", collections.Counter()
        missed: list[Strike] = []
        for strike in strikes:
            if missed and strike[1] != "export":  # the last commands do nothing but export
                missed.append(strike)
                continue
            if time.monotonic() > self.until:
                break
            code, phase, said = self.run(workdir, strike, f"--config.compile_ahead={strike[1] == 'compile'}")
            exported = phase == "export" and (workdir / "simulator").is_dir()
            if not phase or code == 0 or (exported and code == -strike[0] != -signal.SIGKILL):
                missed.append(strike)  # the command had ended, and its handlers were off
                continue
            lines = 0 if strike[0] == signal.SIGKILL else 1
            wrong = [f"exit code {code}"] if code != _EXIT_CODES[strike[0]] else []
            wrong += [f"{len(said)} lines: {said[:3]}"] if len(said) != lines else []
            wrong += not_prefixes(workdir, reference)
            if strike[0] != signal.SIGKILL:
                wrong += leftovers(workdir, workdir.parent / "models")
            name = signal.Signals(strike[0]).name
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
