"""The run's configuration: the paper's settings as defaults, and checks before anything is computed.

A file in configs/ defines `get_config(arg)`, which starts from `default_config()` and changes what is
its own.  `validate` refuses unknown keys, wrong types and impossible combinations, naming the key and
what was expected.
"""

from __future__ import annotations

import difflib
import math
import urllib.parse
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict


def default_config() -> ConfigDict:
    """Settings of arXiv 2512.19682 (Table 2 and the public configuration) for a 7B model."""
    return ConfigDict(
        {
            "seed": 0,
            "epochs": 10,
            # The run also ends after the epoch in which the agent has made so many rollouts, whatever
            # they were for; 0: epochs alone decide.
            "rollouts": 0,
            # What both players start from: a directory or hub id, or a small model made on the spot.
            "model": {
                "path": "",
                "dtype": "bfloat16",  # of activations; parameters are kept in float32
                # What the backward pass keeps of a layer: "none": everything, "dots": the outputs of
                # the projections, "full": only its input, "offload": its input, in host memory.
                "remat": "full",
                # The kernel: "xla" (plain), "splash" (TPUs), "cudnn" (NVIDIA GPUs); "auto" is splash on
                # TPUs and xla elsewhere.
                "attention": "auto",
                "unroll_layers": False,
                "make": {
                    "vocab_size": 0,  # 0: no model is made, `path` is used
                    "hidden_size": 64,
                    "intermediate_size": 192,
                    "num_layers": 2,
                    "num_heads": 4,
                    "num_kv_heads": 2,
                    "cache_dir": "",  # where made models are kept; "": the user's cache directory
                },
            },
            # Supervised training of a made model before the co-evolution (0 steps: none).
            "warm_start": {
                "steps": 0,
                "batch_size": 64,
                "learning_rate": 3e-3,
                "warmup_steps": 50,
            },
            # Rank 0: all parameters are trained.  Otherwise both players are adapters on one frozen base.
            "lora": {
                "rank": 0,
                "alpha": 32.0,
                "targets": (
                    "q_proj",
                    "k_proj",
                    "v_proj",
                    "o_proj",
                    "gate_proj",
                    "up_proj",
                    "down_proj",
                ),
            },
            "memory": {
                "moments": "float32",  # of the optimisers; "bfloat16" halves them
                "offload": "none",  # what waits in host memory: see players/residency.py
            },
            "mesh": {"data": 1, "fsdp": -1, "tensor": 1},
            "benchmark": {"name": ""},  # the other keys go to the benchmark's constructor
            "limits": {
                "agent_prompt": 4096,  # tokens
                "agent_response": 512,
                "simulator_prompt": 4096,
                "simulator_response": 1024,
                "prompt_buckets": (512, 1024, 2048),  # smaller prompt widths that are compiled too
            },
            "agent": {
                "train": True,
                "learning_rate": 1e-6,
                "group_size": 8,  # rollouts a task
                "batch_size": 64,  # tasks between two sampling phases
                "minibatch_size": 16,  # tasks an optimiser step
                "micro_batches": 1,  # parts that a mini-batch is accumulated from
                "update_epochs": 1,
                "temperature": 1.0,
                "clip_low": 0.2,
                "clip_high": 0.2,
                "dual_clip": 3.0,
                "kl_coef": 0.001,
                "kl_estimator": "k3",
                "entropy_coef": 0.001,
                "aggregation": "token-mean",
                "advantage_scale": "std",
                "advantage_ddof": 1,
                "grad_clip": 1.0,
                "weight_decay": 0.01,
                # Which groups of rollouts are trained on: "all"; "informative": only those whose rewards
                # differ, batches are filled up with the next ones; "frontier": of each frontier_factor
                # batches' worth, the batch whose measured success rates are closest to alpha.  All
                # rollouts count.
                "groups": "all",
                "frontier_factor": 2,
                # Shares of the training tasks that come from the data set and from D_train; the rest
                # is fresh from the simulator.  All are rolled out by the agent as it is now.
                "base_share": 0.2,
                "replay_share": 0.0,
                # "uniform", or "prioritised": by learnability and staleness; solved tasks leave.
                "replay_priority": "uniform",
                "replay_capacity": 0,  # most tasks that a prioritised pool keeps; 0: all
                "replay_staleness": 0.5,  # share of the priority that is staleness
            },
            "simulator": {
                "train": True,
                "learning_rate": 5e-7,
                "variations": 4,  # generations a seed and epoch (n)
                "batch_size": 64,  # seeds a sampling batch
                "minibatch_size": 16,  # seeds an optimiser step
                "micro_batches": 1,
                "update_epochs": 1,
                "temperature": 1.0,
                "rwr_temperature": 1.0,  # λ in exp(λ R_env)
                "success_rate_over": "batch",  # p̂ of the n variations together, or of each "task"
                # "rwr": reward-weighted regression, the paper's.  "grpo": policy gradient with R_env less
                # the mean over the seed's variations as the advantage.
                "method": "rwr",
                "weights_over": "all",  # exp(λ R_env) is normalised over "all" records, or within a "seed"
                "invalid_reward": 0.0,  # "grpo": R_env of a generation that the gate turned away
                "clip": 0.2,  # "grpo": of the probability ratio
                "mixture": 0.0,  # share of the variations that the initial simulator writes
                "entropy_floor": 0.0,  # nats a token below which the update is pushed back up ...
                "entropy_coef": 0.0,  # ... by this much a nat
                "kl_coef": 0.01,  # penalty to the initial simulator
                "kl_cap": 0.1,  # nats a token that one update may move; 0: no cap
                "grad_clip": 1.0,
                "weight_decay": 0.01,
            },
            "curriculum": {
                "alpha": 0.5,
                "beta": 2.0,
                "k_min": 0.1,
                "seeds_per_epoch": 0,  # 0: all
                # What R_env is of: "alpha": Eq. 3; "learnability": 4p(1−p); "progress": |Δp̂| since the
                # seed's last variations, less what sampling alone makes of it.
                "score": "alpha",
                # p̂: "mle": k / n; "posterior": a Beta posterior whose prior is fitted to the epoch's
                # tasks, and scores are their expectations under it.
                "estimate": "mle",
            },
            # Where the agent's tasks come from.  "simulator": fresh from it, every epoch.  The simulator is
            # not trained with the others.  "static": `count` tasks that the initial simulator writes once,
            # "teacher": `count` tasks of a stronger generator (0: `variations` of each seed), both trained
            # on over and over.  "oracle": the benchmark's own generator, every epoch, at the
            # difficulties that the agent solves half of the time by its last attempts.
            "tasks": {
                "source": "simulator",
                "count": 0,
                # With a url, the "teacher" is a model behind an OpenAI-compatible server (its key is
                # $OPENAI_API_KEY), which varies each seed in turn until enough has passed the gate.
                "teacher": {
                    "url": "",  # such as http://localhost:8000/v1; "": the benchmark's own generator
                    "model": "",  # its name there
                    "per_seed": 0.0,  # tasks for each seed, where `count` is 0
                    "temperature": 1.0,
                    "max_tokens": 1024,  # of one answer
                    "budget": 0,  # tokens, of prompts and answers, for all of them; 0: no limit
                    "attempts": 10,  # generations at most, for each task that is wanted
                    "concurrency": 8,  # requests on their way at the same time
                    "timeout": 120.0,  # seconds for one request
                    "retries": 5,  # of a request that fails in passing
                },
            },
            "verification": {
                "near_duplicate": 0.8,
                "pool_epochs": 0,
                # "proven": tasks that pass their own checks; "parsed": all that can be read, trusting the
                # answer that the simulator wrote, as the paper's public code does.
                "admit": "proven",
            },
            # Where completions differ much in length, few lanes and many prompts keep rows busy: a lane
            # goes on with its prompt's next completion, and the next prompt follows when all are done.
            "sampling": {
                "batch_size": 0,  # prompts that decode at the same time; 0: a player's whole batch
                "lanes": 0,  # completions of a prompt that decode at the same time; 0: all
            },
            # Scoring and verification, which run while the devices sample.
            "scoring": {
                # 0: in a thread, or in processes where the benchmark asks for it (`isolated`).
                "workers": 0,
                # Of a worker process: seconds for one text, GiB of memory (0: no limit).
                "timeout": 60.0,
                "memory": 4.0,
            },
            "evaluation": {
                "every": 1,  # epochs, and after the last one; 0: never
                "batch_size": 64,
                "sampled": 1,  # samples a task at `temperature`; 0: none
                "temperature": 1.0,
                "greedy": True,
                "max_tasks": 0,  # 0: all
                # Fresh tasks an epoch whose success rates are measured once more, by rollouts that nothing
                # else depends on and that do not count.
                "reroll": 0,
                "resamples": 1000,  # of the bootstrap intervals of `genenv_jax.evaluate`
            },
            "checkpoint": {"every": 1, "keep": 2},
            "export": True,  # write both players as Hugging Face directories at the end
            # Compile every program before the first epoch, one for each prompt width and what uses it;
            # otherwise each when it is first needed.  What was compiled is kept in the workdir.
            "compile_ahead": True,
            "compilation_cache": True,
            "tensorboard": "auto",  # where TensorFlow is installed; "always", "never"
        }
    )


