"""The suite's numbers as CSV files: by run, by arm, by contrast."""

from __future__ import annotations

import csv
import io
import pathlib
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from genenv_jax.experiment import statistics
from genenv_jax.experiment.contrasts import (
    exploratory_contrasts,
    main_contrasts,
    secondary_contrasts,
)
from genenv_jax.experiment.results import Results
from genenv_jax.run.jsonl import write_text

_NONE = ("", "")  # of an interval that is not known


def write_csv_files(results: Results, out: pathlib.Path) -> dict[str, pathlib.Path]:
    """Writes runs.csv, arms.csv and contrasts.csv into the directory `out`; name to path."""
    records = {
        "runs.csv": _runs(results),
        "arms.csv": _arms(results),
        "contrasts.csv": _contrasts(results),
    }
    for name, rows in records.items():
        write_text(out / name, _csv(rows))
    return {name: out / name for name in records}


def _csv(records: Iterable[Mapping[str, object]]) -> str:
    rows, text = list(records), io.StringIO()
    header = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(text, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _runs(results: Results) -> Iterator[dict[str, object]]:
    for arm, scores in results.scores.items():
        crossings = results.crossings(arm)
        for seed, found in scores.items():
            row = {"arm": arm, "seed": seed, **found}
            if crossings:
                at = crossings[seed]
                row["cost_to_threshold"] = results.horizon if at is None else at
                row["censored"] = int(at is None)
            yield row


def _arms(results: Results) -> Iterator[dict[str, object]]:
    resamples = results.suite.bootstrap
    for arm in results.runs:
        for name in results.names:
            if values := list(results.score(arm, name).values()):
                interval = statistics.bootstrap_interval(values, resamples=resamples)
                low, high = _NONE if interval is None else interval
                yield {
                    "arm": arm,
                    "quantity": name,
                    "seeds": len(values),
                    "mean": float(np.mean(values)),
                    "low": low,
                    "high": high,
                    "standard_error": statistics.standard_error(values),
                    "iqm": statistics.interquartile_mean(values),
                }


def _contrasts(results: Results) -> Iterator[dict[str, object]]:
    for c in [
        *main_contrasts(results),
        *secondary_contrasts(results),
        *exploratory_contrasts(results),
    ]:
        low, high = _NONE if c.interval is None else c.interval
        t_low, t_high = c.t_interval or _NONE
        better = _NONE if c.improvement_interval is None else c.improvement_interval
        yield {
            "first": c.first,
            "second": c.second,
            "quantity": c.name,
            "main": int(c.holm is not None),
            "seeds": len(c.seeds),
            "difference": c.test.mean,
            "low": low,
            "high": high,
            "t_low": t_low,
            "t_high": t_high,
            "ratio": c.ratio,
            "seeds_ahead": c.wins,
            "improvement": c.improvement,
            "improvement_low": better[0],
            "improvement_high": better[1],
            "p": c.test.p,
            "exact": int(c.test.exact),
            "holm_p": c.holm,
        }
