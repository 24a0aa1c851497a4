"""A run's configuration: the paper's settings as defaults, and checks before anything is computed.

Each group of settings is a frozen dataclass beside the code that it is for; `Config` collects them.  A file
in configs/ defines `get_config(arg)`, which starts from `default_config()` and changes what is its own.
`validate` refuses unknown keys, wrong types and impossible combinations, naming the key and what was
expected.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
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
from genenv_jax.players.simulator import SimulatorConfig
from genenv_jax.run.checkpoint import CheckpointConfig
from genenv_jax.run.tracking import TrackingConfig
from genenv_jax.sampling.engine import SamplingConfig
from genenv_jax.scoring.scorer import ScoringConfig
from genenv_jax.scoring.verification import VerificationConfig
from genenv_jax.settings import Settings, flatten, within
from genenv_jax.tasks.objective import CurriculumConfig
from genenv_jax.tasks.sources import TasksConfig
from genenv_jax.trainers.warm_start import WarmStartConfig


def _no_benchmark() -> dict[str, Any]:
    return {"name": ""}


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Settings of arXiv 2512.19682 (Table 2 and the public configuration) for a 7B model.

    epochs, rollouts, tokens: where a run ends: after so many epochs, or after the epoch in which the agent
    has made so many rollouts of any kind, or both players have processed so many tokens (0: no limit).
    benchmark: its name; the other keys go to its constructor.
    export: writes both players as Hugging Face directories at the end.
    compile_ahead: compiles every program before the first epoch, one for each prompt width and what uses it;
    otherwise each when it is first needed.
    compilation_cache: keeps what was compiled for later runs, see `run.programs.enable_compilation_cache`.
    """

    seed: int = within(0, 0, 2**32 - 1)  # JAX's keys are made of so many bits
    epochs: int = within(10, 0)
    rollouts: int = within(0, 0)
    tokens: int = within(0, 0)
    model: ModelConfig = ModelConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    lora: LoraConfig = LoraConfig()
    memory: MemoryConfig = MemoryConfig()
    mesh: MeshConfig = MeshConfig()
    benchmark: Mapping[str, Any] = dataclasses.field(default_factory=_no_benchmark)
    limits: LimitsConfig = LimitsConfig()
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

    def to_dict(self) -> dict[str, Any]:
        """As nested plain values."""
        return dataclasses.asdict(self)


def default_config() -> ConfigDict:
    """The settings of `Config` as a dictionary that may be changed."""
    return ConfigDict(Config().to_dict())


def use_model(config: ConfigDict, path: str) -> None:
    """Makes the model `path` (directory or hub id) the configuration's, as it is: without a warm start."""
    config.model.path = path
    config.model.make.vocab_size = config.warm_start.steps = 0


def debug_settings(
    config: ConfigDict,
    agent_prompt: int,
    simulator_prompt: int,
    prompt_buckets: Sequence[int],
    tasks: int = 12,
    batch_size: int = 4,
) -> None:
    """Makes a benchmark's configuration one that runs on a CPU in minutes, and learns nothing.

    A small, randomly initialised model made here, two epochs, short answers.

    Args:
      agent_prompt, simulator_prompt, prompt_buckets: of `config.limits`, for the tokens of that model.
      tasks: at most so many seeds, and held-out tasks.
      batch_size: tasks of a batch.
    """
    config.epochs = 2
    config.model.path = ""
    config.model.dtype = "float32"
    config.model.make.vocab_size = 2048
    config.model.make.hidden_size = 32
    config.model.make.intermediate_size = 64
    config.benchmark.max_seeds = config.benchmark.max_eval = tasks
    config.limits.agent_prompt = agent_prompt
    config.limits.simulator_prompt = simulator_prompt
    config.limits.prompt_buckets = tuple(prompt_buckets)
    config.limits.agent_response = 48
    config.limits.simulator_response = 64
    config.agent.group_size = 4
    config.agent.base_share = 0.5
    config.simulator.variations = 2
    for part in (config.agent, config.simulator):
        part.batch_size = part.minibatch_size = batch_size
    config.evaluation.batch_size = batch_size


