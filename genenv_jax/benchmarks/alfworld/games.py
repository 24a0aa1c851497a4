"""ALFWorld's games: finding the files, reading them, and which of them count.

Layout (alfworld-download, and the same in the literature's copies):
json_2.1.1/<split>/<type>-<object>-<movable>-<receptacle>-<scene>/trial_<id>/game.tw-pddl.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Iterable
from typing import Any

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.alfworld import commands, pddl
from genenv_jax.benchmarks.base import Task

NAME = "alfworld"
ROOT = "json_2.1.1"
FILE = "game.tw-pddl"

# `TASK_TYPES` of alfworld/agents/environment/alfred_tw_env.py, in its order.
TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
# "valid_train" is what a published copy calls its sample of 200 games of "train".
TRAIN_SPLITS = ("train", "valid_train")
EVAL_SPLITS = ("valid_unseen", "valid_seen")
SPLITS = (*TRAIN_SPLITS, *EVAL_SPLITS)

# Solvable games of the official evaluation splits: eval_out_of_distribution and eval_in_distribution.
OFFICIAL_COUNTS = {"valid_unseen": 134, "valid_seen": 140}

_GOAL = re.compile(r'"Your task is to: ([^"\n]{1,400})"')
_PUT = re.compile(r"action\s+PutObject\s*\{\s*template\s*::\s*\"(\w+) ")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,120}")  # of a directory; no dots, so no way out
_MAX_BYTES = 4_000_000
_LEFT_OUT = ("movable", "Sliced")


@dataclasses.dataclass(frozen=True)
class Game:
    """One game.

    Attributes:
      id: "<split>/<directory>/<trial>".
      path: of its file.
      split: one of `SPLITS`.
      task_type: one of `TASK_TYPES`.
      goal: the task's sentence, without a final stop.
      grammar: one of `commands.GRAMMARS`: that of the file's own texts.
    """

    id: str
    path: pathlib.Path
    split: str
    task_type: str
    goal: str
    grammar: str

    def read(self) -> dict[str, Any]:
        """The file's contents; see `read_file`."""
        return read_file(self.path)

    def problem(self) -> pddl.Problem:
        """The game's PDDL problem; ValueError names the file."""
        try:
            return pddl.parse(self.read()["pddl_problem"])
        except ValueError as error:
            raise ValueError(f"{self.path}: pddl_problem: {error}") from None

    def task(self, origin: str = "eval") -> Task:
        """The game as a task that is played in an episode."""
        return Task(
            id=self.id,
            benchmark=NAME,
            category=self.task_type,
            messages=({"role": "user", "content": f"Your task is to: {self.goal}."},),
            answer={"kind": "episode", "game": self.id, "split": self.split},
            origin=origin,
        )


def find_directory(data_dir: str | os.PathLike[str] | None = None) -> pathlib.Path:
    """The directory that holds `json_2.1.1`.

    Args:
      data_dir: that directory or one above it; None or "" tries $ALFWORLD_DATA, where the official
        alfworld-download puts the games, then the places of `data_files.find`.

    Raises FileNotFoundError where there is none.
    """
    marker = f"{ROOT}/*/*/*/{FILE}"
    official = os.environ.get("ALFWORLD_DATA")
    if not data_dir and official and any(pathlib.Path(official).glob(marker)):
        return pathlib.Path(official)
    return data_files.find(NAME, marker, data_dir)


def read_file(path: pathlib.Path) -> dict[str, Any]:
    """A game file's contents; ValueError names the file and what is wrong with it."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"more than {_MAX_BYTES} bytes")
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"{path}{line}: not a game file: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path}: expected a JSON object")
    for key in ("pddl_domain", "grammar", "pddl_problem"):
        if not isinstance(data.get(key), str):
            raise ValueError(f"{path}: expected text under {key!r}")
    return data


def load(directory: pathlib.Path, splits: Iterable[str]) -> dict[str, list[Game]]:
    """The games of some splits that count officially, sorted by id.

    `AlfredTWEnv.collect_game_files` leaves out games with "movable" or "Sliced" in their path, of other
    types, and those that are not marked as solvable.

    Raises:
      ValueError: an unknown split, or a malformed file.
      FileNotFoundError: a split has no directory.
    """
    found = {}
    for split in splits:
        if split not in SPLITS:
            raise ValueError(f"split {split!r}: expected one of {', '.join(SPLITS)}")
        folder = directory / ROOT / split
        if not folder.is_dir():
            raise FileNotFoundError(
                f"{folder} does not exist; there are {', '.join(available(directory)) or 'no splits'}"
            )
        kept = [_game(path, split) for path in sorted(folder.glob(f"*/*/{FILE}"))]
        found[split] = [game for game in kept if game is not None]
    return found


def by_id(directory: pathlib.Path, identifier: str) -> Game:
    """One game; ValueError where there is none of that id, or it does not count officially."""
    parts = identifier.split("/")
    if len(parts) == 3 and parts[0] in SPLITS and all(_NAME.fullmatch(part) for part in parts):
        path = directory / ROOT / identifier / FILE
        game = _game(path, parts[0]) if path.is_file() else None
        if game:
            return game
    raise ValueError(f"no game {identifier[:200]!r} in {directory / ROOT}")


def with_goal(grammar: str, goal: str) -> str:
    """A game file's grammar with another sentence of the task."""
    return _GOAL.sub(lambda _: f'"Your task is to: {goal}."', grammar, count=1)


def available(directory: pathlib.Path) -> list[str]:
    """The splits that are there."""
    return [split for split in SPLITS if (directory / ROOT / split).is_dir()]


def splits(directory: pathlib.Path) -> dict[str, list[Task]]:
    """Every game of every split that is there, as tasks that are played in episodes."""
    return {
        split: [game.task("seed" if split in TRAIN_SPLITS else "eval") for game in found]
        for split, found in load(directory, available(directory)).items()
    }


def _game(path: pathlib.Path, split: str) -> Game | None:
    name = "/".join(path.parts[-3:-1])
    task_type = name.partition("-")[0]
    if any(word in name for word in _LEFT_OUT) or task_type not in TASK_TYPES:
        return None
    data = read_file(path)
    if data.get("solvable") is not True:
        return None
    goal, put = _GOAL.search(data["grammar"]), _PUT.search(data["grammar"])
    grammar = {"put": commands.PUT_IN_ON, "move": commands.MOVE_TO}.get(put[1] if put else "")
    if not goal or not grammar:
        missing = "its PutObject template" if goal else "the sentence of the task"
        raise ValueError(f"{path}: its grammar lacks {missing}")
    return Game(
        f"{split}/{name}", path, split, task_type, goal[1].strip().removesuffix("."), grammar
    )
