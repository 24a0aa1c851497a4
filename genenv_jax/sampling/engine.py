"""Samples completions for lists of prompts, in batches of fixed shapes so that nothing recompiles."""

from __future__ import annotations

import collections
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from genenv_jax.models.config import TransformerConfig
from genenv_jax.parallel import processes, rules
from genenv_jax.sampling import decoding, parts
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.sampler import OnCompletion, Rollouts, bucket, ignore, pad_rows
from genenv_jax.settings import Settings, within
from genenv_jax.typing import Params, PRNGKey


def by_bucket(widths: Sequence[int], batch_size: int, batch_tokens: int) -> list[tuple[int, list[int]]]:
    """Groups prompts by bucket: pairs of a width and the prompts padded to it.

    Prompts too few to fill the slots join the next larger bucket, unless this adds more padding tokens than
    a full batch can decode.

    Args:
      widths: each prompt's bucket.
      batch_size: number of slots.
      batch_tokens: maximum tokens that a full batch decodes.
    """
    present = sorted(set(widths))
    groups: list[tuple[int, list[int]]] = []
    rows: list[int] = []
    for width, larger in zip(present, [*present[1:], 0], strict=False):
        rows = sorted(rows + [i for i, w in enumerate(widths) if w == width])
        padding = len(rows) * (larger - width)
        if not larger or len(rows) >= batch_size or padding > batch_tokens:
            groups.append((width, rows))
            rows = []
    return groups


@dataclasses.dataclass(frozen=True)
class SamplingConfig(Settings):
    """`config.sampling`: few lanes and many prompts keep rows busy if completion lengths differ much.

    Attributes:
      batch_size: prompts that decode at the same time; 0: a player's whole batch.
      lanes: completions per prompt that decode at the same time; the others follow.  0: all.
    """

    batch_size: int = within(0, 0, 2**16)
    lanes: int = within(0, 0, 2**16)


