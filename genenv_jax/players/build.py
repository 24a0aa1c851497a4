"""Builds the benchmark and the players from a configuration, with every check that needs no training."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, SingleDeviceSharding

from genenv_jax.benchmarks import registry
from genenv_jax.benchmarks.base import Benchmark
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.huggingface.layouts import parameter_count
from genenv_jax.models.language_model import HERMES_CALL, LanguageModel
from genenv_jax.models.lora import LoraConfig, split
from genenv_jax.models.make import has_made_tokenizer
from genenv_jax.models.platform import check_memory
from genenv_jax.models.transformer import init_adapters
from genenv_jax.parallel import processes
from genenv_jax.parallel.mesh import make_mesh
from genenv_jax.parallel.rules import activate, batch_sharding, param_shapes, param_shardings
from genenv_jax.players import learner
from genenv_jax.players.agent import Agent
from genenv_jax.players.offload import Offloader
from genenv_jax.players.optimizer import make_optimizer
from genenv_jax.players.player import Player, PlayerConfig, Reference
from genenv_jax.players.policy import Policy
from genenv_jax.players.simulator import Simulator
from genenv_jax.run import streams
from genenv_jax.run.streams import Stream
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.episodes import EpisodeEngine
from genenv_jax.sampling.sampler import Sampler
from genenv_jax.typing import Params

if TYPE_CHECKING:
    from genenv_jax.config import Config

PlayerT = TypeVar("PlayerT", bound=Player)

_LESS_WEIGHTS = "; config.lora.rank, memory.offload and mesh.fsdp are for larger models"
_LESS_CACHE = "; config.sampling.batch_size, agent.group_size, evaluation and limits set the cache's size"


def make_benchmark(
    config: Config, need_seeds: bool = True, server: bool = False, recorded: bool = False
) -> Benchmark:
    """The benchmark that `config.benchmark` names, with its options.

    Args:
      config: the run's; the chat template of `config.model.path` decides whether it can show tools.
      server: whether a server answers, which takes tools separately from the messages; `config.model.path`
        then matters only if it is a model that was made here.
      recorded: whether recorded answers are scored, so that no model reads a prompt.
    Raises what the constructor raises, and ValueError if seeds are required and there are none.
    """
    options = dict(config.benchmark)
    benchmark = registry.make_benchmark(options.pop("name"), **options)
    if benchmark.has_tools and not recorded:
        path = config.model.path
        model = LanguageModel.load(path) if path and not server else None
        directory = model.path if model else pathlib.Path(path)
        made = has_made_tokenizer(directory) if path else not server
        written = model.written_call if model else HERMES_CALL if server and not made else ""
        try:
            benchmark.use_template(written, made)
        except ValueError as error:
            raise ValueError(f"config.benchmark.{error}") from error
    if need_seeds and not benchmark.tasks("seed"):
        raise ValueError(f"benchmark {benchmark.name!r} has no seed tasks: expected at least one")
    return benchmark


@dataclasses.dataclass(frozen=True)
class ModelOnMesh:
    """The model and the devices, as the host loop uses them.

    Attributes:
      model: the model that both players start from.
      mesh: None on one device, which needs no constraints or shardings.
      weights: False: parameters have shapes but no values, as in a dry run.
    """

    model: LanguageModel
    mesh: Mesh | None
    weights: bool = True

    def put(self, tree: Any) -> Any:
        """Places a batch's host arrays on the devices, split along their leading axis."""
        return processes.put(tree, self.mesh and batch_sharding(self.mesh))

    def activate(self) -> contextlib.AbstractContextManager:
        """A context that makes the mesh visible to jitted functions."""
        return activate(self.mesh, self.model.config) if self.mesh else contextlib.nullcontext()

    def adapted(self, lora: LoraConfig) -> ModelOnMesh:
        """The same with adapters."""
        config = dataclasses.replace(self.model.config, lora=lora)
        return dataclasses.replace(self, model=dataclasses.replace(self.model, config=config))

    def shardings(self, config: TransformerConfig) -> Params | None:
        """Shardings of the parameters of `config`."""
        return param_shardings(config, self.mesh) if self.mesh else None

    def check(self, what: str, needed: float, advice: str = "") -> None:
        """Raises ValueError if a device has fewer bytes than needed; nothing is needed without weights."""
        if self.weights:
            check_memory(what, needed, advice)

    def share(self, count: float) -> float:
        """The part of evenly divided weights that a device holds."""
        shape = self.mesh.shape if self.mesh else {}
        return count / (shape.get("fsdp", 1) * shape.get("tensor", 1))

    def load_params(self, dtype: str = "float32") -> Params:
        """The model's parameters, sharded over the mesh.  Raises ValueError if they do not fit."""
        config = self.model.config
        size = parameter_count(config) * jnp.dtype(dtype).itemsize
        self.check(f"{self.model.path}: weights", self.share(size))
        if not self.weights:
            return self.abstract(param_shapes(config), self.shardings(config), jnp.dtype(dtype))
        return self.model.load_params(self.shardings(config), dtype)

    def abstract(self, shapes: Params, shardings: Params | None, dtype: jnp.dtype | None = None) -> Params:
        """Arrays without values, of `dtype` if it is given, on the mesh or on one device."""
        one = SingleDeviceSharding(jax.devices()[0])
        shardings = shardings or jax.tree.map(lambda x: one, shapes)
        return jax.tree.map(
            lambda x, sharding: x.update(dtype=dtype or x.dtype, sharding=sharding), shapes, shardings
        )


