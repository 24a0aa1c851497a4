"""Attempts at tasks: single answers that are scored, and episodes that end with a score."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Benchmark, Message, Score, Task
from genenv_jax.sampling.sampler import OnCompletion, ignore
from genenv_jax.scoring.episodes import Episodes
from genenv_jax.scoring.requests import PROMPT_TOO_LONG, SCORE
from genenv_jax.scoring.scorer import Scorer

Waiting = Callable[[], contextlib.AbstractContextManager]


class ChatModel:
    """A model that answers: a policy on this machine's devices (`players.policy`), or a server.

    Attributes:
      samples: answers to each conversation.
      max_concurrent: how many conversations to ask about at once.
      continues: whether it can continue an episode's tokens; see `play`.
      transcripts: whether its answers are whole episodes, which `Benchmark.score` reads.
    """

    samples: int
    max_concurrent: int
    continues: bool = False
    transcripts: bool = False

    def answer(self, conversations: Sequence[list[Message]], on_completion: OnCompletion) -> Any:
        """Answers every conversation `samples` times; calls `on_completion` with each finished answer.

        Returns the `Rollouts` if there are tokens.
        """
        raise NotImplementedError

    def answer_turn(
        self, conversations: Sequence[list[Message]], turn: int, on_completion: OnCompletion
    ) -> None:
        """Answers every conversation once, as turn `turn` (from 0) of a round of episodes."""
        raise NotImplementedError

    def play(
        self,
        tasks: Sequence[Task],
        episodes: Episodes,
        on_completion: OnCompletion,
        waiting: Waiting,
    ) -> tuple[list[list[Attempt]], Any]:
        """Plays `samples` episodes of each task to the end; returns attempts and their `Rollouts`.

        `on_completion` is called once per episode, when it has ended.
        """
        raise NotImplementedError

    def fits(self, conversation: list[Message]) -> bool:
        """Whether a conversation is short enough to answer; a server enforces its own limit."""
        return True

    def tokens(self, conversation: list[Message]) -> int | None:
        """The length of a conversation as a prompt, in tokens; None if unknown."""

    def text(self, completion: Any) -> str:
        """A completion as text.  Called from several threads."""
        return completion


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One attempt at a task.

    Attributes:
      task: the task.
      sample: index among the attempts at the task, from 0.
      answers: the texts: one, or an episode's in order.
      ended: whether the last text ended by itself, rather than at the token limit.
      score: the verdict.
      replies: the environment's, after each answer of an episode but the last; () if they were not kept.
    """

    task: Task
    sample: int
    answers: tuple[str, ...]
    ended: bool
    score: Score
    replies: tuple[str, ...] = ()

    def episode(self) -> dict[str, Any]:
        """An episode's fields in records, besides its last answer; {} for a single answer."""
        if len(self.answers) < 2:
            return {}
        replies = {"replies": list(self.replies)} if self.replies else {}
        return {"answers": list(self.answers), **replies}

    def record(self) -> dict[str, Any]:
        """Its line in predictions.jsonl."""
        return {
            "task_id": self.task.id,
            "category": self.task.category,
            "sample": self.sample,
            "answer": self.answers[-1] if self.answers else "",
            **self.episode(),
            "ended": self.ended,
            "reward": self.score.reward,
            "success": self.score.success,
            "valid": self.score.valid,
            "reason": self.score.reason,
            "detail": dict(self.score.detail),
        }


