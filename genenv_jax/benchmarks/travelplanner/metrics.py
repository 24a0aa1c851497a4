"""TravelPlanner's numbers, as `evaluation/eval.py` works them out.

  delivery_rate                            "Delivery Rate"
  commonsense_constraint_micro_pass_rate   "Commonsense Constraint Micro Pass Rate"
  commonsense_constraint_macro_pass_rate   "Commonsense Constraint Macro Pass Rate"
  hard_constraint_micro_pass_rate          "Hard Constraint Micro Pass Rate"
  hard_constraint_macro_pass_rate          "Hard Constraint Macro Pass Rate"
  final_pass_rate                          "Final Pass Rate"

  grounded_...                             the last five, of plans as `grounding` reads them (ours)

Micro: constraints passed of all constraints that apply (8 a plan; the budget and those asked for).  Macro:
plans that pass all of a kind.  As in the official code, a plan whose hard constraints were not looked at
does not count for the commonsense macro rate either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.travelplanner.constraints import COMMONSENSE, HARD

# Names of the official paper's table, by constraint.
TERMS = {
    "is_valid_information_in_current_city": "within_current_city",
    "is_valid_information_in_sandbox": "within_sandbox",
    "is_reasonable_visiting_city": "reasonable_city_route",
    "is_valid_restaurants": "diverse_restaurants",
    "is_valid_transportation": "non_conflicting_transportation",
    "is_valid_attractions": "diverse_attractions",
    "is_valid_accommodation": "minimum_nights_stay",
    "is_not_absent": "complete_information",
    "valid_cost": "budget",
    "valid_room_rule": "room_rule",
    "valid_cuisine": "cuisine",
    "valid_room_type": "room_type",
    "valid_transportation": "transportation",
}
PAPER_MEAN = (
    "commonsense_constraint_micro_pass_rate",
    "commonsense_constraint_macro_pass_rate",
    "hard_constraint_micro_pass_rate",
    "hard_constraint_macro_pass_rate",
)


GROUNDED = "grounded"  # the entry of `Score.detail` with the verdicts of that reading
RATES = (*PAPER_MEAN, "final_pass_rate")


def passes_all(detail: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Whether no constraint of `names` failed, in a plan whose hard constraints were looked at."""
    verdicts = detail["constraints"]
    return detail["hard_evaluated"] and all(verdicts[name] is not False for name in names)


def official_metrics(details: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The six official rates and the rate of each constraint, from `Score.detail` of any answers.

    Returns:
      The rates above; each constraint's rate among the plans to which it applies, under the name that
      the official paper uses (`TERMS`); and `genenv_mean`, the GenEnv paper's number for TravelPlanner:
      the mean of the two micro and the two macro rates.  Empty without answers.
    """
    if not details:
        return {}
    metrics = {"delivery_rate": _mean([float(detail["delivered"]) for detail in details])}
    for kind, names in (("commonsense", list(COMMONSENSE)), ("hard", list(HARD))):
        verdicts = [
            detail["constraints"][name]
            for detail in details
            for name in names
            if detail["constraints"][name] is not None
        ]
        metrics[f"{kind}_constraint_micro_pass_rate"] = _mean([float(v) for v in verdicts])
        metrics[f"{kind}_constraint_macro_pass_rate"] = _mean(
            [float(passes_all(detail, names)) for detail in details]
        )
    every = [*COMMONSENSE, *HARD]
    metrics["final_pass_rate"] = _mean([float(passes_all(detail, every)) for detail in details])
    metrics["genenv_mean"] = _mean([metrics[name] for name in PAPER_MEAN])
    for name in every:
        verdicts = [detail["constraints"][name] for detail in details]
        applying = [float(verdict) for verdict in verdicts if verdict is not None]
        if applying:
            metrics[TERMS[name]] = _mean(applying)
    return metrics


def grounded_metrics(details: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """`RATES` as "grounded_...", of the verdicts that count for a reward; empty without answers."""
    read = [{**detail, **detail[GROUNDED]} for detail in details]
    found = official_metrics(read)
    return {f"{GROUNDED}_{name}": found[name] for name in RATES if found}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
