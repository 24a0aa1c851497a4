"""Verification: which generations become tasks.

The paper trusts the simulator's output; here a task enters training only if it parses strictly, its tools
and reference answer are well formed, the reference answer earns full reward under the task's own checker
and follows from the request as far as the benchmark can tell, it is not a copy of a seed, a pool task or
another task of its batch, and it matches no held-out task.  Rejections are counted by reason.
"""

import array
import collections
import dataclasses
import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Sequence

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Benchmark, Rejection, Task
from genenv_jax.benchmarks.thoughts import after_thoughts
from genenv_jax.benchmarks.wording import Subsequences, fold, words
from genenv_jax.settings import Settings, choice, within

# Tasks to admit: those that pass their own checks, or all that parse, as in the paper's public code.
PROVEN, PARSED = "proven", "parsed"
_BOUNDS = (base.NOT_TEXT, base.TOO_LONG, base.TOO_DEEP)  # apply to both
_FEW_WORDS = 5
_CROWDED = 16  # texts indexed by one shingle before its level rises


@dataclasses.dataclass(frozen=True)
class VerificationConfig(Settings):
    """`config.verification`: which generated tasks are admitted.

    Attributes:
      near_duplicate: minimum similarity of wording that makes a task a copy (`NearDuplicates`), and minimum
        share of a held-out request's words in a repetition (`Requests`); 0: wording is not compared.
      pool_epochs: epochs for which copies of an accepted task are rejected; 0: always.
      admit: "proven": tasks that pass their own checks; "parsed": all that parse, with the simulator's own
        reference answer, as in the paper's public code.
    """

    near_duplicate: float = within(0.8, 0, 1)
    pool_epochs: int = within(0, 0)
    admit: str = choice(PROVEN, PARSED)


def shingles(text: str, size: int = 5) -> frozenset[int]:
    """64-bit hashes of all runs of `size` folded words (of the whole text if it is shorter)."""
    parts = fold(text).split()
    runs = [" ".join(parts[i : i + size]) for i in range(max(1, len(parts) - size + 1))]
    hashed = (hashlib.blake2b(run.encode("utf-8", "replace"), digest_size=8) for run in runs)
    return frozenset(int.from_bytes(one.digest()) for one in hashed)


class NearDuplicates:
    """Texts seen so far, searchable by Jaccard similarity of their shingles.

    An inverted index with prefix filtering (Chaudhuri et al., "A primitive operator for similarity joins in
    data cleaning", ICDE 2006), which is exact.  All shingles have a global order.  A text of n shingles that
    must share m of them to be similar to another text is indexed, and looked up, by its first n − m + 1 only.
    Two similar texts have one of these in common; candidates are then compared in full.

    Rare shingles come first, so that there are few candidates: if more than `_CROWDED` · 2^level texts are
    indexed by a shingle, its level rises, and they are indexed by the next shingle in the new order.

    threshold: smallest similarity that makes a text a copy, in (0, 1]; 0 switches the index off.
    """

    def __init__(self, threshold: float):
        self.threshold = threshold
        self._texts: list[array.array] = []  # shingles of each
        self._epochs: list[float] = []
        self._index: dict[int, list[int]] = {}  # shingle -> texts that have it among their first
        self._levels: dict[int, int] = {}  # level of each shingle, if not 0

    def add(self, text: str, epoch: float = float("inf")) -> None:
        """Adds a text and its epoch."""
        if self.threshold:
            self._insert(array.array("Q", shingles(text)), epoch)

    def matches(self, text: str, after: float = float("-inf")) -> bool:
        """Whether the similarity to some text from after the epoch `after` reaches the threshold."""
        if not self.threshold:
            return False
        grams = shingles(text)
        found = {i for gram in self._first(grams) for i in self._index.get(gram, ())}
        return any(self._epochs[i] > after and self._similar(grams, self._texts[i]) for i in found)

    def forget(self, until: float) -> None:
        """Removes the texts up to epoch `until`, once they are at least half of all texts."""
        kept = [i for i, epoch in enumerate(self._epochs) if epoch > until]
        if 2 * len(kept) <= len(self._texts):
            texts, epochs = self._texts, self._epochs
            self._texts, self._epochs, self._index, self._levels = [], [], {}, {}
            for i in kept:
                self._insert(texts[i], epochs[i])

    def _first(self, grams: Collection[int]) -> list[int]:
        """The shingles that a text is indexed by."""
        # The fewest shared shingles that can pass `_similar`: the other text is part of this one.
        shared = max(1, math.ceil(self.threshold * len(grams)))
        order = sorted(grams, key=lambda gram: (self._levels.get(gram, 0), gram))
        return order[: len(grams) - shared + 1]

    def _similar(self, grams: frozenset[int], others: Collection[int]) -> bool:
        small, large = sorted((len(grams), len(others)))
        if small < self.threshold * large:
            return False
        common = len(grams.intersection(others))
        return common >= self.threshold * (small + large - common)

    def _insert(self, grams: array.array, epoch: float) -> None:
        self._texts.append(grams)
        self._epochs.append(epoch)
        crowded = self._file([(gram, len(self._texts) - 1) for gram in self._first(grams)])
        while crowded:
            gram = crowded.pop()
            self._levels[gram] = self._levels.get(gram, 0) + 1
            moved = []
            for i in self._index.pop(gram):
                first = self._first(self._texts[i])  # the others keep their order
                moved.append((gram if gram in first else first[-1], i))
            crowded |= self._file(moved)

    def _file(self, entries: Sequence[tuple[int, int]]) -> set[int]:
        """Indexes texts by shingles; returns the shingles that are now crowded."""
        for gram, i in entries:
            self._index.setdefault(gram, []).append(i)
        full = lambda gram: len(self._index[gram]) > _CROWDED << self._levels.get(gram, 0)  # noqa: E731
        return {gram for gram, _ in entries if full(gram)}


