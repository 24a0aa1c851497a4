"""Decoding and updates on an accelerator, against what the card itself can do.

    python bench/gpu.py --models=Qwen2.5-1.5B,Qwen2.5-7B --rows=64,256
    python bench/gpu.py --models=tiny --rows=8 --prompt=8 --new_tokens=8      # on any machine

First the card is measured: how fast it copies memory, and how fast it multiplies matrices in bfloat16.
Then, with random bfloat16 weights of a published shape:

decode   the engine with all completions of full length.  Its time for `--new_tokens` less that for one
         token is the decoding.  A step must read the weights once, each prompt's keys and values once a
         group and each row's own; these bytes at the copy rate are the roofline.
update   one GRPO step, parameters and gradient in float32 (or adapters, --lora_rank).  The work's FLOPs
         at the matrix products' rate are the floor; what remat computes again counts as time only.

Every measurement has a process of its own, so that its peak of memory is its own and running out of it
ends no other.  Reported are medians over whole repetitions, each of which waits for its results.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import protocol
from arguments import numbers, some_of
from floors import decode_step_bytes, update_flops
from workloads import SIZES, Work

_ROOT = pathlib.Path(__file__).resolve().parent.parent
PUBLISHED = json.loads((_ROOT / "launch" / "published_models.json").read_text())
SHAPES = {"tiny": SIZES["tiny"] | {"model_type": "qwen2", "tie_word_embeddings": True}} | PUBLISHED


class Accelerator:
    """Worker's side: measurements on the default device; see `protocol.serve`."""

    def __init__(self, options: dict[str, Any]):
        sys.path.insert(0, str(_ROOT))
        self.options = options

    def describe(self) -> dict[str, str]:
        import jax

        device = jax.devices()[0]
        return {"device": device.device_kind, "platform": device.platform, "jax": jax.__version__}

    def rates(self, megabytes: int, sides: Sequence[int]) -> dict[str, float]:
        """Bytes a second, read and written, of a copy; FLOPs a second of a bfloat16 matrix product."""
        import jax
        import jax.numpy as jnp

        # A negation: reads and writes as a copy does, and no compiler takes it for nothing.
        x = jax.random.normal(jax.random.key(0), (megabytes * 2**19,), jnp.bfloat16)
        seconds = self._median(_repeated(jax.jit(jnp.negative), x), 10)
        products = {}
        for n in sides:
            a = jax.random.normal(jax.random.key(n), (n, n), jnp.bfloat16)
            products[n] = 2 * n**3 / self._median(_repeated(jax.jit(jnp.matmul), a, a), 10)
        return {"copy": 2 * x.nbytes / seconds, "matmul": max(products.values())}

    def decode(self, model: str, work: dict[str, Any]) -> dict[str, Any]:
        """Seconds of prefill and of a decoding step, and the peak of memory in bytes."""
        import jax

        from genenv_jax.sampling.draw import SamplingParams
        from genenv_jax.sampling.engine import Engine

        work = Work(**work)
        config = self._config(model)
        params = random_params(config, "bfloat16")
        prompts = work.prompt_tokens(config.vocab_size).tolist()

        def seconds(new: int) -> float:
            sampling = SamplingParams(new, work.group, eos_ids=())
            engine = Engine(config, sampling, work.prompts, (work.prompt,), jax.device_put)

            def run() -> None:
                lengths = engine(params, prompts, jax.random.key(0)).lengths
                assert (lengths == new).all()

            return self._median(run)

        first, full = seconds(1), seconds(work.new)
        return {"prefill": first, "step": (full - first) / (work.new - 1), "peak": _peak()}

    def update(self, model: str, work: dict[str, Any]) -> dict[str, Any]:
        """Seconds of a GRPO step, the compiler's temporaries and the peak of memory in bytes."""
        import jax
        import jax.numpy as jnp

        from genenv_jax.models.lora import LoraConfig, split
        from genenv_jax.models.scoring import CompletionBatch
        from genenv_jax.players import learner
        from genenv_jax.players.optimizer import OptimizerConfig, make_optimizer
        from genenv_jax.rl.grpo import GRPOConfig

        o, work = self.options, Work(**work)
        config = self._config(model, remat=o["remat"], attention=o["attention"])
        frozen = {}
        if o["lora_rank"]:
            config = dataclasses.replace(config, lora=LoraConfig(o["lora_rank"]))
            frozen, trained = split(random_params(config, "bfloat16"))
            trained = jax.tree.map(lambda x: x.astype(jnp.float32), trained)
        else:
            trained = random_params(config, "float32")
        batch = CompletionBatch(
            work.prompt_tokens(config.vocab_size),
            np.full(work.prompts, work.prompt, np.int32),
            work.completion_tokens(config.vocab_size),
            np.full((work.prompts, work.group), work.new, np.int32),
        )
        batch, advantages = jax.device_put((batch, work.advantages()))
        optimizer = make_optimizer(OptimizerConfig(1e-6, moments=o["moments"]))
        state = learner.init_state(trained, optimizer, copy=False)
        del trained
        old = jnp.full((work.prompts, work.group, work.new), -np.log(config.vocab_size))
        batch = learner.GRPOBatch(batch, old, old, advantages)
        step = learner.make_grpo_step(config, GRPOConfig(), optimizer, o["micro_batches"])
        step = step.lower(state, frozen, batch).compile()

        def run() -> None:
            nonlocal state
            state, _ = jax.block_until_ready(step(state, frozen, batch))

        return {
            "step": self._median(run),
            "temporaries": step.memory_analysis().temp_size_in_bytes,
            "peak": _peak(),
        }

    def _config(self, model: str, **options: Any) -> Any:
        from genenv_jax.models.config import TransformerConfig

        return TransformerConfig.from_huggingface(
            SHAPES[model], dtype="bfloat16", unroll_layers=self.options["unroll_layers"], **options
        )

    def _median(self, run: Callable[[], None], repeats: int | None = None) -> float:
        """Median seconds of a call, after two that are not counted."""
        times = []
        for _ in range(2 + (repeats or self.options["repeats"])):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return statistics.median(times[2:]) / getattr(run, "calls", 1)


