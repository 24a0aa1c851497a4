"""ALFWorld: household chores in TextWorld games.

Two protocols:
  * "step", from the GenEnv paper: an expert's games are split into (state, action) pairs, and an answer is
    right if its command is the expert's.  This needs no engine: `world` has the rules.
  * "episode", the official one: the agent plays the game on the real engine, 50 steps, success = won.
"""

import dataclasses
import functools
import json
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.alfworld import commands, engine, expert, games, generation, prompts, tasks
from genenv_jax.benchmarks.alfworld.episode import GameEpisode, RulesGame
from genenv_jax.benchmarks.alfworld.scoring import aggregate, step_score
from genenv_jax.benchmarks.base import BAD_TOOLS, Message, Rejection, Score, SeedStatistics, Task
from genenv_jax.benchmarks.options import check_choice, check_integers, check_names
from genenv_jax.benchmarks.records import Published
from genenv_jax.benchmarks.wording import letters

STEP, EPISODE = "step", "episode"
AUTO, ENGINE, RULES = "auto", "engine", "rules"  # values of `played_on`
_GRAMMAR_TEXT = {
    commands.PUT_IN_ON: "'put X in/on Y', the texts of json_2.1.1",
    commands.MOVE_TO: "'move X to Y', the texts of alfworld 0.4",
}


