"""Decoding and updates on an accelerator, against what the card itself can do.

    python bench/gpu.py --models=Qwen2.5-1.5B,Qwen2.5-7B --rows=64,256
    python bench/gpu.py --models=tiny --rows=8 --prompt=8 --new_tokens=8      # on any machine

First the card is measured: how fast it copies memory, and how fast it multiplies matrices in bfloat16.
Then, with random bfloat16 weights of a published shape:

decode   the engine with all completions of full length.  Decoding is its time for `--new_tokens` minus that
         for one token.  A step must read the weights once, each prompt's keys and values once per group and
         each row's own; these bytes at the copy rate are the roofline.
update   one GRPO step, parameters and gradient in float32 (or adapters, --lora_rank).  The work's FLOPs
         at the matrix products' rate are the floor; what remat recomputes counts as time only.

Every measurement has its own process, so its memory peak is its own and running out of memory ends no other.
The tables show medians over whole repetitions, each of which waits for its results.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import sys
from typing import Any

import protocol
from arguments import numbers, some_of
from floors import decode_step_bytes, update_flops
from tables import command, markdown
from workloads import SIZES, Work

_HERE = pathlib.Path(__file__).resolve().parent
PUBLISHED = json.loads((_HERE.parent / "launch" / "published_models.json").read_text())
SHAPES = {"tiny": SIZES["tiny"] | {"model_type": "qwen2", "tie_word_embeddings": True}} | PUBLISHED


def main() -> None:
    """Measures what was asked for and prints the tables."""
    args = _arguments()
    device, rates = _ask(args, "describe"), _ask(args, "rates")
    print(
        f"{command()}: {device['device']}, jax {device['jax']}: copies {rates['copy'] / 1e9:.0f} GB/s (read "
        f"and written), multiplies {rates['matmul'] / 1e12:.3g} TFLOP/s in bfloat16."
    )
    if "decode" in args.works:
        columns = ("model", "rows", "prompt + new", "prefill, s", "ms a step", "tokens/s")
        columns += ("share of the bandwidth", "peak, GiB")
        rows = [
            _decode_row(args, model, count, rates["copy"]) for model in args.models for count in args.rows
        ]
        print(f"\n{markdown(columns, rows)}", flush=True)
    if "update" in args.works:
        columns = ("model", "rows", "prompt + new", "step, s", "tokens/s", "TFLOP/s", "MFU")
        columns += ("temporaries, GiB", "peak, GiB")
        rows = [_update_row(args, model, rates["matmul"]) for model in args.models]
        print(f"\n{markdown(columns, rows)}")


def _decode_row(args: argparse.Namespace, model: str, rows: int, bandwidth: float) -> list[str]:
    work = Work("sample", rows // args.group, args.group, args.prompt, args.new_tokens)
    start = [model, str(rows), f"{work.prompt} + {work.new}"]
    found = _measure(args, "decode", model, work)
    if "error" in found:
        return [*start, found["error"], *[""] * 4]
    # Step i of new - 1 reads the i tokens that a row has in its cache: new / 2 on average.
    read = decode_step_bytes(SHAPES[model], work.prompts, rows, work.prompt, work.new / 2)
    return [
        *start,
        f"{found['prefill']:.3g}",
        f"{1e3 * found['step']:.3g}",
        f"{rows / found['step']:.0f}",
        f"{100 * read / bandwidth / found['step']:.0f} %",
        _gibibytes(found["peak"]),
    ]


def _update_row(args: argparse.Namespace, model: str, rate: float) -> list[str]:
    rows = args.update_rows
    work = Work("grpo", rows // args.group, args.group, args.prompt, args.new_tokens)
    start = [model, str(rows), f"{work.prompt} + {work.new}"]
    found = _measure(args, "update", model, work)
    if "error" in found:
        return [*start, found["error"], *[""] * 5]
    speed = update_flops(SHAPES[model], work, trained=not args.lora_rank) / found["step"]
    return [
        *start,
        f"{found['step']:.3g}",
        f"{rows * work.new / found['step']:.0f}",
        f"{speed / 1e12:.3g}",
        f"{100 * speed / rate:.0f} %",
        _gibibytes(found["temporaries"]),
        _gibibytes(found["peak"]),
    ]


def _gibibytes(x: int | None) -> str:
    return "not counted" if x is None else f"{x / 2**30:.2f}"


def _measure(args: argparse.Namespace, kind: str, model: str, work: Work) -> dict[str, Any]:
    """What the worker found, or "error" if it failed."""
    try:
        return _ask(args, kind, model=model, work=dataclasses.asdict(work))
    except protocol.WorkerError as error:
        print(error, file=sys.stderr, flush=True)
        return {"error": str(error).strip().splitlines()[-1]}


def _ask(args: argparse.Namespace, do: str, **fields: Any) -> dict[str, Any]:
    """The answer of a fresh process."""
    options = json.dumps(vars(args) | {"shapes": SHAPES})
    started = [sys.executable, str(_HERE / "gpu_worker.py"), options]
    # The allocator's default keeps a quarter of the card for others.
    env = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.95"} | os.environ
    print(do, fields.get("model", ""), fields.get("work", ""), file=sys.stderr, flush=True)
    with protocol.Worker("accelerator", started, env) as worker:
        return worker.ask(do, **fields)["value"]


def _arguments() -> argparse.Namespace:
    models = ["Qwen2.5-1.5B", "Qwen2.5-7B"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--models", type=some_of(list(SHAPES)), default=models)
    add("--works", type=some_of(["decode", "update"]), default=["decode", "update"])
    add("--rows", type=numbers, default=[64, 256], help="rows that decode at a time")
    add("--group", type=int, default=8, help="completions a prompt")
    add("--prompt", type=int, default=512, help="tokens of a prompt")
    add("--new_tokens", type=int, default=256, help="tokens of a completion")
    add("--update_rows", type=int, default=64, help="completions of an update")
    add("--micro_batches", type=int, default=1)
    add("--remat", default="full", help="what the update's backward pass keeps, as model.remat")
    add("--attention", default="xla", help="kernel of the update, as model.attention")
    add("--lora_rank", type=int, default=0, help="train adapters; 0: all parameters")
    add("--unroll_layers", action="store_true", help="no loop over layers, as model.unroll_layers")
    add("--repeats", type=int, default=5)
    args = parser.parse_args()
    if wrong := [n for n in (*args.rows, args.update_rows) if n < 1 or n % args.group]:
        parser.error(f"rows {wrong}: expected multiples of --group={args.group}")
    if args.new_tokens < 2:
        parser.error("--new_tokens must be at least 2: a step is the difference to one token")
    return args


if __name__ == "__main__":
    main()