def debug_settings(config: ConfigDict, batch_size: int = 4) -> None:
    """Makes a configuration one that runs on a CPU in minutes: the same code, and nothing is learnt.

    A small, randomly initialised model made on the spot, two epochs, short answers, `batch_size` tasks.
    """
    config.epochs = 2
    config.model.path = ""
    config.model.dtype = "float32"
    config.model.make.vocab_size = 2048
    config.model.make.hidden_size = 32
    config.model.make.intermediate_size = 64
    config.limits.agent_response = 48
    config.limits.simulator_response = 64
    config.agent.group_size = 4
    config.agent.base_share = 0.5
    config.simulator.variations = 2
    for part in (config.agent, config.simulator):
        part.batch_size = part.minibatch_size = batch_size
    config.evaluation.batch_size = batch_size


# (key, lowest, highest): inclusive bounds of numbers.
_BOUNDS = (
    ("epochs", 0, None),
    ("rollouts", 0, None),
    ("tasks.count", 0, None),
    ("tasks.teacher.per_seed", 0, None),
    ("tasks.teacher.temperature", 0.01, 100),
    ("tasks.teacher.max_tokens", 1, None),
    ("tasks.teacher.budget", 0, None),
    ("tasks.teacher.attempts", 1, None),
    ("tasks.teacher.concurrency", 1, 1024),
    ("tasks.teacher.timeout", 0.1, 86_400),
    ("tasks.teacher.retries", 0, 100),
    ("agent.frontier_factor", 1, None),
    ("simulator.clip", 0, 1),
    ("simulator.invalid_reward", -1e9, 0),
    ("simulator.mixture", 0, 1),
    ("simulator.entropy_floor", 0, None),
    ("simulator.entropy_coef", 0, None),
    ("model.make.vocab_size", 0, None),
    ("lora.rank", 0, None),
    ("warm_start.steps", 0, None),
    ("warm_start.batch_size", 1, None),
    ("warm_start.learning_rate", 0, None),
    ("limits.agent_prompt", 1, None),
    ("limits.agent_response", 1, None),
    ("limits.simulator_prompt", 1, None),
    ("limits.simulator_response", 1, None),
    ("agent.learning_rate", 0, None),
    ("agent.group_size", 1, None),
    ("agent.batch_size", 1, None),
    ("agent.minibatch_size", 1, None),
    ("agent.micro_batches", 1, None),
    ("agent.update_epochs", 1, None),
    ("agent.clip_low", 0, 1),
    ("agent.clip_high", 0, None),
    ("agent.dual_clip", 0, None),
    ("agent.kl_coef", 0, None),
    ("agent.entropy_coef", 0, None),
    ("agent.grad_clip", 0, None),
    ("agent.weight_decay", 0, None),
    ("agent.base_share", 0, 1),
    ("agent.replay_share", 0, 1),
    ("agent.replay_capacity", 0, None),
    ("agent.replay_staleness", 0, 1),
    ("evaluation.reroll", 0, None),
    ("simulator.learning_rate", 0, None),
    ("simulator.variations", 1, None),
    ("simulator.batch_size", 1, None),
    ("simulator.minibatch_size", 1, None),
    ("simulator.micro_batches", 1, None),
    ("simulator.update_epochs", 1, None),
    ("simulator.temperature", 0, None),
    ("simulator.rwr_temperature", 0, None),
    ("simulator.grad_clip", 0, None),
    ("simulator.weight_decay", 0, None),
    ("simulator.kl_coef", 0, None),
    ("simulator.kl_cap", 0, None),
    ("curriculum.alpha", 0, 1),
    ("curriculum.beta", 0, None),
    ("curriculum.k_min", 0, 1),
    ("curriculum.seeds_per_epoch", 0, None),
    ("verification.near_duplicate", 0, 1),
    ("verification.pool_epochs", 0, None),
    ("sampling.batch_size", 0, None),
    ("sampling.lanes", 0, None),
    ("scoring.workers", 0, None),
    ("scoring.timeout", 0.1, 86_400),
    ("scoring.memory", 0, None),
    ("evaluation.every", 0, None),
    ("evaluation.batch_size", 1, None),
    ("evaluation.sampled", 0, None),
    ("evaluation.temperature", 0.01, 100),
    ("evaluation.resamples", 1, None),
    ("evaluation.max_tasks", 0, None),
    ("checkpoint.every", 1, None),
    ("checkpoint.keep", 1, None),
)

