"""genenv_jax against Hugging Face transformers on torch: the same weights and works.

    python bench/compare.py --sizes=S,M
    python bench/compare.py --model=/models/SmolLM2-135M-Instruct --benchmark=bfcl \\
        --works=sample,prefill,score,grpo

With --model the weights are real, and prompts are as long as BFCL's; with --benchmark, prompts are those of
its held-out tasks, in the model's chat template.  Completions to score and train on are random tokens.

"narrow" among --engines is ours with bfloat16 operands (`model.matmul_dtype`), "torch16" torch in bfloat16.

Each engine is a process of its own.  All are pinned to the same core with one thread each and take
turns: A B C A B C.  The tables show medians of their CPU seconds after a warm-up, and the peak of each
process's memory meanwhile.  First their log-probs of a common batch are compared; a difference beyond
1e-4 ends the script with an error.
The first GRPO step's loss and gradient norm are compared likewise.  The floor is the FLOPs that the
work needs (`bench/floors.py`) at the rate of the fastest matrix product that XLA or torch did on that
core in the same minutes, of float32 and of bfloat16 operands.
"""

import argparse
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import random_model
import safetensors
from arguments import some_of
from floors import work_flops
from protocol import Worker
from tables import command, markdown
from workloads import AT_ONCE, SIZES, Work, huggingface_config, one_thread, with_prompts, works

_HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE.parent))
LABELS = {"torch": "HF", "torch16": "HF bf16", "ours": "ours", "narrow": "narrow"}
_NARROW = {"torch16": "torch", "narrow": "ours"}  # engines in bfloat16 -> their script
WORKS = ("sample", "prefill", "score", "grpo", "ragged")
_BFCL = ("simple_python", "multiple", "parallel", "parallel_multiple")  # single turns
OPTIONS = {"bfcl": {"eval_categories": _BFCL, "seed_categories": ()}}
TOLERANCE = 1e-4  # log-probs, nats
GRPO_TOLERANCE = 1e-3  # relative, of the first step's loss and gradient norm
# Of either in bfloat16; torch rounds the activations too.
NARROW_TOLERANCES = {"narrow": 0.2, "torch16": 1.0}
LANES = 2  # completions of a prompt that our engine decodes at a time, on ragged lengths
PRODUCTS = (1024, 2048)  # sides of the matrix products whose rate sets the floor


@dataclasses.dataclass
class Timing:
    """Repetitions of one work by one engine.

    cpu: seconds of each.
    peak: bytes of the process, at most.
    first, last: what the warm-up and the last repetition gave (tokens, or the step's metrics).
    """

    cpu: list[float]
    peak: int
    first: Any
    last: Any

    @property
    def median(self) -> float:
        return statistics.median(self.cpu)

    def __str__(self) -> str:
        return f"{self.median:.3g} ({min(self.cpu):.3g}–{max(self.cpu):.3g})"


@dataclasses.dataclass
class Measured:
    """A work by all engines.

    rates: FLOPs per second of the fastest matrix product beside it, by the operands' type.
    floors: least seconds at these rates.
    """

    work: Work
    timings: dict[str, Timing]
    rates: dict[str, float]
    floors: dict[str, float]


def main() -> None:
    """Measures what was asked for; prints each size's tables when it is done."""
    args = _arguments()
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})  # the workers inherit it
    print(about(core), flush=True)
    try:
        for size in args.sizes:
            with tempfile.TemporaryDirectory() as folder:
                compare_size(size, args, pathlib.Path(folder))
    finally:
        print(f"\nLoad {os.getloadavg()[0]:.1f} at the end.")


def compare_size(size: str, args: argparse.Namespace, folder: pathlib.Path) -> None:
    """Measures all works of one size and prints their tables."""
    if args.model:
        path, shape = args.model, json.loads((args.model / "config.json").read_text())
        with safetensors.safe_open(path / "model.safetensors", "np") as tensors:
            shapes = [tensors.get_slice(name).get_shape() for name in list(tensors.keys())]
        parameters = sum(map(math.prod, shapes))
    else:
        path, shape = folder / "model", huggingface_config(SIZES[size])
        random_model.write(path, shape)
        parameters = random_model.parameters(shape)
    todo = works("model" if args.model else size, args.prompt_tokens)
    if args.benchmark:
        todo = on_prompts(todo, args, folder)
    measured: dict[str, Measured] = {}
    with contextlib.ExitStack() as stack:
        engines = {k: stack.enter_context(Worker(k, _command(k, path), one_thread())) for k in args.engines}
        gap = check_logprobs(engines, todo["score"])
        answers = (worker.ask("describe")["value"].items() for worker in engines.values())
        versions = {name: version for answer in answers for name, version in answer}
        print(
            f"\n**{size}**: {shape['model_type']} of {parameters / 1e6:.4g} M parameters, float32; largest "
            f"difference of log-probs between engines {gap:.1e}; "
            + ", ".join(f"{name} {version}" for name, version in versions.items())
            + (f"; prompts of {args.benchmark}" if args.benchmark else "")
        )
        try:
            for name in args.works:
                measured[name] = measure(name, todo[name], engines, shape, args.repeats)
        finally:  # a late failure does not lose hours of measurements
            _print(measured)