def _repeated(function: Callable, *args: Any, calls: int = 20) -> Callable[[], None]:
    """`calls` calls in a row, waiting for the last, so that the host's part does not show."""
    import jax

    def run() -> None:
        for _ in range(calls):
            out = function(*args)
        jax.block_until_ready(out)

    run.calls = calls
    return run


def random_params(config: Any, dtype: str) -> Any:
    """Random parameters of a decoder, drawn on the device a layer at a time.

    float32 copies or random bits of a whole stack of layers would not fit beside a large model.
    """
    import jax

    from genenv_jax.parallel.rules import param_shapes

    def draw(key, leaf):
        def normal(key, shape):
            return (0.02 * jax.random.normal(key, shape, "bfloat16")).astype(dtype)

        if len(leaf.shape) < 2 or leaf.shape[0] != config.num_layers:
            return normal(key, leaf.shape)
        keys = jax.random.split(key, leaf.shape[0])
        return jax.lax.map(lambda key: normal(key, leaf.shape[1:]), keys)

    leaves, tree = jax.tree.flatten(param_shapes(config))
    draw = jax.jit(draw, static_argnums=1)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    return tree.unflatten(
        [draw(k, jax.ShapeDtypeStruct(x.shape, x.dtype)) for k, x in zip(keys, leaves, strict=True)]
    )


