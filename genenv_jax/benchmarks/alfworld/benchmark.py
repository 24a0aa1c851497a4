"""ALFWorld: household chores in TextWorld games.

Two protocols:
  * "step", the GenEnv paper's: an expert's games are decomposed into single (state, action) pairs, and an
    answer is right if its command is the expert's.  Needs no engine.
  * "episode", the official one: the agent plays the game on the real engine, 50 steps, success = won.
Training is on steps of the training games, or with `episodes` on whole games: theirs, and those that the
simulator writes.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.alfworld import (
    commands,
    engine,
    environments,
    expert,
    games,
    metrics,
    pddl,
    prompts,
    rules,
    situations,
    steps,
)
from genenv_jax.benchmarks.alfworld.episode import GameEpisode, RunningGame
from genenv_jax.benchmarks.alfworld.world import World
from genenv_jax.benchmarks.base import (
    BAD_ANSWER,
    BAD_TOOLS,
    UNPARSABLE,
    Message,
    Rejection,
    Score,
    SeedStatistics,
    Task,
)
from genenv_jax.benchmarks.headers import parse_headers
from genenv_jax.benchmarks.options import check_choice, check_integers, check_names
from genenv_jax.benchmarks.records import Published
from genenv_jax.benchmarks.safe_parse import check_text
from genenv_jax.benchmarks.wording import letters

STEP, EPISODE = "step", "episode"
PROTOCOLS = (STEP, EPISODE)
AUTO, ENGINE, RULES = "auto", "engine", "rules"  # what plays games
OWN_GRAMMAR = "games"
INADMISSIBLE = "inadmissible"  # a command that is not possible
OTHER_ACTION = "other_action"  # a possible command that is not the expert's


@dataclasses.dataclass(kw_only=True, eq=False)
class ALFWorld(Published):
    """ALFWorld's tasks, prompts and scoring.



    Args, beside those of `Published`:
      seed_splits: splits to train on; () takes "train", or "valid_train" where that is not there.
      eval_splits: splits to hold out.
      eval_protocol: "step" or "episode".
      grammar: "games" (that of each game's own texts: "put X in/on Y" in json_2.1.1), "put_in_on" or
        "move_to" (texts and rules of the installed alfworld >= 0.4).
      expert: "explorer" or "planner", see `expert`.
      steps_file: a file that `make_steps` wrote, to be used instead of the rules; "" uses the rules.
      show_admissible: whether prompts list the commands that are possible; conversations that grow do not.
      max_steps: of an episode that is held out.
      episodes: seeds and what the simulator writes are whole games rather than single steps, see `rooms`;
        episodes are conversations that grow.  Seeds are the training games that the expert wins in
        `train_steps`.
      train_steps: of an episode that is trained.
      played_on: "engine", "rules" (our own, in a hundredth of the time), or "auto": the engine where it is
        installed; elsewhere our rules with `episodes`, and an error without.
      answer_chars: longest answer of an agent that is read.
      generation_chars: longest generation of a simulator that is read.
      prompt_chars: of the agent's prompt; 4,096 tokens of a Qwen tokeniser hold about 10,500 characters
        of such text, which has many numbers.

    Raises:
      EngineMissing: episodes are asked for and the engine is not installed.

    Attributes:
      isolated: games on the engine run in worker processes with a time limit; the rest is cheap and bounded.
      worker_needs: files, as the engine loads copies of Fast Downward's library.
    """

    name = games.NAME
    worker_needs = ("files",)

    seed_splits: Sequence[str] = ()
    eval_splits: Sequence[str] = ("valid_unseen",)
    eval_protocol: str = STEP
    grammar: str = OWN_GRAMMAR
    expert: str = expert.EXPLORER
    steps_file: str | os.PathLike[str] = ""
    show_admissible: bool = True
    max_steps: int = 50
    episodes: bool = False
    train_steps: int = 20
    played_on: str = AUTO
    answer_chars: int = 16_384
    generation_chars: int = 16_384
    prompt_chars: int = 9_500

    def __post_init__(self):
        super().__post_init__()
        check_choice("eval_protocol", self.eval_protocol, PROTOCOLS)
        check_choice("grammar", self.grammar, (OWN_GRAMMAR, *commands.GRAMMARS))
        check_choice("expert", self.expert, expert.EXPERTS)
        check_names("seed_splits", self.seed_splits, games.TRAIN_SPLITS)
        check_names("eval_splits", self.eval_splits, games.EVAL_SPLITS)
        if not self.eval_splits:
            raise ValueError(f"eval_splits = (): expected some of {', '.join(games.EVAL_SPLITS)}")
        if type(self.episodes) is not bool:
            raise ValueError(f"episodes = {self.episodes!r}: expected True or False")
        check_choice("played_on", self.played_on, (AUTO, ENGINE, RULES))
        check_integers(1, max_steps=self.max_steps, train_steps=self.train_steps)
        check_integers(16, answer_chars=self.answer_chars)
        check_integers(256, generation_chars=self.generation_chars)
        check_integers(6_000, prompt_chars=self.prompt_chars)
        plays = self.episodes or self.eval_protocol == EPISODE
        on_rules = self.played_on == RULES or (
            self.played_on == AUTO and self.episodes and not engine.is_installed()
        )
        self.isolated = plays and not on_rules
        if self.isolated and not engine.is_installed():
            raise engine.EngineMissing(
                "eval_protocol = 'episode' and played_on = 'engine' play games on ALFWorld's engine; run "
                f"`{engine.INSTALL}`, or: pip install alfworld textworld"
            )
        self.splits = {"seed": tuple(self.seed_splits), "eval": tuple(self.eval_splits)}
        # What opens a game; a test puts something else here.
        self.open_game: Callable[[games.Game, str], RunningGame] = (
            rules.RulesGame if on_rules else engine.Engines()
        )
        self._games: dict[str, list[games.Game]] = {}
        self._index: dict[str, games.Game] = {}
        self._likely: expert.Likelihood | None = None

    def __getstate__(self) -> dict[str, Any]:
        file = os.path.abspath(self.steps_file) if self.steps_file else ""
        return super().__getstate__() | {
            "_games": {}, "_index": {}, "_likely": None, "steps_file": file
        }  # fmt: skip

    # -- tasks ------------------------------------------------------------------------------------------

    def load(self, split: str) -> list[Task]:
        """Seeds are the expert's steps of the training games; held out are steps, or whole games."""
        held_out = self._split("eval")
        return held_out if split == "eval" else self.sound(self._split("seed"), held_out)

    def _split(self, split: str) -> list[Task]:
        if self.episodes and (split == "seed" or self.eval_protocol == EPISODE):
            return self._game_tasks(split)
        if split == "eval" and self.eval_protocol == EPISODE:
            return [game.task() for game in self._load("eval")]
        room = self.prompt_chars - prompts.agent_chars(commands.PUT_IN_ON) - _COMMANDS_ROOM
        recordings = self._recordings(split)
        return [task for recording in recordings for task in recording.tasks(split, room)]

    def _game_tasks(self, split: str) -> list[Task]:
        """Whole games, with their expert's commands; of the training games those that it wins in time."""
        held_out, found = split == "eval", []
        for game in self._load(split):
            world = self._world(game)
            room = environments.compact(world)
            solution = None if held_out else self._solve(world)
            # The rooms of held-out games are there so that copies of them are known.
            if held_out or not (room is None or isinstance(solution, Rejection)):
                found.append(environments.game_task(game, split, room, solution))
        return found

    def _world(self, game: games.Game) -> World:
        return World(game.problem(), steps.grammar_of(game, self.grammar))

    def _solve(self, world: World) -> environments.Solution | Rejection:
        if self._likely is None and self.expert == expert.EXPLORER:
            self._likely = self._likelihood()
        return environments.solve(world, self.expert, self._likely, self.train_steps)

    def _recordings(self, split: str) -> list[steps.Recording]:
        found = self._load(split)
        if not self.steps_file:
            likely = self._likelihood() if self.expert == expert.EXPLORER else None
            return steps.record_games(found, self.grammar, self.expert, likely)
        path = pathlib.Path(self.steps_file)
        remedy = (
            "run `python -m genenv_jax.benchmarks.alfworld.make_steps "
            f"--data_dir={self._directory()} --out={path}`, or set config.benchmark.steps_file to '' "
            "for the steps that need no engine"
        )
        if not path.is_file():
            raise FileNotFoundError(f"{path}, with the expert's steps, does not exist; {remedy}")
        kept = {
            (recording.game, recording.grammar): recording
            for recording in steps.read(path)
            if recording.expert == self.expert
        }
        wanted = [(game.id, steps.grammar_of(game, self.grammar)) for game in found]
        missing = [game for game, grammar in wanted if (game, grammar) not in kept]
        if missing:
            raise ValueError(
                f"{path} lacks {len(missing)} of {len(wanted)} games with expert {self.expert!r} and "
                f"grammar {self.grammar!r}, the first {missing[0]}; {remedy}"
            )
        return [kept[key] for key in wanted if kept[key].won]

    def _likelihood(self) -> expert.Likelihood:
        """What the explorer knows about households: from the training games only."""
        return expert.likelihood(World(game.problem()) for game in self._load("seed"))

    def _directory(self) -> pathlib.Path:
        return games.find_directory(self.data_dir)

    def _load(self, split: str) -> list[games.Game]:
        if split not in self._games:
            directory = self._directory()
            names = self.splits[split]
            if split == "seed" and not names:
                there = games.available(directory)
                names = tuple(name for name in games.TRAIN_SPLITS if name in there)[:1]
                if not names:
                    raise FileNotFoundError(
                        f"{directory / games.ROOT} has no training games: expected a directory "
                        f"{' or '.join(games.TRAIN_SPLITS)}"
                    )
            found = [game for part in games.load(directory, names).values() for game in part]
            if not found:
                raise FileNotFoundError(f"{directory / games.ROOT}: no games in {', '.join(names)}")
            if self.verify_files:
                _verify(directory, found)
            self._games[split] = found
        return self._games[split]

    # -- prompts ----------------------------------------------------------------------------------------

    def prompt(self, task: Task) -> list[Message]:
        """Of a game in episodes, use `episode`."""
        spec = task.answer
        return prompts.agent_messages(
            task.messages[-1]["content"],
            spec.get("grammar", commands.PUT_IN_ON),
            spec.get("admissible", ()),
            self.show_admissible and "admissible" in spec,
        )

    def source(self, task: Task) -> str:
        """See `Benchmark.source`: the game."""
        return task.answer["game"] or task.id

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        """See `Benchmark.simulator_messages`."""
        if self.is_interactive(seed):
            return prompts.room_messages(self.simulator_answer(seed), statistics)
        return prompts.simulator_messages(
            self.simulator_answer(seed), seed.answer["grammar"], statistics
        )

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        """See `Benchmark.simulator_answer`: the four sections; of a game its room."""
        if self.is_interactive(task):
            return environments.room_text(task)
        goal, observations = prompts.split_state(task.messages[-1]["content"])
        listed = "\n".join(task.answer["admissible"])
        return prompts.sections_text(goal, observations, listed, task.answer["action"])

    def agent_answer(self, task: Task) -> str:
        """See `Benchmark.agent_answer`; for a game all commands of the reference, one a line."""
        if not self.is_interactive(task):
            return f"Action: {task.answer['action']}"
        return "\n".join(self.agent_answers(task))

    def agent_answers(self, task: Task) -> list[str]:
        """See `Benchmark.agent_answers`: the expert's commands; of a held-out game the planner's."""
        plan = task.answer.get("plan") or expert.walkthrough(
            self._world(self._game(task)), expert.PLANNER
        )
        return [f"Action: {command}" for command in plan]

    # -- the simulator's text ---------------------------------------------------------------------------

    def parse(self, text: str, seed: Task, task_id: str, generation: int) -> Task | Rejection:
        """See `Benchmark.parse`.

        Reasons: EMPTY, NOT_TEXT, TOO_LONG, UNPARSABLE (sections), BAD_TOOLS, BAD_ANSWER.  Of a game those of
        `environments.read_room` and `environments.solve`.
        """
        if self.is_interactive(seed):
            return self._parse_room(text, seed, task_id, generation)
        rejection = check_text(text, self.generation_chars)
        if rejection:
            return rejection
        found = parse_headers(text, prompts.HEADERS)
        if isinstance(found, Rejection):
            return found
        goal, observations, listed, action = found
        goal = goal.removesuffix(".")
        if "\n" in goal:
            return Rejection(UNPARSABLE, "the task has more than one line")
        if observations.strip("`.").lower() == prompts.SAME:
            observations = prompts.split_state(seed.messages[-1]["content"])[1]
        admissible = list(seed.answer["admissible"])
        if listed.strip("`.").lower() != prompts.SAME:
            admissible = situations.command_list(listed)
        action = commands.normalise(action) if "\n" not in action else ""
        if not action:
            return Rejection(BAD_ANSWER, "the action: expected one line")
        return Task(
            id=task_id,
            benchmark=self.name,
            category=seed.category,
            messages=({"role": "user", "content": prompts.state_text(goal, observations)},),
            answer={
                "kind": "step",
                "game": "",
                "split": "",
                "grammar": seed.answer["grammar"],
                "admissible": admissible,
                "action": action,
            },
            seed_id=seed.id,
            origin="generated",
            generation=generation,
        )

    def _parse_room(self, text: str, seed: Task, task_id: str, generation: int) -> Task | Rejection:
        room = environments.read_room(text, self.generation_chars)
        if isinstance(room, Rejection):
            return room
        grammar = seed.answer.get("grammar") or steps.grammar_of(self._game(seed), self.grammar)
        solution = self._solve(World(pddl.parse(room.problem()), grammar))
        if isinstance(solution, Rejection):
            return solution
        return environments.generated_task(room, solution, grammar, seed, task_id, generation)

    def fault(self, task: Task) -> Rejection | None:
        """Reasons of `situations.check`, BAD_TOOLS, WRONG_ANSWER; of a written game `environments.fault`."""
        if self.is_interactive(task):
            if "texts" not in task.answer:
                return None  # of the data set
            self._game(task)  # ValueError where there are no such texts
            return environments.fault(task, self.train_steps) or super().fault(task)
        spec = task.answer
        goal, observations = prompts.split_state(task.messages[-1]["content"])
        rejection = situations.check(
            goal, observations, spec["admissible"], spec["action"], spec["grammar"]
        )
        if rejection:
            return rejection
        length = sum(len(message["content"]) for message in self.prompt(task))
        if length > self.prompt_chars:
            return Rejection(BAD_TOOLS, f"a prompt of {length} characters")
        return super().fault(task)

    def canonical(self, task: Task) -> str:
        """See `Benchmark.canonical`: the situation without case, punctuation and white space.

        The action and the list of commands follow from the situation, so a restated held-out situation
        is found whatever a restatement makes of them.  A game in episodes is its room, or its id.
        """
        room = environments.known_room(task)
        if room is not None:
            return letters(room.description())
        if self.is_interactive(task):
            return f"game {task.answer['game']}"
        return letters(task.messages[-1]["content"])

    def text(self, task: Task) -> str:
        """See `Benchmark.text`: the situation, or what is in the room."""
        room = environments.known_room(task)
        if room is not None:
            return room.wording()
        return task.messages[-1]["content"] if task.messages else ""

    def signature(self, task: Task) -> str:
        """See `Benchmark.signature`: what the chore asks to be done, and a situation's next verb."""
        if environments.has_room(task):
            return environments.signature(task)
        goal, _ = prompts.split_state(self.text(task))
        return " ".join([*situations.chore(goal), task.answer.get("action", "").partition(" ")[0]])

    def difficulty(self, task: Task) -> float:
        """See `Benchmark.difficulty`: commands before a situation; in a game its expert's."""
        if environments.has_room(task) and task.answer.get("plan"):
            return float(len(task.answer["plan"]))
        goal, observations = prompts.split_state(self.text(task))
        if self.is_interactive(task):
            return 2.0 + 2 * len(situations.chore(goal))
        return float(f"\n{observations}".count(f"\n{prompts.COMMAND}"))

    # -- scoring ----------------------------------------------------------------------------------------

    def verdict(self, task: Task, answer: str) -> Score:
        """A step: 1 if every command that the answer gives is the expert's (normalised), else 0.

        Reasons: EMPTY, NOT_TEXT, TOO_LONG, NO_COMMAND (invalid), INADMISSIBLE, OTHER_ACTION.
        A game: the lines of the answer are played as commands, as many as `max_steps`.
        """
        return self._play(task, answer) if self.is_interactive(task) else self._step(task, answer)

    def _step(self, task: Task, answer: str) -> Score:
        spec = task.answer
        read = commands.parse(answer, self.answer_chars)
        if isinstance(read, Rejection):
            return Score(0.0, False, False, read.reason, _detail(1))
        if not all(commands.is_command(command, spec["grammar"]) for command in read):
            return Score(0.0, False, False, commands.NO_COMMAND, _detail(1))
        if all(command == spec["action"] for command in read):
            return Score(1.0, True, True, "", _detail(0))
        if read[-1] not in spec["admissible"]:
            return Score(0.0, False, True, INADMISSIBLE, _detail(1))
        return Score(0.0, False, True, OTHER_ACTION, _detail(0))

    def _play(self, task: Task, answer: str) -> Score:
        read = commands.parse(answer, self.answer_chars)
        if isinstance(read, Rejection):
            return Score(0.0, False, False, read.reason)
        if not any(commands.is_command(c, g) for c in read for g in commands.GRAMMARS):
            return Score(0.0, False, False, commands.NO_COMMAND)
        episode = self.episode(task)
        try:
            for command in read[: self._steps(task)]:
                verdict = episode.step(command)
                if verdict is not None:
                    return verdict
            return episode.stop()
        finally:
            episode.close()

    def aggregate(self, results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
        """See `Benchmark.aggregate` and `metrics.aggregate`."""
        return metrics.aggregate(results)

    # -- episodes ---------------------------------------------------------------------------------------

    def is_interactive(self, task: Task) -> bool:
        """See `Benchmark.is_interactive`."""
        return isinstance(task.answer, Mapping) and task.answer.get("kind") == "episode"

    def episode(self, task: Task) -> GameEpisode:
        """See `Benchmark.episode`.

        Raises:
          ValueError: no such game, or the engine cannot open it.
          EngineMissing: the engine is not installed.
        """
        game = self._game(task)
        grammar = steps.grammar_of(game, self.grammar)
        return GameEpisode(
            self.open_game(game, grammar),
            task_type=game.task_type,
            grammar=grammar,
            max_steps=self._steps(task),
            max_chars=self.prompt_chars,
            answer_chars=self.answer_chars,
            show_admissible=self.show_admissible,
            grows=self.episodes,
        )

    def _steps(self, task: Task) -> int:
        held_out = not self.episodes or task.origin == "eval"
        return self.max_steps if held_out else self.train_steps

    def _game(self, task: Task) -> games.Game:
        if "texts" in task.answer:
            return environments.written_game(task, self._published(task.answer["texts"]))
        return self._published(task.answer["game"])

    def _published(self, name: str) -> games.Game:
        if name not in self._index:
            game = games.by_id(self._directory(), name)
            if self.verify_files:
                _verify(self._directory(), [game])
            self._index[name] = game
        return self._index[name]

    def facts(self) -> dict[str, str]:
        found = self._load("eval")
        grammars = sorted({steps.grammar_of(game, self.grammar) for game in found})
        shown = self.show_admissible and not (self.episodes and self.eval_protocol == EPISODE)
        facts = {
            "protocol": _PROTOCOL_TEXT[self.eval_protocol].format(
                steps=self.max_steps,
                expert=self.expert,
                by="on the engine" if self.isolated else "by our rules",
            ),
            "grammar": ", ".join(f"{g} ({_GRAMMAR_TEXT[g]})" for g in grammars),
            "games": f"{games.ROOT}: "
            + ", ".join(
                f"{sum(game.split == split for game in found)} of {split}"
                f" (officially {games.OFFICIAL_COUNTS[split]})"
                for split in self.splits["eval"]
            ),
            "admissible commands": "listed in the prompt" if shown else "not shown",
        }
        if self.episodes:
            facts["training"] = f"whole games of {self.train_steps} steps, conversations that grow"
        if self.isolated:
            facts["engine"] = ", ".join(f"{k} {v}" for k, v in engine.versions().items())
        elif self.episodes or self.eval_protocol == EPISODE:
            facts["engine"] = "none: our rules"
        if self.eval_protocol == STEP:
            facts["steps"] = f"recorded in {self.steps_file}" if self.steps_file else "by the rules"
        return facts


_COMMANDS_ROOM = (
    3_500  # characters of a prompt for the list of commands; the longest real one has 2,300
)
_PROTOCOL_TEXT = {
    STEP: "expert steps answered one by one (expert: {expert}); right is the expert's own command",
    EPISODE: "whole games {by}, {steps} steps, success = won, one attempt",
}
_GRAMMAR_TEXT = {
    commands.PUT_IN_ON: "'put X in/on Y', the texts of json_2.1.1",
    commands.MOVE_TO: "'move X to Y', the texts of alfworld 0.4",
}


def _detail(inadmissible: int) -> dict[str, int]:
    return {"steps": 1, "inadmissible": inadmissible}


def _verify(directory: pathlib.Path, found: Sequence[games.Game]) -> None:
    table = {source.path for source in data_files.sources(games.NAME)}
    paths = [game.path.relative_to(directory).as_posix() for game in found]
    unknown = [path for path in paths if path not in table]
    if unknown:
        raise ValueError(
            f"{len(unknown)} game files have no checksum here, the first {unknown[0]}; set "
            "config.benchmark.verify_files to False to use them unchecked"
        )
    data_files.verify(games.NAME, directory, paths)
