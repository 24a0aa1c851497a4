"""Would training the simulator pay here?  A short run of GenEnv-Random on one's own model and benchmark.

    genenv experiment --probe --config=configs/quickstart.py --workdir=runs/probe

Where a simulator that is not trained writes tasks that teach, training it has little to add.  What is
measured is its first epochs.  The rule is of docs/curriculum.md, found on Dial with a model of 0.2 M
parameters: a hint elsewhere.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np
from ml_collections import ConfigDict

from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.coevolve import Coevolution
from genenv_jax.config import validate
from genenv_jax.experiment.arms import apply_arm
from genenv_jax.players import build
from genenv_jax.report.runs import Run, load_run
from genenv_jax.run.jsonl import iter_jsonl
from genenv_jax.run.remote import opened
from genenv_jax.run.workdir import lock

EPOCHS = 5
_ARMS, _SEEDS = 2, 8  # of a comparison: GenEnv and Random; fewer seeds have told nothing apart
_QUANTILE = 0.95
# The rule's: a base model with fewer valid tasks is refused in the comparisons; found on the map.
_VALID, _INFORMATIVE, _BEYOND = 0.5, 0.4, 0.25


@dataclasses.dataclass(frozen=True)
class Probe:
    """What the epochs of a run with a simulator that is not trained come down to, means over epochs.

    Attributes:
      valid: share of the generations that are valid tasks.
      p_hat: mean p̂ of these, first and last epoch.
      informative: share of the groups of rollouts whose rewards differ.
      never, always: shares of the tasks that no rollout, or every one, solved.
      kinds: distinct signatures an epoch; None where the benchmark does not say.
      beyond: share of the held-out tasks that are harder than 95 % of the valid ones; None likewise.
      tokens, seconds: of an epoch.
    """

    valid: float
    p_hat: tuple[float, float]
    informative: float
    never: float
    always: float
    kinds: float | None
    beyond: float | None
    tokens: float
    seconds: float


def probe(config: ConfigDict, workdir: str) -> dict[str, str]:
    """Runs `EPOCHS` epochs of Random in `workdir`, or goes on with them; title to text of what came out.

    Args:
      config: of a run, not of a suite.
    Raises:
      ValueError: a setting is wrong, or the simulator wrote no valid task.
    """
    validate(config)
    apply_arm(config, "random")
    epochs, config.epochs = config.epochs, min(EPOCHS, config.epochs)
    config.rollouts = config.tokens = 0
    config.evaluation.every = config.evaluation.sampled = 0  # one answer, before training
    config.evaluation.greedy, config.evaluation.max_tasks = True, 1
    config.export = False
    config.tracking.trackers = ()
    checked = validate(config)
    with opened(workdir) as directory, lock(directory):
        Coevolution(checked, directory).run()
        found = read(load_run(directory, tasks=False), build.make_benchmark(checked.benchmark))
    return said(found, epochs)


def read(run: Run, benchmark: Benchmark) -> Probe:
    """The numbers of a finished run.  Raises ValueError where no task of it was valid."""

    def epochs(name: str, missing: float = 0.0) -> list[float]:
        return [values.get(name, missing) for step, values in run.metrics.items() if step]

    def mean(name: str) -> float:
        return float(np.mean(epochs(name)))

    rates = list(run.series("generated/p_hat_mean").values())
    if not rates:
        raise ValueError(
            f"{run.workdir}: none of {sum(epochs('generated/count')):.0f} generations is a valid "
            "task: expected some; `genenv evaluate --role=simulator` says what they fail with, and a "
            "warm start (config.warm_start.steps) teaches their form"
        )
    valid = np.multiply(epochs("generated/count"), epochs("generated/valid_share"))
    seconds = [t["seconds/total"] for t in run.timing if t.get("step", 0) and "seconds/total" in t]
    return Probe(
        valid=mean("generated/valid_share"),
        p_hat=(rates[0], rates[-1]),
        informative=1 - float(np.mean(epochs("agent/zero_variance_share", 1.0))),
        never=float(sum(epochs("generated/solved_none")) / valid.sum()),
        always=float(sum(epochs("generated/solved_all")) / valid.sum()),
        kinds=mean("generated/distinct_signatures"),
        beyond=_beyond(run.workdir, benchmark),
        tokens=epochs("tokens/total")[-1] / len(epochs("tokens/total")),
        seconds=float(np.median(seconds)) if seconds else 0.0,
    )


def _beyond(workdir: pathlib.Path, benchmark: Benchmark) -> float | None:
    if not benchmark.difficulties:
        return None
    records = iter_jsonl(workdir / "tasks.jsonl")
    tasks = [Task.from_json(r["task"]) for r in records if r.get("verdict") == "accepted"]
    return beyond(benchmark, tasks)


def beyond(benchmark: Benchmark, tasks: Sequence[Task]) -> float:
    """Share of the held-out tasks whose difficulty exceeds that of 95 % of `tasks`, at least one."""
    highest = np.quantile([benchmark.difficulty(task) for task in tasks], _QUANTILE)
    held_out = [benchmark.difficulty(task) for task in benchmark.tasks("eval")]
    return float(np.mean(np.array(held_out) > highest))


def said(found: Probe, epochs: int) -> dict[str, str]:
    """Title to text: what was measured, what the rule makes of it, and what it costs to find out.

    epochs: of a whole run.
    """
    text = {
        "valid": f"{found.valid:.0%} of the generations",
        "solved": f"{found.p_hat[0]:.2f} → {found.p_hat[1]:.2f} of the attempts (p̂); {found.never:.0%} of "
        f"the tasks never, {found.always:.0%} always",
        "informative": f"{found.informative:.0%} of the groups of rollouts have rewards that differ",
    }
    if found.kinds is not None:
        text["kinds"] = f"{found.kinds:.0f} signatures an epoch"
    if found.beyond is not None:
        text["beyond"] = f"{found.beyond:.0%} of the held-out tasks are harder than 95 % of these"
    text["rule"] = rule(found)
    runs = _ARMS * _SEEDS * epochs
    text["to find out"] = (
        f"{_ARMS} arms × {_SEEDS} seeds × {epochs} epochs: {runs * found.tokens / 1e6:,.0f} million "
        f"tokens, {runs * found.seconds / 60:,.0f} minutes at the pace of these epochs"
    )
    return text


def rule(found: Probe) -> str:
    """What docs/curriculum.md makes of such numbers: whether training the simulator, or growth, may pay."""
    text = _training(found)
    if found.beyond is not None and found.beyond >= _BEYOND and found.valid >= _VALID:
        text += (
            "; the harder held-out tasks may want config.curriculum.growth.share, with which .14 more of "
            "them were solved on Dial, after 20,000 rollouts"
        )
    return text


def _training(found: Probe) -> str:
    if found.valid < _VALID:
        return (
            f"not yet: less than {_VALID:.0%} of the generations are valid, so there is little to learn "
            "from; a warm start (config.warm_start.steps) teaches their form"
        )
    if found.informative < _INFORMATIVE:
        return (
            f"perhaps, where rollouts are what costs: with less than {_INFORMATIVE:.0%} informative "
            "groups GenEnv was ahead of Random at equal rollouts on Dial, not at equal tokens"
        )
    return (
        f"no: with {_INFORMATIVE:.0%} informative groups or more GenEnv was level with Random at equal "
        "rollouts on Dial, and behind at equal tokens"
    )
