"""How fast answers are scored, and how long a hostile one can take.

    GENENV_DATA=/data python bench/scoring.py
    python bench/scoring.py --names=bfcl:official,travelplanner --tasks=500

For each configuration in configs/: verdicts a second on reference answers and on
answers to other tasks, one thread, CPU time; and the slowest single verdict on texts that were written to
be slow (`score` for an answer, `parse` and `verify` for a generation).  Episodes are scored by their
steps.  No model and no JAX.
"""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import platform
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from arguments import some_of

_ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT))

from bench.bad_answers.common import HOSTILE  # noqa: E402
from genenv_jax.benchmarks import registry  # noqa: E402
from genenv_jax.benchmarks.base import Benchmark, Score, Task  # noqa: E402

NAMES = (
    "alfworld",
    "api_bank",
    "bamboogle",
    "bamboogle:search",
    "bfcl",
    "bfcl:official",
    "quickstart",
    "travelplanner",
)


def make_benchmark(name: str) -> Benchmark:
    """The benchmark with the settings of the configuration file "<file>" or "<file>:<argument>"."""
    name, _, argument = name.partition(":")
    path = _ROOT / "configs" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"config_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    options = module.get_config(argument).benchmark.to_dict()
    return registry.make_benchmark(options.pop("name"), **options)


def hostile_texts(benchmark: Benchmark, task: Task) -> Iterator[tuple[str, str]]:
    """Texts that are slow to read for one reason or another, those of the benchmark's own form too."""
    yield from HOSTILE.items()
    for kind, own in (
        ("answer", benchmark.agent_answer(task)),
        ("generation", benchmark.simulator_answer(task)),
    ):
        half = len(own) // 2
        yield f"the {kind}, a thousand times", own * 1000
        yield f"the {kind}, on a hundred lines", "\n".join([own] * 100)
        yield f"the {kind}, with brackets inside", own[:half] + "[({" * 5000 + own[half:]
        yield f"the {kind}, with quotes inside", own[:half] + "'\"" * 5000 + own[half:]
        yield f"the {kind}, with spaces inside", own[:half] + " " * 16_000 + own[half:]
        yield f"the {kind}, with tags inside", own[:half] + "<answer>" * 2000 + own[half:]
        for character in "ax0[{('\",:;=<>|\\ \n.-*":
            yield f"the {kind} after {character!r} x 15,000", character * 15_000 + own
            yield f"the {kind} before {character!r} x 15,000", own + character * 15_000


def seconds(function: Callable[..., Any], *arguments: Any) -> float:
    """CPU seconds of a call."""
    begin = time.process_time()
    function(*arguments)
    return time.process_time() - begin


def play(benchmark: Benchmark, task: Task, text: str) -> float:
    """CPU seconds of one step of an episode."""
    episode = benchmark.episode(task)
    taken = seconds(episode.step, text)
    episode.close()
    return taken


def measure(benchmark: Benchmark, count: int, hostile_tasks: int) -> dict[str, Any]:
    """The numbers of one benchmark."""
    rng = random.Random(0)
    tasks = [*benchmark.tasks("eval"), *benchmark.tasks("seed")]
    tasks = rng.sample(tasks, min(count, len(tasks)))
    plain = [task for task in tasks if not benchmark.is_interactive(task)]
    answers = [benchmark.agent_answer(task) for task in plain]
    others = rng.sample(answers, len(answers))
    for task, answer in zip(plain[:5], answers, strict=False):  # what is read on first use
        benchmark.score(task, answer)

    def verdicts(texts: list[str]) -> list[Score]:
        return [benchmark.score(task, text) for task, text in zip(plain, texts, strict=True)]

    right, wrong = seconds(verdicts, answers), seconds(verdicts, others)
    slowest, reason = 0.0, ""
    for task in rng.sample(tasks, min(hostile_tasks, len(tasks))):
        for what, text in hostile_texts(benchmark, task):
            if benchmark.is_interactive(task):
                taken = play(benchmark, task, text)
            else:
                taken = seconds(benchmark.score, task, text)
            slowest, reason = max((slowest, reason), (taken, f"score: {what}"))
            begin = time.process_time()
            parsed = benchmark.parse(text, task, "hostile", 0)
            if isinstance(parsed, Task):
                benchmark.verify(parsed)
            taken = time.process_time() - begin
            slowest, reason = max((slowest, reason), (taken, f"parse and verify: {what}"))
    return {
        "verdicts": len(plain),
        "right": len(plain) / right if right else float("nan"),
        "wrong": len(plain) / wrong if wrong else float("nan"),
        "slowest": slowest,
        "reason": reason,
    }


def main() -> None:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", type=some_of(NAMES), default=list(NAMES))
    parser.add_argument("--tasks", type=int, default=1000, help="at most so many of each benchmark")
    parser.add_argument("--hostile_tasks", type=int, default=3, help="tasks that get hostile texts")
    arguments = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.processor() or platform.machine()}\n")
    print("| configuration | tasks | verdicts/s, reference | verdicts/s, other | slowest | on |")
    print("|---|---:|---:|---:|---:|---|")
    for name in arguments.names:
        try:
            found = measure(make_benchmark(name), arguments.tasks, arguments.hostile_tasks)
        except (FileNotFoundError, ValueError) as error:
            print(f"| {name} | not measured: {error} | | | | |")
            continue
        print(
            f"| {name} | {found['verdicts']} | {found['right']:,.0f} | {found['wrong']:,.0f} | "
            f"{found['slowest'] * 1000:.0f} ms | {found['reason']} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
