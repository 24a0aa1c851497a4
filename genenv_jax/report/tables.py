"""Start, end and change of the headline numbers."""

from __future__ import annotations

from collections.abc import Sequence

from genenv_jax.report.groups import distinct_names, evaluations, group_runs
from genenv_jax.report.runs import P_HAT, Run
from genenv_jax.report.untrusted import table_cell

Row = tuple[str, str, str, str]  # quantity, start, end, change


def summary_table(runs: Sequence[Run]) -> str:
    """A Markdown table: start, end and change of each headline number, run by run.

    Runs that share a configuration but for the seed are followed by their mean, with the range in
    brackets.  Accuracies, success rates and shares are fractions, lengths are tokens.
    """
    lines = ["| run | quantity | start | end | change |", "|---|---|---:|---:|---:|"]
    for label, rows in tables(runs):
        for row in rows:
            cells = [label, *row]
            lines.append("| " + " | ".join(table_cell(cell) for cell in cells) + " |")
    return "\n".join(lines)


def tables(runs: Sequence[Run]) -> list[tuple[str, list[Row]]]:
    """(label, rows) of each run, and of each group of several runs after its members."""
    names = distinct_names(runs)
    found = []
    for group in group_runs(runs):
        found += [(names[id(run)], _rows([run])) for run in group.runs]
        if len(group.runs) > 1:
            found.append((group.label, _rows(group.runs)))
    return found


def _rows(runs: Sequence[Run]) -> list[Row]:
    rows = [
        start_end(runs, f"eval/{split}/{mode}/accuracy", f"accuracy, {split}, {mode}", 3)
        for split, mode in evaluations(runs)
    ]
    rows.append(start_end(runs, "generated/p_hat_mean", f"{P_HAT} of generated tasks", 3))
    rows.append(_in_band(runs))
    rows.append(start_end(runs, "generated/valid_share", "valid share of generations", 3))
    rows.append(start_end(runs, "agent/response_length_mean", "response length (tokens)", 1))
    rows.append(start_end(runs, "generated/task_length_mean", "task length (tokens)", 1))
    for name, label in (("rollouts/total", "rollouts"), ("tokens/total", "tokens processed")):
        spent = [list(s.values())[-1] for run in runs if (s := run.series(name))]
        rows.append((label, "", _mean(spent, 0), ""))
    minutes = [minutes for run in runs if (minutes := run.minutes) is not None]
    rows.append(("minutes", "", _mean(minutes, 1), ""))
    return rows


def start_end(runs: Sequence[Run], name: str, label: str, digits: int) -> Row:
    """First and last recorded value of a metric and their difference, as text."""
    ends = [(values[0], values[-1]) for run in runs if (values := list(run.series(name).values()))]
    changes = [end - start for start, end in ends]
    return (
        label,
        _mean([start for start, _ in ends], digits),
        _mean([end for _, end in ends], digits),
        _mean(changes, digits, sign="+"),
    )


def _in_band(runs: Sequence[Run]) -> Row:
    inside, epochs, first = 0, 0, []
    for run in runs:
        series = run.series("generated/p_hat_mean") if run.band is not None else {}
        low, high = run.band or (0.0, 0.0)
        # 0.6 counts as 0.5 + 0.1, whatever the rounding.
        steps = [step for step, p in series.items() if low - 1e-9 <= p <= high + 1e-9]
        inside, epochs = inside + len(steps), epochs + len(series)
        first += steps[:1]
    bands = {run.band for run in runs}
    where = f" in [{low:.3g}, {high:.3g}]" if len(bands) == 1 and runs[0].band else " in band"
    found = f" (first: epoch {min(first)})" if first else ""
    text = f"{inside} of {epochs}{found}" if epochs else "-"
    return (f"epochs with {P_HAT}{where}", "", text, "")


def _mean(values: Sequence[float], digits: int, sign: str = "") -> str:
    """Mean, and the range in brackets where there are several values; "-" for none."""
    if not values:
        return "-"
    style = f"{sign},.{digits}f"
    text = format(sum(values) / len(values), style)
    if len(values) > 1:
        text += f" [{min(values):{style}}, {max(values):{style}}]"
    return text
