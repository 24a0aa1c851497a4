"""Plays episodes from prompts: rows answer, read what their environment replies, and answer again.

Some rows decode while the environments of others step.  When all rows of a prompt have ended, the next
prompt takes its slot.  Shapes are fixed, so nothing compiles in steady state.
"""

import collections
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from genenv_jax.parallel import processes
from genenv_jax.sampling import decoding, parts, turns
from genenv_jax.sampling.engine import Engine, by_bucket, commit, state_bytes
from genenv_jax.sampling.sampler import Completion, Key, Rollouts, bucket, pad_rows
from genenv_jax.typing import Params, PRNGKey, WarmUp

Place = tuple[int, int]  # slot, sample
# The row, tokens, how many of its tokens are in the history, whether the reply ends here.
Observed = tuple[Place, list[int], int, bool]

# Widths of the pieces in which observations are read: a few narrow ones cost less than a wide one.
OBSERVATION_WIDTHS = (32, 256)
_MOST_NARROW = 3


class Environments(Protocol):
    """The environments that the rows interact with."""

    def answer(self, completion: Completion) -> None:
        """Takes a row's answer; the environment may reply later."""

    def replies(self, wait: bool) -> Mapping[Key, Sequence[int] | None]:
        """Replies since the last call, the same in every process: tokens to read, or None at episode end.

        wait: return at least one reply, because no row is decoding.
        """

    def no_room(self, key: Key) -> None:
        """Ends the episode of a row whose reply does not fit its token limit."""


@dataclasses.dataclass(frozen=True)
class EpisodeEngine(Engine):
    """An engine that also plays episodes; `max_new_tokens` limits each answer.

    Attributes:
      episode: maximum tokens after the prompt, answers and observations together; 0: it plays none.
    """

    episode: int = 0

    def play(
        self, params: Params, prompts: Sequence[Sequence[int]], environments: Environments, key: PRNGKey
    ) -> Rollouts:
        """Plays g episodes from every prompt, `batch_size` prompts at a time.

        Args:
          prompts: N token lists; an empty one gets no episodes.
          key: typed key; a sample depends on it, its prompt, its replies and its row id, as in `Engine`.
        Returns:
          rollouts with `loss_mask`; `done` says whether the last answer ended by itself.
        Raises:
          ValueError: a prompt is longer than the largest bucket.
        """
        there = [i for i, prompt in enumerate(prompts) if prompt]
        widths = [bucket(len(prompts[i]), self.prompt_buckets, f"prompt {i}") for i in there]
        result = Rollouts.empty(prompts, self.options, self.episode)
        weights = decoding.prepare(params, config=self.config)
        slots = self.batch_size
        most = slots * self.options.group_size * self.episode
        for width, of in by_bucket(widths, slots, most):
            call = _Call(self, weights, environments, key, result, width)
            call.play(collections.deque(there[row] for row in of))
        return result

    @property
    def cache_bytes(self) -> int:
        """See `Engine`; also of a state that holds whole episodes."""
        if not self.episode:
            return super().cache_bytes
        whole = state_bytes(lambda: self.histories(self.prompt_buckets[-1], self.episode))
        return max(super().cache_bytes, whole)

    def histories(self, width: int, length: int) -> turns.Caches:
        """A fresh state for episodes of `length` tokens after prompts of this width."""
        g = self.options.group_size
        return turns.empty(config=self.config, slots=self.batch_size, group=g, prompt=width, length=length)

    def warm_up(self, params: Callable[[], Params], episodes: bool = False) -> list[WarmUp]:
        """See `Sampler`."""
        step = self._warm_up_episodes if episodes else self._warm_up
        return [functools.partial(step, params, width) for width in self.prompt_buckets]

    def _warm_up_episodes(self, params: Callable[[], Params], width: int) -> None:
        weights = decoding.prepare(params(), config=self.config)
        empty = Rollouts.empty([], self.options, self.episode)
        untimed = dataclasses.replace(self, seconds={"prefill": 0.0, "decode": 0.0})
        call = _Call(untimed, weights, None, jax.random.key(0), empty, width)
        call.admit([], *2 * (np.zeros(0, int),))
        for size in (call.size, *call.sizes):
            call.grow_to(size)
            call.decode()
            for observed in OBSERVATION_WIDTHS:
                call.observe([], observed, [])


