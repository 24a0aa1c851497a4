"""What a run will do and cost: printed at the start of each run, and by --dry_run without running."""

import collections
import contextlib
import dataclasses
import math
import os
import pathlib
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from genenv_jax.benchmarks.bfcl.fitting import shortened
from genenv_jax.coevolve import Coevolution
from genenv_jax.config import Config, validate
from genenv_jax.models import huggingface, platform
from genenv_jax.models.huggingface.layouts import parameter_count
from genenv_jax.models.platform import size_text
from genenv_jax.parallel import processes
from genenv_jax.players import build, offload
from genenv_jax.players.agent import Agent
from genenv_jax.players.player import recomputes
from genenv_jax.players.simulator import Simulator
from genenv_jax.run.checkpoint import newest_host
from genenv_jax.run.progress import format_seconds
from genenv_jax.run.workdir import RunSettings
from genenv_jax.system.ownership import RUN, refuse_other
from genenv_jax.tasks.sources import TasksConfig

# Settings that need less memory, in the order in which they are tried.
_SMALLER: tuple[Mapping[str, Any], ...] = (
    {"memory.moments": "bfloat16"},
    {"memory.moments": "bfloat16", "memory.offload": "player"},
    {"memory.moments": "bfloat16", "memory.offload": "phase"},
    {"lora.rank": 32},
    {"lora.rank": 32, "memory.offload": "phase"},
)
TOO_LARGE = "too large"
_EXAMPLE_CHARS = 1_500  # of a prompt


def overview(config: Config, run: Coevolution) -> dict[str, str]:
    """Title to text: devices, model, benchmark, and upper bounds on the run's work; before `run` begins."""
    agent, devices = run.agent, jax.devices()
    model, mesh = agent.model.config, run.mesh
    axes = ", ".join(f"{name} {size}" for name, size in mesh.shape.items())
    count = parameter_count(model)
    players = f"adapters of rank {config.lora.rank}" if config.lora.rank else "all parameters trained"
    seeds, held_out = (len(run.benchmark.tasks(split)) for split in ("seed", "eval"))
    about = run.benchmark.about()
    tools = about.get("tools")
    rules = [f"{key}: {text}" for key, text in about.items() if key.endswith(("rule", "checker"))]
    return {
        "devices": f"{mesh.size} of {len(devices)} × {devices[0].device_kind}; mesh {axes}",
        "model": f"{config.model.path or 'made here'}: {model.num_layers} layers of width "
        f"{model.hidden_size}, {count / 1e6:,.1f} M parameters, {config.model.dtype}; {players}",
        "benchmark": f"{run.benchmark.name}: {seeds:,} seed tasks, {held_out:,} held-out tasks"
        + (f"; tools {tools}" if tools else ""),
        **({"scored by": "; ".join(rules)} if rules else {}),
        "run": _epochs(config, run),
        "evaluation": _evaluations(config, run),
    }


def _epochs(config: Config, run: Coevolution) -> str:
    group, most = config.agent.group_size, run.mixture.most
    done, rollouts = run.session.finished, most * group
    text = (
        f"{config.epochs} epochs of up to {most:,} tasks × {group} rollouts: "
        f"at most {rollouts:,} rollouts an epoch, {rollouts * config.epochs:,} in all"
    )
    for limit, unit in ((config.rollouts, "rollouts"), (config.tokens, "tokens")):
        text += f"; ends after {limit:,} {unit}" if limit else ""
    if run.session.ended and done:
        return f"finished after epoch {done}; with a larger config.epochs it continues"
    return text + (f"; continues after epoch {done}" if done else "")


