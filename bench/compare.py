"""genenv_jax against Hugging Face transformers on torch, and against Tunix: the same weights and works.

    python bench/compare.py --sizes=S,M
    python bench/compare.py --sizes=S --works=sample,grpo --tunix_python=/path/to/tunix/bin/python
    python bench/compare.py --model=/models/SmolLM2-135M-Instruct --benchmark=bfcl \\
        --works=sample,prefill,step,score,grpo,long

With --model its weights are real, and prompts are as long as BFCL's; with --benchmark they are those of its
held-out tasks, in the model's chat template.  Completions that are scored and trained on are random tokens.
"step" takes our decoding step apart, beside sample and prefill.

"narrow" among --engines is ours with bfloat16 operands (`model.matmul_dtype`); the floor is of float32.

Each engine is a process of its own.  All of them are pinned to one and the same core with one thread
each, and take turns: A B C A B C.  Reported are medians of their CPU seconds, after a warm-up.  First
their log-probs of a common batch are compared; beyond 1e-4 the script ends with an error.  The first
GRPO step's loss and gradient norm are compared likewise.  The floor is the FLOPs that the work needs
(`bench/floors.py`) at the rate of the fastest float32 matrix product that XLA or torch did on that core
in the same minutes.

Tunix pins other packages than we do, so it lives in an environment of its own:
    python3.11 -m venv tunix && tunix/bin/pip install google-tunix==0.1.7
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import safetensors
from arguments import numbers, some_of
from floors import decode_step_parts, work_flops
from protocol import Worker
from workloads import AT_ONCE, SIZES, Work, one_thread, with_prompts, works, write_model

_HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE.parent))
LABELS = {"torch": "HF", "tunix": "Tunix", "ours": "ours", "narrow": "narrow"}
WORKS = ("sample", "prefill", "score", "grpo", "ragged", "memory")
STEP = "step"  # beside sample and prefill
LONG = "long"  # of a given model alone
# Single turns, and for "long" turns of the long context.
_BFCL = ("simple_python", "multiple", "parallel", "parallel_multiple", "multi_turn_long_context")
OPTIONS = {"bfcl": {"eval_categories": _BFCL, "seed_categories": ()}}
TOLERANCE = 1e-4  # log-probs, nats
GRPO_TOLERANCE = 1e-3  # relative, of the first step's loss and gradient norm
NARROW_TOLERANCE = 0.2  # of either, where operands are bfloat16


@dataclasses.dataclass
class Timing:
    """Repetitions of one work by one engine.

    cpu, wall: seconds of each.  value: what the last one gave (tokens, or the step's metrics).
    first: what the warm-up gave.
    """

    cpu: list[float]
    wall: list[float]
    value: object
    first: object

    @property
    def median(self) -> float:
        return statistics.median(self.cpu)

    def __str__(self) -> str:
        return f"{self.median:.3g} ({min(self.cpu):.3g}–{max(self.cpu):.3g})"


def main() -> None:
    """Measures what was asked for and prints the tables, those of a size when it is done."""
    args = _arguments()
    os.sched_setaffinity(0, {args.core})  # the workers inherit it
    report = {"about": about(args.core), "sizes": {}}
    print(_about_text(report["about"]), flush=True)
    try:
        for size in args.sizes:
            report["sizes"][size] = result = {"works": {}}
            try:
                compare_size(size, args, result)
            finally:  # hours of measurements are not lost to the last of them
                print(_tables(size, result), flush=True)
    finally:
        report["about"]["load after"] = os.getloadavg()
        print(f"\nLoad {os.getloadavg()[0]:.1f} at the end.")
        if args.json:
            args.json.write_text(json.dumps(report, indent=1, default=dataclasses.asdict))


def compare_size(size: str, args: argparse.Namespace, result: dict) -> None:
    """Puts into `result`, as it goes, what all works of one size gave."""
    todo = works(
        "model" if args.model else size, args.new_tokens, args.ragged_prompts, args.prompt_tokens
    )
    with tempfile.TemporaryDirectory() as folder:
        if args.benchmark:
            todo = on_prompts(todo, args, pathlib.Path(folder))
            result["prompts"] = args.benchmark
        if args.model:
            folder = str(args.model)
            shape = json.loads((args.model / "config.json").read_text())
            with safetensors.safe_open(args.model / "model.safetensors", "np") as tensors:
                shapes = [tensors.get_slice(name).get_shape() for name in list(tensors.keys())]
            result["parameters"] = sum(map(math.prod, shapes))
            result["family"] = shape["model_type"]
        else:
            shape, result["family"] = SIZES[size], "Qwen2"
            result["parameters"] = write_model(pathlib.Path(folder), shape)
        with workers(folder, args) as engines:
            versions = [worker.ask("describe")["value"] for worker in engines.values()]
            result["versions"] = {k: v for each in versions for k, v in each.items()}
            result["log-prob difference"] = check_logprobs(engines, todo["score"])
            for name in args.works:
                if name not in ("memory", STEP):
                    result["works"][name] = measure(name, todo[name], engines, shape, args)
            if STEP in args.works:
                result[STEP] = take_apart(result["works"], engines["ours"], shape)
        if "memory" in args.works:
            result["memory"] = memory(folder, todo["grpo"], args)
            result["memory of"] = dataclasses.asdict(todo["grpo"])


def on_prompts(
    todo: Mapping[str, Work], args: argparse.Namespace, folder: pathlib.Path
) -> dict[str, Work]:
    """The works that are to be done, on prompts of the benchmark; those of its held-out tasks.

    folder: where their tokens are kept.  Exits where the benchmark has too few that are as long.
    """
    from genenv_jax.benchmarks import registry
    from genenv_jax.models.language_model import LanguageModel

    wanted = {"score", *args.works} | ({"grpo"} if "memory" in args.works else set())
    try:
        benchmark = registry.make_benchmark(args.benchmark, **OPTIONS.get(args.benchmark, {}))
        model = LanguageModel.load(args.model)
        messages = map(benchmark.agent_messages, benchmark.tasks("eval"))
        prompts = [model.encode_messages(conversation) for conversation in messages]
        return {
            name: with_prompts(work, prompts, folder / f"{name}.json")
            for name, work in todo.items()
            if name in wanted
        }
    except (ValueError, OSError) as error:
        sys.exit(f"--benchmark={args.benchmark}: {error}")


def take_apart(
    timed: Mapping[str, dict], ours: Worker, shape: Mapping[str, int]
) -> dict[str, dict[str, float]]:
    """Part to seconds and least seconds, by FLOPs and by bytes, of an average decoding step of ours.

    timed: what `measure` gave for "sample" and "prefill", of which the step is the difference.
    """
    sample, prefill = timed["sample"], timed["prefill"]
    work = Work(**sample["work"])
    _note("step, ours")
    alone = ours.ask(STEP, work=sample["work"])["value"]
    product_rate = 1e9 * max(sample["gemm GFLOP/s"], prefill["gemm GFLOP/s"])

    def part(seconds: float, flops: float = 0.0, read: float = 0.0) -> dict[str, float]:
        return {
            "seconds": seconds,
            "by products": flops / product_rate,
            "by reading": read / alone["read"],
        }

    needed = decode_step_parts(shape, work)
    parts = {
        name: part(seconds, *needed.get(name, ())) for name, seconds in alone["seconds"].items()
    }
    steps = work.new - 1
    whole = sample["timings"]["ours"].median - prefill["timings"]["ours"].median
    parts["rest"] = part(whole / steps - sum(alone["seconds"].values()))
    parts["whole"] = part(whole / steps, *map(sum, zip(*needed.values(), strict=True)))
    return {"parts": parts, "GB/s": alone["read"] / 1e9, "rows": work.rows}


def _tables(size: str, result: Mapping) -> str:
    """What there is of a size, as Markdown."""
    lines = [
        f"\n**{size}**: {result.get('family')} of {result.get('parameters', 0) / 1e6:.4g} M "
        "parameters, float32"
    ]
    if "log-prob difference" in result:
        lines[0] += (
            f"; largest difference of log-probs between engines {result['log-prob difference']:.1e}; "
            + ", ".join(f"{k} {v}" for k, v in result["versions"].items())
        )
    if "prompts" in result:
        lines[0] += f"; prompts of {result['prompts']}"
    timed = {k: v for k, v in result["works"].items() if k != "ragged"}
    if timed:
        lines.append(_table(timed))
    if STEP in result:
        lines.append(_step_table(result[STEP]))
    if "ragged" in result["works"]:
        lines.append(_ragged_table(result["works"]["ragged"]))
    if "memory" in result:
        lines.append(_memory_table(result["memory"], Work(**result["memory of"])))
    return "\n\n".join(lines)


@contextlib.contextmanager
def workers(folder: str, args: argparse.Namespace) -> Iterator[dict[str, Worker]]:
    """A process for each engine that was asked for, ended afterwards."""
    env = one_thread(args.malloc == "keep")
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(Worker(name, _command(name, folder, args), env))
            for name in args.engines
        }


def _command(name: str, folder: str, args: argparse.Namespace) -> list[str]:
    python = args.tunix_python if name == "tunix" else sys.executable
    script, options = ("ours", ["bfloat16"]) if name == "narrow" else (name, [])
    return [python, str(_HERE / f"compare_{script}.py"), folder, *options]


def check_logprobs(engines: Mapping[str, Worker], work: Work) -> float:
    """The largest difference from the first engine's log-probs of a common batch, "narrow" apart.

    Exits where one is beyond its tolerance.
    """
    logp = {
        name: np.array(worker.ask("logprobs", work=dataclasses.asdict(work))["value"])
        for name, worker in engines.items()
    }
    first = next(iter(logp.values()))
    gaps = {name: float(np.max(np.abs(x - first))) for name, x in logp.items()}
    for name, gap in gaps.items():
        tolerance = NARROW_TOLERANCE if name == "narrow" else TOLERANCE
        if not gap <= tolerance:  # NaN fails too
            sys.exit(f"log-probs differ by more than {tolerance} from {next(iter(logp))}'s: {gaps}")
    return max(gap for name, gap in gaps.items() if name != "narrow")


def measure(
    name: str, work: Work, engines: Mapping[str, Worker], shape: Mapping[str, int],
    args: argparse.Namespace,
) -> dict:  # fmt: skip
    """One work by all engines in turn, and the matrix-product rate of the time."""
    if name == "ragged":
        ways = [
            (f"ours, {n} {'lane' if n == 1 else 'lanes'} a prompt", "ours", n) for n in args.lanes
        ]
        ways += [("ours, fixed batches", "ours", 0), ("HF, fixed batches", "torch", 0)]
        contenders = {
            label: (engines[k], dataclasses.replace(work, lanes=lanes))
            for label, k, lanes in ways
            if k in engines
        }
    else:
        contenders = {k: (worker, work) for k, worker in engines.items()}
    firsts = {}
    for label, (worker, its_work) in contenders.items():
        _note(f"{name}, {label}: warm-up")
        firsts[label] = worker.prepare(its_work)["value"]
    answers, rates = {label: [] for label in contenders}, []
    for i in range(args.repeats):
        for label, (worker, its_work) in contenders.items():
            answers[label].append(worker.run(its_work))
            _note(f"{name}, {label}: {i + 1}/{args.repeats} {answers[label][-1]['cpu']:.3f} s")
        rates += [
            engines[k].ask("gemm", n=n)["value"]
            for k in ("ours", "torch") if k in engines for n in args.gemm
        ]  # fmt: skip
    timings = {
        label: Timing(
            [a["cpu"] for a in runs], [a["wall"] for a in runs], runs[-1]["value"], firsts[label]
        )
        for label, runs in answers.items()
    }
    if name == "grpo":
        _check_steps(timings)
    elif len({str(t.value) for t in timings.values()}) > 1:
        sys.exit(f"{name}: numbers of tokens differ: { {k: t.value for k, t in timings.items()} }")
    flops = work_flops(shape, work)
    return {
        "work": dataclasses.asdict(work),
        "shortest prompt": int(work.prompt_lengths().min()),
        "timings": timings,
        "gemm GFLOP/s": max(rates),
        "GFLOP": flops / 1e9,
        "floor": flops / 1e9 / max(rates),
    }


def _check_steps(timings: Mapping[str, Timing]) -> None:
    """Exits where the engines' first GRPO steps had another loss or another gradient."""
    first = next(iter(timings.values())).first
    for label, timing in timings.items():
        for key in timing.first:
            difference = abs(timing.first[key] - first[key])
            tolerance = NARROW_TOLERANCE if label == "narrow" else GRPO_TOLERANCE
            # A loss near zero is a difference of large terms: advantages of mean zero times ratios.
            if not difference <= tolerance * max(abs(first[key]), 0.01):
                sys.exit(
                    f"the first GRPO step's {key} differs: {label} {timing.first}, others {first}"
                )


def memory(folder: str, work: Work, args: argparse.Namespace) -> dict[str, dict[str, int]]:
    """Bytes of temporaries of a GRPO step, each in a fresh process that hands freed memory back."""
    ways = {"HF": ("torch", {}), "Tunix": ("tunix", {})}
    ways |= {"plain JAX": ("ours", {"shared": False}), "ours": ("ours", {"shared": True})}
    env = one_thread(keep_buffers=False)
    result = {}
    for label, (name, options) in ways.items():
        if name in args.engines:
            with Worker(label, _command(name, folder, args), env) as worker:
                _note(f"memory, {label}")
                answer = worker.ask("memory", work=dataclasses.asdict(work), **options)
                result[label] = answer["value"]
    return result


def about(core: int) -> dict:
    """Machine, load, commit and command of this run."""
    model = next(
        (line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), "unknown",
    )  # fmt: skip
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "core": core,
        "load before": os.getloadavg(),
        "commit": _commit(),
        "command": shlex.join(["python", *sys.argv]),
    }


