"""One attempt at a game, and a game that is played by our own rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from genenv_jax.benchmarks.alfworld import commands, prompts
from genenv_jax.benchmarks.alfworld.tasks import Game
from genenv_jax.benchmarks.alfworld.world import NOTHING_HAPPENS
from genenv_jax.benchmarks.base import (
    ENVIRONMENT_ERROR,
    STEP_LIMIT,
    Episode,
    Message,
    Rejection,
    Score,
)

MAX_OBSERVATION = 600  # characters of a message of a conversation; the longest real one has 318
_MAX_OVERVIEW = 2_000  # of the first one


class RunningGame(Protocol):
    """What an episode needs of a game: of `engine.Engine`, or of `RulesGame`."""

    overview: str
    goal: str
    admissible: tuple[str, ...]
    won: bool

    def step(self, command: str) -> str: ...

    def close(self) -> None: ...


class RulesGame:
    """A game by our own rules, in a hundredth of the engine's time.

    Args:
      game: what to play.
      grammar: one of `commands.GRAMMARS`.

    Raises ValueError for a problem that is not of these games; names the file.
    """

    def __init__(self, game: Game, grammar: str):
        self._world = game.world(grammar)
        self.goal, self.overview = game.goal, self._world.overview()
        self.admissible, self.won = tuple(self._world.admissible()), self._world.won()

    def step(self, command: str) -> str:
        """Does what an admissible command says, and returns what the game answers."""
        text = self._world.apply(command)
        self.admissible, self.won = tuple(self._world.admissible()), self._world.won()
        return text

    def close(self) -> None:
        """Nothing to free."""


class GameEpisode(Episode):
    """An attempt at a game; every answer counts as a step.

    Args:
      game: at its beginning; the episode closes it.
      task_type: for the score's detail.
      grammar: one of `commands.GRAMMARS`.
      max_steps: answers after which the game is lost.
      grows: messages are a conversation that grows by each answer and what the game says to it, rather than
        one message with the history.
      show_admissible: whether the agent is told what is possible; not in a conversation that grows.
    """

    def __init__(
        self,
        game: RunningGame,
        task_type: str,
        grammar: str,
        max_steps: int,
        *,
        grows: bool,
        show_admissible: bool,
    ):
        state = prompts.state_text(game.goal, game.overview[:_MAX_OVERVIEW])
        super().__init__(prompts.agent_messages(state, grammar), max_steps)
        self._game = game
        self._task_type, self._grammar = task_type, grammar
        self._grows, self._show = grows, show_admissible
        self._history: list[tuple[str, str]] = []
        self._inadmissible = self._readable = 0
        self._reason = ""

    def messages(self) -> list[Message]:
        """See `Episode.messages`: the chore, what was seen (the latest, as far as it fits), commands."""
        if self._grows:
            return super().messages()
        goal, admissible = self._game.goal, self._game.admissible if self._show else ()
        room = prompts.PROMPT_CHARS - len(prompts.state_text(goal, ""))
        room -= prompts.agent_chars(self._grammar) + sum(len(command) + 1 for command in admissible)
        seen = prompts.transcript(self._game.overview, self._history, max(room, 200))
        return prompts.agent_messages(prompts.state_text(goal, seen), self._grammar, admissible)

    def take(self, answer: str) -> Score | Sequence[Message]:
        """See `Episode.take`.

        An answer that gives no command that is possible now has the answer "Nothing happens." and counts
        as a step, as in the official environment.  Of several commands the last one counts.
        """
        read = commands.parse(answer)
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
        self._history.append((command[: commands.MAX_COMMAND], observation))
        if self._game.won:
            return self.stop()
        return [{"role": "user", "content": observation[:MAX_OBSERVATION]}]

    def stop(self) -> Score:
        """See `Episode.stop`; an episode without one readable command is no trace to learn from."""
        won, valid = self._game.won, self._readable > 0
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