@dataclasses.dataclass(frozen=True)
class Engine:
    """Samples completions for any number of prompts, `batch_size` at a time.

    The device decodes in chunks of `chunk` steps; the host reads one chunk's tokens while the device
    computes the next.  When all samples of a prompt are finished, the next prompt takes its slot.

    Attributes:
      batch_size: prompts decoded at the same time.
      prompt_buckets: ascending prompt widths; each is compiled once.
      put: places host arrays on the devices, sharded along their leading axis.
      lanes: samples of one prompt decoded at the same time; the rest follow as these finish.  0: all g.
        When lengths vary a lot, fewer lanes and more prompts waste less.
      chunk: decoding steps between checks for finished samples.
      prefill_tokens: approximate number of prompt tokens read at a time; at least one prompt per
        batch shard.
      seconds: device time spent on "prefill" and "decode", summed over all calls.
    """

    config: TransformerConfig
    options: SamplingParams
    batch_size: int
    prompt_buckets: tuple[int, ...]
    put: Callable[[Any], Any] = jax.device_put
    lanes: int = 0
    chunk: int = 16
    prefill_tokens: int = 1024
    seconds: dict[str, float] = dataclasses.field(
        default_factory=lambda: {"prefill": 0.0, "decode": 0.0}, compare=False
    )

    def drawing(self, **options: Any) -> Engine:
        """The same sampler with other `SamplingParams`."""
        return dataclasses.replace(self, options=dataclasses.replace(self.options, **options))

    def __call__(
        self,
        params: Params,
        prompts: Sequence[Sequence[int]],
        key: PRNGKey,
        on_completion: OnCompletion = ignore,
        limits: np.ndarray | None = None,
    ) -> Rollouts:
        """Samples g completions of every prompt.

        Args:
          prompts: N token lists.
          key: typed key; sample j of prompt i has row id i * g + j, however prompts are batched, so a sample
            depends on its prompt's index in the list and not on the batching.
          on_completion: called for each completion as it finishes, while the device keeps working; the
            order is the same in every process.
          limits: (N, g) integers, a length limit for each sample; None: `max_new_tokens` for all.
        Raises ValueError for a prompt that is empty or too long for all buckets.
        """
        n, g, most = len(prompts), self.options.group_size, self.options.max_new_tokens
        widths = [bucket(len(p), self.prompt_buckets, f"prompt {i}") for i, p in enumerate(prompts)]
        if not all(prompts):
            raise ValueError(f"prompt {[len(p) for p in prompts].index(0)} is empty")
        limits = np.full((n, g), most) if limits is None else limits
        work = _Work(Rollouts.empty(prompts, self.options), limits, self.options.eos_ids, on_completion)
        weights = decoding.prepare(params, config=self.config)
        # Prompts of one bucket run together, in their original order.
        for width, rows in by_bucket(widths, self.batch_size, self.batch_size * g * most):
            self._run(weights, key, work, rows, width)
        return work.result

    def _warm_up(self, params: Callable[[], Params], width: int) -> None:
        """Compiles every program that a call with prompts of this width may need."""
        weights = decoding.prepare(params(), config=self.config)
        g = self.options.group_size
        nothing = _Work(Rollouts.empty([], self.options), np.zeros((0, g)), (), ignore)
        sizes = cache_sizes(self.options.max_new_tokens)
        state = commit(self.empty_state(jax.random.key(0), width, sizes[0]))
        count = self.prompts_at_once(width)
        rows, slots = np.full(count, -1), np.full(count, self.batch_size)
        new = self._prompts(nothing, rows, slots, width, self.batch_size)
        state, *_ = decoding.admit(weights, state, new, **self.static)
        for size in sizes:
            if size != sizes[0]:
                state = decoding.resize(state, config=self.config, length=size)
            if self.options.max_new_tokens > 1:
                state, _ = decoding.decode(weights, state, steps=self.chunk, **self.static)

    def _run(self, weights: decoding.Weights, key: PRNGKey, work: _Work, rows: list[int], width: int) -> None:
        """Samples the prompts `rows`, all of one bucket."""
        size, *sizes = cache_sizes(self.options.max_new_tokens)
        state = commit(self.empty_state(key, width, size))
        part = self.prompts_at_once(width)
        queue = collections.deque(rows)
        slots = np.full(self.batch_size, -1)  # the prompt in each slot, -1 if free
        # Results still being computed: phase, arrays, and the prompts admitted or in the slots; -1 for none.
        flight: collections.deque[tuple[str, Any, np.ndarray]] = collections.deque()
        left, clock = set(rows), time.monotonic()
        while left:
            while queue:
                count = min(part, len(queue))
                at, free = parts.free_places(slots < 0, part, count)
                if len(free) < count:
                    break
                admitted, to = np.full(part, -1), np.full(part, self.batch_size)
                admitted[at], to[at] = [queue.popleft() for _ in range(count)], free
                slots[free] = admitted[at]
                wanted = min(part, len(queue)) or self.batch_size
                new = self._prompts(work, admitted, to, width, wanted)
                state, *first = decoding.admit(weights, state, new, **self.static)
                flight.append(("prefill", first, admitted))
            chunks = 0
            if self.options.max_new_tokens > 1:
                # The cache must hold what a sample may have after the chunk in flight and this one.
                chunks = 1 + sum(phase == "decode" for phase, *_ in flight)
                while sizes and work.longest(slots) + chunks * self.chunk > size + 1:
                    size = sizes.pop(0)
                    state = decoding.resize(state, config=self.config, length=size)
                state, emitted = decoding.decode(weights, state, steps=self.chunk, **self.static)
                flight.append(("decode", emitted, slots.copy()))
            # The last chunk stays in flight while the host reads the earlier ones.
            while left and len(flight) > min(chunks, 1):
                phase, arrays, prompts = flight.popleft()
                arrays = processes.fetch(arrays)
                now = time.monotonic()
                self.seconds[phase] += now - clock
                clock = now
                read = work.read_first if phase == "prefill" else work.read_chunk
                finished = read(prompts, *arrays)
                left -= finished
                slots[np.isin(slots, list(finished))] = -1

    @property
    def static(self) -> dict[str, Any]:
        """The static arguments of the jitted functions that read prompts and decode."""
        return {"config": self.config, "options": self.options}

    def row_ids(self, rows: np.ndarray) -> np.ndarray:
        """(n, g) uint32 row ids of the samples of prompts `rows` (n,); for -1, those of prompt 0."""
        g = self.options.group_size
        return (np.maximum(rows, 0)[:, None] * g + np.arange(g)).astype(np.uint32)

    def prompts_at_once(self, width: int, most: int = 0) -> int:
        """How many prompts of this width are read at a time; most: the limit, if not `batch_size`."""
        shards = rules.batch_shards()
        count = math.ceil(self.prefill_tokens / width / shards) * shards
        return min(count, most or self.batch_size)

    def empty_state(self, key: PRNGKey, width: int, columns: int) -> decoding.State:
        """A fresh state for prompts of this width, with a cache of `columns` columns."""
        return decoding.empty_state(
            key,
            config=self.config,
            slots=self.batch_size,
            lanes=min(self.lanes or self.options.group_size, self.options.group_size),
            group=self.options.group_size,
            prompt=width,
            length=columns,
        )

    @property
    def cache_bytes(self) -> int:
        """Size of the largest state, mostly keys and values, summed over all devices."""
        longest = cache_sizes(self.options.max_new_tokens)[-1]
        return state_bytes(
            lambda: self.empty_state(jax.random.key(0), self.prompt_buckets[-1], columns=longest)
        )

    def _prompts(
        self, work: _Work, rows: np.ndarray, slots: np.ndarray, width: int, wanted: int
    ) -> decoding.Prompts:
        """Places prompts on the devices: indices `rows` (n,), -1 for none, and the slot of each."""
        n, there = len(rows), rows >= 0
        given = [work.result.prompts[i] if i >= 0 else [] for i in rows]
        limits = np.ones((n, self.options.group_size), np.int32)
        limits[there] = work.limits[rows[there]]
        return self.put(
            decoding.Prompts(
                *pad_rows(given, width, n),
                self.row_ids(rows),
                limits,
                slots.astype(np.int32),
                np.full(n, wanted, np.int32),
            )
        )


