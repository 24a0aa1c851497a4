"""ALFWorld's six chores, and what each does to an object."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Chore:
    """One chore."""

    task_type: str  # its official name
    sentence: str  # a template for a kind of object and a kind of place
    flag: str = ""  # the PDDL predicate that the object must satisfy; "" if any object will do
    state: str = ""  # the PDDL predicate that holds for the object afterwards
    tools: tuple[str, ...] = ()  # kinds of places where the object gets that state


# In the order of `TASK_TYPES` of alfworld/agents/environment/alfred_tw_env.py.
CHORES = {
    "put": Chore("pick_and_place_simple", "put a {} in {}"),
    "light": Chore("look_at_obj_in_light", "look at {} under the {}"),
    "clean": Chore(
        "pick_clean_then_place_in_recep", "put a clean {} in {}",
        "cleanable", "isclean", ("sinkbasin", "sink"),
    ),
    "heat": Chore(
        "pick_heat_then_place_in_recep", "put a hot {} in {}", "heatable", "ishot", ("microwave",)
    ),
    "cool": Chore(
        "pick_cool_then_place_in_recep", "put a cool {} in {}", "coolable", "iscool", ("fridge",)
    ),
    "two": Chore("pick_two_obj_and_place", "put two {} in {}"),
}  # fmt: skip
TASK_TYPES = tuple(chore.task_type for chore in CHORES.values())
TREATMENTS = {name: chore for name, chore in CHORES.items() if chore.state}
