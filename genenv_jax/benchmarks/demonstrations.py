"""Demonstrations for both roles, made from a benchmark's seed tasks, for supervised fine-tuning."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from genenv_jax.benchmarks.base import Benchmark, Message, Rejection, SeedStatistics, Task, asking_for
from genenv_jax.benchmarks.subsets import stable_position
from genenv_jax.benchmarks.success_record import ALIKE, ASKED, OWN, RECENT

AGENT, SIMULATOR = "agent", "simulator"
_TRIES = 16  # how many other seeds are tried as a variation of one seed


@dataclasses.dataclass(frozen=True)
class Transcript:
    """The part of an episode after its opening."""

    answers: tuple[str, ...]
    replies: tuple[tuple[Message, ...], ...]  # the messages after each answer but the last

    def messages(self) -> list[Message]:
        """The whole transcript as messages."""
        replies = (*self.replies, ())
        said = [{"role": "assistant", "content": answer} for answer in self.answers]
        turns = zip(said, replies, strict=True)
        return [message for answer, reply in turns for message in (answer, *reply)]


Completion = str | Transcript


@dataclasses.dataclass(frozen=True)
class Demonstration:
    """What a player reads and what it should write."""

    role: str  # AGENT or SIMULATOR
    messages: Sequence[Message]  # the prompt
    completions: tuple[Completion, ...]  # alternatives, each of them correct


def reference(benchmark: Benchmark, task: Task) -> tuple[list[Message], Completion]:
    """The agent's prompt for a task, and the reference answer or the reference episode."""
    if benchmark.episodes:
        return play(benchmark, task, benchmark.agent_answers(task))
    return benchmark.agent_messages(task), benchmark.agent_answer(task)


def play(benchmark: Benchmark, task: Task, answers: Sequence[str]) -> tuple[list[Message], Transcript]:
    """Plays an episode with the given answers until it ends; returns its opening and the transcript.

    Raises ValueError if the episode rewrites its conversation, or there are no answers.
    """
    if not answers:
        raise ValueError(f"task {task.id} has no reference answers: expected some to demonstrate")
    episode = benchmark.episode(task)
    try:
        opening = messages = episode.messages()
        given: list[str] = []
        replies: list[tuple[Message, ...]] = []
        for answer in answers:
            given.append(answer)
            if episode.step(answer) is not None or len(given) == len(answers):
                break
            before, messages = messages, episode.messages()
            if messages[: len(before)] != before:
                raise ValueError(f"the episode of task {task.id} rewrote its conversation")
            replies.append(tuple(messages[len(before) + 1 :]))
    finally:
        episode.close()
    return opening, Transcript(tuple(given), tuple(replies))


def endless(benchmark: Benchmark, rng: np.random.Generator) -> Iterator[tuple[list[Message], Completion]]:
    """Endless (messages, completion) pairs for both roles: the benchmark's own `demonstrations`.

    If it has none, the agent's pairs are seed tasks with their reference answers, and the simulator's pairs
    map a seed to another seed of its category.  Each seed's prompt states a random success rate, since a
    model made from scratch understands only wordings that it has read, or asks for the other's difficulty.
    """
    own = benchmark.demonstrations(rng)
    if own is not None:
        yield from own
    seeds = list(benchmark.tasks("seed"))
    by_category: dict[str, list[int]] = {}
    for index, task in enumerate(seeds):
        by_category.setdefault(task.category, []).append(index)

    # Cached: the same few seeds are drawn repeatedly, and writing one may execute its calls.
    @functools.cache
    def of_agent(seed: int) -> tuple[list[Message], Completion]:
        return reference(benchmark, seeds[seed])

    @functools.cache
    def of_simulator(seed: int) -> tuple[list[Message], str]:
        shown = benchmark.simulator_messages(seeds[seed], _any_record(rng))
        return shown, benchmark.simulator_answer(seeds[seed])

    while True:
        seed = int(rng.integers(len(seeds)))
        yield of_agent(seed)
        others = by_category[seeds[seed].category]
        other = others[rng.integers(len(others))]
        shown, written = of_simulator(seed)[0], of_simulator(other)[1]
        if (asking := asking_for(benchmark, seeds[other], seeds[seed])).difficulty is not None:
            shown = benchmark.simulator_messages(seeds[seed], asking)
        yield shown, written