class Requests:
    """Requests, searchable for repetitions with additional or slightly different words.

    A request repeats a known one if it asks for the same (`Benchmark.requests`) and contains at least the
    `threshold` share of its words (`wording.words`) in order, with any words around them.  Shingles miss it:
    one changed word in five breaks all runs, and an extra sentence dilutes the similarity.  Many requests
    contain one of fewer than `_FEW_WORDS` words, so a short one must also make up that share of the other.
    Requests that ask for something else are left to `NearDuplicates`.

    threshold: the share, in (0, 1]; 0 switches the index off.
    """

    def __init__(self, threshold: float):
        self.threshold = threshold
        self._index: dict[tuple[str, ...], list[Subsequences]] = collections.defaultdict(list)

    def add(self, wording: str, asked: Sequence[str]) -> None:
        """Adds a request."""
        if self.threshold and (sequence := words(wording)):
            self._index[tuple(asked)].append(Subsequences(sequence))

    def matches(self, wording: str, asked: Sequence[str]) -> bool:
        """Whether a request repeats a known one."""
        known = self._index.get(tuple(asked), ())
        other = words(wording) if known else []
        return any(
            request.common(other) >= self.threshold * request.length
            and (request.length >= _FEW_WORDS or request.length >= self.threshold * len(other))
            for request in known
        )


def inspect(
    benchmark: Benchmark,
    text: str,
    *,
    done: bool,
    seed: Task,
    task_id: str,
    generation: int,
    admit: str = PROVEN,
) -> Task | Rejection:
    """Parses a generation and verifies it on its own, without comparing it with other tasks.

    Args:
      text: what the simulator wrote.
      done: whether it ended by itself, rather than at the token limit.
      seed: the task that it should vary.
      generation: epoch.
      admit: PROVEN, or PARSED: a task that parses but fails its checks passes anyway, with the simulator's
        own answer, unless it exceeds a bound or the benchmark cannot use it.
    """
    said = after_thoughts(text)
    if isinstance(said, Rejection):
        return said
    if not said.strip():
        return Rejection(base.EMPTY)
    if not done:
        return Rejection(base.TRUNCATED, "no end token before the limit")
    task = benchmark.parse(said, seed, task_id, generation)
    if isinstance(task, Rejection):
        return task
    fault = _fault(benchmark, task)
    if fault and admit == PARSED and fault.reason not in _BOUNDS and _works(benchmark, task):
        fault = None
    return fault or task


def _fault(benchmark: Benchmark, task: Task) -> Rejection | None:
    if rejection := benchmark.verify(task):
        return rejection
    score = benchmark.score(task, benchmark.agent_answer(task))
    if not score.success or score.reward < 1.0:
        return Rejection(base.WRONG_ANSWER, f"the reference answer fails: {score.reason}")
    found = grounding(benchmark, task)
    return found if isinstance(found, Rejection) else None


def grounding(benchmark: Benchmark, task: Task) -> Rejection | str | None:
    """`Benchmark.grounding`, or a rejection if it fails, as it may on a task that `verify` refuses."""
    try:
        return benchmark.grounding(task)
    except Exception as error:
        return Rejection(base.NOT_ASKED, f"{type(error).__name__}: {error}"[:200])


