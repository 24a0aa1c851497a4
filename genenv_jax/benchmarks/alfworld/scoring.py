"""The score of a step, and ALFWorld's metrics: success rate of each split and each task type.

Sources: alfworld/agents/environment/alfred_tw_env.py (success is `won`), and the splits in
configs/base_config.yaml: valid_seen is eval_in_distribution, valid_unseen is eval_out_of_distribution.
"""

from collections.abc import Sequence

from genenv_jax.benchmarks.alfworld import commands
from genenv_jax.benchmarks.alfworld.chores import TASK_TYPES
from genenv_jax.benchmarks.alfworld.tasks import EVAL_SPLITS
from genenv_jax.benchmarks.base import Rejection, Score, Task, mean

INADMISSIBLE = "inadmissible"  # an impossible command
OTHER_ACTION = "other_action"  # a possible command that is not the expert's
OTHER = "generated"


def step_score(task: Task, answer: str) -> Score:
    """The score of a step: 1 if every (normalised) command in the answer is the expert's, else 0.

    Reasons: those of `commands.parse` and NO_COMMAND (invalid), INADMISSIBLE, OTHER_ACTION.
    """
    spec, read = task.answer, commands.parse(answer)
    possible, missed = ({"steps": 1, "inadmissible": count} for count in (0, 1))
    if isinstance(read, Rejection):
        return Score(0.0, False, False, read.reason, missed)
    if not all(commands.is_command(command, spec["grammar"]) for command in read):
        return Score(0.0, False, False, commands.NO_COMMAND, missed)
    if all(command == spec["action"] for command in read):
        return Score(1.0, True, True, "", possible)
    if read[-1] not in spec["admissible"]:
        return Score(0.0, False, True, INADMISSIBLE, missed)
    return Score(0.0, False, True, OTHER_ACTION, possible)


def aggregate(results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
    """Metrics of any multiset of results.

    Returns: for each split, valid_unseen first,
      <split>/accuracy            the headline: share of successes among all answers or episodes of the split;
      <split>/success_rate        the same for games played as episodes;
      <split>/step_accuracy       the same for expert steps asked one by one;
      <split>/<type of task>      the same for one type;
      <split>/mean_over_types     mean over the types that occur;
      <split>/steps               mean number of steps in the games that were won;
      <split>/inadmissible        share of commands that were not possible.
    {"accuracy": 0.0} if there are no results.
    """
    by_split: dict[str, list[tuple[Task, Score]]] = {}
    for task, score in results:
        by_split.setdefault(task.answer.get("split") or OTHER, []).append((task, score))
    metrics: dict[str, float] = {}
    ordered = [split for split in EVAL_SPLITS if split in by_split]
    ordered += sorted(set(by_split) - set(ordered))
    for split in ordered:
        metrics[f"{split}/accuracy"] = _success(by_split[split])
    for split in ordered:
        metrics |= {f"{split}/{name}": value for name, value in _details(by_split[split]).items()}
    return metrics or {"accuracy": 0.0}


def _details(results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
    played = [(t, s) for t, s in results if t.answer["kind"] == "episode"]
    asked = [(t, s) for t, s in results if t.answer["kind"] == "step"]
    of_type = {name: [(t, s) for t, s in results if t.category == name] for name in TASK_TYPES}
    types = {name: _success(part) for name, part in of_type.items() if part}
    found = {}
    if played:
        found["success_rate"] = _success(played)
    if asked:
        found["step_accuracy"] = _success(asked)
    found |= types
    if types:
        found["mean_over_types"] = mean(types.values())
    if steps := [s.detail["steps"] for _, s in played if s.success and "steps" in s.detail]:
        found["steps"] = mean(steps)
    if tried := sum(s.detail.get("steps", 0) for _, s in results):
        found["inadmissible"] = sum(s.detail.get("inadmissible", 0) for _, s in results) / tried
    return found


def _success(results: Sequence[tuple[Task, Score]]) -> float:
    return mean([float(score.success) for _, score in results])
