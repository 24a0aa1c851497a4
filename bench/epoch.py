"""Where an epoch's time goes, and what was compiled in it.

    python bench/epoch.py --config=configs/quickstart.py
    GENENV_DATA=/data python bench/epoch.py --config=configs/bfcl.py:debug

runs three epochs in a temporary workdir and prints a table, in seconds.  Prefill and decode are what the
sampling engines waited for; "sampling, rest" is the engines' host work between.  The host's share is
the time in which the devices had nothing to do: waiting for verification and scores, choosing and
writing, the checkpoint of the epoch before.  Any setting can be changed, as for genenv_jax.main.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence

from absl import flags
from tables import command, markdown

_ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT))

from genenv_jax import cli  # noqa: E402

_SAMPLING = ("generate", "interact", "evaluate (sampled)", "evaluate (greedy)")


def rows(line: Mapping[str, float]) -> dict[str, float]:
    """The table's rows from one line of timing.jsonl, in their order: seconds, and the total last."""
    seconds = {k.removeprefix("seconds/"): v for k, v in line.items() if k.startswith("seconds/")}
    sampling = sum(seconds.get(name, 0.0) for name in _SAMPLING)
    inside = {k.removeprefix("sampling/"): v for k, v in line.items() if k.startswith("sampling/")}
    table = dict(inside) | {"sampling, rest": sampling - sum(inside.values())}
    names = {"verify": "waiting for verification", "score": "waiting for scores"}
    for name, value in seconds.items():
        if name not in _SAMPLING and name != "total":
            table[names.get(name, name)] = value
    return table | {"total": seconds["total"]}


def table(lines: Sequence[Mapping[str, float]]) -> str:
    """A Markdown table: one column an epoch, and the share of the later ones' total.

    lines: of timing.jsonl, from step 1.
    """
    epochs = [rows(line) for line in lines]
    later = epochs[1:]
    total = statistics.fmean(epoch["total"] for epoch in later)
    heads = ["seconds", *(f"epoch {line['step']:.0f}" for line in lines), "share after epoch 1"]
    found = []
    names = dict.fromkeys(name for epoch in epochs for name in epoch if name != "total")
    for name in (*names, "total"):
        values = [epoch.get(name, 0.0) for epoch in epochs]
        share = statistics.fmean(values[1:]) / total
        found.append([name, *(f"{value:.3f}" for value in values), f"{share:.1%}"])
    idle = [line["host_share"] for line in lines]
    mean = sum(s * e["total"] for s, e in zip(idle[1:], later, strict=True)) / (total * len(later))
    found.append(["**host's share**", *(f"{share:.1%}" for share in idle), f"**{mean:.1%}**"])
    for what in ("compiled", "loaded"):
        counts = [line[f"programs/{what}"] for line in lines]
        found.append([f"programs {what}", *(f"{count:.0f}" for count in counts), ""])
    return markdown(heads, found)


def main() -> None:
    """Runs and prints."""
    from genenv_jax.coevolve import Coevolution
    from genenv_jax.config import validate
    from genenv_jax.run.jsonl import iter_jsonl

    options = flags.FLAGS
    config = options.config
    config.epochs, config.export, config.tracking.trackers = options.epochs, False, ()
    with tempfile.TemporaryDirectory() as folder:
        with cli.one_line_errors():
            run = Coevolution(validate(config), pathlib.Path(folder))
        run.run()
        before, *lines = iter_jsonl(pathlib.Path(folder) / "timing.jsonl")
    print(f"{command()}, load {os.getloadavg()[0]:.1f}\n")
    print(
        f"Before training: {before.get('seconds/compile', 0.0):.1f} s for "
        f"{before['programs/compiled']:.0f} programs (and {before['programs/loaded']:.0f} from the "
        "cache).\n"
    )
    print(table(lines))


if __name__ == "__main__":
    cli.define_config("Configuration file.")
    flags.DEFINE_integer("epochs", 3, "Epochs to run.", 2)
    flags.mark_flags_as_required(["config"])
    cli.run(main)
