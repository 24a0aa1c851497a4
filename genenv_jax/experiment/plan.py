"""The plan of an experiment: a suite's checked settings, and its workdir.

workdir/
  suite.json           the settings that the workdir was started with
  <arm>/seed-<s>/      the workdir of a `genenv_jax.main` run; suite_done.json in it marks a finished run
  <arm>/seed-<s>.log   the run's output
"""

import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from genenv_jax.benchmarks import registry
from genenv_jax.cli import load_config
from genenv_jax.config import Config, check_group, flatten, validate
from genenv_jax.results.suites import COSTS, progress, run_dir
from genenv_jax.run.jsonl import read_json, write_json
from genenv_jax.settings import Settings, choice, within
from genenv_jax.system.ownership import SUITE, refuse_other

DONE = "suite_done.json"
_FREE = ("jobs",)  # settings of a suite that do not change its results
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+=,-]*")


@dataclasses.dataclass(frozen=True)
class Suite(Settings):
    """Settings of a suite.

    Attributes:
      base: configuration file of all runs, "FILE.py" or "FILE.py:ARGUMENT".
      arms: name -> settings that the arm changes in `base`, by dotted key.  A seed's runs, the tables and
        the figures follow the order of the arms.
      overrides: settings of all arms, by dotted key.
      seeds: seeds of each arm's runs.
      contrasts: pairs (arm, arm) fixed beforehand: first minus second, with Holm's correction over all pairs.
      cost: x axis of the curves, see `Results`: "tokens" or "rollouts".
      metric: the primary held-out score, eval/<split>/<mode>/<metric> of metrics.jsonl.
      strata: name prefix of the metric's strata, which are metrics of the same split and mode.
      bootstrap: resamples per interval.
      jobs: processes at a time.
    """

    base: str = "configs/quickstart.py"
    arms: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seeds: tuple[int, ...] = tuple(range(8))
    contrasts: tuple[tuple[str, str], ...] = ()
    cost: str = choice(*COSTS)
    metric: str = "eval/in_distribution/sampled/accuracy"
    strata: str = "depth_"
    bootstrap: int = within(10_000, 100)
    jobs: int = within(1, 1)


def default_suite(
    arms: Mapping[str, Mapping[str, Any]], overrides: Mapping[str, Any] | None = None
) -> ConfigDict:
    """The settings of `Suite` as a mutable dictionary.

    `arms` and `overrides` have dotted keys, as in `Suite`.  The result nests them like a run's configuration,
    since a ConfigDict allows no dots in keys: `--config.overrides.agent.group_size=4`.
    """
    suite = ConfigDict(dataclasses.asdict(Suite()), sort_keys=False)
    suite.arms = ConfigDict({name: nested(arm) for name, arm in arms.items()}, sort_keys=False)
    suite.overrides = _groups(Config().to_dict())  # so that a flag can name any setting
    suite.overrides.update(nested(overrides or {}))
    return suite


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted key as nested dictionaries: the inverse of `genenv_jax.config.flatten`.

    Raises ValueError for a key below another key's value.
    """
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        branch = tree
        *groups, name = key.split(".")
        for group in groups:
            branch = branch.setdefault(group, {})
            if not isinstance(branch, dict):
                raise ValueError(f"config.{key}: {group} is a setting and not a group of settings")
        branch[name] = value
    return tree


def _groups(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Only the groups of nested settings, without their values."""
    return {key: _groups(value) for key, value in settings.items() if isinstance(value, Mapping)}


@dataclasses.dataclass(frozen=True)
class Plan:
    """A checked suite.

    configs: arm to all settings of its runs by dotted key, except that `seed` is not a run's seed.
    """

    suite: Suite
    configs: Mapping[str, Mapping[str, Any]]

    def runs(self) -> list[tuple[str, int]]:
        """(arm, seed), seed by seed: a seed's first run makes what its runs share."""
        return [(arm, seed) for seed in self.suite.seeds for arm in self.suite.arms]

    def share(self, arm: str, directory: pathlib.Path) -> float:
        """The finished share of an arm's run, in [0, 1]: 1 after its epochs, tokens or rollouts."""
        config = self.configs[arm]
        step, spent = progress(directory)
        shares = [spent[key] / config[key] for key in COSTS if config[key]]
        return min(1.0, max((step or 0) / config["epochs"], *shares, 0.0))

    def is_done(self, workdir: pathlib.Path, arm: str, seed: int) -> bool:
        """Whether a run has its marker and its metrics reach the end."""
        directory = run_dir(workdir, arm, seed)
        return (directory / DONE).is_file() and self.share(arm, directory) == 1


# -- from settings to a plan ---------------------------------------------------------------------------


