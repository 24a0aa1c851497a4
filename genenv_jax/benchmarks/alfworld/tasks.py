"""ALFWorld's tasks: whole games, read from their files, and an expert's single steps in them.

Layout of the files (from alfworld-download; copies used in the literature have it too):
json_2.1.1/<split>/<type>-<object>-<movable>-<receptacle>-<scene>/trial_<id>/game.tw-pddl.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterable
from typing import Any

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.alfworld import commands, expert, pddl, prompts
from genenv_jax.benchmarks.alfworld.chores import TASK_TYPES
from genenv_jax.benchmarks.alfworld.world import World
from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.records import field, read_json

NAME = "alfworld"
ROOT = "json_2.1.1"
FILE = "game.tw-pddl"

# "valid_train" is the name of a 200-game sample of "train" in a published copy.
TRAIN_SPLITS = ("train", "valid_train")
EVAL_SPLITS = ("valid_unseen", "valid_seen")
SPLITS = (*TRAIN_SPLITS, *EVAL_SPLITS)

# Solvable games in the official evaluation splits: eval_out_of_distribution and eval_in_distribution.
OFFICIAL_COUNTS = {"valid_unseen": 134, "valid_seen": 140}
OWN_GRAMMAR = "games"  # the grammar of each game's own texts

GOAL = re.compile(r'"Your task is to: ([^"\n]{1,400})"')  # in the texts of a game
_PUT = re.compile(r"action\s+PutObject\s*\{\s*template\s*::\s*\"(\w+) ")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,120}")  # a directory; no dots, so no path traversal
_LEFT_OUT = ("movable", "Sliced")


@dataclasses.dataclass(frozen=True)
class Game:
    """One game."""

    id: str  # "<split>/<directory>/<trial>"
    path: pathlib.Path
    split: str  # one of `SPLITS`
    task_type: str  # one of `TASK_TYPES`
    goal: str  # the task's sentence, without a final stop
    grammar: str  # of the file's own texts, one of `commands.GRAMMARS`

    def read(self) -> dict[str, Any]:
        """The file's contents; see `read_file`."""
        return read_file(self.path)

    def problem(self) -> pddl.Problem:
        """The game's PDDL problem; ValueError names the file."""
        try:
            return pddl.parse(self.read()["pddl_problem"])
        except ValueError as error:
            raise ValueError(f"{self.path}: pddl_problem: {error}") from None

    def world(self, grammar: str = OWN_GRAMMAR) -> World:
        """The game at its start, played by our rules; `grammar`: see `played_in`."""
        return World(self.problem(), self.played_in(grammar))

    def played_in(self, grammar: str) -> str:
        """One of `commands.GRAMMARS`: the given one, or for `OWN_GRAMMAR` the game's own."""
        return self.grammar if grammar == OWN_GRAMMAR else grammar

    def task(self, origin: str = "eval", **known: Any) -> Task:
        """The game as a task that is played in an episode; `known`: more entries of its answer."""
        return Task(
            id=self.id,
            benchmark=NAME,
            category=self.task_type,
            messages=({"role": "user", "content": f"{prompts.GOAL}{self.goal}."},),
            answer={"kind": "episode", "game": self.id, "split": self.split, **known},
            origin=origin,
        )

    def steps(self, origin: str, likely: expert.Likelihood, grammar: str = OWN_GRAMMAR) -> list[Task]:
        """Every step of the expert (`expert.walkthrough`) as a task; none if the expert does not win."""
        world = self.world(grammar)
        try:
            plan = expert.walkthrough(world, likely)
        except expert.NoPlan:
            return []
        game, overview, history, found = self.task(origin), world.overview(), [], []
        for number, command in enumerate(plan):
            seen = prompts.transcript(overview, history, prompts.STATE_CHARS)
            messages = ({"role": "user", "content": prompts.state_text(self.goal, seen)},)
            step = {"kind": "step", "grammar": world.grammar, "admissible": list(world.admissible())}
            answer = game.answer | step | {"action": command}
            found.append(
                dataclasses.replace(game, id=f"{self.id}#{number:02}", messages=messages, answer=answer)
            )
            history.append((command, world.apply(command)))
        return found


