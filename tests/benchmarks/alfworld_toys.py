"""A small room, games with recorded answers, and other inputs for ALFWorld's tests without its data."""

import json
import pathlib

from genenv_jax.benchmarks.alfworld import tasks

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
# Another room, with the mug where nobody looks first.
OTHER_PROBLEM = PROBLEM.replace("Drawer_bar_2", "Shelf_bar_2").replace("DrawerType", "ShelfType")
PLAN = [
    "go to drawer 2", "open drawer 2", "take mug 1 from drawer 2", "go to sinkbasin 1",
    "clean mug 1 with sinkbasin 1", "put mug 1 in/on desk 1",
]  # fmt: skip

_GRAMMAR = """grammar :: "task": [{"rhs": "Your task is to: GOAL."}]
action PutObject {
    template :: "put {o} in/on {r}";
}
"""

# A kitchen: receptacles and whether they can be closed; objects and what can be done to them.
_RECEPTACLES = {
    "CounterTop": False, "DiningTable": False, "Desk": False, "Fridge": True, "Microwave": True,
    "Cabinet": True,
}  # fmt: skip
_OBJECTS = {
    "Apple_bar_1": "pickupable heatable coolable cleanable sliceable",
    "Apple_bar_2": "pickupable heatable coolable cleanable sliceable",
    "Plate_bar_1": "pickupable cleanable heatable coolable", "Book_bar_1": "pickupable",
    "Knife_bar_1": "pickupable cleanable", "DeskLamp_bar_1": "toggleable",
}  # fmt: skip
# Where they are, in training games and in held-out ones.
_PLACES = {
    "valid_train": "Fridge DiningTable Cabinet DiningTable CounterTop Desk".split(),
    "valid_unseen": "Cabinet CounterTop DiningTable Microwave DiningTable Desk".split(),
}
_IN = (
    "(exists (?r - receptacle) (exists (?o - object) (and (inReceptacle ?o ?r) {} (objectType ?o {}Type) "
    "(receptacleType ?r {}Type))))"
)
_LIT = (
    "(exists (?t - object ?r - receptacle) (and (objectType ?t DeskLampType) (isToggled ?t) (inReceptacle "
    "?t ?r))) (exists (?o - object ?a - agent) (and (objectType ?o BookType) (holds ?a ?o)))"
)
_TWO = (
    "(exists (?r - receptacle) (exists (?o - object) (and (objectType ?o AppleType) (receptacleType ?r "
    "DeskType) (inReceptacle ?o ?r) (exists (?p - object) (and (not (= ?o ?p)) (objectType ?p AppleType) "
    "(receptacleType ?r DeskType) (inReceptacle ?p ?r))))))"
)
HOT_APPLE = _IN.format("(isHot ?o) (heatable ?o)", "Apple", "Desk")
# Directory, sentence and goal of each type of task.
_CHORES = {
    "pick_and_place_simple-Book-None-Cabinet-1":
        ("put some book in cabinet", _IN.format("", "Book", "Cabinet")),
    "look_at_obj_in_light-Book-None-DeskLamp-1": ("look at book under the desklamp", _LIT),
    "pick_clean_then_place_in_recep-Plate-None-CounterTop-1":
        ("put a clean plate in countertop", _IN.format("(isClean ?o)", "Plate", "CounterTop")),
    "pick_heat_then_place_in_recep-Apple-None-Desk-1": ("put a hot apple in desk", HOT_APPLE),
    "pick_cool_then_place_in_recep-Apple-None-CounterTop-1":
        ("cool some apple and put it in countertop", _IN.format("(isCool ?o)", "Apple", "CounterTop")),
    "pick_two_obj_and_place-Apple-None-Desk-1": ("put two apple in desk", _TWO),
}  # fmt: skip


def kitchen(split: str, goal: str) -> str:
    """The kitchen's PDDL problem with the objects where they are in games of a split."""
    facts = ["(atLocation agent1 loc_bar_0)"]
    facts += ["(receptacleAtLocation Sink_bar_1_bar_SinkBasin loc_bar_5)",
              "(receptacleType Sink_bar_1_bar_SinkBasin SinkBasinType)"]  # fmt: skip
    for number, (kind, openable) in enumerate(_RECEPTACLES.items(), 1):
        facts.append(f"(receptacleAtLocation {kind}_bar_1 loc_bar_{number})")
        facts.append(f"(receptacleType {kind}_bar_1 {kind}Type)")
        facts += [f"(openable {kind}_bar_1)"] * openable
        facts += [f"(canContain {kind}Type {name.split('_')[0]}Type)" for name in _OBJECTS]
    for (name, flags), place in zip(_OBJECTS.items(), _PLACES[split], strict=True):
        location = 1 + list(_RECEPTACLES).index(place)
        facts.append(f"(objectType {name} {name.split('_')[0]}Type)")
        facts.append(f"(inReceptacle {name} {place}_bar_1)")
        facts.append(f"(objectAtLocation {name} loc_bar_{location})")
        facts += [f"({flag} {name})" for flag in flags.split()]
    return f"(define (problem k) (:init {' '.join(facts)}) (:goal (and {goal})))"


def write_game(
    root: pathlib.Path,
    split: str,
    name: str = "pick_clean_then_place_in_recep-Mug-None-Desk-1",
    trial: str = "trial_1",
    **changes: object,
) -> pathlib.Path:
    """Writes one game of the toy room below `root`; `changes` replace entries of the file."""
    path = root / tasks.ROOT / split / name / trial / tasks.FILE
    path.parent.mkdir(parents=True)
    grammar = _GRAMMAR.replace("GOAL", "put a clean mug in desk")
    data = {"pddl_domain": "", "grammar": grammar, "pddl_problem": PROBLEM, "solvable": True}
    path.write_text(json.dumps(data | changes))
    return path


def write(root: pathlib.Path) -> pathlib.Path:
    """Writes a training and a held-out game of each type of task, in the kitchen; returns `root`."""
    for split in _PLACES:
        for name, (sentence, goal) in _CHORES.items():
            grammar = _GRAMMAR.replace("GOAL", sentence)
            write_game(root, split, name, grammar=grammar, pddl_problem=kitchen(split, goal))
    return root


class FakeGame:
    """A running game that is won by "open drawer 1"."""

    def __init__(self, game: tasks.Game, grammar: str):
        self.goal, self.overview = game.goal, "You see a drawer 1."
        self.admissible, self.won = ("go to drawer 1", "look", "open drawer 1"), False
        self.closed = False

    def step(self, command: str) -> str:
        self.won = command == "open drawer 1"
        return f"{command}: done."

    def close(self) -> None:
        self.closed = True
