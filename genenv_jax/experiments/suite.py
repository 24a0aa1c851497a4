"""The plan of an experiment, arms × seeds, and its runs as child processes.

workdir/
  suite.json           the settings that the workdir was started with
  <arm>/seed-<s>/      the workdir of a run of `genenv_jax.main`; suite_done.json in it: it is finished
  <arm>/seed-<s>.log   what it said
  xla_cache/           compiled programs, which the runs share
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from genenv_jax.config import validate
from genenv_jax.metrics import iter_jsonl

DONE = "suite_done.json"
_FREE = ("jobs",)  # settings of a suite that do not change what is computed
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+=,-]*")
_PATIENCE = 120.0  # seconds that a run may take to write its checkpoints when it is told to end
_POLL = 0.1  # seconds
_TAIL = 12  # lines of a failed run's log that are shown


def default_suite() -> ConfigDict:
    """The settings of a suite; a file in configs/ fills in arms, contrasts and threshold_arm."""
    return ConfigDict(
        {
            # Name: "configs/<file>.py[:argument]".
            "arms": {},
            # Names of arms, in the order in which they run and are shown; the others follow by name.
            "order": (),
            "seeds": tuple(range(8)),
            # Settings of all arms, nested like a run's configuration: {"agent": {"group_size": 4}}.
            "overrides": {},
            # Pairs (arm, arm) fixed beforehand: first minus second, Holm's correction over all of them.
            "contrasts": (),
            # Its mean final held-out score is what "rollouts to threshold" counts up to.
            "threshold_arm": "",
            "metric": "eval/in_distribution/sampled/accuracy",
            # Held-out strata are the metrics of that split and mode whose names begin so.
            "strata": "depth_",
            "bootstrap": 10_000,  # resamples of each interval
            "jobs": 1,  # processes at a time
        }
    )


@dataclasses.dataclass(frozen=True)
class Plan:
    """A checked suite.

    Attributes:
      suite: its settings.
      arms: name to the arm's configuration file, with its argument.
      configs: name to the arm's whole configuration, overrides included; the seed is not that of a run.
      overrides: dotted key to value.
    """

    suite: ConfigDict
    arms: Mapping[str, str]
    configs: Mapping[str, ConfigDict]
    overrides: Mapping[str, Any]

    def runs(self) -> list[tuple[str, int]]:
        """(arm, seed), seed by seed: what a seed's runs share, its first one makes."""
        return [(arm, seed) for seed in self.suite.seeds for arm in self.arms]

    def share(self, arm: str, directory: pathlib.Path) -> float:
        """How much of a run of the arm is done, in [0, 1]: 1 after its epochs, or its rollouts."""
        config = self.configs[arm]
        step, rollouts = last_step(directory) or 0, last_rollouts(directory)
        share = step / config.epochs if config.epochs else 1.0
        if config.rollouts:
            share = max(share, rollouts / config.rollouts)
        return min(share, 1.0)


def make_plan(suite: ConfigDict) -> Plan:
    """Checks a suite and loads its arms.

    Raises:
      ValueError: a setting is unknown or unfit, or an arm's configuration cannot be loaded; the message
        names it.
    """
    known = default_suite()
    for key in suite:
        if key not in known:
            close = difflib.get_close_matches(key, list(known), 1)
            hint = f"did you mean {close[0]}?" if close else f"expected one of {sorted(known)}"
            raise ValueError(f"config.{key} is not a setting of a suite; {hint}")
    for key in known:
        if key not in suite:
            raise ValueError(f"config.{key} is missing; start from default_suite()")
    for name in suite.order:
        if name not in suite.arms:
            raise ValueError(f"config.order: {name!r}: expected one of {list(suite.arms)}")
    arms = {name: suite.arms[name] for name in dict.fromkeys([*suite.order, *suite.arms])}
    if not arms:
        raise ValueError('config.arms is empty: expected names and "configs/<file>.py[:argument]"')
    for name, path in arms.items():
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"config.arms: {name!r} names a directory: expected letters, digits, _ + = , -"
            )
        if not isinstance(path, str):
            raise ValueError(f"config.arms.{name} = {path!r}: expected a configuration file")
    _check_numbers(suite)
    _check_names(suite, arms)
    overrides = _flat(suite.overrides)
    if "seed" in overrides:
        raise ValueError("config.overrides.seed: expected none, the seeds are config.seeds")
    configs = {}
    for name, path in arms.items():
        config = load_config(path, f"config.arms.{name}")
        try:
            config.update_from_flattened_dict(overrides)
            validate(config)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            text = str(error.args[0]) if error.args else str(error)
            raise ValueError(f"config.arms.{name} = {path!r}: {text}") from error
        if config.evaluation.every == 0 or config.epochs < 1:
            raise ValueError(
                f"config.arms.{name}: evaluation.every and epochs must be positive, "
                "since the curve of held-out scores is what is compared"
            )
        configs[name] = config
    return Plan(suite, arms, configs, overrides)


