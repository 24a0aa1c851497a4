"""Start, end and change of the headline numbers."""

from __future__ import annotations

from genenv_jax.results.runs import P_HAT, Run, evaluations
from genenv_jax.results.untrusted import table_cell

Row = tuple[str, str, str, str]  # quantity, start, end, change


def summary_table(run: Run) -> str:
    """A Markdown table: start, end and change of each headline number.

    Accuracies, success rates and shares are fractions, lengths are tokens.
    """
    lines = ["| run | quantity | start | end | change |", "|---|---|---:|---:|---:|"]
    lines += ["| " + " | ".join(map(table_cell, (run.name, *row))) + " |" for row in headline(run)]
    return "\n".join(lines)


def headline(run: Run) -> list[Row]:
    """The rows of `summary_table`."""
    rows = [
        start_end(run, f"eval/{split}/{mode}/accuracy", f"accuracy, {split}, {mode}", 3)
        for split, mode in evaluations(run)
    ]
    rows.append(start_end(run, "generated/p_hat_mean", f"{P_HAT} of generated tasks", 3))
    rows.append(_in_band(run))
    rows.append(start_end(run, "generated/valid_share", "valid share of generations", 3))
    rows.append(start_end(run, "agent/response_length_mean", "response length (tokens)", 1))
    rows.append(start_end(run, "generated/task_length_mean", "task length (tokens)", 1))
    for name, label in (("rollouts/total", "rollouts"), ("tokens/total", "tokens processed")):
        rows.append((label, "", start_end(run, name, label, 0)[2], ""))
    minutes = "-" if run.minutes is None else f"{run.minutes:,.1f}"
    return [*rows, ("minutes", "", minutes, "")]


def start_end(run: Run, name: str, label: str, digits: int) -> Row:
    """First and last recorded value of a metric and their difference, as text; "-" if there is none."""
    values = list(run.series(name).values())
    if not values:
        return label, "-", "-", "-"
    start, end = values[0], values[-1]
    return (
        label,
        f"{start:,.{digits}f}",
        f"{end:,.{digits}f}",
        f"{end - start:+,.{digits}f}",
    )


def _in_band(run: Run) -> Row:
    if run.band is None:
        return f"epochs with {P_HAT} in band", "", "-", ""
    low, high = run.band
    series = run.series("generated/p_hat_mean")
    # 0.6 counts as 0.5 + 0.1, despite rounding.
    inside = [step for step, p in series.items() if low - 1e-9 <= p <= high + 1e-9]
    first = f" (first: epoch {inside[0]})" if inside else ""
    text = f"{len(inside)} of {len(series)}{first}" if series else "-"
    return f"epochs with {P_HAT} in [{low:.3g}, {high:.3g}]", "", text, ""