def _commit() -> str:
    def git(*command: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(_HERE), *command], capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "unknown") + (
        " with changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    )


def _about_text(about: Mapping) -> str:
    return (
        f"{about['cpu']}, {about['cores']} cores, pinned to core {about['core']}; load "
        f"{about['load before'][0]:.1f} before; commit {about['commit']}; `{about['command']}`.  CPU "
        "seconds, median (least–most)."
    )


def _table(measured: Mapping[str, dict]) -> str:
    engines = next(iter(measured.values()))["timings"]
    others = [k for k in ("torch", "tunix") if k in engines]
    ours = [k for k in ("ours", "narrow") if k in engines]
    pairs = [(k, own) for k in others for own in ours]
    columns = ["work"] + [f"{LABELS[k]}, s" for k in (*others, *ours)]
    columns += [f"{LABELS[k]} / {own}" for k, own in pairs] + ["floor, s"]
    columns += [f"{own} / floor" for own in ours]
    rows = []
    for name, result in measured.items():
        timings = result["timings"]
        cells = [_describe(name, Work(**result["work"]), result["shortest prompt"])]
        cells += [str(timings[k]) for k in (*others, *ours)]
        cells += [f"{timings[k].median / timings[own].median:.2f}" for k, own in pairs]
        cells += [f"{result['floor']:.3g}"]
        cells += [f"{timings[own].median / result['floor']:.2f}" for own in ours]
        rows.append(cells)
    return _markdown(columns, rows) + "\n\n" + _rates(measured)


def _describe(name: str, work: Work, shortest: int) -> str:
    tokens = str(work.prompt) if shortest == work.prompt else f"{shortest}–{work.prompt}"
    if name == "prefill":
        return f"prefill: {work.prompts} prompts × {work.group}, {tokens} tokens and one more"
    return f"{name}: {work.prompts} prompts × {work.group}, {tokens} + {work.new} tokens"


def _rates(measured: Mapping[str, dict]) -> str:
    rates = [r["gemm GFLOP/s"] for r in measured.values()]
    return f"Floors at the {min(rates):.0f} to {max(rates):.0f} GFLOP/s of the matrix products beside them."


def _ragged_table(result: Mapping) -> str:
    work, timings = Work(**result["work"]), result["timings"]
    lengths = work.lengths()
    total = int(lengths.sum())
    best = min((t.median for k, t in timings.items() if k.startswith("ours")), default=None)
    columns = ["way", "CPU s", "tokens/s"] + (["it / our best"] if best else [])
    rows = [
        [label, str(t), f"{total / t.median:.0f}"] + ([f"{t.median / best:.2f}"] if best else [])
        for label, t in timings.items()
    ]
    text = (
        f"Ragged: {work.prompts} prompts × {work.group}, {work.prompt} tokens and completions of "
        f"{lengths.min()} to {lengths.max()}, {lengths.mean():.1f} on average, limit {work.new}, "
        f"{AT_ONCE} rows at a time; floor {result['floor']:.3g} s."
    )
    return text + "\n\n" + _markdown(columns, rows)


def _step_table(step: Mapping) -> str:
    whole = step["parts"]["whole"]["seconds"]
    rows = [
        [
            name,
            f"{1e3 * part['seconds']:.3g}",
            f"{100 * part['seconds'] / whole:.0f} %",
            *(f"{1e3 * part[k]:.3g}" if part[k] else "" for k in ("by products", "by reading")),
        ]
        for name, part in step["parts"].items()
    ]
    columns = ["part of a decoding step, ours", "ms", "share", "products, ms", "reading, ms"]
    text = (
        f"A step of {step['rows']} rows, its parts measured alone; beside them what their products "
        "take at the floor's rate, and what reading weights and caches takes at the core's "
        f"{step['GB/s']:.1f} GB/s."
    )
    return text + "\n\n" + _markdown(columns, rows)


def _memory_table(memory: Mapping[str, Mapping[str, int]], work: Work) -> str:
    def mebibytes(x: int | None) -> str:
        return "" if x is None else f"{x / 2**20:.0f}"

    rows = [[k, mebibytes(v.get("compiled")), mebibytes(v["resident"])] for k, v in memory.items()]
    columns = ["", "temporaries by the compiler, MiB", "growth of the process during the step, MiB"]
    text = f"Memory of a GRPO step, {work.rows} × ({work.prompt} + {work.new}) tokens, gradients included."
    return text + "\n\n" + _markdown(columns, rows)


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (columns, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(columns)}", *lines[1:]])


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=some_of(list(SIZES)), default=["S"])
    parser.add_argument("--model", type=pathlib.Path, help="a model directory instead of --sizes")
    parser.add_argument("--works", type=some_of([*WORKS, STEP, LONG]), default=list(WORKS))
    parser.add_argument("--benchmark", help="whose held-out tasks are the prompts of --model")
    parser.add_argument(
        "--engines", type=some_of(["torch", "ours", "narrow"]), default=["torch", "ours"]
    )
    parser.add_argument("--tunix_python", help="interpreter of an environment with google-tunix")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--new_tokens", type=int, help="sampled tokens, instead of 128")
    parser.add_argument("--prompt_tokens", type=int, help="longest prompts, but for long")
    parser.add_argument("--ragged_prompts", type=int, default=32)
    parser.add_argument(
        "--lanes", type=numbers, default=[2], help="of our engine on ragged lengths"
    )
    parser.add_argument("--gemm", type=numbers, default=[1024, 2048], help="sides of the products")
    parser.add_argument(
        "--malloc",
        choices=("keep", "default"),
        default="keep",
        help="keep freed buffers, as the commands do, or the C library's default",
    )
    parser.add_argument("--json", type=pathlib.Path, help="file for all numbers")
    args = parser.parse_args()  # fmt: skip
    if args.core not in os.sched_getaffinity(0):
        parser.error(f"core {args.core} is not among {sorted(os.sched_getaffinity(0))}")
    if min(args.repeats, args.new_tokens or 1, args.prompt_tokens or 1) < 1:
        parser.error("--repeats, --new_tokens and --prompt_tokens must be at least 1")
    if args.model and not (args.model / "model.safetensors").is_file():
        parser.error(f"--model={args.model}: expected a directory with model.safetensors")
    if args.model:
        args.sizes = [args.model.resolve().name]
    if LONG in args.works and not args.model:
        parser.error(f"--works={LONG} is of a given model: expected --model")
    if args.benchmark and (args.tunix_python or not args.model):
        parser.error("--benchmark is for --model, and not for Tunix, which gets random prompts")
    if STEP in args.works and not (
        {"sample", "prefill"} <= set(args.works) and "ours" in args.engines
    ):
        parser.error(f"--works={STEP}: expected sample and prefill beside it, and our engine")
    if args.tunix_python:
        args.engines = [*args.engines[:1], "tunix", *args.engines[1:]]
    return args


if __name__ == "__main__":
    main()