def _check_numbers(suite: ConfigDict) -> None:
    seeds = suite.seeds
    if not isinstance(seeds, (tuple, list)) or not all(type(s) is int and s >= 0 for s in seeds):
        raise ValueError(f"config.seeds = {seeds!r}: expected a tuple of integers, at least 0")
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"config.seeds = {seeds!r}: expected at least one, each of them once")
    for key, low in (("jobs", 1), ("bootstrap", 100)):
        if type(suite[key]) is not int or suite[key] < low:
            raise ValueError(f"config.{key} = {suite[key]!r}: expected an integer, at least {low}")


def _check_names(suite: ConfigDict, arms: Mapping[str, str]) -> None:
    if not isinstance(suite.metric, str) or not re.fullmatch(r"eval/[^/]+/[^/]+/.+", suite.metric):
        raise ValueError(
            f"config.metric = {suite.metric!r}: expected eval/<split>/<mode>/<metric> of metrics.jsonl"
        )
    if not isinstance(suite.strata, str) or not suite.strata:
        raise ValueError(f"config.strata = {suite.strata!r}: expected how their names begin")
    for pair in suite.contrasts:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or pair[0] == pair[1]:
            raise ValueError(f"config.contrasts: {pair!r}: expected a pair of two arms")
        for name in pair:
            if name not in arms:
                raise ValueError(f"config.contrasts: {name!r}: expected one of {list(arms)}")
    if len({tuple(pair) for pair in suite.contrasts}) < len(suite.contrasts):
        raise ValueError(
            "config.contrasts: expected each of them once, Holm's correction counts them"
        )
    if suite.threshold_arm not in arms:
        raise ValueError(
            f"config.threshold_arm = {suite.threshold_arm!r}: expected one of {list(arms)}"
        )


def load_config(path: str, where: str) -> ConfigDict:
    """`get_config` of "FILE.py" or "FILE.py:ARGUMENT", as --config of a run understands it.

    Raises ValueError, whose message begins with `where`, for whatever goes wrong in the file.
    """
    file, colon, argument = path.partition(":")
    if not pathlib.Path(file).is_file():
        raise ValueError(f"{where} = {path!r}: no such file {file}")
    try:
        # Not imported: Python's compiled copy of a file hides an edit that was made within a second.
        module: dict[str, Any] = {"__name__": "arm", "__file__": file}
        exec(compile(pathlib.Path(file).read_bytes(), file, "exec"), module)
        config = module["get_config"](argument) if colon else module["get_config"]()
    except Exception as error:  # the file is a user's program
        raise ValueError(f"{where} = {path!r}: {type(error).__name__}: {error}") from error
    if not isinstance(config, ConfigDict):
        raise ValueError(f"{where} = {path!r}: get_config returned no ConfigDict")
    return config


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key in values:
        value = values[key]
        if isinstance(value, (ConfigDict, Mapping)):
            flat |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, (bool, int, float, str, tuple, list)):
            flat[prefix + key] = tuple(value) if isinstance(value, list) else value
        else:
            raise ValueError(f"config.overrides.{prefix}{key} = {value!r}: expected a plain value")
    return flat