def state_bytes(make: Callable[[], Any]) -> int:
    """Size of the arrays that `make` would return."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(jax.eval_shape(make)))


def commit(state: Any) -> Any:
    """Commits a fresh state to its devices, like restored parameters.

    Otherwise every mix of committed and uncommitted arguments would compile again.
    """
    return jax.tree.map(lambda x: jax.device_put(x, x.sharding), state)


def cache_sizes(max_new_tokens: int) -> list[int]:
    """The sizes through which the completion cache grows: quarters of the limit, rounded up to 32.

    Each step reads the whole cache, so a growing cache costs five eighths of a fixed one.  Each size
    compiles its own program, so short completions get fewer sizes.
    """
    parts = min(max(max_new_tokens // 32, 1), 4)
    sizes = (math.ceil(max_new_tokens * i / parts / 32) * 32 for i in range(1, parts + 1))
    return sorted({min(max_new_tokens, size) for size in sizes})


class _Work:
    """The host's view of a call: the completions so far, and which are finished."""

    def __init__(
        self, result: Rollouts, limits: np.ndarray, eos_ids: tuple[int, ...], on_completion: OnCompletion
    ):
        self.result, self.limits = result, limits
        self._eos, self._on_completion = eos_ids, on_completion
        self._finished = np.zeros(limits.shape, bool)

    def longest(self, slots: np.ndarray) -> int:
        """Length of the longest unfinished completion of the prompts in the slots, at least 1."""
        rows = slots[slots >= 0]
        lengths = np.where(self._finished[rows], 0, self.result.lengths[rows])
        return int(lengths.max(initial=1))

    def read_first(self, rows: np.ndarray, tokens: np.ndarray, logprobs: np.ndarray) -> set[int]:
        """Records the first tokens (n, g) of prompts `rows`; returns the prompts that are now finished."""
        there, g = np.flatnonzero(rows >= 0), self.limits.shape[1]
        row, sample = np.repeat(rows[there], g), np.tile(np.arange(g), len(there))
        return self._record(row, sample, 0, tokens[there].ravel(), logprobs[there].ravel())

    def read_chunk(
        self,
        slots: np.ndarray,
        sample: np.ndarray,
        position: np.ndarray,
        token: np.ndarray,
        logprob: np.ndarray,
    ) -> set[int]:
        """Records a chunk's tokens, (steps, b, lanes) each; returns the prompts it has finished."""
        there = np.nonzero(sample >= 0)
        place = slots[there[1]], sample[there], position[there]
        return self._record(*place, token[there], logprob[there])

    def _record(self, row, sample, position, token, logprob) -> set[int]:
        result = self.result
        result.tokens[row, sample, position] = token
        result.logprobs[row, sample, position] = logprob
        # Tokens come in time order, so the last token of a sample sets its length.
        result.lengths[row, sample] = position + 1
        done = np.isin(token, self._eos)
        ends = np.flatnonzero(done | (position + 1 == self.limits[row, sample]))
        row, sample = row[ends], sample[ends]
        result.done[row, sample] = done[ends]
        self._finished[row, sample] = True
        for i, j in zip(row.tolist(), sample.tolist(), strict=True):
            self._on_completion(result.completion(i, j))
        return {i for i in row.tolist() if self._finished[i].all()}
