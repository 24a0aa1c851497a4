"""The programs of a run on a mesh, lowered without devices, and what else is resident during each."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import aot
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from genenv_jax.config import Config
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.lora import join, split
from genenv_jax.models.scoring import CompletionBatch, score_completions
from genenv_jax.parallel.rules import (
    abstract_params,
    activate,
    batch_sharding,
    decoding_rules,
    logical_sharding,
    param_shapes,
    param_shardings,
)
from genenv_jax.players import learner
from genenv_jax.players.offload import loaded_trees
from genenv_jax.players.optimizer import make_optimizer
from genenv_jax.players.player import recomputes
from genenv_jax.sampling import cache as caches
from genenv_jax.sampling import decoding
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine


@dataclasses.dataclass(frozen=True)
class Work:
    """How much a player's programs compute.  Lengths are the maximum allowed, in tokens.

    prompts: prompts decoded at a time.  minibatch: prompts per optimiser step, computed in `micro_batches`
    parts.  group: completions per prompt, of which `lanes` decode at a time (0: all).
    """

    prompts: int
    minibatch: int
    micro_batches: int
    group: int
    prompt: int
    completion: int
    lanes: int = 0


def player_work(config: Config) -> dict[str, Work]:
    """The work of "agent" and "simulator" under a configuration."""
    found = {}
    for player, c, group in (
        ("agent", config.agent, config.agent.group_size),
        ("simulator", config.simulator, config.simulator.variations),
    ):
        prompts = config.sampling.batch_size or c.batch_size
        prompt, response, episode = config.limits.of(player)
        found[player] = Work(
            prompts,
            c.minibatch_size,
            c.micro_batches,
            group,
            prompt,
            episode or response,
            0 if episode else config.sampling.lanes,  # all of a prompt's episodes are played together
        )
    return found


@dataclasses.dataclass(frozen=True)
class Program:
    """One jitted function of a run.

    Attributes:
      name: its name in the table.
      player: "agent" or "simulator".
      phase: "sample", "score" or "update"; determines what is resident.
      trees: names of the large trees among its arguments, as in `loaded_trees`.
      prompts: number of prompts it works on.
      lower: lowers it with abstract arguments.
      steps: number of decoding steps.
    """

    name: str
    player: str
    phase: str
    trees: frozenset[str]
    prompts: int
    lower: Callable[[], jax.stages.Lowered]
    steps: int = 0


def tree_bytes(
    config: TransformerConfig, mesh: Mesh, moments: str, separate_start: bool = False
) -> dict[str, int]:
    """Exact bytes per chip of the trees named by `loaded_trees`.

    config: of the players, with adapters under LoRA.  moments: dtype of the optimiser's moments.
    separate_start: of the run; there is then also an "other reference".
    """
    trees = _Trees(config, mesh, moments)
    state = trees.state()
    parameters, moments_ = aot.shard_bytes(state.params), aot.shard_bytes(state.opt_state)
    reference = aot.shard_bytes(trees.reference)
    return {
        "own parameters": parameters,
        "own moments": moments_,
        "other parameters": parameters,
        "other moments": moments_,
        "reference": reference,
        **({"other reference": reference} if separate_start else {}),
    }


def residents(
    program: Program, sizes: Mapping[str, int], offload: str, lora: bool, other: bool = True
) -> dict[str, int]:
    """Bytes per chip of the trees resident while a program runs, besides its arguments.

    other: whether the other player is trained.
    """
    names = loaded_trees(program.phase, offload, lora)
    if not other:
        names -= {"other parameters", "other moments"}
    if "reference" in names and "other reference" in sizes:
        names |= {"other reference"}
    return {name: sizes[name] for name in sorted(names - program.trees)}


def programs(config: Config, model: TransformerConfig, mesh: Mesh) -> list[Program]:
    """All programs of a run whose size depends on the model, in the order of an epoch.

    Args:
      config: of the run.
      model: of the players' decoder, with adapters under LoRA.
      mesh: of described or real devices.
    """
    trees = _Trees(model, mesh, config.memory.moments)
    lora = frozenset({"reference"}) if model.lora else frozenset()
    state = frozenset({"own parameters", "own moments"})
    result = []
    players = player_work(config)
    if config.tasks.source == "seeds":
        del players["simulator"]
    for player, work in players.items():
        with activate(mesh, model):
            engine = trees.engine(work)
            at_once = engine.prompts_at_once(work.prompt)
        prefill = functools.partial(trees.lower_prefill, work)
        result.append(Program(f"prefill {player}", player, "sample", lora, at_once, prefill))
        decode = functools.partial(trees.lower_decode, work)
        name = f"decode {player}"
        result.append(Program(name, player, "sample", lora, work.prompts, decode, engine.chunk))
        reference = frozenset({"reference"})
        score = functools.partial(trees.lower_score, work)
        result.append(Program(f"score {player}", player, "score", reference, work.minibatch, score))
        if recomputes(model.dtype):
            own = lora | {"own parameters"}
            score = functools.partial(trees.lower_score, work, own=True)
            name = f"old logp {player}"
            result.append(Program(name, player, "sample", own, work.minibatch, score))
    for player, work in players.items():
        if player == "agent":
            c = config.agent
            step = learner.make_grpo_step(model, c, trees.optimizer, c.micro_batches)
            name = "update agent (GRPO)"
        elif config.trains_simulator:
            c = config.simulator
            step = learner.make_rwr_step(
                model, trees.optimizer, c.kl_coef, c.kl_cap or float("inf"), c.micro_batches
            )
            name = "update simulator (RWR)"
        else:
            continue
        lower = functools.partial(trees.lower_update, step, player, work)
        result.append(Program(name, player, "update", state | lora, work.minibatch, lower))
    return result


class _Trees:
    """Abstract arguments of one model on one mesh."""

    def __init__(self, config: TransformerConfig, mesh: Mesh, moments: str):
        self.config, self.mesh = config, mesh
        dtype = jnp.dtype(config.dtype)

        def stored(x):
            return jax.ShapeDtypeStruct(x.shape, dtype, sharding=x.sharding)

        params = aot.place(param_shapes(config), param_shardings(config, mesh))
        if config.lora:
            base, self.trained = split(params)
            self.frozen = self.reference = jax.tree.map(stored, base)
        else:
            self.frozen, self.trained = {}, params
            self.reference = jax.tree.map(stored, params)
        # Of the optimiser's settings only a schedule affects the program's size, by a counter.
        self.optimizer = make_optimizer(1e-6, moments=moments)

    def state(self) -> learner.TrainState:
        shardings = jax.tree.map(lambda x: x.sharding, self.trained)
        shardings = learner.state_shardings(self.trained, shardings, self.optimizer)
        opt_state = jax.eval_shape(self.optimizer.init, self.trained)
        step = jax.ShapeDtypeStruct((), jnp.int32)
        return aot.place(learner.TrainState(self.trained, opt_state, step), shardings)

    def rows(self, *shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=batch_sharding(self.mesh))

    def completions(self, work: Work, prompts: int) -> CompletionBatch:
        return CompletionBatch(
            self.rows(prompts, work.prompt, dtype=jnp.int32),
            self.rows(prompts, dtype=jnp.int32),
            self.rows(prompts, work.group, work.completion, dtype=jnp.int32),
            self.rows(prompts, work.group, dtype=jnp.int32),
        )

    def engine(self, work: Work) -> Engine:
        # The choice of end tokens does not matter here.
        options = SamplingParams(work.completion, work.group, (0, 1))
        return Engine(self.config, options, work.prompts, (work.prompt,), lanes=work.lanes)

    def sampling(self, work: Work) -> tuple[Engine, decoding.Weights, decoding.State]:
        """The engine for this work, its weights, and its state with the cache at its largest size."""
        engine = self.engine(work)
        params = join(self.frozen, self.trained)
        weights = jax.eval_shape(lambda x: decoding.prepare(x, config=self.config), params)
        shardings = jax.tree.map(lambda x: x.sharding, params)
        split_for_steps: Any = ()
        if caches.per_layer(self.config):
            layer = jax.tree.map(
                lambda x: NamedSharding(self.mesh, PartitionSpec(*x.spec[1:])), shardings["layers"]
            )
            split_for_steps = (layer,) * self.config.num_layers
        elif weights.decoding:
            names = nn.get_partition_spec(abstract_params(self.config))
            table = list(decoding_rules(self.mesh, self.config))
            split_for_steps = nn.logical_to_mesh_sharding(names, self.mesh, table)
        weights = aot.place(weights, decoding.Weights(shardings, split_for_steps))
        state = jax.eval_shape(lambda: engine.empty_state(jax.random.key(0), work.prompt, work.completion))
        return engine, weights, jax.tree.map(self._place_rows, state)

    def _place_rows(self, x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        """Shards an array of the sampler's state: a cache, or an array with a leading batch axis."""
        axes = ("batch", *(None,) * (x.ndim - 1)) if x.ndim else ()
        if x.ndim >= 5:
            axes = (*("layers",) * (x.ndim - 5), "batch", "group", "cache_heads", None, None)
        sharding = logical_sharding(self.mesh, axes, self.config)
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    def lower_prefill(self, work: Work) -> jax.stages.Lowered:
        with activate(self.mesh, self.config):
            engine, weights, state = self.sampling(work)
            n = engine.prompts_at_once(work.prompt)
            new = decoding.Prompts(
                self.rows(n, work.prompt, dtype=jnp.int32),
                self.rows(n, dtype=jnp.int32),
                self.rows(n, work.group, dtype=jnp.uint32),
                self.rows(n, work.group, dtype=jnp.int32),
                self.rows(n, dtype=jnp.int32),
                self.rows(n, dtype=jnp.int32),
            )
            admit = functools.partial(decoding.admit, config=self.config, options=engine.options)
            return jax.jit(admit, donate_argnums=1).lower(weights, state, new)

    def lower_decode(self, work: Work) -> jax.stages.Lowered:
        with activate(self.mesh, self.config):
            engine, weights, state = self.sampling(work)
            return decoding.decode.lower(
                weights, state, config=self.config, options=engine.options, steps=engine.chunk
            )

    def lower_score(self, work: Work, own: bool = False) -> jax.stages.Lowered:
        """Lowers scoring by the reference, or by the player itself if `own`."""
        batch = self.completions(work, work.minibatch)
        params = join(self.frozen, self.trained) if own else self.reference
        config = self.config if own else self.config.base
        with activate(self.mesh, self.config):
            return score_completions.lower(params, batch, config)

    def lower_update(self, step: Callable, player: str, work: Work) -> jax.stages.Lowered:
        batch = self.completions(work, work.minibatch)
        logp = self.rows(*batch.completions.shape)
        weights = self.rows(*batch.completion_lengths.shape)
        if player == "agent":
            made = learner.GRPOBatch(batch, logp, logp, weights)
        else:
            made = learner.RWRBatch(batch, logp, logp, weights, weights)
        with activate(self.mesh, self.config):
            return step.lower(self.state(), self.frozen, made)