def part_width(count: int) -> int:
    """The width in which to read the next piece of `count` tokens."""
    narrow, wide = OBSERVATION_WIDTHS
    return narrow if count <= _MOST_NARROW * narrow else wide


class _Call:
    """A call's prompts of one width: the caches on the devices, and the state of each row."""

    def __init__(
        self,
        engine: EpisodeEngine,
        weights: decoding.Weights,
        environments: Environments | None,  # None: no rows
        key: PRNGKey,
        result: Rollouts,
        width: int,
    ):
        self._weights, self._environments = weights, environments
        self._sampler, self._options = engine, engine.options
        self._key, self._result, self._width = key, result, width
        # The rows' caches grow from half of a long episode to all of it; each size compiles a few programs
        # of its own for every prompt width.
        most = engine.episode
        self.size, *self.sizes = [most // 2, most] if most > 256 else [most]
        b, g = self._sampler.batch_size, self._options.group_size
        self._state = commit(engine.histories(width, self.size))
        self._slots = np.full(b, -1)  # the prompt in each slot
        self._length = np.ones((b, g), np.int32)
        self._token = np.zeros((b, g), np.int32)
        self._limit = np.zeros((b, g), np.int32)
        self._running = np.zeros((b, g), bool)
        self._ended = np.ones((b, g), bool)
        self._start = np.zeros((b, g), np.int32)  # where the current answer starts

    def play(self, queue: collections.deque[int]) -> None:
        """Plays all episodes of the prompts in the queue."""
        replies: dict[Place, list[int]] = {}
        while queue or not self._ended.all():
            self._slots[self._ended.all(axis=1)] = -1
            part = self._sampler.prompts_at_once(self._width)
            while queue:
                count = min(part, len(queue))
                at, slots = parts.free_places(self._slots < 0, part, count)
                if len(slots) < count:
                    break
                self.admit([queue.popleft() for _ in range(count)], at, slots)
            came = self._environments.replies(not self._running.any())
            for (i, j), tokens in came.items():
                slot = int(np.flatnonzero(self._slots == i)[0])
                if tokens is None:
                    self._ended[slot, j] = True
                elif self._length[slot, j] + len(tokens) >= self._sampler.episode:
                    self._environments.no_room((i, j))
                    self._ended[slot, j] = True
                else:
                    replies[slot, j] = list(tokens)
            self._read(replies)
            if self._running.any():
                self.grow_to(int(self._length[self._running].max()) + self._sampler.chunk)
                self.decode()

    def admit(self, rows: Sequence[int], at: np.ndarray, slots: np.ndarray) -> None:
        """Reads prompts, at places `at` of the batch, into slots; draws the rows' first tokens."""
        count, g = self._sampler.prompts_at_once(self._width), self._options.group_size
        prompts: list[Sequence[int]] = [[] for _ in range(count)]
        given, to = np.full(count, -1), np.full(count, len(self._slots), np.int32)
        for place, row in zip(at, rows, strict=True):
            prompts[place] = self._result.prompts[row]
        given[at], to[at] = rows, slots
        new = turns.Prompts(*pad_rows(prompts, self._width, count), self._sampler.row_ids(given), to)
        token, logprob = self._run("prefill", turns.admit, new)
        self._slots[slots] = rows
        self._ended[slots], self._length[slots] = False, 0
        for place, slot in zip(at.tolist(), slots.tolist(), strict=True):
            for j in range(g):
                self._begin(slot, j)
                self._draw(slot, j, token[place, j], logprob[place, j])

    def _run(self, phase: str, program: Callable[..., Any], rows: Any, **static: Any) -> Any:
        """What a program of `turns` returns besides the state, which it replaces.

        Adds its time to the sampler's "prefill" or "decode" seconds.
        """
        since = time.monotonic()
        static |= self._sampler.static
        self._state, *found = program(
            self._weights, self._state, self._sampler.put(rows), self._key, **static
        )
        found = processes.fetch(found)
        self._sampler.seconds[phase] += time.monotonic() - since
        return found

    def decode(self) -> None:
        """Decodes one chunk of steps for all running rows."""
        running = self._running.copy()
        # Copies: a CPU device may read host arrays in place after the first device's results are here.
        given = (x.copy() for x in (self._token, self._length, self._limit))
        rows = turns.Rows(*given, running, self._sampler.row_ids(self._slots))
        (emitted,) = self._run("decode", turns.decode, rows, steps=self._sampler.chunk)
        token, logprob = emitted
        for slot, j in np.argwhere(running).tolist():
            for step in np.flatnonzero(token[:, slot, j] >= 0):
                self._draw(slot, j, token[step, slot, j], logprob[step, slot, j])

    def observe(self, rows: Sequence[Observed], width: int, at: Sequence[int]) -> None:
        """Reads up to `width` tokens for some rows, at places `at` of the batch."""
        count = self._sampler.prompts_at_once(width, self._running.size)
        given: list[Sequence[int]] = [[] for _ in range(count)]
        slots, lanes, lengths = (np.zeros(count, np.int32) for _ in range(3))
        slots[:] = len(self._slots)
        ids = np.zeros(count, np.uint32)
        own = self._sampler.row_ids(self._slots)
        for place, (row, some, cached, _) in zip(at, rows, strict=True):
            given[place], lengths[place], ids[place] = some, cached, own[row]
            slots[place], lanes[place] = row
        new = turns.Observations(*pad_rows(given, width, count), lengths, slots, lanes, ids)
        token, logprob = self._run("prefill", turns.observe, new)
        for place, ((slot, j), *_, last) in zip(at, rows, strict=True):
            if last:
                self._begin(slot, j)
                self._draw(slot, j, token[place], logprob[place])

    def grow_to(self, length: int) -> None:
        """Makes room for rows of `length` tokens, or of whole episodes if these are shorter."""
        wanted = min(length, self._sampler.episode)
        if wanted > self.size:
            self.size = next(size for size in self.sizes if size >= wanted)
            self._state = turns.widen(self._state, config=self._sampler.config, length=self.size)

    def _read(self, replies: dict[Place, list[int]]) -> None:
        """Reads replies, many rows at a time, and clears the dict."""
        if not replies:
            return
        self.grow_to(max(int(self._length[row]) + len(tokens) for row, tokens in replies.items()))
        left: list[tuple[Place, list[int], int]] = []
        for row, reply in sorted(replies.items()):
            length = int(self._length[row])
            left.append((row, [int(self._token[row]), *reply], length - 1))
            slot, j = row
            place = self._slots[slot], j
            self._result.tokens[place][length : length + len(reply)] = reply
            self._length[row] += len(reply)
            self._result.lengths[place] = self._length[row]
        replies.clear()
        while left:
            by_width = collections.defaultdict(list)
            for row, tokens, cached in left:
                width = part_width(len(tokens))
                by_width[width].append((row, tokens[:width], cached, len(tokens) <= width))
            for width, waiting in sorted(by_width.items()):
                while waiting:
                    waiting = self._observe_some(waiting, width)
            left = [
                (row, tokens[width:], cached + width)
                for row, tokens, cached in left
                if len(tokens) > (width := part_width(len(tokens)))
            ]

    def _observe_some(self, rows: list[Observed], width: int) -> list[Observed]:
        """Reads one batch of rows; returns the rows that did not fit."""
        slots = np.array([slot for (slot, _), *_ in rows])
        at = parts.places(slots, len(self._slots), self._sampler.prompts_at_once(width, self._running.size))
        taken = np.flatnonzero(at >= 0)
        self.observe([rows[i] for i in taken], width, at[taken].tolist())
        return [rows[i] for i in np.flatnonzero(at < 0)]

    def _begin(self, slot: int, j: int) -> None:
        """Starts a row's next answer."""
        length = int(self._length[slot, j])
        self._start[slot, j] = length
        most = min(length + self._options.max_new_tokens, self._sampler.episode)
        self._limit[slot, j], self._running[slot, j] = most, True

    def _draw(self, slot: int, j: int, token: int, logprob: float) -> None:
        """Records a row's next token; if it ends the answer, sends the answer to the environment."""
        result, length = self._result, int(self._length[slot, j])
        place = int(self._slots[slot]), j
        result.tokens[place][length] = token
        result.logprobs[place][length] = logprob
        result.loss_mask[place][length] = True
        self._token[slot, j], self._length[slot, j] = token, length + 1
        result.lengths[place] = length + 1
        done = int(token) in self._options.eos_ids
        if done or length + 1 >= self._limit[slot, j]:
            self._running[slot, j] = False
            result.done[place] = done
            answer = result.tokens[place][self._start[slot, j] : length + 1].tolist()
            self._environments.answer(Completion(*place, answer, done))