def find_directory(data_dir: data_files.PathLike | None = None) -> pathlib.Path:
    """The directory that holds `json_2.1.1`; see `data_files.find`.

    Without `data_dir`, $ALFWORLD_DATA, where alfworld-download puts the games, is tried first.
    """
    marker = f"{ROOT}/*/*/*/{FILE}"
    official = os.environ.get("ALFWORLD_DATA")
    if not data_dir and official and any(pathlib.Path(official).glob(marker)):
        return pathlib.Path(official)
    return data_files.find(NAME, marker, data_dir)


def read_file(path: pathlib.Path) -> dict[str, Any]:
    """A game file's contents; ValueError names the file and what is wrong with it."""
    data = read_json(path)
    for key in ("pddl_domain", "grammar", "pddl_problem"):
        field(data, key, str, str(path))
    return data


def load(directory: pathlib.Path, split: str) -> list[Game]:
    """The games of a split that count officially, sorted by id.

    `AlfredTWEnv.collect_game_files` leaves out games with "movable" or "Sliced" in their path, games of
    other types, and games that are not marked as solvable.

    Raises ValueError for a malformed file, FileNotFoundError if the split has no directory.
    """
    folder = directory / ROOT / split
    if not folder.is_dir():
        others = ", ".join(available(directory)) or "no splits"
        raise FileNotFoundError(f"{folder} does not exist; there are {others}")
    found = [_game(path, split) for path in sorted(folder.glob(f"*/*/{FILE}"))]
    return [game for game in found if game is not None]


def by_id(directory: pathlib.Path, identifier: str) -> Game:
    """One game; ValueError if no game has that id, or it does not count officially."""
    parts = identifier.split("/")
    if len(parts) == 3 and parts[0] in SPLITS and all(_NAME.fullmatch(part) for part in parts):
        path = directory / ROOT / identifier / FILE
        game = _game(path, parts[0]) if path.is_file() else None
        if game:
            return game
    raise ValueError(f"no game {identifier[:200]!r} in {directory / ROOT}")


def available(directory: pathlib.Path) -> list[str]:
    """The splits that have a directory."""
    return [split for split in SPLITS if (directory / ROOT / split).is_dir()]


def training(directory: pathlib.Path) -> list[Game]:
    """The games to train on: the first split of `TRAIN_SPLITS` that exists.  Raises like `load`."""
    for split in available(directory):
        if split in TRAIN_SPLITS:
            return load(directory, split)
    expected = f"expected a directory {' or '.join(TRAIN_SPLITS)}"
    raise FileNotFoundError(f"{directory / ROOT} has no training games: {expected}")


def verify(directory: pathlib.Path, found: Iterable[Game]) -> None:
    """Compares game files with the table of published files; raises ValueError if one differs."""
    paths = [game.path.relative_to(directory).as_posix() for game in found]
    data_files.verify(NAME, directory, paths)


def splits(directory: pathlib.Path) -> dict[str, list[Task]]:
    """All tasks of every split that exists: its games, and their steps under "<split>_steps"."""
    games = {split: load(directory, split) for split in available(directory)}
    training = next((games[split] for split in TRAIN_SPLITS if split in games), [])
    likely = expert.likelihood(game.world() for game in training)
    found = {}
    for split, of_split in games.items():
        origin = "seed" if split in TRAIN_SPLITS else "eval"
        found[split] = [game.task(origin) for game in of_split]
        steps = (game.steps(origin, likely) for game in of_split)
        found[f"{split}_steps"] = [task for of_game in steps for task in of_game]
    return found


def _game(path: pathlib.Path, split: str) -> Game | None:
    name = "/".join(path.parts[-3:-1])
    task_type = name.partition("-")[0]
    if any(word in name for word in _LEFT_OUT) or task_type not in TASK_TYPES:
        return None
    data = read_file(path)
    if data.get("solvable") is not True:
        return None
    goal, put = GOAL.search(data["grammar"]), _PUT.search(data["grammar"])
    grammar = {"put": commands.PUT_IN_ON, "move": commands.MOVE_TO}.get(put[1] if put else "")
    if not goal or not grammar:
        missing = "its PutObject template" if goal else "the sentence of the task"
        raise ValueError(f"{path}: its grammar lacks {missing}")
    goal = goal[1].strip().removesuffix(".")
    return Game(f"{split}/{name}", path, split, task_type, goal, grammar)