def _evaluations(config: Config, run: Coevolution) -> str:
    tasks, every = len(config.evaluation.tasks(run.benchmark)), config.evaluation.every
    times = 1 + (-(-config.epochs // every) if every else 0)
    answers = " + ".join(
        f"{samples} {'greedy' if mode == 'greedy' else f'at temperature {temperature:g}'}"
        for mode, (samples, temperature) in config.evaluation.modes().items()
    )
    return f"{times} × {tasks:,} tasks, answers to each: {answers}"


def _costs(config: Config, run: Coevolution, here: bool) -> dict[str, str]:
    """Title to text: upper bounds on optimiser steps and tokens, and if `here`, the time that these take."""
    most, c, s, limits = run.mixture.most, config.agent, config.simulator, config.limits
    asked, learns = run.mixture.asked, config.trains_simulator
    agent_steps = -(-most // c.minibatch_size) * c.update_epochs
    simulator_steps = -(-(asked // s.variations) // s.minibatch_size) * s.update_epochs * learns
    attempt = limits.agent_prompt + c.group_size * (limits.agent_episode or limits.agent_response)
    written = asked // s.variations * limits.simulator_prompt + asked * limits.simulator_response
    again = recomputes(config.model.dtype)
    tokens = attempt * most * (2 + again + 3 * c.update_epochs)
    tokens += written * (2 + learns * (again + 3 * s.update_epochs))
    warm = config.warm_start
    return {
        "warm start": f"{warm.steps} steps of {warm.batch_size} completions, then kept for later runs"
        if warm.steps
        else "none",
        "steps": f"at most {agent_steps} of the agent and {simulator_steps} of the simulator an epoch",
        "tokens": f"at most {tokens / 1e6:,.2f} M an epoch, if every prompt and answer reaches its limit: "
        "counted once when sampled, once when scored by the reference, three times in each update",
        **({"time": _time(run, tokens)} if here else {}),
    }


def _time(run: Coevolution, tokens: float) -> str:
    """The least time of an epoch of so many tokens: its matrix products at the devices' best rate."""
    model = run.agent.model.config
    rate = run.mesh.size * platform.product_rate(model.operand_dtype)
    least = format_seconds(2 * parameter_count(model) * tokens / rate)
    return (
        f"such an epoch takes at least {least}, at {rate / 1e12:.2g} TFLOP/s in matrix products here; a 0.5B "
        "took one to six times as long"
    )


def _memory(config: Config, agent: Agent, simulator: Simulator, mesh: Mesh) -> tuple[str, float]:
    """What each device holds in the largest phase besides programs' temporaries, in words and in bytes."""
    bases, default = 2 if config.separate_start else 1, jax.devices()[0].default_memory().kind

    def held(phase: str) -> collections.Counter[str]:
        """Bytes on each device in a phase, by kind of memory."""
        agent.load_for(phase)
        kinds: collections.Counter[str] = collections.Counter()
        trees = *[agent.reference.params] * bases, agent.state, simulator.state
        for x in jax.tree.leaves(trees):
            size = math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
            here = x.sharding.memory_kind in (None, "device", default)
            kinds[default if here else x.sharding.memory_kind] += size
        return kinds

    kinds = max(map(held, offload.NEEDS), key=lambda kinds: kinds[default])
    state = kinds.pop(default)
    elsewhere = "".join(f", and {size_text(size)} in {kind}" for kind, size in sorted(kinds.items()))
    cache = build.largest_cache(config, agent) / mesh.size
    text = (
        f"at most {size_text(state)} of weights and moments + {size_text(cache)} of the agent's key-value "
        f"cache = {size_text(state + cache)} on each device{elsewhere}; programs need more (on a "
        "TPU: python launch/aot_check.py --config=...)"
    )
    return text, state + cache


def outcome(config: Config, workdir: str) -> dict[str, str]:
    """Title to text: what a finished run has written, and the next command."""
    players = ", agent/, simulator/" if config.export else ""
    return {
        "finished": f"{workdir}/",
        "holds": f"metrics.jsonl, tasks.jsonl, d_train.jsonl, d_env.jsonl{players}",
        "next": f"genenv report {workdir}",
    }


def dry_run(config: Config, workdir: pathlib.Path | None, memory: float | None = None) -> dict[str, str]:
    """Checks everything that a run needs, and returns what the run would do.

    It trains nothing, leaves no files, and neither reads nor fetches weights.  Fixed tasks are not made.  A
    given model is not fine-tuned; one that the run would make is made untrained in a temporary directory.
    "too large" is present only if the run does not fit, and names settings that would.

    workdir: the run's; if it exists, its settings are compared, and the text includes the run's progress.
    memory: bytes of a device; None: this machine's.
    Raises what the run would raise before its first epoch.
    """
    config.tracking.check()
    if workdir is not None and not workdir.exists():
        there = next(parent for parent in workdir.absolute().parents if parent.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise ValueError(f"--workdir={workdir}: {there} is no directory that can be written to")
    elif workdir is not None:
        refuse_other(workdir, RUN, "--workdir")
        RunSettings(workdir, config.to_dict())
    done = newest_host(workdir / "checkpoints") if workdir is not None else None
    with _scratch(workdir) as scratch:
        if config.model.path:
            path = str(huggingface.resolve(config.model.path, weights=False))
            model = dataclasses.replace(config.model, path=path)
        else:
            make = dataclasses.replace(config.model.make, cache_dir=f"{scratch}/models")
            model = dataclasses.replace(config.model, make=make)
        tried = dataclasses.replace(
            config,
            model=model,
            warm_start=dataclasses.replace(config.warm_start, steps=0),
            simulator=dataclasses.replace(config.simulator, train=config.trains_simulator),
            tasks=TasksConfig(),
            tracking=dataclasses.replace(config.tracking, trackers=()),
            compilation_cache=False,
        )
        run = Coevolution(tried, pathlib.Path(scratch) / "run", weights=False)
        config.tasks.check(run.benchmark)
        if done:
            run.session.reached(done)
        with run.session.running():  # closes the files at the end
            said = overview(config, run) | _costs(config, run, here=memory is None)
            said["memory"], needed = _memory(config, run.agent, run.simulator, run.mesh)
            there = platform.device_memory() if memory is None else memory
            said |= _example(run)
            if needed > there:
                said[TOO_LARGE] = f"a device has {size_text(there)}; {_what_fits(config, run, there)}"
            return said


def _example(run: Coevolution) -> dict[str, str]:
    """Title to text: the first seed task as the agent reads it, and its reference answer."""
    seed, model = run.benchmark.tasks("seed")[0], run.agent.model
    ids = model.encode_messages(run.benchmark.agent_messages(seed))
    text = shortened(model.tokenizer.decode(ids), _EXAMPLE_CHARS)
    answer = "\n".join(run.benchmark.agent_answers(seed))
    prompt = f"of seed {seed.id}, {len(ids):,} tokens:\n{text}"
    return {"prompt": prompt, "answer": f"its reference:\n{answer}"}


def _what_fits(config: Config, run: Coevolution, memory: float) -> str:
    """The first of `_SMALLER` that needs no more than `memory`, in bytes of a device."""
    for changes in _SMALLER:
        settings = ConfigDict(config.to_dict())
        settings.update_from_flattened_dict(changes)
        smaller = validate(settings)
        with run.host.activate():
            players = build.make_players(smaller, run.host)
        _, needed = _memory(smaller, *players, run.mesh)
        if needed <= memory:
            flags = " ".join(f"--config.{key}={value}" for key, value in changes.items())
            return f"with {flags} the run needs {size_text(needed)}"
    return "use more devices (config.mesh), shorter limits, a smaller agent.batch_size or a smaller model"


@contextlib.contextmanager
def _scratch(workdir: pathlib.Path | None) -> Iterator[str]:
    """A temporary directory; several processes share one next to the workdir, which all of them see."""
    with contextlib.ExitStack() as stack:
        own = ""
        if processes.is_writer():
            place = pathlib.Path(tempfile.gettempdir())
            if workdir and processes.process_count() > 1:
                place = next(path for path in workdir.absolute().parents if path.is_dir())
            own = stack.enter_context(tempfile.TemporaryDirectory(prefix=".dry-run-", dir=place))
        yield processes.agree("dry run", own)
        processes.barrier("dry run has ended")
