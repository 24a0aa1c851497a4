"""A suite as its workdir remembers it, for reading results where its configuration files are not."""

from __future__ import annotations

import json
import os
import pathlib

from ml_collections import ConfigDict

from genenv_jax.experiments.suite import Plan, default_suite

_OF_A_RUN = ("epochs", "rollouts")  # settings of an arm that say when its runs are finished


def stored_plan(workdir: str | os.PathLike[str]) -> Plan:
    """The plan that a suite's workdir was started with, from its suite.json.

    It is enough for `load_results`, and not for `Runner`: of the arms' configurations it has only what
    says when a run is finished.

    Raises:
      FileNotFoundError: the directory or its suite.json is missing.
      ValueError: suite.json is damaged; the message says what is missing.
    """
    path = pathlib.Path(workdir) / "suite.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected the workdir of a suite")
    try:
        stored = dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}; expected settings") from None
    suite = default_suite()
    try:
        # In the order in which the suite shows them: that of their settings.
        names = [
            key.partition(".")[2] for key in stored if key.count(".") == 1 and key[:5] == "arms."
        ]
        arms = {name: str(stored[f"arms.{name}"]) for name in names}
        if not arms or sorted(arms) != sorted(stored["arms"]):
            raise KeyError("arms")
        configs = {
            name: ConfigDict({key: int(stored[f"arms.{name}.{key}"]) for key in _OF_A_RUN})
            for name in names
        }
        for key in ("metric", "strata", "threshold_arm"):
            suite[key] = str(stored[key])
        suite.bootstrap = int(stored["bootstrap"])
        suite.seeds = tuple(int(seed) for seed in stored["seeds"])
        suite.contrasts = tuple((str(a), str(b)) for a, b in stored["contrasts"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}: expected the settings of a suite") from None
    suite.arms, suite.order = dict(arms), tuple(arms)
    overrides = {
        key.removeprefix("overrides."): value
        for key, value in stored.items()
        if key.startswith("overrides.")
    }
    return Plan(suite, arms, configs, overrides)


def arm_differences(workdir: str | os.PathLike[str]) -> dict[str, dict[str, str]]:
    """Arm to {setting: value as text} where it differs from the suite's first arm, in the suite's order.

    The first arm has its own values of all settings in which another arm differs.

    Raises FileNotFoundError or ValueError as `stored_plan` does.
    """
    arms = list(stored_plan(workdir).arms)
    stored = json.loads((pathlib.Path(workdir) / "suite.json").read_bytes())
    settings = {
        arm: {
            key.removeprefix(f"arms.{arm}."): json.dumps(value)
            for key, value in stored.items()
            if key.startswith(f"arms.{arm}.")
        }
        for arm in arms
    }
    first = settings[arms[0]]
    differences = {
        arm: {key: value for key, value in settings[arm].items() if value != first.get(key)}
        for arm in arms[1:]
    }
    changed = sorted({key for found in differences.values() for key in found})
    return {arms[0]: {key: first[key] for key in changed if key in first}, **differences}