def attempt(
    benchmark: Benchmark,
    tasks: Sequence[Task],
    chat_model: ChatModel,
    scorer: Scorer,
    on_completion: OnCompletion = ignore,
    waiting: Waiting = contextlib.nullcontext,
) -> list[list[Attempt]]:
    """Attempts every task `chat_model.samples` times.

    Args:
      scorer: scores while `chat_model` keeps sampling; its `episodes` play.
      on_completion: called as (task, sample, completion, done) for each answer, and once per episode, when it
        has ended.
      waiting: makes a context that is entered while waiting for scores and episodes.
    Returns:
      the attempts at each task, in the order of the tasks.
    """
    played = [i for i, task in enumerate(tasks) if benchmark.is_interactive(task)]
    if chat_model.transcripts:
        played = []
    plain = [i for i in range(len(tasks)) if i not in set(played)]
    found: dict[int, list[Attempt]] = {}

    def named(rows: Sequence[int]) -> OnCompletion:
        """`on_completion` for a subset of the tasks: maps row numbers to indices among all tasks."""
        return lambda row, *rest: on_completion(rows[row], *rest)

    if plain:
        some = [tasks[i] for i in plain]
        made, _ = answer(benchmark, some, chat_model, scorer, named(plain), waiting)
        found |= zip(plain, made, strict=True)
    if played and benchmark.episodes and chat_model.continues:
        some = [tasks[i] for i in played]
        made, _ = chat_model.play(some, scorer.episodes, named(played), waiting)
        found |= zip(played, made, strict=True)
    elif played:
        samples = range(chat_model.samples)
        keys = [(i, j) for i in played for j in samples]
        ended = play(tasks, keys, chat_model, scorer.episodes, on_completion, waiting)
        found |= {i: [ended[i, j] for j in samples] for i in played}
    return [found[i] for i in range(len(tasks))]


def answer(
    benchmark: Benchmark,
    tasks: Sequence[Task],
    chat_model: ChatModel,
    scorer: Scorer,
    on_completion: OnCompletion = ignore,
    waiting: Waiting = contextlib.nullcontext,
) -> tuple[list[list[Attempt]], Any]:
    """Attempts every task `chat_model.samples` times with a single answer each; see `attempt`.

    Returns:
      the attempts at each task, and what `chat_model.answer` returns: for a policy, the `Rollouts`.
    """
    ended: dict[tuple[int, int], bool] = {}
    scores = scorer.batch()

    def finished(i: int, j: int, completion: Any, done: bool) -> None:
        ended[i, j] = done
        scores.add((i, j), completion, SCORE, tasks[i])
        on_completion(i, j, completion, done)

    rollouts = chat_model.answer([benchmark.agent_messages(task) for task in tasks], finished)
    with waiting():
        scored = scores.collect()
    attempts: list[list[Attempt]] = [[] for _ in tasks]
    for (i, j), (text, score) in scored.items():  # in the order of the samples
        attempts[i].append(Attempt(tasks[i], j, (text,), ended[i, j], score))
    return attempts, rollouts


def play(
    tasks: Sequence[Task],
    keys: Sequence[tuple[int, int]],
    chat_model: ChatModel,
    episodes: Episodes,
    on_completion: OnCompletion,
    waiting: Waiting = contextlib.nullcontext,
) -> dict[tuple[int, int], Attempt]:
    """Plays episodes to the end, `chat_model.max_concurrent` at a time; each turn re-reads the conversation.

    In each turn every open episode gets one answer; new episodes begin as others end.  An episode whose
    conversation no longer fits ends there, without success.

    Args:
      keys: (index in `tasks`, sample) of each episode, in the order in which they begin.
    """
    waiting_keys = collections.deque(keys)
    answers: dict[tuple[int, int], list[str]] = {}
    ended: dict[tuple[int, int], bool] = {}
    conversations: dict[tuple[int, int], list[Message]] = {}  # open episodes
    attempts: dict[tuple[int, int], Attempt] = {}
    turn = 0
    while True:
        while waiting_keys and len(answers) - len(attempts) < chat_model.max_concurrent:
            key = waiting_keys.popleft()
            answers[key], ended[key] = [], True
            episodes.advance(key, tasks[key[0]], ())
        with waiting():
            states = episodes.collect()
        for key, state in states.items():
            if isinstance(state, list) and not chat_model.fits(state):
                episodes.drop(key)
                state = Score(0.0, False, False, PROMPT_TOO_LONG)
            if isinstance(state, Score):
                i, j = key
                attempts[key] = Attempt(tasks[i], j, tuple(answers[key]), ended[key], state)
                on_completion(i, j, answers[key][-1:], ended[key])
            else:
                conversations[key] = state
        if not conversations:
            if not waiting_keys:
                return attempts
            continue
        asked = sorted(conversations)

        def finished(row: int, _: int, completion: Any, done: bool, asked=asked) -> None:
            key = asked[row]
            answers[key].append(chat_model.text(completion))
            ended[key] = done
            episodes.advance(key, tasks[key[0]], answers[key])

        chat_model.answer_turn([conversations[key] for key in asked], turn, finished)
        conversations.clear()
        turn += 1
