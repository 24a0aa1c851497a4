"""TravelPlanner with the share of constraints as reward: what wrong plans earn."""

import dataclasses

from tests.redteam import travelplanner
from tests.redteam.exploits import AGENT, Exploit

_SHARE = "constraints that it passes: a route, days in their order, what is not asked for"
# Maximum mean share of the plans tried.
_BOUNDS = {
    "nothing": 0.0, "echo of the prompt": 0.0, "no day": 0.0, "days without anything": 0.2,
    "nothing in any slot": 0.5, "teleports": 0.5, "unmarked sights": 0.6, "cut names": 0.6,
    "one template for all queries": 0.5, "every restaurant in every slot": 0.2, "a day less": 0.6,
    "all days the first": 0.45, "no meals": 0.7, "names in look-alike letters": 0.5,
    "the reference of another task": 0.6,
}  # fmt: skip


def _paid(exploit: Exploit) -> Exploit:
    bound = _BOUNDS[exploit.name]
    paid = {"bound": bound, "remains": _SHARE if bound else ""}
    return dataclasses.replace(exploit, benchmark="travelplanner_micro", **paid)


EXPLOITS = [
    _paid(exploit) for exploit in travelplanner.EXPLOITS if exploit.role == AGENT and exploit.name in _BOUNDS
]