def on_prompts(todo: Mapping[str, Work], args: argparse.Namespace, folder: pathlib.Path) -> dict[str, Work]:
    """The works to be done, on prompts of the benchmark's held-out tasks.

    folder: where their tokens are kept.  Exits if the benchmark has too few of that length.
    """
    from genenv_jax.benchmarks import registry
    from genenv_jax.models.language_model import LanguageModel

    wanted = {"score", *args.works}
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


def _command(name: str, path: pathlib.Path) -> list[str]:
    script, options = (_NARROW[name], ["bfloat16"]) if name in _NARROW else (name, [])
    return [sys.executable, str(_HERE / f"compare_{script}.py"), str(path), *options]


def check_logprobs(engines: Mapping[str, Worker], work: Work) -> float:
    """The largest difference from the first engine's log-probs of a common batch.

    Engines in bfloat16 count only if the first one is one of them.  Exits if one is beyond its tolerance.
    """
    logp = {
        name: np.array(worker.ask("logprobs", work=dataclasses.asdict(work))["value"])
        for name, worker in engines.items()
    }
    first = next(iter(logp))
    gaps = {name: float(np.max(np.abs(x - logp[first]))) for name, x in logp.items()}
    for name, gap in gaps.items():
        tolerance = _tolerance(TOLERANCE, name, first)
        if not gap <= tolerance:  # NaN fails too
            sys.exit(f"log-probs differ by more than {tolerance} from {first}'s: {gaps}")
    return max(gap for name, gap in gaps.items() if name not in _NARROW or first in _NARROW)


def _tolerance(of_float32: float, *engines: str) -> float:
    return max(NARROW_TOLERANCES.get(name, of_float32) for name in engines)


def measure(
    name: str, work: Work, engines: Mapping[str, Worker], shape: Mapping[str, int], repeats: int
) -> Measured:
    """One work by all engines in turn, and the matrix-product rate meanwhile."""
    if name == "ragged":
        ways = ((f"ours, {LANES} lanes a prompt", "ours", LANES), ("ours, fixed batches", "ours", 0),
                ("HF, fixed batches", "torch", 0))  # fmt: skip
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
    answers, rates = {label: [] for label in contenders}, {}
    for i in range(repeats):
        for label, (worker, its_work) in contenders.items():
            answers[label].append(worker.run(its_work))
            _note(f"{name}, {label}: {i + 1}/{repeats} {answers[label][-1]['cpu']:.3f} s")
        for k, worker in engines.items():
            done = [1e9 * worker.ask("gemm", n=n)["value"] for n in PRODUCTS]
            kind = "bfloat16" if k in _NARROW else "float32"
            rates[kind] = max(*done, rates.get(kind, 0.0))
    timings = {
        label: Timing(
            [a["cpu"] for a in runs], max(a["peak"] for a in runs), firsts[label], runs[-1]["value"]
        )
        for label, runs in answers.items()
    }
    if name == "grpo":
        _check_steps(timings)
    elif len({str(t.last) for t in timings.values()}) > 1:
        sys.exit(f"{name}: numbers of tokens differ: { {k: t.last for k, t in timings.items()} }")
    floors = {kind: work_flops(shape, work) / rate for kind, rate in rates.items()}
    return Measured(work, timings, rates, floors)


def _check_steps(timings: Mapping[str, Timing]) -> None:
    """Exits if the engines' first GRPO steps differ in loss or gradient norm."""
    leading, first = next((label, timing.first) for label, timing in timings.items())
    for label, timing in timings.items():
        for key in timing.first:
            difference = abs(timing.first[key] - first[key])
            tolerance = _tolerance(GRPO_TOLERANCE, label, leading)
            # A loss near zero is a difference of large terms: advantages of mean zero times ratios.
            if not difference <= tolerance * max(abs(first[key]), 0.01):
                sys.exit(f"the first GRPO step's {key} differs: {label} {timing.first}, others {first}")


