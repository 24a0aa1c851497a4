"""A run's configuration: the paper's settings as defaults, and checks before anything is computed.

Each group of settings is a frozen dataclass next to the code that uses it; `Config` collects them.  A file in
configs/ defines `get_config(arg)`, which starts from `default_config()` and changes some settings.
`validate` rejects unknown keys, wrong types and impossible combinations; its errors name the key and the
expected value.
"""

import dataclasses
import difflib
import json
import os
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from genenv_jax.benchmarks import registry
from genenv_jax.evaluate.held_out import EvaluationConfig
from genenv_jax.models.language_model import ModelConfig
from genenv_jax.models.lora import LoraConfig
from genenv_jax.parallel.mesh import MeshConfig
from genenv_jax.players.agent import AgentConfig
from genenv_jax.players.lengths import LimitsConfig
from genenv_jax.players.offload import MemoryConfig
from genenv_jax.players.optimizer import OptimizerConfig
from genenv_jax.players.simulator import SimulatorConfig
from genenv_jax.run.checkpoint import CheckpointConfig
from genenv_jax.run.tracking import TrackingConfig
from genenv_jax.sampling.engine import SamplingConfig
from genenv_jax.scoring.scorer import ScoringConfig
from genenv_jax.scoring.verification import VerificationConfig
from genenv_jax.settings import Settings, flatten, within
from genenv_jax.tasks.objective import CurriculumConfig
from genenv_jax.tasks.sources import SIMULATOR, STATIC, TasksConfig
from genenv_jax.trainers.warm_start import WarmStartConfig


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Settings of arXiv 2512.19682 (Table 2 and the public configuration) for a 7B model.

    Attributes:
      seed: random seed of the run.
      epochs: number of epochs after which the run ends.
      rollouts: the run ends after the epoch in which the agent reaches this many rollouts; 0: no limit.
      tokens: the run ends after the epoch in which both players have processed this many; 0: no limit.
      benchmark: the benchmark's `name`, and the options of its constructor.
      export: write both players as Hugging Face directories at the end.
      compile_ahead: compile the programs of all prompt widths before the first epoch; otherwise each is
        compiled when it is first needed.
      compilation_cache: keep compiled programs for later runs, see `run.programs.enable_compilation_cache`.

    The other attributes are groups of settings.
    """

    seed: int = within(0, 0, 2**32 - 1)  # JAX keys take 32-bit seeds
    epochs: int = within(10, 0)
    rollouts: int = within(0, 0)
    tokens: int = within(0, 0)
    model: ModelConfig = ModelConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    lora: LoraConfig = LoraConfig()
    memory: MemoryConfig = MemoryConfig()
    mesh: MeshConfig = MeshConfig()
    benchmark: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"name": ""})
    limits: LimitsConfig = LimitsConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    agent: AgentConfig = AgentConfig()
    simulator: SimulatorConfig = SimulatorConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    tasks: TasksConfig = TasksConfig()
    verification: VerificationConfig = VerificationConfig()
    sampling: SamplingConfig = SamplingConfig()
    scoring: ScoringConfig = ScoringConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    export: bool = True
    compile_ahead: bool = True
    compilation_cache: bool = True
    tracking: TrackingConfig = TrackingConfig()

    @property
    def trains_simulator(self) -> bool:
        """Whether the simulator is trained: on tasks that it writes, and on no others."""
        return self.simulator.train and self.tasks.source == SIMULATOR

    @property
    def separate_start(self) -> bool:
        """Whether the simulator, which writes tasks, alone has a warm start, and so a base of its own."""
        alone = self.warm_start.steps > 0 and self.warm_start.roles != "both"
        return alone and self.tasks.source in (SIMULATOR, STATIC)

    def to_dict(self) -> dict[str, Any]:
        """The settings as nested plain values."""
        return dataclasses.asdict(self)


def default_config() -> ConfigDict:
    """The settings of `Config` as a mutable dictionary."""
    return ConfigDict(Config().to_dict())


def use_model(config: ConfigDict, path: str) -> None:
    """Sets the model of a configuration to `path`, a directory or hub id, without a warm start."""
    config.model.path = path
    config.model.make.vocab_size = config.warm_start.steps = 0


def validate(config: ConfigDict) -> Config:
    """The checked configuration.  Raises ValueError for the first invalid setting."""
    checked = check_group(Config, config.to_dict(), "config")
    if "name" not in checked.benchmark:
        raise ValueError("config.benchmark.name is missing")
    if not checked.benchmark["name"]:
        raise ValueError("config.benchmark.name is empty: expected the name of a benchmark")
    if bool(checked.model.path) == bool(checked.model.make.vocab_size):
        raise ValueError(
            "config.model.path must name a model (directory or hub id), or "
            "config.model.make.vocab_size must be positive so that one is made; not both"
        )
    if checked.warm_start.roles != "both" and not checked.model.path:
        raise ValueError(
            f"config.warm_start.roles = {checked.warm_start.roles!r}: expected 'both', since a model that is "
            "made here knows neither role"
        )
    return checked


def check_group(kind: type[Settings], given: Any, where: str) -> Any:
    """Makes a group of settings from plain values; `where` is its dotted key.

    Raises ValueError for the first setting that is unknown, missing, of another type or out of bounds.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"{where} = {given!r}: expected a group of settings")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in given:
        if key not in fields:
            raise ValueError(f"{where}.{key} is not a setting; {_hint(key, fields, where)}")
    values = {}
    for name, field in fields.items():
        key = f"{where}.{name}"
        if name not in given:
            raise ValueError(f"{key} is missing")
        value, default = given[name], getattr(kind, name, None)
        if isinstance(default, Settings):
            values[name] = check_group(type(default), value, key)
        elif default is None:
            if not isinstance(value, Mapping):
                raise ValueError(f"{key} = {value!r}: expected a group of settings")
            values[name] = {option: _plain(of, f"{key}.{option}") for option, of in value.items()}
        else:
            values[name] = _typed(value, default, key, field.metadata.get("choices"))
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from None


