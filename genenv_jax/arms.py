"""The arms of the ablations: what each changes in a configuration of any benchmark.

All arms of a suite share the warm start of a seed, the optimisers and the number of rollouts, those
included that only measure or are thrown away.
"""

from __future__ import annotations

import importlib.util
import math
import os
import pathlib
from collections.abc import Callable

from ml_collections import ConfigDict

from genenv_jax.benchmarks.base import Rejection
from genenv_jax.benchmarks.safe_parse import parse_literal


def genenv(config: ConfigDict, setting: str) -> None:
    """The paper's method: the simulator learns by reward-weighted regression on R_env."""
    _none(setting)
    config.simulator.method = "rwr"


def random(config: ConfigDict, setting: str) -> None:
    """GenEnv-Random: the simulator writes fresh tasks and is never trained."""
    _none(setting)
    config.simulator.train = False


def static(config: ConfigDict, setting: str) -> None:
    """GenEnv-Static: tasks that the initial simulator writes once.

    setting: how many, or "variations": five of each seed, as in the paper.
    """
    config.simulator.train = False
    config.tasks.source = "static"
    if setting == "variations":
        config.simulator.variations = 5
    else:
        config.tasks.count = _positive(setting, "how many tasks, or 'variations'")


def selection(config: ConfigDict, setting: str) -> None:
    """Fresh tasks of a frozen simulator, of which those are trained on whose p̂ is closest to alpha.

    setting: one in how many is kept, by default 2.  All rollouts count.
    """
    config.simulator.train = False
    config.agent.groups = "frontier"
    config.agent.frontier_factor = _positive(setting or "2", "one in how many tasks is kept")


def seed_grpo(config: ConfigDict, setting: str) -> None:
    """The simulator learns by policy gradient, its variations compared within each seed."""
    _none(setting)
    config.simulator.method = "grpo"


def teacher(config: ConfigDict, setting: str) -> None:
    """Offline data of a stronger, fixed generator: the benchmark's own, or a model behind a server.

    The latter where `tasks.teacher.url` and `tasks.teacher.model` are set as well.

    setting: how many tasks for each seed (the paper: 1.76 and 3.27 times its data).
    """
    try:
        factor = float(setting)
    except ValueError:
        factor = 0.0
    if not 0 < factor < math.inf:
        raise ValueError(f"setting {setting!r}: expected how many tasks for each seed, such as 3.3")
    config.simulator.train = False
    config.tasks.source = "teacher"
    config.tasks.teacher.per_seed = factor


def oracle(config: ConfigDict, setting: str) -> None:
    """The skyline: tasks at the difficulties that the agent solves with the target success rate."""
    _none(setting)
    config.simulator.train = False
    config.tasks.source = "oracle"


def arm_config(
    file: str | os.PathLike[str], arm: Callable[[ConfigDict, str], None], argument: str
) -> ConfigDict:
    """The configuration of an arm.

    Args:
      file: the arm's file in configs/ablations.
      arm: one of the functions above.
      argument: "[setting][,base][;key=value]..."; base: "<name>[:argument]" of the file in configs/ that the
        arm changes, by default quickstart; key: a setting by its dotted name; value: a Python literal, or
        text without quotes.
    Raises:
      ValueError: a setting that the arm does not take, or no such base or key.
    """
    argument, *changes = argument.split(";")
    setting, _, base = argument.partition(",")
    name, _, base_argument = (base or "quickstart").partition(":")
    path = pathlib.Path(file).resolve().parents[1] / f"{name}.py"
    if not path.is_file():
        raise ValueError(f"no configuration {path} to take as the base")
    spec = importlib.util.spec_from_file_location(f"config_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config(base_argument)
    arm(config, setting)
    for change in changes:
        _change(config, change)
    return config


def _change(config: ConfigDict, change: str) -> None:
    key, equals, text = change.partition("=")
    *groups, name = key.split(".")
    for group in groups:
        config = config.get(group)
        if not isinstance(config, ConfigDict):
            break
    # A benchmark's options are what its constructor takes, which is checked where it is made.
    known = groups == ["benchmark"] or (isinstance(config, ConfigDict) and name in config)
    if not equals or not isinstance(config, ConfigDict) or not known:
        raise ValueError(f"{change!r}: expected key=value with the name of a setting")
    value = parse_literal(text)
    try:
        config[name] = text if isinstance(value, Rejection) else value
    except TypeError as error:
        raise ValueError(f"{change!r}: {error}") from None


def _none(setting: str) -> None:
    if setting:
        raise ValueError(f"setting {setting!r}: expected none")


def _positive(setting: str, what: str) -> int:
    if not setting.isdecimal() or not int(setting):
        raise ValueError(f"setting {setting!r}: expected {what}")
    return int(setting)