def make_plan(config: ConfigDict) -> Plan:
    """Checks a suite and the configuration of each of its arms.

    Raises ValueError for a setting that is unknown or invalid; the message names it and the arm.
    """
    suite = _suite(config.to_dict())
    base = flatten(load_config(suite.base, "config.base = ").to_dict())
    configs = {}
    for arm, own in suite.arms.items():
        where = f"config.arms.{arm}"
        for key in own:
            if key in suite.overrides:
                raise ValueError(f"{where}.{key}: config.overrides sets it too; expected it in only one")
        if "seed" in own or "seed" in suite.overrides:
            raise ValueError(f"{where}: seed is set; expected none, since config.seeds lists the seeds")
        try:
            checked = validate(ConfigDict(nested(base | suite.overrides | own)))
            registry.check_options(**checked.benchmark)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        if checked.evaluation.every == 0 or checked.epochs < 1:
            raise ValueError(
                f"{where}: evaluation.every and epochs must be positive, "
                "since arms are compared by their curves of held-out scores"
            )
        mode = suite.metric.split("/")[2]
        if mode not in (modes := checked.evaluation.modes()):
            raise ValueError(f"{where}: config.metric = {suite.metric!r}: expected one of {', '.join(modes)}")
        configs[arm] = flatten(checked.to_dict())
    return Plan(suite, configs)


def _suite(given: Mapping[str, Any]) -> Suite:
    """A suite from plain values, each of its default's type; lists become tuples."""
    # Contrasts are pairs, which no setting of a run is.
    plain = {key: () if key == "contrasts" else value for key, value in given.items()}
    suite = check_group(Suite, plain, "config")
    for name, arm in suite.arms.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"config.arms: {name!r} names a directory: expected letters, digits, _ + = , -")
        if not isinstance(arm, Mapping):
            raise ValueError(f"config.arms.{name} = {arm!r}: expected settings on top of config.base")
    arms, seeds = {name: flatten(arm) for name, arm in suite.arms.items()}, suite.seeds
    if not arms:
        raise ValueError("config.arms is empty: expected arms' names, each with its settings")
    if min(seeds, default=-1) < 0 or len(set(seeds)) < len(seeds):
        raise ValueError(f"config.seeds = {seeds!r}: expected distinct integers of at least 0")
    if not re.fullmatch(r"eval/[^/]+/[^/]+/.+", suite.metric):
        raise ValueError(
            f"config.metric = {suite.metric!r}: expected eval/<split>/<mode>/<metric> of metrics.jsonl"
        )
    if not suite.strata:
        raise ValueError(f"config.strata = {suite.strata!r}: expected the prefix of their names")
    contrasts = given["contrasts"]
    if not isinstance(contrasts, (tuple, list)):
        raise ValueError(f"config.contrasts = {contrasts!r}: expected pairs of arms")
    for pair in contrasts:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or pair[0] == pair[1]:
            raise ValueError(f"config.contrasts: {pair!r}: expected a pair of two arms")
        for name in pair:
            if name not in arms:
                raise ValueError(f"config.contrasts: {name!r}: expected one of {list(arms)}")
    contrasts = tuple(map(tuple, contrasts))
    if len(set(contrasts)) < len(contrasts):
        raise ValueError("config.contrasts: expected each only once, since Holm's correction counts them")
    overrides = flatten(suite.overrides)
    return dataclasses.replace(suite, arms=arms, overrides=overrides, contrasts=contrasts)


# -- what a workdir holds ------------------------------------------------------------------------------


def compare_or_store(plan: Plan, workdir: pathlib.Path, store: bool = True) -> None:
    """Writes suite.json, or compares it with the plan; only `jobs` may change.

    Finished runs are not repeated, so changing the settings midway would mix runs of both, and contrasts
    chosen after seeing the results are not tests.  Without `store`, when nothing is run, the finished runs
    may be reported against another `cost`.

    Raises ValueError if the workdir holds a suite with other settings, or suite.json is damaged.
    """
    path = workdir / "suite.json"
    if path.is_file():
        stored, given = _compared(stored_plan(workdir)), _compared(plan)
        if not store:
            given["config.cost"] = stored["config.cost"]
        for key in given | stored:
            before, now = stored.get(key), given.get(key)
            if before != now:
                now = f"now it is {now!r}" if key in given else "now there is no such setting"
                raise ValueError(
                    f"{workdir} holds a suite with {key} = {before!r}, but {now}: "
                    "expected the same settings, or another --workdir"
                )
    elif store:
        refuse_other(workdir, SUITE, "--workdir")
        workdir.mkdir(parents=True, exist_ok=True)
        write_json(path, dataclasses.asdict(plan))


def _compared(plan: Plan) -> dict[str, Any]:
    """The values that must not change, as JSON, by the names that messages use."""
    suite = {"arms": sorted(plan.suite.arms)} | flatten(dataclasses.asdict(plan.suite))
    named = {f"config.{key}": value for key, value in suite.items() if key not in _FREE}
    for arm, config in plan.configs.items():
        named |= {f"config.{key} of arm {arm}": value for key, value in config.items()}
    return json.loads(json.dumps(named))


def stored_plan(workdir: str | os.PathLike[str]) -> Plan:
    """The plan that a suite's workdir was started with, from its suite.json.

    Raises:
      FileNotFoundError: the directory or its suite.json is missing.
      ValueError: suite.json is damaged; the message says what is missing.
    """
    path = pathlib.Path(workdir) / "suite.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected the workdir of a suite")
    stored = read_json(path, "the settings of a suite")
    try:
        suite = _suite(stored["suite"])
        configs = {arm: dict(stored["configs"][arm]) for arm in suite.arms}
        for config in configs.values():
            limits = [config[key] for key in ("epochs", *COSTS)]
            if not all(type(limit) is int for limit in limits) or limits[0] < 1:
                raise ValueError("epochs, tokens or rollouts of an arm")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}; expected the settings of a suite") from None
    return Plan(suite, configs)