def _any_record(rng: np.random.Generator) -> SeedStatistics:
    """A success record of any wording that a run shows; in one of eleven cases there is none yet."""
    if not rng.integers(11):
        return SeedStatistics()
    attempts = 10 * int(rng.integers(1, 65))
    at = (OWN, ALIKE, RECENT, ASKED)[rng.integers(4)]
    if at == ASKED:
        return SeedStatistics.asked(rng.integers(11) / 10)
    return SeedStatistics(attempts, int(rng.integers(attempts + 1)), at)


def split_seeds(benchmark: Benchmark, validation_share: float) -> tuple[list[Task], list[Task]]:
    """(training, validation) seeds, split by a stable hash; seeds from one record stay on one side."""
    sides: tuple[list[Task], list[Task]] = [], []
    for seed in benchmark.tasks("seed"):
        place = stable_position(f"validation:{benchmark.source(seed)}")
        sides[place < validation_share].append(seed)
    return sides


def seed_demonstrations(
    benchmark: Benchmark, seeds: Sequence[Task], variations: int, rng: np.random.Generator
) -> list[Demonstration]:
    """A demonstration for each role from each of the seeds; no other data of the benchmark is read.

    The agent answers the seed, or plays it, with the reference.  The simulator reads the seed, without a
    success rate.  It writes up to `variations` other seeds of its category or with its tools that `parse` and
    `verify` accept as variations: preferably from other records and with the same tools.  If none is
    accepted, it writes the seed itself, which at least shows the format; if that fails too, only the agent
    gets a demonstration.  Where prompts can ask for a difficulty (`Benchmark.askable`), they ask for that of
    what is written, one demonstration for each.  For difficulties that none of `seeds` has it also writes
    up to `variations` tasks that join another seed with its tools and the seed itself (`Benchmark.joined`).
    """
    by_category: dict[str, list[Task]] = {}
    by_tools: dict[tuple[str, ...], list[Task]] = {}
    for seed in seeds:
        by_category.setdefault(seed.category, []).append(seed)
        by_tools.setdefault(_names(seed), []).append(seed)
    known = {benchmark.difficulty(seed) for seed in seeds if benchmark.askable(seed)}
    found = []
    for seed in seeds:
        messages, written = reference(benchmark, seed)
        found.append(Demonstration(AGENT, messages, (written,)))
        category = by_category[seed.category]
        others = [category[i] for i in rng.permutation(len(category)) if category[i] is not seed]
        sharing = by_tools[_names(seed)] if seed.tools else ()
        others += [other for other in sharing if other.category != seed.category]
        others.sort(key=lambda other: other.tools != seed.tools)
        own = benchmark.source(seed)
        near = [other for other in others if benchmark.source(other) == own]
        far = [other for other in others if benchmark.source(other) != own]
        written = _variations(benchmark, seed, far[:_TRIES] + near[:_TRIES], variations)
        written = written or _variations(benchmark, seed, [seed], 1)
        if lacking := {*benchmark.askable(seed)} - known:
            beside = [other for other in sharing if other is not seed and other.tools == seed.tools]
            joined = [task for other in beside if (task := benchmark.joined(other, seed))]
            joined = [task for task in joined if benchmark.difficulty(task) in lacking]
            written += _variations(benchmark, seed, joined, variations)
        texts: dict[SeedStatistics, list[str]] = {}
        for task in written:
            text = benchmark.simulator_answer(task, seed)
            texts.setdefault(asking_for(benchmark, task, seed), []).append(text)
        for asking, alike in texts.items():
            shown = benchmark.simulator_messages(seed, asking)
            found.append(Demonstration(SIMULATOR, shown, tuple(alike)))
    return found


def _names(task: Task) -> tuple[str, ...]:
    return tuple(str(tool["name"]) for tool in task.tools)


def _variations(benchmark: Benchmark, seed: Task, tasks: Sequence[Task], most: int) -> list[Task]:
    """The first `most` tasks that pass as variations of `seed`."""
    passing = (task for task in tasks if _is_variation(benchmark, seed, task))
    return list(itertools.islice(passing, most))


def _is_variation(benchmark: Benchmark, seed: Task, task: Task) -> bool:
    """Whether `task`, as the simulator would write it for `seed`, parses and passes verification."""
    read = benchmark.parse(benchmark.simulator_answer(task, seed), seed, task.id, 0)
    if isinstance(read, Rejection) or benchmark.canonical(read) != benchmark.canonical(task):
        return False
    return benchmark.verify(read) is None
