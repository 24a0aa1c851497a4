"""Records the expert's games on the real engine, one line a game.

    python -m genenv_jax.benchmarks.alfworld.make_steps --data_dir=... --out=steps.jsonl --workers=2

Not needed for training: without such a file the same steps come from the rules (`steps.by_rules`).  With
it they are what the engine said; the command compares the two, and counts the differences.  About two
seconds a game and worker; a game that takes longer than `--timeout` is recorded as lost.  A second run
goes on where the first one ended.  Use it with --config.benchmark.steps_file=steps.jsonl.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import multiprocessing
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from genenv_jax.benchmarks.alfworld import commands, engine, expert, games, steps
from genenv_jax.benchmarks.alfworld.episode import RunningGame
from genenv_jax.benchmarks.alfworld.world import World

DIFFERENT, TIMEOUT, CRASH = "differs_from_rules", "timeout", "crash"

_Ended = tuple[steps.Recording, bool]


def on_engine(
    game: games.Game,
    planned: steps.Recording,
    open_game: Callable[[games.Game, str], RunningGame] = engine.Engine,
) -> _Ended:
    """Plays what the expert planned by the rules on the engine.

    Returns: the recording, and whether it says the same as the rules, state by state.
    Raises: what the engine does where it cannot open the game.
    """
    running = open_game(game, planned.grammar)
    try:
        moves = []
        for move in planned.moves:
            admissible = running.admissible
            moves.append(steps.Move(admissible, move.action, running.step(move.action)))
        played = dataclasses.replace(
            planned, source=steps.ENGINE, won=running.won, overview=running.overview,
            moves=tuple(moves), reason="" if running.won else "not_won",
        )  # fmt: skip
    finally:
        running.close()
    return played, dataclasses.replace(played, source=planned.source) == planned


def plans(
    found: Sequence[games.Game], grammar: str, name: str, training: Sequence[games.Game]
) -> Iterator[tuple[games.Game, steps.Recording]]:
    """Each game with what the expert does in it, by the rules."""
    likely = expert.likelihood(World(game.problem()) for game in training)
    for game in found:
        world = World(game.problem(), steps.grammar_of(game, grammar))
        yield game, steps.by_rules(game, world, name, likely)


def play_all(
    planned: Sequence[tuple[games.Game, steps.Recording]], workers: int, timeout: float,
    play: Callable[[games.Game, steps.Recording], _Ended] = on_engine,
) -> Iterator[_Ended]:  # fmt: skip
    """Plays games in processes of their own, as they end; none takes longer than `timeout` seconds.

    A game whose process hangs or dies is recorded as lost, with the reason "timeout" or "crash".
    """
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ThreadPoolExecutor(workers) as threads:
        futures = [
            threads.submit(_in_process, context, timeout, play, game, plan)
            for game, plan in planned
        ]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()


def _in_process(context, timeout, play, game, plan) -> _Ended:
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sending, play, game, plan), daemon=True)
    process.start()
    sending.close()
    lost = dataclasses.replace(plan, source=steps.ENGINE, won=False, moves=())
    try:
        if not receiving.poll(timeout):
            return dataclasses.replace(lost, reason=TIMEOUT), True
        value = receiving.recv()
        if isinstance(value, str):
            return dataclasses.replace(lost, reason=f"{CRASH}: {value}"), True
        return value
    except (EOFError, OSError):
        return dataclasses.replace(lost, reason=CRASH), True
    finally:
        process.kill()
        process.join(5)
        receiving.close()


def _send(sending, play, game, plan) -> None:
    try:
        sending.send(play(game, plan))
    except Exception as error:
        sending.send(f"{type(error).__name__}: {error}"[:300])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns 0, or 1 where a game was not won or differs from the rules."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data_dir", default="", help="where json_2.1.1 is")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="the file to write")
    parser.add_argument("--splits", nargs="*", default=[], help="default: all that are there")
    parser.add_argument("--expert", default=expert.EXPLORER, choices=expert.EXPERTS)
    parser.add_argument("--grammar", default="games", choices=("games", *commands.GRAMMARS))
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a game")
    parser.add_argument("--max_games", type=int, default=0, help="of each split; 0: all")
    options = parser.parse_args(arguments)
    if options.workers < 1 or options.timeout <= 0 or options.max_games < 0:
        parser.error(
            "expected --workers of at least 1, --timeout above 0, --max_games of at least 0"
        )
    if not engine.is_installed():
        print(f"ALFWorld's engine is not installed; run `{engine.INSTALL}`", file=sys.stderr)
        return 2
    try:
        directory = games.find_directory(options.data_dir)
        there = games.available(directory)
        loaded = games.load(directory, options.splits or there)
        training = [split for split in games.TRAIN_SPLITS if split in there][:1]
        seeds = [game for part in games.load(directory, training).values() for game in part]
        _repair(options.out)
        recorded = steps.read(options.out) if options.out.is_file() else []
    except (ValueError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 2
    done = {(r.game, r.grammar, r.expert) for r in recorded}
    chosen = [game for part in loaded.values() for game in part[: options.max_games or None]]
    left = [
        game
        for game in chosen
        if (game.id, steps.grammar_of(game, options.grammar), options.expert) not in done
    ]
    print(f"{len(chosen)} games, {len(chosen) - len(left)} recorded already")
    counts: collections.Counter[str] = collections.Counter()
    start = time.perf_counter()
    planned = list(plans(left, options.grammar, options.expert, seeds))
    for recording, agrees in play_all(planned, options.workers, options.timeout):
        steps.write(options.out, [recording])
        counts["won" if recording.won else recording.reason] += 1
        counts["steps"] += len(recording.moves)
        counts[DIFFERENT] += not agrees
        if not recording.won or not agrees:
            print(f"{recording.game}: {recording.reason or DIFFERENT}", flush=True)
    minutes = (time.perf_counter() - start) / 60
    rate = f"{len(left) / minutes:.1f} games a minute" if left else "nothing to do"
    print(json.dumps(dict(counts)), rate)
    return int(counts["won"] < len(left) or counts[DIFFERENT] > 0)


def _repair(path: pathlib.Path) -> None:
    """Drops a last line that was not finished, as a run leaves it that was ended while it wrote."""
    if path.is_file():
        data = path.read_bytes()
        if data and not data.endswith(b"\n"):
            path.write_bytes(data[: data.rfind(b"\n") + 1])


if __name__ == "__main__":
    sys.exit(main())
