"""One attempt at a game, and games played by our own rules."""

from collections.abc import Sequence
from typing import Any

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.alfworld import commands, prompts
from genenv_jax.benchmarks.alfworld.engine import Engine
from genenv_jax.benchmarks.alfworld.tasks import Game
from genenv_jax.benchmarks.alfworld.world import NOTHING_HAPPENS
from genenv_jax.benchmarks.base import Episode, Message, Rejection, Score

MAX_OBSERVATION = 600  # characters of a message in a conversation; the longest real one has 318
_MAX_OVERVIEW = 2_000  # characters of the first observation


class RulesGame:
    """A game by our own rules, 100 times as fast as the engine; ValueError names a malformed file.

    Attributes, also of `engine.Engine`:
      overview: the first observation: what is in the room.
      goal: the task's sentence.
      admissible: the commands that are possible now, sorted.
      won: whether the goal is reached.
    """

    def __init__(self, game: Game, grammar: str):
        self._world = game.world(grammar)
        self.goal, self.overview = game.goal, self._world.overview()
        self.admissible, self.won = tuple(self._world.admissible()), self._world.won()

    def step(self, command: str) -> str:
        """Executes an admissible command and returns the game's answer."""
        text = self._world.apply(command)
        self.admissible, self.won = tuple(self._world.admissible()), self._world.won()
        return text

    def close(self) -> None:
        """Nothing to free."""


class GameEpisode(Episode):
    """An attempt at a game; every answer counts as a step.

    Args:
      game: a game at its start; the episode closes it.
      task_type: goes into the score's detail.
      max_steps: number of answers after which the game is lost.
      grows: whether the prompt is a conversation that grows by each answer and the game's reply, rather than
        one message with the whole history.
      show_admissible: whether the prompt lists the possible commands; ignored if `grows`.
    """

    def __init__(
        self,
        game: Engine | RulesGame,
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
        """The chore, the latest observations that fit, the possible commands."""
        if self._grows:
            return super().messages()
        goal, admissible = self._game.goal, self._game.admissible if self._show else ()
        room = prompts.PROMPT_CHARS - len(prompts.state_text(goal, ""))
        room -= prompts.agent_chars(self._grammar) + sum(len(command) + 1 for command in admissible)
        seen = prompts.transcript(self._game.overview, self._history, max(room, 200))
        return prompts.agent_messages(prompts.state_text(goal, seen), self._grammar, admissible)

    def take(self, answer: str) -> Score | Sequence[Message]:
        """As officially, an answer without a possible command is a step; of several, the last counts."""
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
        except Exception:  # the engine raises exceptions of all kinds
            return Score(0.0, False, False, base.ENVIRONMENT_ERROR, self._detail())
        self._history.append((command[: commands.MAX_COMMAND], observation))
        if self._game.won:
            return self.stop()
        return [{"role": "user", "content": observation[:MAX_OBSERVATION]}]

    def stop(self) -> Score:
        """An episode without any readable command is invalid: nothing to learn from."""
        won, valid = self._game.won, self._readable > 0
        reason = "" if won else base.STEP_LIMIT if valid else self._reason
        return Score(float(won), won, valid, reason, self._detail())

    def _detail(self) -> dict[str, Any]:
        return {
            "steps": len(self._history),
            "inadmissible": self._inadmissible,
            "task_type": self._task_type,
            "grammar": self._grammar,
        }

    def close(self) -> None:
        self._game.close()