def _peak() -> int | None:
    """Most bytes that were in use on the device, where it keeps count."""
    import jax

    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All measurements, each in a fresh process; a failed one has "error" instead of numbers."""
    result = {"device": _ask(args, "describe"), "decode": [], "update": []}
    result["rates"] = _ask(args, "rates", megabytes=args.copy_megabytes, sides=args.matmul)
    for model in args.models:
        for rows in args.rows if "decode" in args.works else ():
            work = Work("sample", rows // args.group, args.group, args.prompt, args.new_tokens)
            result["decode"].append(_case(args, "decode", model, work))
        if "update" in args.works:
            prompts = args.update_rows // args.group
            work = Work("grpo", prompts, args.group, args.prompt, args.new_tokens)
            result["update"].append(_case(args, "update", model, work))
    return result


def _case(args: argparse.Namespace, kind: str, model: str, work: Work) -> dict[str, Any]:
    case = {"model": model, "work": dataclasses.asdict(work)}
    try:
        return case | _ask(args, kind, **case)
    except protocol.WorkerError as error:
        print(error, file=sys.stderr, flush=True)
        return case | {"error": str(error).strip().splitlines()[-1]}


def _ask(args: argparse.Namespace, do: str, **fields: Any) -> dict[str, Any]:
    options = {k: v for k, v in vars(args).items() if isinstance(v, (int, str))}
    command = [
        sys.executable,
        str(pathlib.Path(__file__).resolve()),
        "--serve",
        json.dumps(options),
    ]
    # The allocator's default keeps a quarter of the card for others.
    env = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.95"} | os.environ
    print(do, fields.get("model", ""), fields.get("work", ""), file=sys.stderr, flush=True)
    with protocol.Worker("accelerator", command, env) as worker:
        return worker.ask(do, **fields)["value"]


def tables(result: dict[str, Any], lora: bool) -> str:
    """The measurements as Markdown."""
    device, rates = result["device"], result["rates"]
    lines = [
        f"{device['device']}, jax {device['jax']}: copies {rates['copy'] / 1e9:.0f} GB/s (read and "
        f"written), multiplies {rates['matmul'] / 1e12:.3g} TFLOP/s in bfloat16."
    ]
    if result["decode"]:
        columns = ("model", "rows", "prompt + new", "prefill, s", "ms a step", "tokens/s")
        columns += ("share of the bandwidth", "peak, GiB")
        lines.append(_markdown(columns, [_decode_row(x, rates) for x in result["decode"]]))
    if result["update"]:
        columns = ("model", "rows", "prompt + new", "step, s", "tokens/s", "TFLOP/s", "MFU")
        columns += ("temporaries, GiB", "peak, GiB")
        lines.append(_markdown(columns, [_update_row(x, rates, lora) for x in result["update"]]))
    return "\n\n".join(lines)


def _decode_row(case: dict[str, Any], rates: dict[str, float]) -> list[str]:
    work, start = Work(**case["work"]), _start(case)
    if "error" in case:
        return [*start, case["error"], *[""] * 4]
    share = roofline_seconds(case["model"], work, rates["copy"]) / case["step"]
    return [
        *start,
        f"{case['prefill']:.3g}",
        f"{1e3 * case['step']:.3g}",
        f"{work.rows / case['step']:.0f}",
        f"{100 * share:.0f} %",
        _gibibytes(case["peak"]),
    ]


def roofline_seconds(model: str, work: Work, bandwidth: float) -> float:
    """Seconds that reading the bytes of an average decoding step takes."""
    # Step i of new - 1 reads the i tokens that a row has in its cache: new / 2 on average.
    size = decode_step_bytes(
        SHAPES[model], work.prompts, work.rows, work.prompt, work.new / 2, itemsize=2
    )
    return size / bandwidth


def _update_row(case: dict[str, Any], rates: dict[str, float], lora: bool) -> list[str]:
    work, start = Work(**case["work"]), _start(case)
    if "error" in case:
        return [*start, case["error"], *[""] * 5]
    speed = update_flops(SHAPES[case["model"]], work, trained=not lora) / case["step"]
    return [
        *start,
        f"{case['step']:.3g}",
        f"{work.rows * work.new / case['step']:.0f}",
        f"{speed / 1e12:.3g}",
        f"{100 * speed / rates['matmul']:.0f} %",
        _gibibytes(case["temporaries"]),
        _gibibytes(case["peak"]),
    ]


def _start(case: dict[str, Any]) -> list[str]:
    work = Work(**case["work"])
    return [case["model"], str(work.rows), f"{work.prompt} + {work.new}"]


def _gibibytes(x: int | None) -> str:
    return "not counted" if x is None else f"{x / 2**30:.2f}"


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (columns, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(columns)}", *lines[1:]])


def main() -> None:
    """Measures what was asked for and prints the tables."""
    args = _arguments()
    if args.serve:
        protocol.serve(lambda: Accelerator(json.loads(args.serve)))
        return
    result = measure(args)
    print(tables(result, lora=args.lora_rank > 0))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1))


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
    add("--moments", choices=("float32", "bfloat16"), default="bfloat16")
    add("--lora_rank", type=int, default=0, help="train adapters; 0: all parameters")
    add("--unroll_layers", action="store_true")
    add("--repeats", type=int, default=5)
    add("--copy_megabytes", type=int, default=2048)
    add("--matmul", type=numbers, default=[4096, 8192], help="sides of the matrix products")
    add("--json", help="file for all numbers")
    add("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if wrong := [n for n in (*args.rows, args.update_rows) if n < 1 or n % args.group]:
        parser.error(f"rows {wrong}: expected multiples of --group={args.group}")
    if args.new_tokens < 2:
        parser.error("--new_tokens must be at least 2: a step is the difference to one token")
    return args


if __name__ == "__main__":
    main()
