"""What the host's side of a run costs as accepted tasks, traces, rollouts and processes become many.

    GENENV_DATA=/data python bench/growth.py
    python bench/growth.py --worlds=dial --sizes=1000,10000 --parts=gate

Tasks of Dial, and requests for the functions of BFCL's tasks, are made up; all else is the package's own
code on a run's own files: the gate (`Verifier`), records, checkpoints, a resume (`Session.open`), the
report, the scorer, and epochs of host work in several processes.  Every accepted task is attempted ten times.
No model.  Each number is of a process of its own, in its CPU seconds; the last column is the exponent between
the two largest sizes: 0 is flat, 1 linear.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import gc
import io
import itertools
import math
import multiprocessing
import os
import pathlib
import platform
import random
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from arguments import numbers, some_of
from memory import peak, reset_peak
from tables import command, markdown

_ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np  # noqa: E402

from genenv_jax.benchmarks import base, registry  # noqa: E402
from genenv_jax.benchmarks.base import Benchmark, Rejection, SeedStatistics, Task  # noqa: E402
from genenv_jax.scoring.verification import VerificationConfig, Verifier  # noqa: E402

WORLDS = ("dial", "bfcl")
PARTS = ("gate", "workdir", "flight", "together")
_GENERATIONS, _ATTEMPTS = 256, 10  # an epoch's, and a task's
_REJECTED = 0.2  # share of the generations

# -- made-up tasks -----------------------------------------------------------------------------------------

_SLOTS = {
    "city": "Oslo Rome Bern Lima Cairo Perth Quito Turin Kyoto Porto Dakar Tunis Malmö Leeds Osaka Davos "
    "Split Basel Hanoi Accra Nantes Tromsø Bergen Zagreb".split(),
    "person": "Ada Bert Cleo Dirk Elsa Finn Gwen Hugo Ines Jonas Kira Liam Mona Nils Olga Paul".split(),
    "month": "January February March April May June July August September October November December".split(),
    "thing": "umbrella kettle lantern rucksack notebook telescope bicycle teapot blanket ladder".split(),
    "meal": "mushroom soup,lentil curry,grilled trout,beetroot salad,apple pie,rye bread".split(
        ","
    ),
}
_REQUESTS = """\
I am planning a trip from {city} to {city} on {n} {month} with {person}. Could you find the cheapest fare?
What will the weather be like in {city} over the next {n} days, in degrees Celsius please?
Please book a table in {city} for {n} people on {n} {month}, with {meal} for {person}.
{person} lent me {n} euros at {n} percent interest. How much do I owe after {n} months?
Order {n} pieces of the {thing} and one {thing} for {person}, to be delivered to {city} by {n} {month}.
How far is it from {city} to {city} by train, and how long would {person} need at {n} kilometres an hour?
Convert {n} Swiss francs into the currency of {city}, and tell {person} what {n} of them would be in {month}.
Remind me on {n} {month} at {n} o'clock that {person} wants the {thing} back.
Find me a recipe for {meal} that serves {n}, without anything that {person} from {city} cannot eat.
Which of {n}, {n} and {n} are prime numbers, and what is their greatest common divisor?""".split(
    "\n"
)
_ENDINGS = """\
And another thing: {person} needs {n} of them before {month}.
If that is not possible, try {city} instead.
Send a short summary of it to {person} in {city}, please.
My budget is {n} euros in all, and I would rather not spend it before {n} {month}.
Afterwards, put the {thing} on the list for {city} as number {n}.""".split("\n")


@dataclasses.dataclass(frozen=True)
class World:
    """A benchmark, and how its accepted tasks are drawn: (draws, id, epoch) -> Task."""

    benchmark: Benchmark
    draw: Callable[[random.Random, str, int], Task]

    def tasks(self, count: int, seed: int = 0) -> Iterator[Task]:
        """Accepted tasks, nearly all of them different, of as many epochs as it takes."""
        draws, each = random.Random(seed), round(_GENERATIONS * (1 - _REJECTED))
        for i in range(count):
            yield self.draw(draws, f"generated-{i // each + 1}-{i % each}-0", i // each)


def make_world(name: str) -> World:
    """The world of that name."""
    return _dial() if name == "dial" else _bfcl()


def _dial() -> World:
    dial = registry.make_benchmark("dial")

    def draw(draws: random.Random, task_id: str, epoch: int) -> Task:
        # Of the depths that do not run out.
        rng = np.random.default_rng(draws.getrandbits(64))
        task = dial.task(dial.random_program(rng, draws.choice((5, 6))), id=task_id, category="")
        return dataclasses.replace(task, origin="generated", generation=epoch)

    return World(dial, draw)


def _bfcl() -> World:
    categories = ("simple_python", "multiple", "parallel")
    bfcl = registry.make_benchmark("bfcl", seed_categories=categories, eval_categories=categories)
    seeds = bfcl.tasks("seed")

    def value(draws: random.Random, name: str) -> str:
        return str(draws.randint(2, 999)) if name == "n" else draws.choice(_SLOTS[name])

    def draw(draws: random.Random, task_id: str, epoch: int) -> Task:
        pieces = (draws.choice(_REQUESTS) + " " + draws.choice(_ENDINGS)).split("{")
        text = pieces[0]
        for piece in pieces[1:]:
            name, _, rest = piece.partition("}")
            text += value(draws, name) + rest
        messages = ({"role": "user", "content": text},)
        seed = draws.choice(seeds)
        return dataclasses.replace(
            seed, id=task_id, messages=messages, origin="generated", generation=epoch
        )

    return World(bfcl, draw)


def _changed(task: Task, draws: random.Random) -> Task:
    """A task with one number of its wording changed, where the wording is free."""
    words = task.messages[-1]["content"].split(" ")
    words[draws.randrange(len(words))] = str(draws.randint(2, 9))
    messages = (*task.messages[:-1], {"role": "user", "content": " ".join(words)})
    return dataclasses.replace(task, messages=messages)


# -- what is measured, each in a process of its own --------------------------------------------------------


def timed(function: Callable[[], Any]) -> float:
    """CPU seconds of a call."""
    begin = time.process_time()
    function()
    return time.process_time() - begin


def gate(name: str, size: int) -> dict[str, float]:
    """One epoch's tasks against `size` accepted ones: an eighth each are copies and near-copies of those."""
    world = make_world(name)
    seeds, held_out = (world.benchmark.tasks(split) for split in ("seed", "eval"))
    verifier = Verifier(world.benchmark, seeds, held_out, VerificationConfig())
    few, copied, before = 500, [], reset_peak()
    for i, task in enumerate(world.tasks(size - few)):
        verifier.admit(task)
        if i % max(1, size // 64) == 0:
            copied.append(task)
    gc.collect()
    memory = peak() - before
    last = list(world.tasks(few, seed=1))
    admit = timed(lambda: [verifier.admit(task) for task in last])
    draws, fresh = random.Random(2), list(world.tasks(_GENERATIONS, seed=2))
    fresh[::8] = [draws.choice(copied) for _ in fresh[::8]]
    fresh[1::8] = [_changed(draws.choice(copied), draws) for _ in fresh[1::8]]
    decide = timed(lambda: [verifier.decide(task) for task in fresh])
    return {
        "gate, ms an epoch": 1e3 * decide,
        "gate, to admit a task, µs": 1e6 * admit / few,
        "gate, memory, MiB": memory / 2**20,
    }


def workdir(name: str, size: int) -> dict[str, float]:
    """The records of `size` accepted tasks, checkpoints, a resume and the report."""
    from genenv_jax.rl.rewards import curriculum_reward
    from genenv_jax.scoring.attempts import Attempt
    from genenv_jax.tasks.generation import Generation, TaskBatch
    from genenv_jax.tasks.metrics import generation_metrics
    from genenv_jax.tasks.simulated import SimulatorTasks
    from genenv_jax.trainers import agent

    world = make_world(name)
    benchmark, seeds = world.benchmark, world.benchmark.tasks("seed")
    source = SimulatorTasks(None, None, None, benchmark, None, None, "", None)
    accepted = round(_GENERATIONS * (1 - _REJECTED))

    def epoch(files: Any, number: int, tasks: Sequence[Task]) -> dict[str, float]:
        """What `Coevolution.aggregate` writes; the epoch's metrics."""
        draws, interaction = random.Random(number), agent.Interaction()
        generations = []
        for i in range(round(len(tasks) / (1 - _REJECTED))):
            seed = seeds[i % len(seeds)]
            about = Generation(i, 0, seed, SeedStatistics(_ATTEMPTS, 4), "")
            if i < len(tasks):
                about.task = task = tasks[i]
                about.text = benchmark.simulator_answer(task)
                right, rate = benchmark.agent_answer(task), draws.betavariate(2, 2)
                scored = [(text, benchmark.score(task, text)) for text in (right, right[:-2])]
                drawn = [scored[draws.random() > rate] for _ in range(_ATTEMPTS)]
                attempts = [Attempt(task, j, (x,), True, y) for j, (x, y) in enumerate(drawn)]
                lengths = np.array([len(text) for text, _ in drawn])
                agent._record(interaction, number - 1, about, 200, lengths, attempts)
                about.p_hat = about.success_rate
                about.r_env = float(curriculum_reward(about.p_hat, 0.5, 2.0))
                about.weight = float(abs(about.p_hat - 0.5) <= 0.1)
            else:
                about.text = benchmark.simulator_answer(seed)
                about.rejection = Rejection(base.DUPLICATE)
            generations.append(about)
        files.tasks.append(g.record(number, benchmark) for g in generations)
        files.d_train.append(interaction.traces)
        files.d_env.append(source.d_env(number - 1, TaskBatch(generations)))
        made["traces"] += len(interaction.traces)
        made["generations"] += len(generations)
        return generation_metrics(generations, benchmark, 0.5, 0.1)

    made: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "run"
        session, tasks = _opened(world, folder), world.tasks(size)
        files = session.files
        files.metrics.write(0, {"eval/in_distribution/sampled/accuracy": 0.2})
        while part := list(itertools.islice(tasks, accepted)):
            session.finished += 1
            files.metrics.write(session.finished, epoch(files, session.finished, part))
            files.timing.write(session.finished, {"seconds/generate": 1.0})
            digests = timed(files.digests)  # of what the epoch has added
        session.save()
        session._stack.close()
        sizes = {path.stem: path.stat().st_size for path in folder.glob("*.jsonl")}
        found = {}
        for function, *about in ((_resume, name, folder), (_report, folder)):
            with _spawned() as alone:
                found |= alone.submit(function, *about).result()
        found["checkpoint, digests, ms"] = 1e3 * digests
        found["tasks.jsonl, bytes a generation"] = sizes["tasks"] / made["generations"]
        found["d_train.jsonl, bytes a trace"] = sizes["d_train"] / made["traces"]
        found["d_env.jsonl, bytes a task"] = sizes["d_env"] / size
        found["records in all, MiB"] = sum(sizes.values()) / 2**20
    return found


def _opened(world: World, folder: pathlib.Path) -> Any:
    """A session with the gate for its only part."""
    from genenv_jax.run.checkpoint import CheckpointConfig
    from genenv_jax.run.session import Session
    from genenv_jax.run.tracking import Trackers, TrackingConfig

    session = Session(folder, 0, 2**31 - 1, 0, 0, CheckpointConfig())
    given = [world.benchmark.tasks(split) for split in ("seed", "eval")]
    session.register("verifier", Verifier(world.benchmark, *given, VerificationConfig()))
    session.open(Trackers(TrackingConfig(trackers=()), folder, {}))
    return session


def _resume(name: str, folder: pathlib.Path) -> dict[str, float]:
    world, sessions = make_world(name), []
    with tempfile.TemporaryDirectory() as scratch:  # what is imported and started at first use
        _opened(world, pathlib.Path(scratch) / "run")._stack.close()
    before = reset_peak()
    taken = timed(lambda: sessions.append(_opened(world, folder)))
    memory = peak() - before
    digests = timed(sessions[0].files.digests)
    sessions[0]._stack.close()
    return {
        "resume, s": taken,
        "resume, memory, MiB": memory / 2**20,
        "checkpoint after a resume, digests, ms": 1e3 * digests,
    }


def _report(folder: pathlib.Path) -> dict[str, float]:
    from genenv_jax.report import __main__ as report

    before = reset_peak()
    with contextlib.redirect_stdout(io.StringIO()):
        taken = timed(lambda: report.main([str(folder)]))
    return {"report, s": taken, "report, memory, MiB": (peak() - before) / 2**20}


def flight(name: str, size: int) -> dict[str, float]:
    """Rollouts scored while `size` of them are in flight, at least 4,096 in all."""
    from genenv_jax.scoring.requests import SCORE
    from genenv_jax.scoring.scorer import Scorer

    world = make_world(name)
    tasks = list(world.tasks(size))
    answers = [list(world.benchmark.agent_answer(task).encode()) for task in tasks]
    with Scorer(world.benchmark, lambda tokens: bytes(tokens).decode()) as scorer:

        def score() -> None:
            batch = scorer.batch()
            for i, (task, tokens) in enumerate(zip(tasks, answers, strict=True)):
                batch.add((i, 0), tokens, SCORE, task)
            batch.collect()

        score()
        rounds = max(1, 4096 // size)
        taken = timed(lambda: [score() for _ in range(rounds)])
    return {"scorer, µs a rollout": 1e6 * taken / (rounds * size)}


def together(count: int, accepted: int) -> dict[str, float]:
    """Epochs of host work in `count` processes, all on this machine, `accepted` tasks each in their gates."""
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    with _spawned(count) as alone:
        members = [alone.submit(_member, count, i, port, accepted) for i in range(count)]
        cpu, memory = zip(*(member.result() for member in members), strict=True)
    return {
        "processes, CPU ms an epoch, the first": 1e3 * cpu[0],
        "processes, CPU ms an epoch, the others": 1e3 * max(cpu[1:], default=math.nan),
        "processes, MiB of the gate in each": max(memory) / 2**20,
    }


def _member(count: int, index: int, port: int, accepted: int) -> tuple[float, int]:
    """CPU seconds of an epoch of one of several processes, and the memory of its gate in bytes."""
    from genenv_jax.parallel import joining, processes
    from genenv_jax.scoring.requests import SCORE, VERIFY
    from genenv_jax.scoring.scorer import Scorer
    from genenv_jax.scoring.verification import PROVEN

    if count > 1:
        joining.initialize(f"localhost:{port}", count, index)
    world = make_world("dial")
    dial, seeds = world.benchmark, world.benchmark.tasks("seed")
    before = reset_peak()
    verifier = Verifier(dial, seeds, dial.tasks("eval"), VerificationConfig())
    verifier.restore(None, world.tasks(accepted))
    memory = peak() - before
    tasks = list(world.tasks(_GENERATIONS, seed=1))
    texts = [list(dial.simulator_answer(task).encode()) for task in tasks]
    answers = [list(dial.agent_answer(task).encode()) for task in tasks]

    def epoch(number: int) -> None:
        batch = scorer.batch()
        for i, tokens in enumerate(texts):
            batch.add((i, 0), tokens, VERIFY, True, seeds[0], f"{number}-{i}", number, PROVEN)
        for _, outcome in batch.collect().values():
            verifier.decide(outcome)
        batch = scorer.batch()
        for i, tokens in enumerate(answers):
            for j in range(_ATTEMPTS):
                batch.add((i, j), tokens, SCORE, tasks[i])
        batch.collect()

    with Scorer(dial, lambda tokens: bytes(tokens).decode()) as scorer:
        epoch(accepted)
        processes.barrier("warm")
        epochs = 3
        taken = timed(lambda: [epoch(accepted + i) for i in range(1, epochs + 1)])
        processes.barrier("measured")
    return taken / epochs, memory


# -- what is made of it ------------------------------------------------------------------------------------

Rows = dict[str, dict[int, float]]  # name -> size -> value


def _spawned(count: int = 1) -> concurrent.futures.ProcessPoolExecutor:
    return concurrent.futures.ProcessPoolExecutor(
        count, multiprocessing.get_context("spawn"), max_tasks_per_child=1
    )


def measure(arguments: argparse.Namespace) -> dict[str, Rows]:
    """The rows by what their columns are."""
    given, tasks = arguments, "accepted tasks"
    jobs = []
    for world in given.worlds:
        jobs += [(tasks, n, f" ({world})", gate, world, n) for n in given.sizes]
        jobs += [(tasks, n, f" ({world})", workdir, world, n) for n in given.sizes]
        jobs += [
            ("rollouts in flight", n, f" ({world})", flight, world, n) for n in given.in_flight
        ]
    jobs += [("processes", n, "", together, n, given.accepted) for n in given.processes]
    found: dict[str, Rows] = {}
    for what, size, world, function, *about in jobs:
        if function.__name__ in given.parts:
            with _spawned() as alone:
                for name, value in alone.submit(function, *about).result().items():
                    found.setdefault(what, {}).setdefault(name + world, {})[size] = value
            print(f"{function.__name__}{world} {size}", file=sys.stderr, flush=True)
    return found


def exponent(row: Mapping[int, float]) -> float:
    """d log value / d log size between the two largest sizes; NaN where there are not two."""
    points = sorted((size, value) for size, value in row.items() if value > 0)[-2:]
    if len(points) < 2:
        return math.nan
    (a, x), (b, y) = points
    return math.log(y / x) / math.log(b / a)


def table(what: str, rows: Rows) -> str:
    """A Markdown table, a column a size."""
    sizes = sorted({size for row in rows.values() for size in row})
    lines = []
    for name, row in rows.items():
        values, power = [row.get(size, math.nan) for size in sizes], exponent(row)
        cells = ["" if math.isnan(x) else f"{x:,.3g}" if x < 1e3 else f"{x:,.0f}" for x in values]
        lines.append([name, *cells, "" if math.isnan(power) else f"{power:.2f}"])
    return markdown([what, *(f"{size:,}" for size in sizes), "exponent"], lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--parts", type=some_of(PARTS), default=list(PARTS))
    add("--worlds", type=some_of(WORLDS), default=list(WORLDS))
    add("--sizes", type=numbers, default=[1_000, 10_000, 100_000], help="accepted tasks, >= 1,000")
    add("--in_flight", type=numbers, default=[64, 256, 1024, 4096])
    add("--processes", type=numbers, default=[1, 2, 4, 8])
    add("--accepted", type=int, default=10_000, help="tasks with --processes")
    arguments = parser.parse_args()
    if min(arguments.sizes) < 1000:
        parser.error(f"--sizes: {min(arguments.sizes)}: expected at least 1,000")
    return arguments


def main() -> None:
    """Measures and prints the tables."""
    found = measure(_arguments())
    python = platform.python_version()
    print(f"{command()}\nPython {python}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for what, rows in found.items():
        print(f"\n{table(what, rows)}")


if __name__ == "__main__":
    main()
