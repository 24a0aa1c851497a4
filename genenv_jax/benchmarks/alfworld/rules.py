"""A game that is played by our own rules, where the engine is not installed or not wanted."""

from __future__ import annotations

from genenv_jax.benchmarks.alfworld import games
from genenv_jax.benchmarks.alfworld.engine import NOTHING_HAPPENS
from genenv_jax.benchmarks.alfworld.world import World


class RulesGame:
    """Implements `episode.RunningGame` with a `World`.

    Args:
      game: what to play.
      grammar: one of `commands.GRAMMARS`.

    Raises ValueError for a problem that is not of these games; names the file.
    """

    def __init__(self, game: games.Game, grammar: str):
        self._world = World(game.problem(), grammar)
        self.goal, self.overview = game.goal, self._world.overview()
        self._take()

    def _take(self) -> None:
        self.admissible, self.won = tuple(self._world.admissible()), self._world.won()

    def step(self, command: str) -> str:
        """Does what `command` says, and returns what the game answers."""
        if command not in self.admissible:
            return NOTHING_HAPPENS
        text = self._world.apply(command)
        self._take()
        return text

    def close(self) -> None:
        """Nothing to free."""
