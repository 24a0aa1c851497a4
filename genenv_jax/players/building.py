"""From a configuration to a benchmark and a loaded model, with every check that needs no training."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
from ml_collections import ConfigDict

from genenv_jax.benchmarks import registry
from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.parallel.mesh import make_mesh
from genenv_jax.parallel.rules import activate, batch_sharding, param_shardings
from genenv_jax.supervised import base_model
from genenv_jax.typing import Params


def make_benchmark(config: ConfigDict) -> Benchmark:
    """The configured benchmark.  Raises what its constructor raises, and ValueError without seeds."""
    options = config.benchmark.to_dict()
    benchmark = registry.make_benchmark(options.pop("name"), **options)
    if not benchmark.tasks("seed"):
        raise ValueError(f"benchmark {benchmark.name!r} has no seed tasks: expected at least one")
    return benchmark


def evaluation_tasks(config: ConfigDict, benchmark: Benchmark) -> list[Task]:
    """The held-out tasks that are scored: all, or `evaluation.max_tasks` spread evenly over them."""
    tasks, most = list(benchmark.tasks("eval")), config.evaluation.max_tasks
    if not most or len(tasks) <= most:
        return tasks
    return [tasks[i * len(tasks) // most] for i in range(most)]


def load_model(
    config: ConfigDict, benchmark: Benchmark
) -> tuple[LanguageModel, Params, Callable[[Any], Any], Callable[[], Any]]:
    """Loads what both players start from.

    Returns:
      the model, its parameters (float32, sharded over the mesh), a function that places a batch's
      host arrays on the mesh, and a context manager in which jitted functions see the mesh.
    """
    sizes = (config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
    devices = jax.devices()
    if -1 not in sizes and jax.process_count() == 1:
        devices = devices[: math.prod(sizes)]  # a smaller mesh leaves the other devices alone
    mesh = make_mesh(*sizes, devices=devices)
    model = LanguageModel.load(
        base_model(config, benchmark),
        dtype=config.model.dtype,
        remat=config.model.remat,
        attention=config.model.attention,
        unroll_layers=config.model.unroll_layers,
    )
    if mesh.size == 1:  # one device: constraints and shardings would only be in the way
        return model, model.load_params(), jax.device_put, contextlib.nullcontext
    rows = mesh.shape["data"] * mesh.shape["fsdp"]
    for key, size in {
        "agent.batch_size": config.agent.batch_size,
        "agent.minibatch_size / micro_batches": config.agent.minibatch_size
        // config.agent.micro_batches,
        "simulator.batch_size": config.simulator.batch_size,
        "simulator.minibatch_size / micro_batches": config.simulator.minibatch_size
        // config.simulator.micro_batches,
        "evaluation.batch_size": config.evaluation.batch_size,
    }.items():
        if size % rows:
            raise ValueError(
                f"config.{key} = {size}: expected a multiple of data x fsdp = {rows} of the mesh"
            )
    params = model.load_params(param_shardings(model.config, mesh))
    put = functools.partial(jax.device_put, device=batch_sharding(mesh))
    return model, params, put, functools.partial(activate, mesh, model.config)
