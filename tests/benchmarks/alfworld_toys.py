"""A small room, games with recorded answers, and what else the tests of ALFWorld need without its data."""

from __future__ import annotations

import json
import pathlib
import time

from genenv_jax.benchmarks.alfworld import commands, games

PROBLEM = """
(define (problem toy) (:domain alfred)
(:objects agent1 - agent Mug - object)
(:init
  (= (total-cost) 0) (= (distance loc_bar_1 loc_bar_2) 3)
  (atLocation agent1 loc_bar_0)
  (receptacleAtLocation Desk_bar_1 loc_bar_1) (receptacleType Desk_bar_1 DeskType)
  (receptacleAtLocation Drawer_bar_1 loc_bar_2) (receptacleType Drawer_bar_1 DrawerType)
  (receptacleAtLocation Drawer_bar_2 loc_bar_3) (receptacleType Drawer_bar_2 DrawerType)
  (receptacleAtLocation Sink_bar_1_bar_SinkBasin loc_bar_1)
  (receptacleType Sink_bar_1_bar_SinkBasin SinkBasinType)
  (openable Drawer_bar_1) (openable Drawer_bar_2)
  (objectType Mug_bar_1 MugType) (pickupable Mug_bar_1) (cleanable Mug_bar_1)
  (inReceptacle Mug_bar_1 Drawer_bar_1) (objectAtLocation Mug_bar_1 loc_bar_2)
  (objectType DeskLamp_bar_1 DeskLampType) (toggleable DeskLamp_bar_1)
  (inReceptacle DeskLamp_bar_1 Desk_bar_1) (objectAtLocation DeskLamp_bar_1 loc_bar_1)
  (canContain DeskType MugType) (canContain DrawerType MugType) (canContain SinkBasinType MugType)
)
(:goal (and (exists (?r - receptacle) (exists (?o - object) (and
  (cleanable ?o) (objectType ?o MugType) (receptacleType ?r DeskType) (isClean ?o)
  (inReceptacle ?o ?r)))))))
)
"""
PLAN = [
    "go to drawer 2", "open drawer 2", "take mug 1 from drawer 2", "go to sinkbasin 1",
    "clean mug 1 with sinkbasin 1", "put mug 1 in/on desk 1",
]  # fmt: skip

_GRAMMAR = """grammar :: "task": [{"rhs": "Your task is to: put a clean mug in desk."}]
action PutObject {
    template :: "put {o} in/on {r}";
}
"""


def write_game(
    root: pathlib.Path,
    split: str,
    name: str = "pick_clean_then_place_in_recep-Mug-None-Desk-1",
    trial: str = "trial_1",
    **changes: object,
) -> pathlib.Path:
    """Writes one game of the toy room below `root`; `changes` replace entries of the file."""
    path = root / games.ROOT / split / name / trial / games.FILE
    path.parent.mkdir(parents=True)
    data = {
        "pddl_domain": "", "grammar": _GRAMMAR, "pddl_problem": PROBLEM, "solvable": True,
    }  # fmt: skip
    path.write_text(json.dumps(data | changes))
    return path


class FakeGame:
    """A running game that is won by "open drawer 1", and hangs or dies where it is told to."""

    def __init__(self, game: games.Game, grammar: str):
        self.goal, self.overview = game.goal, "You see a drawer 1."
        self.admissible, self.won = ("go to drawer 1", "look", "open drawer 1"), False
        self.closed = False
        self._dangerous = "trial_2" in game.id

    def step(self, command: str) -> str:
        if command == "look" and self._dangerous:
            time.sleep(3600)
        self.won = command == "open drawer 1"
        return f"{command}: done."

    def close(self) -> None:
        self.closed = True


GRAMMAR = commands.PUT_IN_ON
