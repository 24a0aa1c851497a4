"""One game on the real engine: TextWorld's PDDL environment with ALFWorld's names.

The engine is the extra `alfworld` of this package (TextWorld, Fast Downward, numpy, spacy).  Games are
set up as `AlfredTWEnv.init_env` does for evaluation (alfworld/agents/environment/alfred_tw_env.py):
`AlfredDemangler(shuffle=False)`, admissible commands and `won`, no expert.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import tempfile
import threading
from collections.abc import Mapping
from typing import Any

from genenv_jax.benchmarks.alfworld import commands
from genenv_jax.benchmarks.alfworld.tasks import Game
from genenv_jax.benchmarks.alfworld.world import NOTHING_HAPPENS

INSTALL = "run `pip install -e '.[alfworld]'`, or: pip install alfworld textworld"

_GREETING = "-= Welcome to TextWorld, ALFRED! =-"
_TASK = "Your task is to: "
_PLACE = re.compile(r"You arrive at loc \d+\. ")
_MAX_CHARS = 4_000  # longest observation
_DATA = "ALFWORLD_DATA"
_OPENING = threading.Lock()
_UNKNOWN_GOAL = "UNKNOWN GOAL"  # placeholder for the task in alfred.twl2


class EngineMissing(ImportError):
    """The packages `alfworld` and `textworld` are not installed."""


def versions() -> dict[str, str]:
    """Installed versions of the engine's packages; "" for a missing package."""
    found = {}
    for package in ("alfworld", "textworld", "fast-downward-textworld"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = ""
    return found


def is_installed() -> bool:
    """Whether games can be played here; imports nothing."""
    return all(versions().values())


def game_data(game: Game, grammar: str) -> dict[str, Any]:
    """The contents of a game file, with the rules and texts of `grammar`.

    Raises ValueError if neither the file nor the package has `grammar`, EngineMissing without the package.
    """
    data = dict(game.read())
    if grammar == game.grammar:
        return data
    if grammar == commands.PUT_IN_ON:
        raise ValueError(
            f"{game.path} is written in the grammar {game.grammar}; expected grammar='games' or "
            f"{commands.MOVE_TO!r}: the older texts come only with the games of json_2.1.1"
        )
    info = _import("alfworld.info")
    with open(info.ALFRED_PDDL_PATH, encoding="utf-8") as file:
        data["pddl_domain"] = file.read()
    with open(info.ALFRED_TWL2_PATH, encoding="utf-8") as file:
        text = file.read()
    if text.count(_UNKNOWN_GOAL) != 1:
        raise ValueError(f"{info.ALFRED_TWL2_PATH}: expected {_UNKNOWN_GOAL!r} once")
    # Like the script that upgrades old games, keep the task's sentence.
    data["grammar"] = text.replace(_UNKNOWN_GOAL, game.goal)
    return data


class Engines:
    """Opens games, and reuses the environments of closed games, as TextWorld itself does.

    Each environment holds a copy of Fast Downward's library (3 to 5 MB) until the process ends:
    `fast_downward.close_lib` crashes while another game is open.  Pickling leaves idle environments behind.
    """

    def __init__(self) -> None:
        self._idle: list[Any] = []

    def __call__(self, game: Game, grammar: str) -> Engine:
        return Engine(game, grammar, self._idle)

    def __reduce__(self) -> tuple[Any, ...]:
        return Engines, ()


class Engine:
    """One running game in one of `commands.GRAMMARS`; see `episode.RulesGame`.  Not thread-safe.

    `idle` has environments to reuse; closing this game adds its own.  Raises EngineMissing, and ValueError
    naming the file if the engine cannot open the game.
    """

    def __init__(self, game: Game, grammar: str, idle: list[Any] | None = None):
        data = game_data(game, grammar)
        textworld = _import("textworld")
        pddl_env = _import("textworld.envs.pddl").PddlEnv
        demangler = _import("alfworld.agents.environment.alfred_tw_env").AlfredDemangler
        infos = textworld.EnvInfos(won=True, admissible_commands=True)
        self._idle, self._env = idle, None
        try:
            # The translator to Fast Downward's format uses sys.argv and sys.stdout.
            with _OPENING:
                # An environment that fails to open its game is not reused.
                env = idle.pop() if idle else demangler(pddl_env(infos), shuffle=False)
                env.load(data)
                state = env.reset()
        except Exception as error:  # the engine's parsers raise exceptions of all kinds
            raise ValueError(
                f"{game.path}: the engine cannot open it ({type(error).__name__}: {error})"[:500]
            ) from error
        self._env = env
        text = state.feedback.replace(_GREETING, "").strip()
        self.overview, _, goal = (part.strip() for part in text.partition(_TASK))
        self.goal = goal.removesuffix(".")
        self._take(state)

    def _take(self, state: Mapping[str, Any]) -> None:
        self.admissible = tuple(str(command) for command in state["admissible_commands"])
        self.won = bool(state["won"])

    def step(self, command: str) -> str:
        """Executes `command` and returns the game's answer, "Nothing happens." if it is inadmissible.

        "You arrive at loc 3. " is dropped, as in the literature on these games: the number names nothing.
        """
        if command not in self.admissible:
            return NOTHING_HAPPENS  # the engine's state would not change
        state, _, _ = self._env.step(command)
        self._take(state)
        text = _PLACE.sub("", state.feedback, count=1).strip()
        return text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + " …"

    def close(self) -> None:
        """Ends the game and frees its environment for another."""
        env, self._env, self.admissible = self._env, None, ()
        if env is not None and self._idle is not None:
            self._idle.append(env)


def _import(name: str) -> Any:
    known = os.environ.get(_DATA)
    try:
        # If it is unset, the package creates a directory in the user's home and sets it.
        os.environ[_DATA] = known or tempfile.gettempdir()
        return importlib.import_module(name)
    except ImportError as error:
        raise EngineMissing(f"ALFWorld's games need its engine ({error}); {INSTALL}") from error
    finally:
        if known is None:
            os.environ.pop(_DATA, None)
        else:
            os.environ[_DATA] = known