def about(core: int) -> str:
    """Machine, load, commit and command of this run."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    git = ["git", "-C", str(_HERE), "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return (
        f"{names[0] if names else 'unknown'}, {os.cpu_count()} cores, pinned to core {core}; load "
        f"{os.getloadavg()[0]:.1f} before; commit {commit or 'unknown'}; {command()}.  CPU seconds, median "
        "(least–most)."
    )


def _print(measured: Mapping[str, Measured]) -> None:
    timed = {name: each for name, each in measured.items() if name != "ragged"}
    if timed:
        _print_works(timed)
    if "ragged" in measured:
        _print_ragged(measured["ragged"])


def _print_works(measured: Mapping[str, Measured]) -> None:
    engines = next(iter(measured.values())).timings
    ours, theirs = (
        [k for k in names if k in engines] for names in (("ours", "narrow"), ("torch", "torch16"))
    )
    kinds = sorted(next(iter(measured.values())).floors, reverse=True)  # float32 first
    floors = [(own, kind) for own in ours for kind in kinds if own == "narrow" or kind == "float32"]
    columns = ["work"] + [f"{LABELS[k]}, {unit}" for unit in ("s", "GiB") for k in (*theirs, *ours)]
    columns += [f"{LABELS[k]} / {own}" for k in theirs for own in ours]
    columns += [f"{kind} floor, s" for kind in kinds]
    columns += [f"{own} / {kind} floor" for own, kind in floors]
    rows = []
    for name, each in measured.items():
        timings = each.timings
        cells = [_describe(name, each.work)]
        cells += [str(timings[k]) for k in (*theirs, *ours)]
        cells += [f"{timings[k].peak / 2**30:.1f}" for k in (*theirs, *ours)]
        cells += [f"{timings[k].median / timings[own].median:.2f}" for k in theirs for own in ours]
        cells += [f"{each.floors[kind]:.3g}" for kind in kinds]
        cells += [f"{timings[own].median / each.floors[kind]:.2f}" for own, kind in floors]
        rows.append(cells)
    print(f"\n{markdown(columns, rows)}\n")
    for kind in kinds:
        rates = [each.rates[kind] / 1e9 for each in measured.values()]
        print(f"{kind} products beside them ran at {min(rates):.0f} to {max(rates):.0f} GFLOP/s.", flush=True)


def _describe(name: str, work: Work) -> str:
    shortest = int(work.prompt_lengths().min())
    tokens = str(work.prompt) if shortest == work.prompt else f"{shortest}–{work.prompt}"
    if name == "prefill":
        return f"prefill: {work.prompts} prompts × {work.group}, {tokens} tokens and one more"
    return f"{name}: {work.prompts} prompts × {work.group}, {tokens} + {work.new} tokens"


def _print_ragged(measured: Measured) -> None:
    work, timings, lengths = measured.work, measured.timings, measured.work.lengths()
    best = min((t.median for k, t in timings.items() if k.startswith("ours")), default=math.nan)
    rows = [
        [label, str(t), f"{lengths.sum() / t.median:.0f}", f"{t.median / best:.2f}"]
        for label, t in timings.items()
    ]
    print(
        f"\nRagged: {work.prompts} prompts × {work.group}, {work.prompt} tokens and completions of "
        f"{lengths.min()} to {lengths.max()}, {lengths.mean():.1f} on average, limit {work.new}, "
        f"{AT_ONCE} rows at a time; floor {measured.floors['float32']:.3g} s.\n"
    )
    print(markdown(["way", "CPU s", "tokens/s", "it / our best"], rows), flush=True)


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--sizes", type=some_of(list(SIZES)), default=["S"])
    add("--model", type=pathlib.Path, help="a model directory instead of --sizes")
    add("--works", type=some_of(WORKS), default=list(WORKS))
    add("--benchmark", help="whose held-out tasks are the prompts of --model")
    add("--engines", type=some_of(list(LABELS)), default=["torch", "ours"])
    add("--repeats", type=int, default=5)
    add("--prompt_tokens", type=int, help="longest prompts")
    args = parser.parse_args()
    if min(args.repeats, args.prompt_tokens or 1) < 1:
        parser.error("--repeats and --prompt_tokens must be at least 1")
    if args.model and not (args.model / "model.safetensors").is_file():
        parser.error(f"--model={args.model}: expected a directory with model.safetensors")
    if args.model:
        args.sizes = [args.model.resolve().name]
    if args.benchmark and not args.model:
        parser.error("--benchmark is for --model")
    return args


if __name__ == "__main__":
    main()
