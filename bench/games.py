"""How many ALFWorld games a minute the engine plays, by the number of worker processes.

    pip install -e '.[alfworld]'
    GENENV_DATA=/data python bench/games.py --workers=1,2 --games=40

An expert's commands (found by the rules beforehand) are played through the same worker processes as an
agent's answers in `genenv_jax.evaluate`, with no model in between: what it takes to open games, to step
them and to make the prompts.  Processes are started and the engine is imported before the clock runs.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import time
from collections.abc import Mapping

from arguments import numbers

_ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT))

from genenv_jax.benchmarks.alfworld import expert, games  # noqa: E402
from genenv_jax.benchmarks.alfworld.benchmark import ALFWorld  # noqa: E402
from genenv_jax.benchmarks.alfworld.world import World  # noqa: E402
from genenv_jax.benchmarks.base import Score, Task  # noqa: E402
from genenv_jax.scoring.episodes import Episodes  # noqa: E402
from genenv_jax.scoring.worker import Worker  # noqa: E402


def play(
    episodes: Episodes, tasks: list[Task], commands: Mapping[str, list[str]], at_once: int
) -> list[Score]:
    """Plays every task with its commands, `at_once` games side by side; the scores in their order."""
    waiting, given, scores = list(range(len(tasks)))[::-1], {}, {}
    while len(scores) < len(tasks):
        while waiting and len(given) < at_once:
            i = waiting.pop()
            given[i] = 0
            episodes.advance((i, 0), tasks[i], ())
        for (i, _), state in episodes.collect().items():
            if isinstance(state, Score):
                scores[i] = state
                del given[i]
                continue
            given[i] += 1
            answers = [f"Action: {command}" for command in commands[tasks[i].id][: given[i]]]
            episodes.advance((i, 0), tasks[i], answers)
    return [scores[i] for i in sorted(scores)]


def main() -> None:
    """Plays and prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=numbers, default=[1, 2], help="e.g. 1,2,4")
    parser.add_argument("--games", type=int, default=40, help="of valid_unseen, spread evenly")
    parser.add_argument("--at_once", type=int, default=8, help="games that are open at a time")
    arguments = parser.parse_args()
    benchmark = ALFWorld(eval_protocol="episode")
    everything = list(benchmark.tasks("eval"))
    count = min(arguments.games, len(everything))
    tasks = [everything[i * len(everything) // count] for i in range(count)]
    directory = games.find_directory()
    commands = {
        task.id: list(expert.walkthrough(World(games.by_id(directory, task.id).problem())))
        for task in tasks
    }
    steps = sum(map(len, commands.values()))
    print(f"{count} games, {steps} steps, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores\n")
    print("| workers | seconds | games/minute | steps/s | won |\n|---:|---:|---:|---:|---:|")
    for number in arguments.workers:
        workers = [Worker(benchmark, 120.0) for _ in range(number)]
        for worker in workers:
            worker.start()
        episodes = Episodes(benchmark, workers)
        begin = time.monotonic()
        scores = play(episodes, tasks, commands, arguments.at_once)
        seconds = time.monotonic() - begin
        episodes.close()
        won = sum(score.success for score in scores)
        print(
            f"| {number} | {seconds:.0f} | {60 * count / seconds:.1f} | {steps / seconds:.1f} | "
            f"{won}/{count} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