_CHOICES = {
    "model.dtype": ("float32", "bfloat16", "float16"),
    "model.remat": ("none", "dots", "full", "offload"),
    "model.attention": ("auto", "xla", "splash", "cudnn"),
    "memory.moments": ("float32", "bfloat16"),
    "memory.offload": ("none", "player", "phase"),
    "agent.kl_estimator": ("k1", "k2", "k3"),
    "agent.aggregation": ("token-mean", "sequence-mean", "sequence-sum"),
    "agent.advantage_scale": ("std", "none"),
    "agent.advantage_ddof": (0, 1),
    "agent.replay_priority": ("uniform", "prioritised"),
    "agent.groups": ("all", "informative", "frontier"),
    "simulator.success_rate_over": ("batch", "task"),
    "simulator.method": ("rwr", "grpo"),
    "simulator.weights_over": ("all", "seed"),
    "curriculum.score": ("alpha", "learnability", "progress"),
    "curriculum.estimate": ("mle", "posterior"),
    "verification.admit": ("proven", "parsed"),
    "tasks.source": ("simulator", "static", "teacher", "oracle"),
    "tensorboard": ("auto", "always", "never"),
}


def validate(config: ConfigDict) -> None:
    """Checks a whole configuration; see the module's docstring.  Raises ValueError."""
    _same_keys(config.to_dict(), default_config().to_dict(), "")
    for key, low, high in _BOUNDS:
        value = _get(config, key)
        if not (math.isfinite(value) and value >= low and (high is None or value <= high)):
            bounds = f"at least {low}" if high is None else f"between {low} and {high}"
            raise ValueError(f"config.{key} = {value!r}: expected {bounds}")
    for key, choices in _CHOICES.items():
        value = _get(config, key)
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise ValueError(f"config.{key} = {value!r}: expected one of {list(choices)}")
    if not config.benchmark.name:
        raise ValueError("config.benchmark.name is empty: expected the name of a benchmark")
    if bool(config.model.path) == bool(config.model.make.vocab_size):
        raise ValueError(
            "config.model.path must name a model (directory or hub id), or "
            "config.model.make.vocab_size must be positive so that one is made; not both"
        )
    if config.agent.temperature != 1.0:
        raise ValueError(
            f"config.agent.temperature = {config.agent.temperature}: expected 1.0, since the ratio of "
            "GRPO is taken to the policy that sampled"
        )
    if 0 < config.agent.dual_clip <= 1:
        raise ValueError(
            f"config.agent.dual_clip = {config.agent.dual_clip}: expected more than 1, or 0 for none"
        )
    if config.lora.rank:
        from genenv_jax.models.lora import LoraConfig  # brings in JAX, which flags do not need

        try:
            LoraConfig(config.lora.rank, float(config.lora.alpha), tuple(config.lora.targets))
        except ValueError as error:
            raise ValueError(f"config.{str(error).replace('lora ', 'lora.', 1)}") from None
    _validate_teacher(config.tasks)
    for player in ("agent", "simulator"):
        if config[player].grad_clip == 0:
            raise ValueError(f"config.{player}.grad_clip = 0 would freeze it: expected more than 0")
    from_initial = config.simulator.mixture * config.simulator.variations
    if abs(from_initial - round(from_initial)) > 1e-6:
        raise ValueError(
            f"config.simulator.mixture = {config.simulator.mixture}: expected a whole number of the "
            f"variations = {config.simulator.variations} of a seed"
        )
    if config.agent.base_share + config.agent.replay_share >= 1:
        raise ValueError(
            "config.agent.base_share + replay_share must leave room for fresh tasks (< 1)"
        )
    for player in ("agent", "simulator"):
        part = config[player]
        if part.minibatch_size % part.micro_batches:
            raise ValueError(
                f"config.{player}.micro_batches = {part.micro_batches}: expected a divisor of "
                f"minibatch_size = {part.minibatch_size}"
            )


