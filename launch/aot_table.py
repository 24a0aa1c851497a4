"""Makes the table of docs/memory.md: which model fits which slice, with full training and with LoRA.

    python launch/aot_table.py --output=aot.jsonl                                  compile
    python launch/aot_table.py --output=aot.jsonl --table=docs/results/memory.csv    write the table

Each cell is one run of aot_check.py and one line of the output.  Existing cells are not compiled again, so
an interrupted command can continue.  Cells are compiled with little effort, which makes an update need up
to a fifth more memory than in a run.  If a cell's train state and gradient alone exceed the chip, with
everything else in host memory, it is not compiled: its line says how much they take.
"""

from __future__ import annotations

import csv
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

from absl import app, flags

GIB = 2**30
MODELS = ("Qwen2.5-0.5B", "Qwen2.5-1.5B", "Qwen2.5-7B", "Qwen2.5-14B", "Gemma-3-1B", "Gemma-3-4B")
SLICES = ("v5e-1", "v5e-4", "v5e-8", "v5e-16", "v5e-32", "v6e-1", "v6e-8", "v5p-8")
RANK = 32
# The simulator's prompts and responses are longer, so its sampling and scoring also bound the
# agent's.
_PROGRAMS = "simulator,GRPO"
_CHECK = pathlib.Path(__file__).with_name("aot_check.py")


def cells() -> Iterator[tuple[str, int, str]]:
    """(model, rank, slice) in table order; rank 0 is full training."""
    for model in MODELS:
        for rank in (0, RANK):
            for part in SLICES:
                yield model, rank, part


def settings(rank: int, chips: int) -> dict[str, Any]:
    """The mesh and the settings of a cell that differ from the configuration."""
    from genenv_jax.configs.recipes import slice_settings

    mesh, changes = slice_settings(rank, chips)
    return {"mesh": ",".join(map(str, mesh)), "config": changes}


def _config(model: str, chosen: dict[str, Any]) -> Any:
    from genenv_jax.config import default_config, validate

    config = default_config()
    config.benchmark.name, config.model.path = "bfcl", model
    config.update_from_flattened_dict(chosen["config"])
    return validate(config)


def too_large(model: str, rank: int, part: Any, chosen: dict[str, Any]) -> str:
    """Why a cell cannot fit even without its programs' temporaries; empty if it may fit."""
    import aot
    import aot_check
    import aot_programs

    from genenv_jax.parallel.mesh import make_mesh

    config = _config(model, chosen)
    decoder = aot_check.model_config(model, config, rank)
    mesh = make_mesh(*map(int, chosen["mesh"].split(",")), devices=aot.slice_devices(part))
    aot_check.check_mesh(mesh, config, decoder)
    sizes = aot_programs.tree_bytes(decoder, mesh, config.memory.moments)
    least = {
        "parameters": sizes["own parameters"],
        "moments": sizes["own moments"],
        "gradient": sizes["own parameters"],
    }
    if rank:
        least["base"] = sizes["reference"]
    total = sum(least.values()) / GIB
    if total <= part.hbm:
        return ""
    return " + ".join(f"{name} {size / GIB:.2f}" for name, size in least.items()) + (
        f" = {total:.2f} of {part.hbm} GiB"
    )


