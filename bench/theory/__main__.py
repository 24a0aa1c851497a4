"""Measures Proposition 1 and Theorem 1 of arXiv 2512.19682 on a real model and real rollouts.

    python -m bench.theory --config=configs/quickstart.py --workdir=runs/theory

The policy is --model, or what the configuration's players start from.  It writes to the workdir

    theory.json        every number, task by task and pair by pair
    proposition1.png   E‖g‖² of single rollouts, normalised and not, and ‖∇p‖², against p
    theorem1.png       mis-ranking rates against n: measured, exact, and the bound

and prints a short table.  Five stages draw rollouts of their own, so nothing is estimated from what it
was chosen by, and p from none of the rollouts that it is held against: a pilot that chooses tasks of all
success rates, the gradients' rollouts, those that p is estimated from (by which pairs are chosen), and
of the pairs those for p and those whose rankings are counted.

It holds gradients of several rollouts with respect to all parameters at once, on one device: it is made
for small models.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from absl import flags
from ml_collections import ConfigDict

from bench.tables import markdown
from bench.theory import moments, ranking
from genenv_jax import cli
from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.config import use_model, validate

_PILOT = 32  # rollouts by which tasks are chosen
_POOL = 8  # tasks that the pilot looks at, for each one that is measured
_BLOCK = 16  # rollouts whose gradients exist at the same time
_EDGES = (0.0, 0.02, *(i / 10 for i in range(1, 10)), 0.98, 1.0)
_GAPS = (0.1, 0.2, 0.3, 0.4)
_NS = tuple(2**i for i in range(1, 13))  # the curves' n
_FEWEST_TRIALS = 8  # n is measured where so many groups of n are there
_UNCERTAIN_UP_TO = 1024  # n at which the exact rate is given an interval


def run(
    config: ConfigDict,
    workdir: str,
    model_path: str = "",
    tasks: int = 128,
    rollouts: int = 64,
    reference: int = 256,
    ranked: int = 2048,
) -> dict[str, Any]:
    """Measures both, writes the files, returns what theory.json holds.

    Args:
      config: a run's configuration, not validated yet; of it the benchmark, the model and the agent's
        limits are used.
      workdir: made where missing.
      model_path: directory or hub id; "" for the configuration's own model.
      tasks: how many at most Proposition 1 is measured on.
      rollouts: of each task, for gradients; a multiple of 8, at least 16.
      reference: of each task, for p; at least 2.
      ranked: of each task of a pair, and twice as many for its p; at least 16.
    Raises:
      ValueError or FileNotFoundError for what is missing or unfit.
    """
    from bench.theory.figures import draw_proposition, draw_theorem
    from bench.theory.rollouts import Sampler
    from genenv_jax.parallel import processes
    from genenv_jax.players import build
    from genenv_jax.players.lengths import check_prompts
    from genenv_jax.run.progress import Progress
    from genenv_jax.scoring.scorer import Scorer
    from genenv_jax.supervised import base_model

    _check(tasks, rollouts, reference, ranked)
    if processes.process_count() > 1:
        raise ValueError("theory runs in one process: start it once")
    if model_path:
        use_model(config, model_path)
    config.mesh.update({"data": 1, "fsdp": 1, "tensor": 1})
    checked = validate(config)
    trained = not checked.model.path or checked.warm_start.steps > 0
    benchmark = build.make_benchmark(checked.benchmark, need_seeds=trained)
    pool = _pool(benchmark, tasks)
    mesh = build.open_mesh(checked)
    host = build.open_model(checked, base_model(checked, benchmark, mesh), mesh)
    check_prompts(checked.limits, host.model, benchmark, (), pool)
    out = pathlib.Path(workdir)
    out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    params = host.load_params()
    buckets = checked.limits.buckets(checked.limits.agent_prompt)
    progress = Progress(epochs=0)
    with Scorer(benchmark, host.model.decode, checked.scoring) as scorer:
        limit = checked.limits.agent_response
        key = jax.random.key(checked.seed)
        sampler = Sampler(host.model, params, benchmark, scorer, limit, buckets, key)

        def draw(name: str, some: Sequence[Task], count: int):
            with progress.phase(name, total=len(some) * count, unit="rollouts") as phase:
                return sampler(some, count, phase.advance)

        _, successes = draw("pilot", pool, _PILOT)
        rows = moments.spread_over_rates(successes.sum(1), _PILOT, tasks)
        chosen = [pool[row] for row in rows]
        sampled = draw("rollouts for gradients", chosen, rollouts)
        _, successes = draw("rollouts for p", chosen, reference)
        counts = successes.sum(1).astype(int)
        with progress.phase("gradients", total=len(chosen), unit="tasks") as phase:
            measured = gradients(host.model.config, params, *sampled, buckets, phase.advance)
        # By the rollouts for p, and their p from others: chosen ones look further apart than they are.
        pairs = ranking.choose_pairs(counts / reference, _GAPS, checked.curriculum.alpha)
        of_pairs = [chosen[i] for pair in pairs for i in pair]
        _, known = draw("rollouts for p of the pairs", of_pairs, 2 * ranked)
        _, successes = draw("rollouts to rank", of_pairs, ranked)
    result = {
        "about": {
            "benchmark": benchmark.name,
            "model": model_path or str(checked.model.path) or "made on the spot",
            "parameters": sum(x.size for x in jax.tree.leaves(params)),
            "seed": checked.seed,
            "alpha": checked.curriculum.alpha,
            "tasks looked at by the pilot": len(pool),
            "tasks": len(chosen),
            "rollouts of a task": {
                "pilot": _PILOT,
                "gradients": rollouts,
                "p": reference,
                "ranking": ranked,
            },
            "seconds": round(time.monotonic() - begin, 1),
            "intervals": "95 %: bootstrap over tasks for means and fits, Clopper-Pearson for measured "
            "rates, Jeffreys posteriors of p1 and p2 for exact rates",
        },
        "proposition1": proposition(chosen, measured, counts, reference, checked.seed),
        "theorem1": theorem(
            [tuple(chosen[i].id for i in pair) for pair in pairs],
            known.reshape(len(pairs), 2, 2 * ranked),
            successes.reshape(len(pairs), 2, ranked),
            checked.curriculum.alpha,
            checked.seed,
        ),
    }
    text = json.dumps(result, indent=1, allow_nan=False)
    (out / "theory.json").write_text(text + "\n")
    draw_proposition(result["proposition1"], out / "proposition1.png")
    draw_theorem(result["theorem1"], out / "theorem1.png")
    return result


def _check(tasks: int, rollouts: int, reference: int, ranked: int) -> None:
    for name, value, least in (
        ("tasks", tasks, 1),
        ("rollouts", rollouts, 16),
        ("reference_rollouts", reference, 2),
        ("ranking_rollouts", ranked, 16),
    ):
        if value < least:
            raise ValueError(f"--{name}={value}: expected at least {least}")
    if rollouts % 8:
        raise ValueError(f"--rollouts={rollouts}: expected a multiple of 8")


def _pool(benchmark: Benchmark, count: int) -> list[Task]:
    """The tasks that are answered once, of both splits; evenly spread where there are too many."""
    tasks = [
        task
        for split in ("seed", "eval")
        for task in benchmark.tasks(split)
        if not benchmark.is_interactive(task)
    ]
    if not tasks:
        raise ValueError(f"benchmark {benchmark.name!r} has no task that is answered once")
    most = min(len(tasks), _POOL * count)
    return [tasks[i * len(tasks) // most] for i in range(most)]


def gradients(config, params, drawn, successes, buckets, advance=lambda: None) -> list[dict]:
    """What the gradients of each task's rollouts come to.

    Args:
      config: of the decoder.
      params: its parameters.
      drawn: `Rollouts` of T tasks, n each.
      successes: (T, n), 0 or 1.
      buckets: prompt widths that are compiled.
      advance: called for each task.
    Returns:
      T dicts of numbers; see `proposition`.
    """
    from bench.theory.gradients import make_task_gradients
    from genenv_jax.sampling.engine import bucket, pad_rows

    measure = make_task_gradients(config)
    limit = drawn.tokens.shape[-1]
    # Short answers are computed in half of the width: each width is compiled once.
    widths = (math.ceil(limit / 2), limit)
    n = successes.shape[1]
    m = _BLOCK if n % _BLOCK == 0 and n > _BLOCK else 8
    found = []
    for i, prompt in enumerate(drawn.prompts):
        width = bucket(int(drawn.lengths[i].max()), widths, "a completion")
        tokens, length = pad_rows([prompt], bucket(len(prompt), buckets, "a prompt"), 1)
        result = jax.device_get(
            measure(
                params,
                tokens[0],
                length[0],
                drawn.tokens[i, :, :width].reshape(-1, m, width),
                drawn.lengths[i].reshape(-1, m),
                successes[i].reshape(-1, m).astype(np.float32),
            )
        )
        squares, r = result.score_squares.ravel().astype(float), successes[i]
        square = moments.squared_gradient(r, squares)
        gaps = result.logprobs.ravel() - drawn.logprobs[i].sum(-1)
        found.append(
            {
                "rollouts": r.size,
                "successes": int(r.sum()),
                "squared_gradient": square,
                "score_square": float(squares.mean()),
                "score_square_of_success": float(squares[r == 1].mean()) if r.any() else None,
                "score_square_of_failure": float(squares[r == 0].mean()) if not r.all() else None,
                "normalised": square / float(squares.mean()),
                "signal": float(result.signal_square),
                # The sampler's log-probs against those that were differentiated: rounding.
                "logp_gap": float(np.abs(gaps).max()),
            }
        )
        advance()
    return found


def proposition(
    tasks: Sequence[Task],
    measured: Sequence[dict[str, Any]],
    counts: np.ndarray,
    reference: int,
    seed: int,
) -> dict[str, Any]:
    """The part "proposition1" of theory.json.

    Args:
      measured: of each task, from `gradients`.
      counts: (T,) successes in `reference` other rollouts.
    Returns:
      "tasks", a dict each: p and variance (unbiased p(1−p)) from the other rollouts, squared_gradient
      (unbiased E‖g‖² of a single rollout), score_square (E‖∇ log π‖²), the same of successes and
      failures alone, normalised (their ratio), signal (unbiased ‖∇p‖²); "summaries" by quantity: its means
      over ranges of p, and the fit; and "failure_over_success".
    """
    records = [
        {
            "task_id": task.id,
            "category": task.category,
            "p": counts[i] / reference,
            "variance": moments.success_variance(int(counts[i]), reference),
            **measured[i],
        }
        for i, task in enumerate(tasks)
    ]
    p = np.array([record["p"] for record in records])
    variance = np.array([record["variance"] for record in records])
    summaries = {}
    for name in ("squared_gradient", "normalised", "signal", "score_square"):
        values = np.array([record[name] for record in records])
        fit = moments.fit_variance_curve(p, variance, values, seed=seed)
        bins = moments.binned(p, values, _EDGES, seed=seed)
        summaries[name] = {"bins": bins, "fit": fit and dataclasses.asdict(fit)}
    # What the constant is made of, and no function of p(1−p).
    summaries["score_square"].pop("fit")
    # Only where both means are of several rollouts each.
    both = [r for r in records if 4 <= r["successes"] <= r["rollouts"] - 4]
    means = ([r[f"score_square_of_{which}"] for r in both] for which in ("failure", "success"))
    ratio = {
        "what": "median over tasks of E[‖∇ log π‖² | failure] / E[‖∇ log π‖² | success], and its interval",
        "tasks": len(both),
        "median": moments.median_ratio(*means, seed=seed),
    }
    return {"tasks": records, "summaries": summaries, "failure_over_success": ratio}


def theorem(
    pairs: Sequence[tuple[str, str]],
    known: np.ndarray,
    successes: np.ndarray,
    alpha: float,
    seed: int,
) -> dict[str, Any]:
    """The part "theorem1" of theory.json.

    Args:
      pairs: ids of two tasks, the one nearer to alpha first.
      known: (pairs, 2, m), 0 or 1: the rollouts from which the success rates are estimated.
      successes: (pairs, 2, m), 0 or 1: those whose rankings are counted.
    Returns:
      "pairs", a dict each with p1, p2, the gap and, by n, the exact rate, its interval, the bounds and
      what was measured; and "dropped": pairs whose gap turned out below 0.02, of which nothing can be
      said.
    """
    found, dropped = [], []
    for ids, rates, drawn in zip(pairs, known, successes, strict=True):
        counts = [(int(each.sum()), each.size) for each in rates]
        p1, p2 = (k / m for k, m in counts)
        gap = abs(p2 - alpha) - abs(p1 - alpha)
        if gap < 0.02:
            dropped.append({"tasks": ids, "p1": p1, "p2": p2, "gap": gap})
            continue
        by_n = []
        for n in _NS:
            interval = row = None
            if n <= _UNCERTAIN_UP_TO:
                interval = ranking.uncertain_misranking(*counts, n, alpha, seed=seed)
            if successes.shape[-1] // n >= _FEWEST_TRIALS:
                row = ranking.measure(*drawn, n, alpha)._asdict()
            by_n.append(
                {
                    "n": n,
                    "exact": float(ranking.misranking(p1, p2, n, alpha)),
                    "exact_interval": interval,
                    "bound": float(ranking.bound(gap, n)),
                    "half_gap_bound": float(ranking.half_gap_bound(gap, n)),
                    "measured": row,
                }
            )
        found.append(
            {
                "tasks": ids, "p1": p1, "p2": p2, "gap": gap,
                "informative_from": ranking.informative_from(gap), "by_n": by_n,
            }
        )  # fmt: skip
    return {"pairs": found, "dropped": dropped}


def table(result: dict[str, Any]) -> str:
    """What `main` prints."""
    parts, pairs = result["proposition1"], result["theorem1"]["pairs"]
    squares, normalised, signal = (
        parts["summaries"][name] for name in ("squared_gradient", "normalised", "signal")
    )
    rows = [
        [
            f"{square['p']:.3f}", str(square["count"]), _with(square["mean"], square["interval"]),
            f"{ratio['mean']:.3f}", f"{square['p'] * (1 - square['p']):.3f}", f"{slope['mean']:.4g}",
        ]
        for square, ratio, slope in zip(
            squares["bins"], normalised["bins"], signal["bins"], strict=True
        )
    ]  # fmt: skip
    lines = [
        f"Proposition 1: {len(parts['tasks'])} tasks; means over ranges of p, 95 % intervals\n"
    ]
    columns = ("p", "tasks", "E|g|^2", "/ E|dlogpi|^2", "p(1-p)", "|dp|^2")
    lines.append(markdown(columns, rows) + "\n")
    for label, of in (("E|g|^2", squares), ("normalised", normalised), ("|dp|^2", signal)):
        if fit := of["fit"]:
            lines.append(
                f"{label}: c = {_with(fit['c'], fit['c_interval'])} for c p(1-p), R^2 "
                f"{fit['explained']:.3f}; rank correlation with p(1-p) {fit['correlation']:.3f}"
            )
        else:
            lines.append(f"{label}: no fit, fewer than 3 tasks are solved sometimes")
    if fit := squares["fit"]:
        lines.append(
            f"E|g|^2 as p(1-p)[(1-p)S1 + pS0]: S1 = {fit['s1']:.4g}, S0 = {fit['s0']:.4g}, peak at p = "
            f"{_with(fit['peak'], fit['peak_interval'])}"
        )
    if median := parts["failure_over_success"]["median"]:
        lines.append(f"E[|dlogpi|^2 | failure] / E[|dlogpi|^2 | success]: {_with(*median)}")
    lines.append(
        "\nTheorem 1: mis-ranking of two tasks by n rollouts each (bounds above 1 say nothing)\n"
    )
    rows = [
        [
            f"{pair['p1']:.3f}, {pair['p2']:.3f}", f"{pair['gap']:.3f}", str(pair["informative_from"]),
            str(row["n"]), _with(row["measured"]["rate"], row["measured"]["interval"]),
            _with(row["exact"], row["exact_interval"]), f"{row['bound']:.3g}",
        ]
        for pair in pairs
        for row in pair["by_n"]
        if row["measured"]
    ]  # fmt: skip
    columns = ("p1, p2", "gap", "bound below 1 from n", "n", "measured", "exact", "bound")
    lines.append(
        markdown(columns, rows) if pairs else "not measured: no two tasks far enough apart"
    )
    return "\n".join(lines)


def _with(value: float, ends: Sequence[float] | None) -> str:
    """A number and its interval."""
    return f"{value:.3g} [{ends[0]:.3g}, {ends[1]:.3g}]" if ends else f"{value:.3g}"


def main() -> None:
    """The command; see the module's docstring."""
    given = flags.FLAGS
    with cli.one_line_errors():
        result = run(
            given.config,
            given.workdir,
            given.model,
            given.tasks,
            given.rollouts,
            given.reference_rollouts,
            given.ranking_rollouts,
        )
    print(table(result))


if __name__ == "__main__":
    cli.define_config("Configuration file.")
    flags.DEFINE_string("model", "", "Model directory or hub id; empty: the configuration's own.")
    flags.DEFINE_string("workdir", None, "Directory of the results.")
    flags.DEFINE_integer("tasks", 128, "Tasks that Proposition 1 is measured on, at most.")
    flags.DEFINE_integer("rollouts", 64, "Rollouts of each, for gradients; a multiple of 8.")
    flags.DEFINE_integer("reference_rollouts", 256, "Rollouts of each from which p is estimated.")
    flags.DEFINE_integer(
        "ranking_rollouts", 2048, "Rollouts of each task of a pair; twice as many for its p."
    )
    flags.mark_flags_as_required(["config", "workdir"])
    cli.run(main)