# -- what a workdir holds ------------------------------------------------------------------------------


def stored_settings(plan: Plan) -> dict[str, Any]:
    """What a workdir remembers of a plan: its settings, and every arm's, by dotted keys."""
    suite = plan.suite.to_dict()
    for key in ("arms", "order", "overrides"):
        suite.pop(key)
    flat: dict[str, Any] = (
        {"arms": sorted(plan.arms)} | suite | dict(_prefixed("overrides", plan.overrides))
    )
    for name, config in plan.configs.items():
        flat[f"arms.{name}"] = plan.arms[name]
        flat |= dict(_prefixed(f"arms.{name}", _flat(config)))
    return json.loads(json.dumps(flat))


def _prefixed(prefix: str, flat: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((f"{prefix}.{key}", value) for key, value in flat.items())


def compare_or_store(plan: Plan, workdir: pathlib.Path, store: bool = True) -> None:
    """Writes suite.json, or compares it with the plan; only `jobs` may change.

    A finished run is not repeated, so a suite whose settings changed on the way would mix runs of both,
    and contrasts that are chosen after the results are no tests.

    Raises:
      ValueError: the workdir holds a suite of other settings, or suite.json is damaged.
    """
    path, given = workdir / "suite.json", stored_settings(plan)
    if path.is_file():
        try:
            stored = dict(json.loads(path.read_bytes()))
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"{path} is damaged: {error}; expected settings") from None
        for key in [*given, *(k for k in stored if k not in given)]:
            before, now = stored.get(key), given.get(key)
            if key not in _FREE and before != now:
                raise ValueError(
                    f"{workdir} holds a suite with config.{key} = {before!r}, but now it is {now!r}: "
                    "expected the same settings, or another --workdir"
                )
    elif store:
        workdir.mkdir(parents=True, exist_ok=True)
        _write(path, given)