def _plain(value: Any, key: str) -> Any:
    """A value that JSON can hold: a path as text.  Raises ValueError for others."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        raise ValueError(f"{key} = {value!r}: expected a text, number, boolean, list or None") from None
    return value


def _hint(key: str, known: Mapping[str, Any], where: str) -> str:
    """Suggests a key for an unknown one: a similar key, one with these initials, or one in another group."""
    close = difflib.get_close_matches(key, list(known), 1)
    close = close or [name for name in known if _initials(name) == key]
    meant = [f"{where}.{name}" for name in close] or [
        f"config.{name}"
        for name in flatten(Config().to_dict())
        if key in (last := name.rpartition(".")[2], _initials(last))
    ]
    if meant:
        return f"did you mean {' or '.join(meant)}?"
    return f"expected one of {sorted(known)}"


def _initials(name: str) -> str:
    return "".join(word[:1] for word in name.split("_"))


def _typed(value: Any, default: Any, key: str, choices: Any) -> Any:
    """Checks that a value has the default's type; converts integers to floats and lists to tuples."""
    kind = type(default)
    if kind is float and type(value) is int:
        return float(value)
    if kind is tuple and isinstance(value, (tuple, list)):
        of = type(default[0]) if default else int
        if all(type(item) is of for item in value):
            return tuple(value)
    elif type(value) is kind or choices:  # a wrong choice has its own message
        return value
    raise ValueError(f"{key} = {value!r}: expected a value of type {kind.__name__}")


def changes(config: ConfigDict) -> dict[str, tuple[Any, Any]]:
    """Dotted key to (value, default), for the settings that differ from the defaults.

    A benchmark's options are compared with its constructor's defaults.
    """
    given, defaults = flatten(config.to_dict()), flatten(default_config().to_dict())
    options = registry.default_options(config.benchmark.name) if config.benchmark.name else {}
    defaults |= {f"benchmark.{name}": value for name, value in options.items()}
    return {key: (value, defaults.get(key)) for key, value in given.items() if value != defaults.get(key)}
