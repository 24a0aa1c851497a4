"""Expert steps: games decomposed into (state, action) pairs, and the files that keep them.

A game that an expert plays is one `Recording`; every step of it is a task.  Recordings come from the
rules alone (`world`, `expert`: milliseconds a game, no engine needed), or from a file that
`make_steps` wrote on the real engine.  Both say the same, and that command checks it.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from genenv_jax.benchmarks.alfworld import commands, expert, games, prompts
from genenv_jax.benchmarks.alfworld.world import World
from genenv_jax.benchmarks.base import Task

RULES, ENGINE = "rules", "engine"  # where a recording comes from


@dataclasses.dataclass(frozen=True)
class Move:
    """One step: what was possible, what the expert did, what the game answered."""

    admissible: tuple[str, ...]
    action: str
    observation: str


@dataclasses.dataclass(frozen=True)
class Recording:
    """One game as an expert played it.

    Attributes:
      game: its id.
      split, task_type, goal: of the game.
      grammar: one of `commands.GRAMMARS`.
      expert: one of `expert.EXPERTS`.
      source: RULES or ENGINE.
      won: whether the goal was reached.
      overview: the first observation.
      moves: in order.
      reason: why the game was not won; "" where it was.
    """

    game: str
    split: str
    task_type: str
    goal: str
    grammar: str
    expert: str
    source: str
    won: bool
    overview: str
    moves: tuple[Move, ...]
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` inverts it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, record: Any) -> Recording:
        """Inverse of `to_json`; ValueError for what is no recording."""
        fields = {field.name: field.type for field in dataclasses.fields(cls)}
        if not isinstance(record, dict) or set(record) != set(fields):
            raise ValueError(f"expected an object with {', '.join(fields)}")
        for name, kind in fields.items():
            expected = {"str": str, "bool": bool}.get(kind, list | tuple)
            if not isinstance(record[name], expected):
                raise ValueError(f"{name}: expected {kind}")
        if record["grammar"] not in commands.GRAMMARS:
            raise ValueError(f"grammar: expected one of {', '.join(commands.GRAMMARS)}")
        moves = []
        for move in record["moves"]:
            if (
                not isinstance(move, dict)
                or set(move) != {"admissible", "action", "observation"}
                or not isinstance(move["admissible"], list | tuple)
                or not all(isinstance(command, str) for command in move["admissible"])
                or not isinstance(move["action"], str)
                or not isinstance(move["observation"], str)
            ):
                raise ValueError("moves: expected objects with admissible, action and observation")
            moves.append(Move(tuple(move["admissible"]), move["action"], move["observation"]))
        return cls(**{**record, "moves": tuple(moves)})

    def tasks(self, origin: str, max_chars: int) -> list[Task]:
        """Every step as a task.

        Args:
          origin: see `Task`.
          max_chars: of what was seen so far; older steps are left out.
        """
        found, history = [], []
        for number, move in enumerate(self.moves):
            seen = prompts.transcript(self.overview, history, max_chars)
            content = prompts.state_text(self.goal, seen)
            found.append(
                Task(
                    id=f"{self.game}#{number:02}",
                    benchmark=games.NAME,
                    category=self.task_type,
                    messages=({"role": "user", "content": content},),
                    answer={
                        "kind": "step",
                        "game": self.game,
                        "split": self.split,
                        "grammar": self.grammar,
                        "admissible": list(move.admissible),
                        "action": move.action,
                    },
                    origin=origin,
                )
            )
            history.append((move.action, move.observation))
        return found


def by_rules(
    game: games.Game, world: World, name: str, likely: expert.Likelihood | None
) -> Recording:
    """A recording without the engine.

    Args:
      game: what is played.
      world: its beginning; not changed.
      name: one of `expert.EXPERTS`.
      likely: see `expert.walkthrough`.
    """
    blank = Recording(
        game.id, game.split, game.task_type, game.goal, world.grammar, name, RULES, False,
        world.overview(), (),
    )  # fmt: skip
    try:
        found = expert.walkthrough(world, name, likely)
    except expert.NoPlan as error:
        return dataclasses.replace(blank, reason=str(error))
    state, moves = world.copy(), []
    for command in found:
        admissible = tuple(state.admissible())
        moves.append(Move(admissible, command, state.apply(command)))
    return dataclasses.replace(blank, won=True, moves=tuple(moves))


def record_games(
    found: Sequence[games.Game],
    grammar: str,
    name: str,
    likely: expert.Likelihood | None,
) -> list[Recording]:
    """Recordings of some games by the rules; games that the expert does not win are left out."""
    recordings = (
        by_rules(game, World(game.problem(), grammar_of(game, grammar)), name, likely)
        for game in found
    )
    return [recording for recording in recordings if recording.won]


def splits(
    directory: pathlib.Path, name: str = expert.EXPLORER, max_chars: int = 6_000
) -> dict[str, list[Task]]:
    """Every step of every split that is there, by the rules, under "<split>_steps".

    Args:
      directory: see `games.find_directory`.
      name: one of `expert.EXPERTS`.
      max_chars: of what was seen so far, see `Recording.tasks`.
    """
    found = games.load(directory, games.available(directory))
    training = next((found[split] for split in games.TRAIN_SPLITS if split in found), [])
    likely = expert.likelihood(World(game.problem()) for game in training)
    return {
        f"{split}_steps": [
            task
            for recording in record_games(part, "games", name, likely)
            for task in recording.tasks(
                "seed" if split in games.TRAIN_SPLITS else "eval", max_chars
            )
        ]
        for split, part in found.items()
    }


def grammar_of(game: games.Game, grammar: str) -> str:
    """The grammar that a game is played in; "games" means that of its own texts."""
    return game.grammar if grammar == "games" else grammar


def read(path: pathlib.Path) -> list[Recording]:
    """The recordings of a file; ValueError names file and line."""
    recordings = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                recordings.append(Recording.from_json(json.loads(line)))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}:{number}: not a recorded game: {error}") from None
    return recordings


def write(path: pathlib.Path, recordings: Iterable[Recording]) -> None:
    """Adds recordings at the end of a file, each a line."""
    with path.open("a", encoding="utf-8") as file:
        for recording in recordings:
            file.write(json.dumps(recording.to_json(), ensure_ascii=False) + "\n")
            file.flush()