def _validate_teacher(tasks: ConfigDict) -> None:
    """Checks `config.tasks.teacher` as a whole."""
    teacher, key = tasks.teacher, "config.tasks.teacher"
    if teacher.url:
        try:
            parts = urllib.parse.urlsplit(teacher.url)
            fits = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
        except ValueError:  # no port, no address
            fits = False
        if not fits or parts.query or parts.fragment or any(c.isspace() for c in teacher.url):
            raise ValueError(f"{key}.url: expected a base URL such as http://localhost:8000/v1")
        if "@" in parts.netloc:
            raise ValueError(f"{key}.url: expected no key in it; it is read from $OPENAI_API_KEY")
    if bool(teacher.url) != bool(teacher.model):
        raise ValueError(
            f"{key}.url = {teacher.url!r}, model = {teacher.model!r}: expected both, or neither"
        )
    if tasks.source != "teacher" and (teacher.url or teacher.per_seed):
        raise ValueError(
            f"config.tasks.source = {tasks.source!r}: expected 'teacher' where tasks.teacher is set"
        )
    if tasks.count and teacher.per_seed:
        raise ValueError(
            f"config.tasks.count = {tasks.count}, tasks.teacher.per_seed = {teacher.per_seed}: expected "
            "one of them, the other 0"
        )