def _write(path: pathlib.Path, content: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    temporary.replace(path)


def run_dir(workdir: pathlib.Path, arm: str, seed: int) -> pathlib.Path:
    """The workdir of a run."""
    return workdir / arm / f"seed-{seed}"


def last_step(directory: pathlib.Path) -> int | None:
    """The last step in a run's metrics.jsonl; None where there is none (or it is damaged)."""
    step = None
    with contextlib.suppress(OSError, ValueError):
        for record in iter_jsonl(directory / "metrics.jsonl"):
            step = record.get("step", step)
    return step if isinstance(step, int) else None


def last_rollouts(directory: pathlib.Path) -> float:
    """The last "rollouts/total" in a run's metrics.jsonl; 0 where there is none (or it is damaged)."""
    rollouts = 0.0
    with contextlib.suppress(OSError, ValueError):
        for record in iter_jsonl(directory / "metrics.jsonl"):
            rollouts = record.get("rollouts/total", rollouts)
    return float(rollouts) if isinstance(rollouts, (int, float)) else 0.0


def is_done(plan: Plan, workdir: pathlib.Path, arm: str, seed: int) -> bool:
    """Whether a run has its marker, and its metrics reach the end."""
    directory = run_dir(workdir, arm, seed)
    return (directory / DONE).is_file() and plan.share(arm, directory) == 1


# -- running ---------------------------------------------------------------------------------------------


class Interrupted(Exception):
    """A signal ended the suite; `signum` says which."""

    def __init__(self, signum: int):
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


@dataclasses.dataclass
class _Child:
    arm: str
    seed: int
    directory: pathlib.Path
    process: subprocess.Popen
    started: float
    from_share: float  # of the run, done before

    @property
    def is_cold(self) -> bool:
        """It has not yet evaluated what it starts from, so it may still be making that."""
        return last_step(self.directory) is None


class Runner:
    """Runs what is left of a plan, `jobs` processes at a time.

    Of one seed a single run goes ahead until it has written its first metrics: it makes the warm start
    that the others of the seed then find in the cache.

    Args:
      plan, workdir: of the suite; suite.json is compared or written.
      command: what a run is, before its flags.
      say: takes one line of progress.
    Raises:
      ValueError: see `compare_or_store`; or the suite is at work already.
    """

    def __init__(
        self,
        plan: Plan,
        workdir: pathlib.Path,
        command: Sequence[str] = (sys.executable, "-m", "genenv_jax.main"),
        say: Callable[[str], None] = lambda line: print(line, flush=True),
    ):
        compare_or_store(plan, workdir)
        self.plan, self.workdir, self._command, self._say = plan, workdir, tuple(command), say
        self.failed: list[tuple[str, int]] = []
        self._children: list[_Child] = []
        self._seconds: dict[
            str, list[float]
        ] = {}  # per epoch, of the runs that ended in this session
        self._signal = 0

    def run(self) -> bool:
        """Runs what is left; returns whether all runs of the plan are finished now.

        Raises:
          Interrupted: SIGTERM or SIGINT came; the runs at work were told to end and will be continued.
        """
        left = [run for run in self.plan.runs() if not is_done(self.plan, self.workdir, *run)]
        total = len(self.plan.runs())
        if len(left) < total:
            self._say(f"{total - len(left)} of {total} runs are finished already")
        self._cache().mkdir(exist_ok=True)
        with self._lock() as lock, self._signals():
            try:
                while left or self._children:
                    self._raise_if_interrupted()
                    while run := self._next(left):
                        left.remove(run)
                        self._start(*run, lock)
                    self._collect(left, total)
                    time.sleep(_POLL)
            finally:
                self._end_children()
        return not self.failed

    def _next(self, left: Sequence[tuple[str, int]]) -> tuple[str, int] | None:
        """The next run that may start now, if any."""
        if len(self._children) >= self.plan.suite.jobs:
            return None
        making = {child.seed for child in self._children if child.is_cold}
        return next((run for run in left if run[1] not in making), None)

    def arguments(self, arm: str, seed: int) -> list[str]:
        """The whole command line of a run."""
        flags = [f"--config={self.plan.arms[arm]}"]
        for key, value in self.plan.overrides.items():
            flags.append(f"--config.{key}={value}")
        flags.append(f"--config.seed={seed}")
        if self.plan.configs[arm].compilation_cache:  # instead of one of its own
            flags.append("--config.compilation_cache=False")
        return [*self._command, *flags, f"--workdir={run_dir(self.workdir, arm, seed)}"]

    def _start(self, arm: str, seed: int, lock: int) -> None:
        directory = run_dir(self.workdir, arm, seed)
        directory.parent.mkdir(parents=True, exist_ok=True)
        environment = dict(os.environ)
        if self.plan.configs[arm].compilation_cache:
            environment.setdefault("JAX_COMPILATION_CACHE_DIR", str(self._cache().absolute()))
            environment.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
        arguments, before = self.arguments(arm, seed), last_step(directory) or 0
        with self._log_path(arm, seed).open("ab") as log:
            log.write(f"$ {' '.join(arguments)}\n".encode())
            log.flush()
            # In a session of its own, so that Ctrl-C reaches it through the suite, in good order; and
            # with the suite's lock, which a run that outlives the suite then still holds.
            process = subprocess.Popen(
                arguments,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(lock,),
            )
        share = self.plan.share(arm, directory)
        self._children.append(_Child(arm, seed, directory, process, time.monotonic(), share))
        self._say(
            f"{arm} seed {seed}: " + (f"continues after epoch {before}" if before else "starts")
        )

    def _collect(self, left: Sequence[tuple[str, int]], total: int) -> None:
        for child in [c for c in self._children if c.process.poll() is not None]:
            self._children.remove(child)
            self._raise_if_interrupted(child)
            arm, seed, code = child.arm, child.seed, child.process.returncode
            seconds = time.monotonic() - child.started
            step = last_step(child.directory)
            if code == 0 and self.plan.share(arm, child.directory) == 1:
                _write(
                    child.directory / DONE,
                    {"epochs": step, "minutes_of_last_start": seconds / 60},
                )
                if child.from_share < 1:
                    whole = seconds / (1 - child.from_share)
                    self._seconds.setdefault(arm, []).append(whole)
                finished = total - len(left) - len(self._children) - len(self.failed)
                self._say(
                    f"[{finished}/{total}] {arm} seed {seed}: finished in {_duration(seconds)}"
                    f"{self._scores(child)}{self._time_left(left)}"
                )
                continue
            self.failed.append((arm, seed))
            epochs = self.plan.configs[arm].epochs
            why = f"exit code {code}" if code else f"ended at epoch {step or 0} of {epochs}"
            if code < 0:
                with contextlib.suppress(ValueError):
                    why = f"killed by {signal.Signals(-code).name}"
            path = self._log_path(arm, seed)
            self._say(f"{arm} seed {seed}: FAILED ({why}); the end of {path}:")
            for line in tail(path):
                self._say(f"    {line}")

    def _scores(self, child: _Child) -> str:
        scores = [
            record[self.plan.suite.metric]
            for record in iter_jsonl(child.directory / "metrics.jsonl")
            if isinstance(record.get(self.plan.suite.metric), (int, float))
        ]
        return f", held-out {scores[0]:.3f} → {scores[-1]:.3f}" if scores else ""

    def _time_left(self, left: Sequence[tuple[str, int]]) -> str:
        """From the seconds that each arm's runs took so far, or all arms' where it has none."""
        everything = [s for seconds in self._seconds.values() for s in seconds]
        if not everything or not (left or self._children):
            return ""

        def seconds(arm: str, share: float) -> float:
            known = self._seconds.get(arm, everything)
            return share * sum(known) / len(known)

        expected = 0.0
        for arm, seed in left:
            directory = run_dir(self.workdir, arm, seed)
            expected += seconds(arm, 1 - self.plan.share(arm, directory))
        for child in self._children:
            whole = seconds(child.arm, 1 - child.from_share)
            expected += max(0.0, whole - (time.monotonic() - child.started))
        return f"; about {_duration(expected / self.plan.suite.jobs)} left"

    def _cache(self) -> pathlib.Path:
        return self.workdir / "xla_cache"

    def _log_path(self, arm: str, seed: int) -> pathlib.Path:
        return self.workdir / arm / f"seed-{seed}.log"

    # -- signals and the lock ------------------------------------------------------------------------

    @contextlib.contextmanager
    def _lock(self) -> Iterator[int]:
        """Keeps a second suite, and this one's second start, away from runs that are at work."""
        handle = os.open(self.workdir / "suite.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ValueError(
                    f"{self.workdir} is in use: this experiment, or a run that one left behind, is at work"
                ) from None
            yield handle
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(signum, _):
            self._signal = self._signal or signum

        previous = {s: signal.signal(s, note) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for signum, handler in previous.items():
                signal.signal(signum, handler)

    def _raise_if_interrupted(self, child: _Child | None = None) -> None:
        if self._signal:
            if child:
                self._children.append(child)
            raise Interrupted(self._signal)

    def _end_children(self) -> None:
        """Tells the runs to end, which leaves them to be continued; kills those that do not."""
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.process.terminate()
        deadline = time.monotonic() + _PATIENCE
        for child in self._children:
            try:
                child.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            self._say(f"{child.arm} seed {child.seed}: interrupted after epoch "
                      f"{last_step(child.directory) or 0}")  # fmt: skip
        self._children.clear()


def tail(path: pathlib.Path, lines: int = _TAIL) -> list[str]:
    """The last lines of a log, with what a terminal would overwrite or obey left out."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 16_384))
        text = file.read().decode("utf-8", "replace")
        parts = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
        shown = [
            "".join(c for c in part if c.isprintable())[:300] for part in parts if part.strip()
        ]
        return shown[-lines:]
    return []


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