def from_scratch_settings(config: ConfigDict) -> None:
    """Makes a configuration one for an embedded default: a tiny model, made here, on a CPU in minutes."""
    config.model.dtype = "float32"
    config.model.remat = "none"
    config.model.unroll_layers = True
    config.model.make.vocab_size = 512
    config.model.make.num_layers = 3
    config.warm_start.steps = 1200
    config.warm_start.batch_size = 32
    config.warm_start.learning_rate = 4e-3
    config.mesh.fsdp = 1
    config.limits.prompt_buckets = ()
    config.agent.learning_rate = 3e-4
    config.agent.advantage_scale = "none"
    config.agent.group_size = 10  # k / 10 can meet the band 0.5 ± 0.1 exactly
    config.agent.batch_size = 64
    config.agent.minibatch_size = 64
    config.agent.base_share = 0.0
    # Few seeds an epoch: the simulator follows the agent more closely.
    config.curriculum.seeds_per_epoch = 16
    # A wide band, graded by steep weights: in the paper's narrow one a handful of records an epoch would be
    # left, and training on so few spoils a small simulator.
    config.curriculum.k_min = 0.3
    config.curriculum.beta = 4.0
    config.simulator.rwr_temperature = 4.0
    config.simulator.batch_size = 16
    config.simulator.minibatch_size = 16
    config.simulator.learning_rate = 5e-4
    config.simulator.success_rate_over = "task"
    config.simulator.update_epochs = 4
    config.simulator.kl_coef = 0.2  # the anchor that keeps its tasks varied
    config.verification.near_duplicate = 0.0
    config.verification.pool_epochs = 3
    config.evaluation.every = 2
    config.evaluation.sampled = 4


# Of each benchmark: longest prompt and completion of the agent and of the simulator, and prompt buckets, in
# tokens of a byte-level vocabulary of 50,000 to 150,000; seeds and held-out tasks fit, with some room.
_LENGTHS = {
    "api_bank": ((1408, 96), (1152, 640), (448, 768)),
    "bfcl": ((896, 256), (1216, 640), (320, 576)),
    "alfworld": ((2048, 24), (2304, 1280), (768, 1280)),
    "bamboogle": ((256, 64), (416, 192), (128, 224)),
    "travelplanner": ((4224, 1024), (3200, 512), ()),
    "dial": ((80, 80), (80, 80), ()),
    "dial_turns": ((96, 16), (96, 128), ()),
    "custom": ((768, 256), (1152, 640), (320, 576)),
}


def small_model_settings(config: ConfigDict, benchmark: str) -> None:
    """Makes a configuration one for a pretrained chat model of 0.1 to 0.5 B parameters on one accelerator.

    A warm start on the seed tasks, then 64 generated tasks an epoch.  Of BFCL the single turns.

    Raises ValueError for a benchmark without such settings.
    """
    if benchmark not in _LENGTHS:
        raise ValueError(f"benchmark {benchmark!r}: expected one of {', '.join(_LENGTHS)}")
    config.benchmark.name = benchmark
    if benchmark == "bfcl":
        single_turns = ("simple_python", "multiple", "parallel", "parallel_multiple")
        config.benchmark.seed_categories = config.benchmark.eval_categories = single_turns
    if benchmark == "api_bank":
        # The exact keywords of a tool search follow from hardly any request: no success rate to learn from.
        config.benchmark.tool_search = "words"
    if benchmark not in ("dial", "dial_turns", "custom"):
        config.benchmark.verify_files = True
    limits = config.limits
    if benchmark == "dial_turns":
        # As in configs/dial_turns.py: a small model must work out every position that a program leads to.
        config.benchmark.positions = 4
        config.benchmark.max_depth = 3
        config.benchmark.deeper = (4,)
        config.benchmark.seed_depths = (0.2, 0.4, 0.4)
        config.benchmark.num_seeds = 512
        limits.agent_episode = 176
    agent, simulator, limits.prompt_buckets = _LENGTHS[benchmark]
    limits.agent_prompt, limits.agent_response = agent
    limits.simulator_prompt, limits.simulator_response = simulator
    config.warm_start.steps = 150
    config.warm_start.batch_size = 32
    config.warm_start.micro_batches = 4
    config.warm_start.learning_rate = 2e-4
    config.warm_start.warmup_steps = 10
    # A small model takes larger steps than the paper's 7B.
    config.agent.learning_rate = config.simulator.learning_rate = 1e-5
    config.agent.groups = "informative"
    config.simulator.success_rate_over = "task"
    # Eight attempts seldom meet the paper's band of 0.5 ± 0.1.
    config.curriculum.k_min = 0.3
    config.curriculum.seeds_per_epoch = 16
    config.simulator.batch_size = config.simulator.minibatch_size = 16
    config.simulator.micro_batches = config.agent.micro_batches = 4


