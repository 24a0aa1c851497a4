"""Attempts at tasks: single answers that are scored, and episodes that end with a score."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Benchmark, Message, Score, Task
from genenv_jax.sampling.sampler import Completion, Key, OnCompletion
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

    def answer(
        self, conversations: Sequence[list[Message]], on_completion: OnCompletion, turn: int | None = None
    ) -> Any:
        """Answers every conversation `samples` times; calls `on_completion` with each finished answer.

        turn: answers every conversation once, as this turn (from 0) of a round of episodes.
        Returns the `Rollouts` if there are tokens.
        """
        raise NotImplementedError

    def play(
        self, tasks: Sequence[Task], episodes: Episodes, on_end: Callable[[], object], waiting: Waiting
    ) -> tuple[list[list[Attempt]], Any]:
        """Plays `samples` episodes of each task to the end; returns attempts and their `Rollouts`.

        `on_end` is called once per episode, when it has ended.
        """
        raise NotImplementedError

    def fits(self, conversation: list[Message]) -> bool:
        """Whether a conversation is short enough to answer; a server enforces its own limit."""
        return True

    def tokens(self, conversation: list[Message]) -> int | None:
        """The length of a conversation as a prompt, in tokens; None if unknown."""

    def text(self, content: Any) -> str:
        """A completion's content as text.  Called from several threads."""
        return content


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One attempt at a task.

    Attributes:
      sample: index among the attempts at the task, from 0.
      answers: the texts: one, or an episode's in order.
      ended: whether the last text ended by itself, rather than at the token limit.
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
    on_end: Callable[[], object] = lambda: None,
    waiting: Waiting = contextlib.nullcontext,
) -> list[list[Attempt]]:
    """Attempts every task `chat_model.samples` times.

    Args:
      scorer: scores while `chat_model` keeps sampling; its `episodes` play.
      on_end: called once per attempt, when its answer or episode has ended.
      waiting: makes a context that is entered while waiting for scores and episodes.
    Returns the attempts at each task, in the order of the tasks.
    """
    played = [i for i, t in enumerate(tasks) if benchmark.is_interactive(t) and not chat_model.transcripts]
    plain = [i for i in range(len(tasks)) if i not in set(played)]
    found: dict[int, list[Attempt]] = {}
    if plain:
        some = [tasks[i] for i in plain]
        made, _ = answer(benchmark, some, chat_model, scorer, on_end, waiting)
        found |= zip(plain, made, strict=True)
    if played and benchmark.episodes and chat_model.continues:
        some = [tasks[i] for i in played]
        made, _ = chat_model.play(some, scorer.episodes, on_end, waiting)
        found |= zip(played, made, strict=True)
    elif played:
        samples = range(chat_model.samples)
        keys = [(i, j) for i in played for j in samples]
        ended = play(tasks, keys, chat_model, scorer.episodes, on_end, waiting)
        found |= {i: [ended[i, j] for j in samples] for i in played}
    return [found[i] for i in range(len(tasks))]


def answer(
    benchmark: Benchmark,
    tasks: Sequence[Task],
    chat_model: ChatModel,
    scorer: Scorer,
    on_end: Callable[[], object],
    waiting: Waiting,
) -> tuple[list[list[Attempt]], Any]:
    """Attempts every task `chat_model.samples` times with a single answer each; see `attempt`.

    Returns the attempts at each task, and what `chat_model.answer` returns: for a policy, the `Rollouts`.
    """
    scores = scorer.batch()

    def finished(completion: Completion) -> None:
        scores.add(completion, SCORE, tasks[completion.row])
        on_end()

    rollouts = chat_model.answer([benchmark.agent_messages(task) for task in tasks], finished)
    with waiting():
        scored = scores.collect()
    attempts: list[list[Attempt]] = [[] for _ in tasks]
    for said, score in scored:  # in the order of the samples
        task, answers = tasks[said.row], (said.content,)
        attempts[said.row].append(Attempt(task, said.sample, answers, said.ended, score))
    return attempts, rollouts


def play(
    tasks: Sequence[Task],
    keys: Sequence[Key],
    chat_model: ChatModel,
    episodes: Episodes,
    on_end: Callable[[], object],
    waiting: Waiting,
) -> dict[Key, Attempt]:
    """Plays episodes to the end, `chat_model.max_concurrent` at a time; each turn re-reads the conversation.

    In each turn every open episode gets one answer; new episodes begin as others end.  An episode whose
    conversation no longer fits ends there, without success.

    keys: (index in `tasks`, sample) of each episode, in the order in which they begin.
    """
    waiting_keys = collections.deque(keys)
    answers: dict[Key, list[str]] = {}
    ended: dict[Key, bool] = {}
    attempts: dict[Key, Attempt] = {}
    turn = 0
    while len(attempts) < len(keys):
        while waiting_keys and len(answers) - len(attempts) < chat_model.max_concurrent:
            key = waiting_keys.popleft()
            answers[key], ended[key] = [], True
            episodes.advance(key, tasks[key[0]], ())
        with waiting():
            states = episodes.collect()
        conversations: dict[Key, list[Message]] = {}  # to answer next
        for key, state in states.items():
            if isinstance(state, list) and not chat_model.fits(state):
                episodes.drop(key)
                state = Score(0.0, False, False, PROMPT_TOO_LONG)
            if isinstance(state, Score):
                i, j = key
                attempts[key] = Attempt(tasks[i], j, tuple(answers[key]), ended[key], state)
                on_end()
            else:
                conversations[key] = state
        asked = sorted(conversations)

        def finished(completion: Completion, asked: Sequence[Key] = asked) -> None:
            key = asked[completion.row]
            answers[key].append(chat_model.text(completion.content))
            ended[key] = completion.ended
            episodes.advance(key, tasks[key[0]], answers[key])

        if asked:
            chat_model.answer([conversations[key] for key in asked], finished, turn)
            turn += 1
    return attempts