def compile_cell(model: str, rank: int, name: str, config: str, timeout: int) -> dict[str, Any]:
    """One line of the output: aot_check's result, or the reason why there is none."""
    start = time.monotonic()
    import aot

    part = aot.parse_slice(name)
    chosen = settings(rank, part.chips)
    cell = {"cell": [model, rank, name], "settings": chosen, "hbm": part.hbm}
    try:
        reason = too_large(model, rank, part, chosen)
    except ValueError as error:
        return cell | {"impossible": str(error)}
    if reason:
        return cell | {"impossible": reason}
    command = [
        sys.executable, str(_CHECK), f"--config={config}", f"--topology={name}",
        f"--model={model}", f"--mesh={chosen['mesh']}", f"--lora={rank}", f"--programs={_PROGRAMS}",
        "--fast", "--json",
        *(f"--config.{key}={value}" for key, value in chosen["config"].items()),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return cell | {"failed": f"no result after {timeout} s"}
    if done.returncode not in (0, 1) or not done.stdout.strip():
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        return cell | {"failed": f"exit code {done.returncode}: {last[:500]}"}
    result = json.loads(done.stdout.strip().splitlines()[-1])
    return cell | {"result": result, "seconds": round(time.monotonic() - start)}


def read_lines(path: pathlib.Path) -> dict[tuple[str, int, str], dict[str, Any]]:
    """Reads the cells of an output file; a later line of a cell replaces the programs it lists."""
    cells_read: dict[tuple[str, int, str], dict[str, Any]] = {}
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for line in map(json.loads, filter(None, text.splitlines())):
        key = tuple(line["cell"])
        earlier = cells_read.get(key, {})
        if "result" in line and "result" in earlier:
            rows = earlier["result"]["programs"] + line["result"]["programs"]
            line["result"]["programs"] = list({row["name"]: row for row in rows}.values())
        cells_read[key] = line
    return cells_read


def peaks(line: dict[str, Any], offload: str) -> dict[str, float]:
    """GiB per chip of every program, including what else is resident under `offload`."""
    from aot_programs import Program, residents

    result = line["result"]
    lora = bool(result["lora"])
    base = {"reference"} if lora else set()
    arguments = {
        "sample": base,
        "score": {"reference"},
        "update": {"own parameters", "own moments"} | base,
    }
    totals = {}
    for row in result["programs"]:
        phase = row["phase"]
        program = Program(row["name"], "", phase, frozenset(arguments[phase]), 0, lambda: None)
        beside = sum(residents(program, result["trees"], offload, lora).values())
        totals[row["name"]] = (row["footprint"]["total"] + beside) / GIB
    return totals


def rooflines(line: dict[str, Any]) -> tuple[float, float]:
    """Upper bounds from the chips' rates: the simulator's tokens per second, and the MFU of a GRPO step."""
    import aot
    import aot_programs

    from genenv_jax.sampling.engine import Engine

    model, _, name = line["cell"]
    part = aot.parse_slice(name)
    work = aot_programs.player_work(_config(model, line["settings"]))["simulator"]
    rows = {row["name"]: row for row in line["result"]["programs"]}
    update = rows["update agent (GRPO)"]
    tokens = work.prompts * work.group * Engine.chunk
    return (
        tokens / rows["decode simulator"]["seconds"],
        update["flops"] / part.chips / update["seconds"] / part.peaks[0],
    )


_OFFLOADS = ("none", "player", "phase")


def fitting(line: dict[str, Any]) -> tuple[dict[str, float], str]:
    """GiB of the largest program under each `memory.offload`, and the least offload that fits, or "no"."""
    worst = {offload: max(peaks(line, offload).values()) for offload in _OFFLOADS}
    return worst, next((o for o in _OFFLOADS if worst[o] <= line["hbm"]), "no")


def summary(lines: dict[tuple[str, int, str], dict[str, Any]]) -> str:
    """The summary table: a row per model and mode of which a cell is known, a column per slice.

    Each cell is "yes", the `memory.offload` it needs, "no", or empty if unknown.
    """
    rows = [["model", "mode", *SLICES]]
    for model, rank in dict.fromkeys((model, rank) for model, rank, _ in cells()):
        row = [model, f"LoRA {rank}" if rank else "full"]
        for name in SLICES:
            line = lines.get((model, rank, name), {})
            verdict = "no" if "impossible" in line else ""
            if "result" in line:
                verdict = fitting(line)[1].replace("none", "yes")
            row.append(verdict)
        if any(row[2:]):
            rows.append(row)
    head, *rows = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|" + "---|" * (2 + len(SLICES)), *rows])


def table(lines: dict[tuple[str, int, str], dict[str, Any]]) -> list[list[str]]:
    """All numbers: a header row, then one row per cell that was compiled or ruled out."""
    names = ("prefill", "decode", "score", "GRPO", "RWR")
    head = ["model", "mode", "slice", "mesh", "prompts a step", *names, *_OFFLOADS, "fits with"]
    rows = [[*head, "most tokens/s", "most MFU", "seconds to compile"]]
    for key in cells():
        if key not in lines:
            continue
        line, (model, rank, part) = lines[key], key
        chosen = line["settings"]
        c = chosen["config"]
        size, parts = c["agent.minibatch_size"], c["agent.micro_batches"]
        row = [model, f"LoRA {rank}" if rank else "full", part, chosen["mesh"].replace(",", "×")]
        row.append(f"{size}" if parts == 1 else f"{parts} × {size // parts}")
        if "result" in line:
            programs = line["result"]["programs"]
            alone = [
                max(row["footprint"]["total"] / GIB for row in programs if name in row["name"])
                for name in names
            ]
            worst, verdict = fitting(line)
            rate, mfu = rooflines(line)
            row += [f"{size:.1f}" for size in (*alone, *worst.values())]
            row += [verdict, f"{rate:.0f}", f"{mfu:.0%}", f"{line['seconds']}"]
        else:
            reason = line.get("impossible")
            text = f"no ({reason})" if reason else f"not compiled: {line['failed']}"
            row += [*[""] * len(names + _OFFLOADS), text, "", "", ""]
        rows.append(row)
    return rows


def main(argv: list[str]) -> None:
    """Compiles the missing cells, or writes the table."""
    del argv
    options = flags.FLAGS
    path = pathlib.Path(options.output)
    lines = read_lines(path)
    if options.table:
        with open(options.table, "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(table(lines))
        print(summary(lines))
        return
    for key in cells():
        if key in lines or (options.only and options.only not in "/".join(map(str, key))):
            continue
        line = compile_cell(*key, options.config, options.timeout)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(key, line.get("impossible") or line.get("failed") or "compiled", flush=True)


if __name__ == "__main__":
    flags.DEFINE_string("output", None, "JSON lines, one per cell; continued if the file exists.")
    flags.DEFINE_string("config", "configs/bfcl.py", "Configuration file.")
    flags.DEFINE_string("only", "", "Only cells whose model/rank/slice contains this.")
    flags.DEFINE_integer("timeout", 1800, "Seconds a cell may take.", 1)
    flags.DEFINE_string("table", "", "Only write all numbers to this CSV file, and print what fits.")
    flags.mark_flag_as_required("output")
    app.run(main)