def small_model_on_cpu(config: ConfigDict) -> None:
    """After `small_model_settings`: sizes with which 0.1 B parameters train on two cores within two hours."""
    config.model.dtype = "float32"
    config.model.matmul_dtype = "bfloat16"
    config.compile_ahead = False  # compiles what is used
    if config.benchmark.name == "api_bank":
        config.limits.prompt_buckets = (288, 416, 512, 640, 768)
    config.limits.response_buckets = (32, 256, 320)
    if config.benchmark.name not in ("bfcl", "travelplanner"):  # whose answers are longer
        config.limits.agent_response = min(config.limits.agent_response, 64)
    config.limits.simulator_response = min(config.limits.simulator_response, 384)
    config.warm_start.steps = 120
    config.warm_start.batch_size = config.warm_start.micro_batches = 16
    config.warm_start.validation_share = 0.02
    config.warm_start.validate_every = 40
    config.curriculum.seeds_per_epoch = 4
    config.agent.batch_size = 8
    config.agent.minibatch_size = config.agent.micro_batches = 4
    config.simulator.batch_size = 4
    config.simulator.minibatch_size = config.simulator.micro_batches = 4
    # Some 30 steps in all.
    config.agent.learning_rate = config.simulator.learning_rate = 2e-5
    config.evaluation.every = 5
    config.evaluation.sampled = 0
    config.evaluation.max_tasks = 96
    # Of prompts with worked examples, 2,400 tokens; a process then has 14.7 GB.
    config.evaluation.batch_size = 16


def validate(config: ConfigDict) -> Config:
    """The checked configuration.  Raises ValueError for the first setting that is wrong."""
    checked = _group(Config, config.to_dict(), "config")
    if not checked.benchmark.get("name"):
        raise ValueError("config.benchmark.name is empty: expected the name of a benchmark")
    if bool(checked.model.path) == bool(checked.model.make.vocab_size):
        raise ValueError(
            "config.model.path must name a model (directory or hub id), or "
            "config.model.make.vocab_size must be positive so that one is made; not both"
        )
    return checked


def _group(kind: type[Settings], given: Any, where: str) -> Any:
    """A group of settings from plain values; `where` is its dotted key."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{where} = {given!r}: expected a group of settings")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in given:
        if key not in fields:
            raise ValueError(f"{where}.{key} is not a setting; {hint(key, fields, where)}")
    values = {}
    for name, field in fields.items():
        key = f"{where}.{name}"
        if name not in given:
            raise ValueError(f"{key} is missing")
        value, default = given[name], getattr(kind, name, None)
        if isinstance(default, Settings):
            values[name] = _group(type(default), value, key)
        elif default is None:
            if not isinstance(value, Mapping) or "name" not in value:
                raise ValueError(f"{key}.name is missing")
            values[name] = dict(value)
        else:
            values[name] = _typed(value, default, key, field.metadata.get("choices"))
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from None


def hint(key: str, known: Mapping[str, Any], where: str) -> str:
    """What to write instead of an unknown key: one like it, one with these initials, one elsewhere."""
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
    """A value of the default's type; whole numbers are floats too, and lists tuples."""
    kind = type(default)
    if kind is float and type(value) is int:
        return float(value)
    if kind is tuple and isinstance(value, (tuple, list)):
        of = type(default[0]) if default else int
        if all(type(item) is of for item in value):
            return tuple(value)
    elif type(value) is kind or choices:  # a wrong choice has a message of its own
        return value
    raise ValueError(f"{key} = {value!r}: expected a value of type {kind.__name__}")


def changes(config: ConfigDict) -> dict[str, tuple[Any, Any]]:
    """Dotted key to (value, default) of the settings that differ from the defaults.

    A benchmark's options differ from its constructor's.
    """
    given, defaults = flatten(config.to_dict()), flatten(default_config().to_dict())
    options = registry.default_options(config.benchmark.name) if config.benchmark.name else {}
    defaults |= {f"benchmark.{name}": value for name, value in options.items()}
    return {
        key: (value, defaults.get(key))
        for key, value in given.items()
        if value != defaults.get(key)
    }