def _works(benchmark: Benchmark, task: Task) -> bool:
    """Whether a task that failed its checks can still be shown, answered, scored and described."""
    try:
        benchmark.agent_messages(task)
        benchmark.canonical(task)
        benchmark.text(task)
        benchmark.requests(task)
        for answer in ("", "?", benchmark.simulator_answer(task), benchmark.agent_answer(task)):
            benchmark.score(task, answer)
        benchmark.signature(task), benchmark.difficulty(task), benchmark.meanings(task)
    except Exception:  # the methods promise nothing about a task that `verify` refuses
        return False
    return True


class Verifier:
    """Checks generations one after the other, each also against the tasks accepted before it.

    `inspect`, which depends only on the text, can run earlier and in another process; `compare` is the rest.

    Args:
      seeds: tasks that a generation must not copy.
      held_out: evaluation tasks that a generation must not match.
      config: its settings.  `pool_epochs` is for small worlds that run out of new tasks, since practising a
        task again after some epochs does no harm.
      fits: returns a rejection if the task's prompt is too long for the agent, else None.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        seeds: Sequence[Task],
        held_out: Sequence[Task],
        config: VerificationConfig,
        fits: Callable[[Task], Rejection | None] = lambda task: None,
    ):
        near_duplicate, self.pool_epochs = config.near_duplicate, config.pool_epochs
        self.benchmark, self._fits = benchmark, fits
        self._held_out = {benchmark.canonical(task) for task in held_out}
        self._held_out_meanings = {key for task in held_out for key in benchmark.meanings(task)}
        self._held_out_texts = NearDuplicates(near_duplicate)
        self._held_out_requests = Requests(near_duplicate)
        self._texts = NearDuplicates(near_duplicate)
        # canonical form -> epoch in which it was last accepted; infinity for seeds.
        self._known: dict[str, float] = {}
        self._latest = float("-inf")  # newest admitted generation
        for task in held_out:
            self._held_out_texts.add(benchmark.text(task))
            for wording, asked in benchmark.requests(task):
                self._held_out_requests.add(wording, asked)
        for task in seeds:
            self._known[benchmark.canonical(task)] = float("inf")
            self._texts.add(benchmark.text(task))

    def compare(self, task: Task) -> Task | Rejection:
        """An inspected task, or its rejection if it matches a task that must not be copied."""
        canonical, wording = self.benchmark.canonical(task), self.benchmark.text(task)
        if (
            canonical in self._held_out
            or not self._held_out_meanings.isdisjoint(self.benchmark.meanings(task))
            or self._held_out_texts.matches(wording)
            or any(self._held_out_requests.matches(*r) for r in self.benchmark.requests(task))
        ):
            return Rejection(base.CONTAMINATED, "matches a held-out task")
        forgotten = self._forgotten(task.generation)
        if self._known.get(canonical, float("-inf")) > forgotten:
            return Rejection(base.DUPLICATE)
        if self._texts.matches(wording, after=forgotten):
            return Rejection(base.NEAR_DUPLICATE)
        return task

    def decide(self, outcome: Task | Rejection) -> Task | Rejection:
        """The verdict on an inspected generation; a task that passes `compare` and fits is admitted."""
        if isinstance(outcome, Task):
            outcome = self.compare(outcome)
        if isinstance(outcome, Task):
            outcome = self._fits(outcome) or outcome
        if isinstance(outcome, Task):
            self.admit(outcome)
        return outcome

    def admit(self, task: Task) -> None:
        """Adds an accepted task, which tasks of its own and of later generations must not copy."""
        if self.pool_epochs and task.generation > self._latest:
            self._latest, forgotten = task.generation, self._forgotten(task.generation)
            self._texts.forget(forgotten)
            self._known = {text: epoch for text, epoch in self._known.items() if epoch > forgotten}
        canonical = self.benchmark.canonical(task)
        self._known[canonical] = max(task.generation, self._known.get(canonical, task.generation))
        self._texts.add(self.benchmark.text(task), task.generation)

    def _forgotten(self, generation: int) -> float:
        """The last generation whose tasks may be copied in this one."""
        return generation - self.pool_epochs if self.pool_epochs else float("-inf")

    def state(self) -> None:
        """None: the recorded tasks are all of its state; see `Stateful`."""

    def restore(self, state: None, tasks: Iterable[Task]) -> None:
        """Admits the recorded tasks of an interrupted run again, in order."""
        for task in tasks:
            self.admit(task)