def prompt_buckets(config: ConfigDict, limit: int) -> tuple[int, ...]:
    """The prompt widths that are compiled for a player whose prompts have at most `limit` tokens."""
    return (*sorted(size for size in config.limits.prompt_buckets if size < limit), limit)


def _get(config: ConfigDict, key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value[part]
    return value


def _same_keys(given: Mapping[str, Any], expected: Mapping[str, Any], where: str) -> None:
    for key in given:
        if key not in expected and where != "benchmark.":
            close = difflib.get_close_matches(key, list(expected), 1)
            hint = (
                f"did you mean {where}{close[0]}?"
                if close
                else f"expected one of {sorted(expected)}"
            )
            raise ValueError(f"config.{where}{key} is not a setting; {hint}")
    for key, default in expected.items():
        if key not in given:
            raise ValueError(f"config.{where}{key} is missing")
        value = given[key]
        if isinstance(default, Mapping):
            if not isinstance(value, Mapping):
                raise ValueError(f"config.{where}{key} = {value!r}: expected a group of settings")
            _same_keys(value, default, f"{where}{key}.")
        elif not _same_type(value, default) and f"{where}{key}" not in _CHOICES:
            name = type(default).__name__
            raise ValueError(f"config.{where}{key} = {value!r}: expected a value of type {name}")


def _same_type(value: Any, default: Any) -> bool:
    if isinstance(default, bool) or isinstance(value, bool):
        return type(value) is type(default)
    if isinstance(default, float):
        return isinstance(value, (int, float))
    if isinstance(default, tuple):
        kind = type(default[0])
        return isinstance(value, (tuple, list)) and all(type(item) is kind for item in value)
    return isinstance(value, type(default))