def open_mesh(config: Config) -> Mesh:
    """Makes the mesh.  Raises ValueError if mesh, devices and batch sizes do not match."""
    sizes = (config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
    devices = jax.devices()
    if -1 not in sizes and jax.process_count() == 1:
        devices = devices[: math.prod(sizes)]  # a smaller mesh leaves other devices unused
    mesh = make_mesh(*sizes, devices=devices)
    check_batches(config, mesh)
    return mesh


def open_model(config: Config, path: str | os.PathLike[str], mesh: Mesh, weights: bool = True) -> ModelOnMesh:
    """Reads the model in the directory `path`, except for its weights.

    weights: see `ModelOnMesh`.
    Raises ValueError if the mesh does not divide the model, or it cannot think as configured.
    """
    options = config.model.options(mesh.devices.flat[0].platform)
    model = LanguageModel.load(path, config.model.thinking, **options)
    if mesh.size > 1:
        param_shardings(model.config, mesh)  # raises if the mesh does not divide the model
    return ModelOnMesh(model, mesh if mesh.size > 1 else None, weights)


def check_batches(config: Config, mesh: Mesh) -> None:
    """Raises ValueError if the mesh's data axes do not divide a batch size; the message names the setting."""
    rows = mesh.shape["data"] * mesh.shape["fsdp"]
    sizes = {"evaluation.batch_size": config.evaluation.batch_size}
    for player, c in (("agent", config.agent), ("simulator", config.simulator)):
        sizes[f"{player}.batch_size"] = c.batch_size
        sizes[f"{player}.minibatch_size / micro_batches"] = c.minibatch_size // c.micro_batches
    sizes["sampling.batch_size"] = config.sampling.batch_size
    if config.model.path and config.warm_start.steps:
        c = config.warm_start
        sizes["warm_start.batch_size / micro_batches"] = c.batch_size // c.micro_batches
    for key, size in sizes.items():
        if size % rows:
            raise ValueError(
                f"config.{key} = {size}: expected a multiple of data x fsdp = {rows} of the mesh"
            )


def make_players(
    config: Config, host: ModelOnMesh, simulators: ModelOnMesh | None = None
) -> tuple[Agent, Simulator]:
    """Loads the weights that the players start from, and makes the players.

    Call it inside `host.activate()`.

    Args:
      host: the model that both start from, or the agent.
      simulators: the simulator's model, if it differs.
    Raises ValueError if weights, moments and the agent's largest cache do not fit.
    """
    dtype, learns = jnp.dtype(config.model.dtype), config.trains_simulator
    # Minimum bytes per parameter while the agent samples.
    kept = dtype.itemsize * (1 if simulators is None else 2)
    trained = 4 + 2 * jnp.dtype(config.memory.moments).itemsize
    each = kept if config.lora.rank else 4
    if config.memory.offload == "none" and not config.lora.rank:
        each = kept + (1 + learns) * trained
    size = host.share(each * parameter_count(host.model.config))
    host.check(f"{host.model.path}: weights and moments", size, _LESS_WEIGHTS)
    offloader = Offloader(config.memory.offload, lora=config.lora.rank > 0)
    roles = ("agent", "simulator")[: 1 + learns]
    reference, params = _load(config, host, roles if simulators is None else roles[:1])
    offloader.add_reference(reference)
    theirs = reference
    if simulators is not None:
        theirs, more = _load(config, simulators, roles[1:])
        offloader.add_reference(theirs)
        params |= more

    def make(
        kind: type[PlayerT], role: str, c: PlayerConfig, own: ModelOnMesh, reference: Reference
    ) -> PlayerT:
        optimizer = make_optimizer(c.learning_rate, config.optimizer, config.memory.moments)
        if role not in params:
            state = learner.TrainState({}, (), jnp.int32(0))
        else:
            own = own.adapted(config.lora) if config.lora.rank else own
            state = learner.init_state(params.pop(role), optimizer, copy=False)
        rows = config.sampling.batch_size or c.batch_size
        _, response, episode = config.limits.of(role)
        return kind(
            model=own.model,
            reference=reference,
            config=c,
            sampler=make_sampler(config, own, role, *c.draws, rows),
            optimizer=optimizer,
            state=state,
            widths=config.limits.widths(episode or response),
            groups=c.group_sizes(bool(config.limits.response_buckets)),
            put=host.put,
            offloader=offloader,
        )

    agent = make(Agent, "agent", config.agent, host, reference)
    cache = largest_cache(config, agent) / (host.mesh.size if host.mesh else 1)
    host.check("weights, moments and the agent's key-value cache", size + cache, _LESS_CACHE)
    return agent, make(Simulator, "simulator", config.simulator, simulators or host, theirs)


def largest_cache(config: Config, agent: Agent) -> int:
    """Bytes of the agent's key-value cache on all devices, in training or an evaluation."""
    evaluating = agent.evaluating(config.evaluation.modes(), config.evaluation.batch_size)
    return max(sampler.cache_bytes for sampler in (agent.sampler, *evaluating.values()))


def _load(config: Config, host: ModelOnMesh, roles: Sequence[str]) -> tuple[Reference, dict[str, Params]]:
    """The model, and what each of the roles trains: a copy, or adapters."""
    dtype = jnp.dtype(config.model.dtype)
    if config.lora.rank:
        # The base is not trained, so it is kept in the compute dtype.
        kept, adapted = host.load_params(dtype.name), host.adapted(config.lora)
        numbers = {"agent": 0, "simulator": 1}
        params = {role: make_adapters(adapted, config.seed, numbers[role]) for role in roles}
        return Reference(kept, host.model.config), params
    loaded = host.load_params()
    # Kept in the compute dtype: casting now or at use gives the same results, except for Gemma's norms.
    if host.weights:
        # The last role takes the loaded arrays, which its updates donate: the reference needs its own.
        kept = jax.tree.map(lambda x: jnp.copy(x) if roles and x.dtype == dtype else x.astype(dtype), loaded)
        params = {role: jax.tree.map(jnp.copy, loaded) for role in roles[:-1]} | dict.fromkeys(
            roles[-1:], loaded
        )
    else:
        kept, params = host.load_params(dtype.name), dict.fromkeys(roles, loaded)
    return Reference(kept, host.model.config), params


def make_sampler(
    config: Config, host: ModelOnMesh, role: str, samples: int, temperature: float, max_concurrent: int
) -> Sampler:
    """The sampler of a role, "agent" or "simulator": `samples` of each prompt, at `temperature`.

    max_concurrent: prompts that are decoded together.
    """
    prompt, response, episode = config.limits.of(role)
    return EpisodeEngine(
        host.model.config,
        SamplingParams(response, samples, host.model.eos_ids, temperature),
        max_concurrent,
        config.limits.buckets(prompt),
        host.put,
        config.sampling.lanes,
        episode=episode,
    )


def make_policy(config: Config, host: ModelOnMesh, params: Params, *sampling: Any) -> Policy:
    """A policy that samples as in a run's evaluations, without training; sampling: see `make_sampler`."""
    sampler = make_sampler(config, host, *sampling)
    cache = sampler.cache_bytes / (host.mesh.size if host.mesh else 1)
    less = "; config.evaluation.batch_size and limits set the cache's size"
    host.check("the key-value cache", cache, less)
    key = streams.key(jax.random.key(config.seed), Stream.EVALUATE)
    return Policy(host.model, sampler, params, key)


def make_adapters(host: ModelOnMesh, seed: int, number: int) -> Params:
    """New adapters of an adapted model; players use numbers 0 and 1, a warm start 2."""
    config = host.model.config
    shardings = host.shardings(config)
    shardings = None if shardings is None else split(shardings)[1]
    make = jax.jit(functools.partial(init_adapters, config), out_shardings=shardings)
    key = streams.key(jax.random.key(seed), Stream.ADAPTERS, number)
    if not host.weights:
        return host.abstract(jax.eval_shape(make, key), shardings)
    return make(key)
