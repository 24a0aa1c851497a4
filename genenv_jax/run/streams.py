"""All of a run's streams of random numbers, by name.

A stream is a NumPy generator on the host or a JAX key for the devices.  It depends only on the run's seed,
the stream's name and its ids, so a repeated epoch draws the same numbers, and no two streams share any.
"""

import enum

import jax
import numpy as np

from genenv_jax.parallel import processes
from genenv_jax.typing import PRNGKey


@enum.unique
class Stream(enum.Enum):
    """What is drawn, with the names of the ids that distinguish its streams.

    Never reuse a number for another name: it would repeat the same draws.
    """

    # On the host.
    SEEDS = 0, ("lap",)  # order of the seed tasks in a lap
    FIXED_TASKS = 1, ("lap",)  # order in a lap of tasks that were written once
    MIXTURE = 2, ("epoch",)  # base and replayed tasks, and the order of an epoch's tasks
    RECORDS = 3, ("epoch",)  # order of the simulator's records in its update
    REROLLED = 4, ("epoch",)  # tasks to roll out a second time
    GENERATOR = 5, ()  # tasks of the benchmark's own generator
    ORACLE = 6, ("epoch",)
    TEACHER_SEEDS = 7, ()  # order in which the teacher varies the seed tasks
    TEACHER_ANSWER = 8, ("request",)
    DEMONSTRATIONS = 9, ()  # of the warm start
    PASSES = 10, ()  # order of a given model's warm start
    GROWTH = 11, ("epoch",)  # tasks of earlier epochs to vary
    ASKED = 12, ("epoch",)  # success rates or difficulties that the simulator is asked for
    # On the devices.
    GENERATE = 16, ("epoch",)
    GENERATE_STATIC = 17, ("round",)  # over the seeds
    INTERACT = 18, ("epoch", "first task")
    REROLL = 19, ("epoch",)
    EVALUATE = 20, ()  # the same at every evaluation, so that curves are comparable
    ADAPTERS = 21, ("player",)


def rng(seed: int, stream: Stream, *ids: int) -> np.random.Generator:
    """The generator of a stream.

    Ids go into the spawn key: NumPy pads entropy with zeros, so [5] and [5, 0] would be the same seed.

    Raises ValueError if the number of `ids` is not the stream's.
    """
    number, names = stream.value
    _check(stream, ids, names)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number, *ids)))


def key(root: PRNGKey, stream: Stream, *ids: int) -> PRNGKey:
    """The key of a stream: its number and its ids folded into `root`.

    root: typed key of the run's seed.  Raises ValueError if the number of `ids` is not the stream's.
    """
    number, names = stream.value
    _check(stream, ids, names)
    for value in (number, *ids):
        root = jax.random.fold_in(root, processes.put(np.uint32(value)))
    return root


def _check(stream: Stream, ids: tuple[int, ...], names: tuple[str, ...]) -> None:
    if len(ids) != len(names):
        raise ValueError(f"stream {stream.name} has the ids {names}: got {ids}")