@dataclasses.dataclass(kw_only=True, eq=False)
class ALFWorld(Published):
    """ALFWorld's tasks: single steps of an expert, and whole games.

    Args, besides those of `Published`:
      eval_splits: splits to hold out.
      grammar: "games" (the grammar of each game's own texts: "put X in/on Y" in json_2.1.1), "put_in_on"
        or "move_to" (texts and rules of the installed alfworld >= 0.4).
      show_admissible: whether prompts list the possible commands.
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

    name = tasks.NAME
    max_generation = commands.MAX_TEXT
    worker_needs = ("files",)  # the engine loads copies of Fast Downward's library

    eval_splits: Sequence[str] = ("valid_unseen",)
    grammar: str = tasks.OWN_GRAMMAR
    show_admissible: bool = True
    eval_protocol: str = STEP
    max_steps: int = 50
    episodes: bool = False
    train_steps: int = 20
    played_on: str = AUTO

    def __post_init__(self):
        super().__post_init__()
        check_choice("grammar", self.grammar, (tasks.OWN_GRAMMAR, *commands.GRAMMARS))
        check_names("eval_splits", self.eval_splits, tasks.EVAL_SPLITS)
        if not self.eval_splits:
            raise ValueError(f"eval_splits = (): expected some of {', '.join(tasks.EVAL_SPLITS)}")
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
        self.open_game = RulesGame if on_rules else engine.Engines()
        self._games: dict[str, list[tasks.Game]] = {}
        self._index: dict[str, tasks.Game] = {}

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_games": {}}

    # -- tasks ----------------------------------------------------------------------------------------------

    def load(self, split: str) -> list[Task]:
        """Seeds come from the training games; those that match held-out tasks are left out."""
        held_out = self._found("eval")
        return held_out if split == "eval" else self.sound(self._found("seed"), held_out)

    def _found(self, split: str) -> list[Task]:
        """Whole games if this split is played in episodes, otherwise the expert's steps."""
        if not (self.episodes if split == "seed" else self.eval_protocol == EPISODE):
            steps = (game.steps(split, self.likely, self.grammar) for game in self.games(split))
            return [task for of_game in steps for task in of_game]
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

    @functools.cached_property
    def likely(self) -> expert.Likelihood:
        """Where the expert expects objects; computed from the training games only."""
        return expert.likelihood(game.world() for game in self.games("seed"))

    def games(self, split: str) -> list[tasks.Game]:
        """The games of "seed" or "eval"; read on first use and kept.

        Raises ValueError naming a malformed file, FileNotFoundError if there are no games.
        """
        if split not in self._games:
            directory = self.directory
            if split == "seed":
                found = tasks.training(directory)
            else:
                found = [game for part in self.eval_splits for game in tasks.load(directory, part)]
            if not found:
                raise FileNotFoundError(f"{directory / tasks.ROOT}: no games for the {split} split")
            if self.verify_files:
                tasks.verify(directory, found)
            self._games[split] = found
        return self._games[split]

    @functools.cached_property
    def directory(self) -> pathlib.Path:
        """Where the games are; absolute, so it also holds in a process with another working directory."""
        return tasks.find_directory(self.data_dir).absolute()

    def source(self, task: Task) -> str:
        return task.answer["game"] or task.id

    def canonical(self, task: Task) -> str:
        """The situation alone: a copy of a held-out one is found even if it changes the list of commands.

        For a game, its room if known, otherwise its id.
        """
        if not self.is_interactive(task):
            return letters(task.messages[-1]["content"])
        room = games.known_room(task)
        return letters(room.description()) if room else f"game {task.answer['game']}"

    def meanings(self, task: Task) -> list[str]:
        room = games.known_room(task)
        return [room.meaning()] if room else []

    def text(self, task: Task) -> str:
        room = games.known_room(task)
        return room.wording() if room else super().text(task)

    def signature(self, task: Task) -> str:
        """The kind of chore and the next verb, or for a game with a room see `games.signature`."""
        if "room" in task.answer:
            return games.signature(task)
        goal, _ = prompts.split_state(task.messages[-1]["content"])
        verb = task.answer.get("action", "").partition(" ")[0]
        return " ".join([*generation.asked(goal), verb])

    def difficulty(self, task: Task) -> float:
        """The number of commands before the situation, or for a game that of the expert's commands."""
        goal, observations = prompts.split_state(task.messages[-1]["content"])
        if not self.is_interactive(task):
            return float(f"\n{observations}".count(f"\n{prompts.COMMAND}"))
        return float(len(task.answer.get("plan") or ()) or 2 + 2 * len(generation.asked(goal)))

    # -- the agent ------------------------------------------------------------------------------------------

    def prompt(self, task: Task) -> list[Message]:
        """For steps only; for a whole game, use `episode`."""
        spec = task.answer
        shown = spec.get("admissible", ()) if self.show_admissible else ()
        grammar = spec.get("grammar", commands.PUT_IN_ON)
        return prompts.agent_messages(task.messages[-1]["content"], grammar, shown)

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
        return "\n".join(self.agent_answers(task))

    def agent_answers(self, task: Task) -> list[str]:
        if not self.is_interactive(task):
            plan = [task.answer["action"]]
        elif (plan := task.answer.get("plan")) is None:
            plan = expert.walkthrough(self._game(task).world(self.grammar), self.likely)
        return [f"Action: {command}" for command in plan]

    def verdict(self, task: Task, answer: str) -> Score:
        """For a game, the lines of the answer are played as commands."""
        if not self.is_interactive(task):
            return step_score(task, answer)
        read = commands.parse(answer)
        return self.episode(task).play([answer] if isinstance(read, Rejection) else read)

    # -- the simulator --------------------------------------------------------------------------------------

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        shown = self.simulator_answer(seed)
        if self.is_interactive(seed):
            return prompts.room_messages(shown, statistics)
        return prompts.simulator_messages(shown, seed.answer["grammar"], statistics)

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        if self.is_interactive(task):
            return json.dumps(task.answer["room"])
        goal, observations = prompts.split_state(task.messages[-1]["content"])
        listed = "\n".join(task.answer["admissible"])
        return prompts.sections_text(goal, observations, listed, task.answer["action"])

    def read(self, text: str, seed: Task) -> Task | Rejection:
        if not self.is_interactive(seed):
            return generation.read(text, seed)
        grammar = seed.answer.get("grammar") or self._game(seed).played_in(self.grammar)
        return games.read(text, seed, grammar, self.likely, self.train_steps)

    def fault(self, task: Task) -> Rejection | None:
        """Reasons of `generation.fault`, BAD_TOOLS, WRONG_ANSWER: the plan of a written game must win."""
        if not self.is_interactive(task):
            return generation.fault(task) or _too_long(self.prompt(task)) or super().fault(task)
        return super().fault(task) if "texts" in task.answer else None

    # -- results --------------------------------------------------------------------------------------------

    def aggregate(self, results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
        return aggregate(results)

    def facts(self) -> dict[str, str]:
        found = self.games("eval")
        counts = Counter(game.split for game in found)
        grammars = sorted({game.played_in(self.grammar) for game in found})
        told = (f"{counts[s]} of {s} (officially {tasks.OFFICIAL_COUNTS[s]})" for s in self.eval_splits)
        shown = self.show_admissible
        if self.eval_protocol == EPISODE:
            by = "on the engine" if self.isolated else "by our rules"
            protocol = f"whole games {by}, {self.max_steps} steps, success = won, one attempt"
            shown = shown and not self.episodes
        else:
            protocol = (
                "expert steps answered one by one (expert: explorer); right is the expert's own command"
            )
        facts = {
            "protocol": protocol,
            "grammar": ", ".join(f"{g} ({_GRAMMAR_TEXT[g]})" for g in grammars),
            "games": f"{tasks.ROOT}: {', '.join(told)}",
            "admissible commands": "listed in the prompt" if shown else "not shown",
        }
        if self.eval_protocol == STEP:
            facts["steps"] = "by the rules"
        if self.episodes:
            facts["training"] = f"whole games of {self.train_steps} steps, conversations that grow"
        if self.isolated:
            facts["engine"] = ", ".join(f"{k} {v}" for k, v in engine.versions().items())
        elif self._plays:
            facts["engine"] = "none: our rules"
        return facts


def _too_long(prompt: Sequence[Message]) -> Rejection | None:
    length = sum(len(message["content"]) for message in prompt)
    return Rejection(BAD_TOOLS, f"a prompt of {length} characters") if length > prompts.PROMPT_CHARS else None
