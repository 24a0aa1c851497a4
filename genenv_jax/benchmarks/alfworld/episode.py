"""One attempt at a game, in as many steps as the rules give."""

from __future__ import annotations

from typing import Any, Protocol

from genenv_jax.benchmarks.alfworld import commands, prompts
from genenv_jax.benchmarks.alfworld.engine import NOTHING_HAPPENS
from genenv_jax.benchmarks.base import ENVIRONMENT_ERROR, STEP_LIMIT, Message, Rejection, Score

MAX_OBSERVATION = 600  # characters of a message of a conversation; the longest real one has 318
MAX_OVERVIEW = 2_000  # of the first one


class RunningGame(Protocol):
    """What an episode needs of `engine.Engine`."""

    overview: str
    goal: str
    admissible: tuple[str, ...]
    won: bool

    def step(self, command: str) -> str: ...

    def close(self) -> None: ...


class GameEpisode:
    """Implements `genenv_jax.benchmarks.base.Episode`.

    Args:
      game: at its beginning; the episode closes it.
      task_type: for the score's detail.
      grammar: one of `commands.GRAMMARS`.
      max_steps: answers after which the game is lost; every answer counts.
      max_chars: of a whole prompt.
      answer_chars: of one answer; a longer one is no command.
      show_admissible: whether the agent is told what is possible; not in a conversation that grows.
      grows: messages are a conversation that grows by each answer and what the game says to it, rather than
        one message with the history.
    """

    def __init__(
        self,
        game: RunningGame,
        *,
        task_type: str,
        grammar: str,
        max_steps: int,
        max_chars: int,
        answer_chars: int,
        show_admissible: bool,
        grows: bool = False,
    ):
        self._game = game
        self._task_type, self._grammar = task_type, grammar
        self._max_steps, self._max_chars = max_steps, max_chars
        self._answer_chars, self._show = answer_chars, show_admissible
        self._grows, self._answers = grows, []  # as they were written
        self._history: list[tuple[str, str]] = []
        self._inadmissible = self._readable = 0
        self._reason = ""

    def messages(self) -> list[Message]:
        """See `Episode.messages`: the chore, what was seen (the latest, as far as it fits), commands."""
        game = self._game
        if self._grows:
            told = (observation[:MAX_OBSERVATION] for _, observation in self._history)
            return prompts.conversation(
                prompts.state_text(game.goal, game.overview[:MAX_OVERVIEW]),
                self._grammar,
                list(zip(self._answers, told, strict=True)),
            )
        listed = sum(len(command) + 1 for command in game.admissible) if self._show else 0
        room = self._max_chars - listed - len(prompts.state_text(game.goal, ""))
        room = max(room - prompts.agent_chars(self._grammar), 200)
        seen = prompts.transcript(game.overview, self._history, room)
        state = prompts.state_text(game.goal, seen)
        return prompts.agent_messages(state, self._grammar, game.admissible, self._show)

    def step(self, answer: str) -> Score | None:
        """See `Episode.step`.

        An answer that gives no command that is possible now has the answer "Nothing happens." and counts
        as a step, as in the official environment.  Of several commands the last one counts.
        """
        read = commands.parse(answer, self._answer_chars)
        command = "" if isinstance(read, Rejection) else read[-1]
        if isinstance(read, Rejection):
            self._reason = read.reason
        elif not commands.is_command(command, self._grammar):
            self._reason = commands.NO_COMMAND
        else:
            self._readable += 1
        possible = command in self._game.admissible
        self._inadmissible += not possible
        try:
            observation = self._game.step(command) if possible else NOTHING_HAPPENS
        except Exception:  # of the engine: all kinds
            return Score(0.0, False, False, ENVIRONMENT_ERROR, self._detail())
        self._answers.append(answer)
        self._history.append((command[: commands.MAX_COMMAND], observation))
        if self._game.won or len(self._history) >= self._max_steps:
            return self._score()
        return None

    def stop(self) -> Score:
        """Ends the episode here, and says how it stands."""
        return self._score()

    def _score(self) -> Score:
        won = self._game.won
        # An episode without one readable command is no trace to learn from.
        valid = self._readable > 0
        reason = "" if won else STEP_LIMIT if valid else self._reason
        return Score(float(won), won, valid, reason, self._detail())

    def _detail(self) -> dict[str, Any]:
        return {
            "steps": len(self._history),
            "inadmissible": self._inadmissible,
            "task_type": self._task_type,
            "grammar": self._grammar,
        }

    def close(self) -> None:
        """See `Episode.close`."""
        self._game.close()
