"""ALFWorld: household chores in TextWorld games.

Two protocols:
  * "step", from the GenEnv paper: see `steps`.
  * "episode", the official one: the agent plays the game on the real engine, 50 steps, success = won.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping

from genenv_jax.benchmarks.alfworld import engine, expert, games, generation, prompts, tasks
from genenv_jax.benchmarks.alfworld.commands import parse
from genenv_jax.benchmarks.alfworld.episode import GameEpisode, RulesGame, RunningGame
from genenv_jax.benchmarks.alfworld.steps import Steps
from genenv_jax.benchmarks.base import Message, Rejection, Score, SeedStatistics, Task
from genenv_jax.benchmarks.options import check_choice, check_integers
from genenv_jax.benchmarks.wording import letters

STEP, EPISODE = "step", "episode"
AUTO, ENGINE, RULES = "auto", "engine", "rules"  # values of `played_on`


@dataclasses.dataclass(kw_only=True, eq=False)
class ALFWorld(Steps):
    """ALFWorld's tasks: single steps, as in `Steps`, and whole games.

    Args, besides those of `Steps`:
      eval_protocol: the kind of held-out tasks, "step" or "episode".
      max_steps: step limit of a held-out episode.
      episodes: train on whole games instead of single steps, both seeds and generated games; see `rooms`.
        An episode is a growing conversation without a list of possible commands.  Seeds are the training
        games that the expert wins within `train_steps`.
      train_steps: step limit of a training episode.
      played_on: "engine", "rules" (our own rules, 100 times as fast), or "auto": the engine if it is
        installed, otherwise our rules with `episodes` and an error without.

    Raises:
      EngineMissing: games need the engine, and it is not installed.

    Attributes:
      isolated: games on the engine run in worker processes with a time limit; all else is cheap and bounded.
    """

    worker_needs = ("files",)  # the engine loads copies of Fast Downward's library

    eval_protocol: str = STEP
    max_steps: int = 50
    episodes: bool = False
    train_steps: int = 20
    played_on: str = AUTO

    def __post_init__(self):
        super().__post_init__()
        check_choice("eval_protocol", self.eval_protocol, (STEP, EPISODE))
        check_choice("played_on", self.played_on, (AUTO, ENGINE, RULES))
        check_integers(1, max_steps=self.max_steps, train_steps=self.train_steps)
        if type(self.episodes) is not bool:
            raise ValueError(f"episodes = {self.episodes!r}: expected True or False")
        self._plays = self.episodes or self.eval_protocol == EPISODE
        on_rules = self.played_on == RULES or (
            self.played_on == AUTO and self.episodes and not engine.is_installed()
        )
        self.isolated = self._plays and not on_rules
        if self.isolated and not engine.is_installed():
            raise engine.EngineMissing(
                "eval_protocol = 'episode' and played_on = 'engine' play games on ALFWorld's engine; "
                f"{engine.INSTALL}"
            )
        # Opens a game; tests replace it.
        opened = RulesGame if on_rules else engine.Engines()
        self.open_game: Callable[[tasks.Game, str], RunningGame] = opened
        self._index: dict[str, tasks.Game] = {}

    def found(self, split: str) -> list[Task]:
        """Whole games if this split is played in episodes, otherwise the expert's steps."""
        if not (self.episodes if split == "seed" else self.eval_protocol == EPISODE):
            return super().found(split)
        if not self.episodes:
            return [game.task() for game in self.games(split)]
        found = (self._with_room(game, split) for game in self.games(split))
        return [task for task in found if task is not None]

    def _with_room(self, game: tasks.Game, split: str) -> Task | None:
        """The game with the room that a simulator is shown; seeds also get the expert's commands.

        Held-out games keep their rooms so that copies of them can be recognised.
        """
        world = game.world(self.grammar)
        room = games.compact(world)
        known = {} if room is None else {"room": room.to_json()}
        if split == "eval":
            return game.task(split, **known)
        solution = games.solve(world, self.likely, self.train_steps)
        if room is None or isinstance(solution, Rejection):
            return None
        return game.task(split, **known, **solution)

    def canonical(self, task: Task) -> str:
        """For a game, its room if known, otherwise its id."""
        if not self.is_interactive(task):
            return super().canonical(task)
        room = games.known_room(task)
        return letters(room.description()) if room else f"game {task.answer['game']}"

    def meanings(self, task: Task) -> list[str]:
        room = games.known_room(task)
        return [room.meaning()] if room else []

    def text(self, task: Task) -> str:
        room = games.known_room(task)
        return room.wording() if room else super().text(task)

    def signature(self, task: Task) -> str:
        return games.signature(task) if "room" in task.answer else super().signature(task)

    def difficulty(self, task: Task) -> float:
        """For a game, the number of the expert's commands."""
        if not self.is_interactive(task):
            return super().difficulty(task)
        if task.answer.get("plan"):
            return float(len(task.answer["plan"]))
        goal, _ = prompts.split_state(task.messages[-1]["content"])
        return 2.0 + 2 * len(generation.asked(goal))

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        if not self.is_interactive(seed):
            return super().simulator_messages(seed, statistics)
        return prompts.room_messages(self.simulator_answer(seed), statistics)

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        if not self.is_interactive(task):
            return super().simulator_answer(task, seed)
        return json.dumps(task.answer["room"])

    def read(self, text: str, seed: Task) -> Task | Rejection:
        if not self.is_interactive(seed):
            return super().read(text, seed)
        grammar = seed.answer.get("grammar") or self._game(seed).played_in(self.grammar)
        return games.read(text, seed, grammar, self.likely, self.train_steps)

    def fault(self, task: Task) -> Rejection | None:
        if not self.is_interactive(task):
            return super().fault(task)
        if "texts" not in task.answer:
            return None  # a game of the data set
        self._game(task)  # ValueError if its texts do not exist
        # As in every benchmark, the reference answer is scored: the plan must win.
        return games.fault(task, self.train_steps) or super(Steps, self).fault(task)

    def is_interactive(self, task: Task) -> bool:
        return isinstance(task.answer, Mapping) and task.answer.get("kind") == "episode"

    def episode(self, task: Task) -> GameEpisode:
        """Raises ValueError for a game that does not exist or cannot be opened, EngineMissing without it."""
        game = self._game(task)
        grammar = game.played_in(self.grammar)
        held_out = not self.episodes or task.origin == "eval"
        return GameEpisode(
            self.open_game(game, grammar),
            game.task_type,
            grammar,
            self.max_steps if held_out else self.train_steps,
            grows=self.episodes,
            show_admissible=self.show_admissible,
        )

    def _game(self, task: Task) -> tasks.Game:
        if "texts" in task.answer:
            return games.written_game(task, self._published(task.answer["texts"]))
        return self._published(task.answer["game"])

    def _published(self, name: str) -> tasks.Game:
        if name not in self._index:
            game = tasks.by_id(self.directory, name)
            if self.verify_files:
                tasks.verify(self.directory, [game])
            self._index[name] = game
        return self._index[name]

    def agent_answer(self, task: Task) -> str:
        if not self.is_interactive(task):
            return super().agent_answer(task)
        return "\n".join(self.agent_answers(task))

    def agent_answers(self, task: Task) -> list[str]:
        if not self.is_interactive(task):
            return super().agent_answers(task)
        plan = task.answer.get("plan")
        if plan is None:
            plan = expert.walkthrough(self._game(task).world(self.grammar), self.likely)
        return [f"Action: {command}" for command in plan]

    def verdict(self, task: Task, answer: str) -> Score:
        """For a game, the lines of the answer are played as commands."""
        if not self.is_interactive(task):
            return super().verdict(task, answer)
        read = parse(answer)
        with contextlib.closing(self.episode(task)) as episode:
            for command in [answer] if isinstance(read, Rejection) else read:
                if (score := episode.step(command)) is not None:
                    return score
            return episode.stop()

    def facts(self) -> dict[str, str]:
        facts = super().facts()
        if self.eval_protocol == EPISODE:
            by = "on the engine" if self.isolated else "by our rules"
            del facts["steps"]
            steps = f"{self.max_steps} steps"
            facts["protocol"] = f"whole games {by}, {steps}, success = won, one attempt"
            if self.episodes:
                facts["admissible commands"] = "not shown"
        if self.episodes:
            facts["training"] = f"whole games of {self.train_steps} steps, conversations that grow"
        if self.isolated:
            facts["engine"] = ", ".join(f"{k} {v}" for k, v in engine.versions().items())
        elif self._plays:
            facts["engine"] = "none: our rules"
        return facts
