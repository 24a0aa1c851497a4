"""Whole runs of the toy benchmark, in seconds, and comparisons of them."""

import contextlib
import functools
import json
import pathlib
from unittest import mock

import jax
import numpy as np

from genenv_jax.coevolve import Coevolution
from genenv_jax.config import default_config, validate
from genenv_jax.players import build, learner, optimizer
from genenv_jax.run.timing import Compilations
from genenv_jax.sampling.engine import Engine
from genenv_jax.trainers import warm_start
from genenv_jax.trainers.agent import AgentTrainer

FILES = ("metrics.jsonl", "tasks.jsonl", "d_train.jsonl", "d_env.jsonl")


def toy_config(cache_dir, overrides=None):
    """A run that takes seconds; `overrides` are settings by dotted key."""
    config = default_config()
    config.update_from_flattened_dict(
        {
            "epochs": 2, "benchmark.name": "toy", "model.dtype": "float32", "model.remat": "none",
            "model.make.vocab_size": 270, "model.make.hidden_size": 16, "model.make.intermediate_size": 32,
            "model.make.num_layers": 2, "model.make.num_heads": 2, "model.make.num_kv_heads": 1,
            "model.make.cache_dir": str(cache_dir), "mesh.data": 1, "mesh.fsdp": 1, "mesh.tensor": 1,
            "limits.agent_prompt": 128, "limits.agent_response": 6, "limits.simulator_prompt": 96,
            "limits.simulator_response": 24, "limits.prompt_buckets": (), "warm_start.steps": 150,
            "warm_start.batch_size": 16, "warm_start.learning_rate": 1e-2, "curriculum.seeds_per_epoch": 4,
            "agent.learning_rate": 1e-3, "agent.group_size": 4, "agent.batch_size": 8,
            "agent.minibatch_size": 4, "agent.replay_share": 0.2, "simulator.learning_rate": 1e-3,
            "simulator.batch_size": 4, "simulator.minibatch_size": 2, "curriculum.k_min": 0.3,
            "simulator.success_rate_over": "task", "verification.near_duplicate": 0.0,
            "evaluation.batch_size": 4, "export": False, "compilation_cache": False, "tracking.trackers": (),
        }
    )  # fmt: skip
    config.update_from_flattened_dict(overrides or {})
    return config


_STEPS = {
    name: functools.cache(getattr(learner, name))
    for name in ("make_grpo_step", "make_rwr_step", "make_supervised_step")
}
_make_optimizer = functools.cache(optimizer.make_optimizer)


@contextlib.contextmanager
def shared_steps():
    """Inside it, all runs of this process share their update steps, as they do the sampler's programs.

    For equal settings a step is one jitted function, whose tracing takes most of a short run.
    """
    with contextlib.ExitStack() as stack:
        for name, shared in _STEPS.items():
            stack.enter_context(mock.patch.object(learner, name, shared))
        for module in (build, warm_start):
            stack.enter_context(mock.patch.object(module, "make_optimizer", _make_optimizer))
        yield


def forget_steps():
    """The next run within `shared_steps` has its own update steps."""
    for shared in _STEPS.values():
        shared.cache_clear()


class Compiled:
    """Programs that each epoch compiles or loads from the cache, and the prompt widths it samples."""

    def __init__(self, patch):
        forget_steps()
        self.programs, self.widths = [], []
        epoch, sample = Coevolution.epoch, Engine.__call__

        def counting(experiment, number):
            counter = Compilations()
            self.widths.append(set())
            try:
                epoch(experiment, number)
            finally:
                counter.close()
            self.programs.append(sum(counter.lap()))

        def noting(engine, params, prompts, *arguments, **options):
            if self.widths:
                self.widths[-1] |= {next(b for b in engine.prompt_buckets if len(p) <= b) for p in prompts}
            return sample(engine, params, prompts, *arguments, **options)

        patch.setattr(Coevolution, "epoch", counting)
        patch.setattr(Engine, "__call__", noting)


# For runs of `tests.toy.Talking`.
EPISODES = {
    "limits.agent_response": 4, "limits.agent_episode": 72, "limits.agent_prompt": 64, "agent.batch_size": 16,
}  # fmt: skip


def run(cache, workdir, **overrides):
    """Runs the toy to its end; returns the experiment."""
    experiment = Coevolution(validate(toy_config(cache, overrides)), pathlib.Path(workdir))
    experiment.run()
    return experiment


OFTEN = {"checkpoint.minutes": 1e-9}  # after every batch


class Killed(BaseException):
    pass


def kill():
    raise Killed


def struck(cache, workdir, place, how, **settings):
    """Calls `how` in a run's batch `place`, (epoch, first task); returns all batches that it began."""
    play, begun = AgentTrainer._play, []

    def striking(self, epoch, start, *rest):
        begun.append((epoch, start))
        if begun[-1] == place:
            how()
        play(self, epoch, start, *rest)

    with mock.patch.object(AgentTrainer, "_play", striking):
        try:
            run(cache, workdir, **settings)
        except (Killed, SystemExit):
            assert begun[-1] == place
    return begun


def params(experiment, player):
    """A player's parameters on the host."""
    return jax.device_get(getattr(experiment, player).state.params)


def same(a, b):
    """Whether two trees of arrays are bitwise equal."""
    return all(np.array_equal(x, y) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


def assert_close(a, b, atol):
    """The players of two experiments have the same parameters up to rounding."""
    for role in ("agent", "simulator"):
        for x, y in zip(*(jax.tree.leaves(params(e, role)) for e in (a, b)), strict=True):
            np.testing.assert_allclose(x, y, atol=atol)


def contents(workdir):
    """The bytes of a run's records."""
    return {name: (pathlib.Path(workdir) / name).read_bytes() for name in FILES}


def lines(workdir, name="metrics.jsonl"):
    """The objects of a run's record."""
    return [json.loads(line) for line in (pathlib.Path(workdir) / name).read_text().splitlines()]
