"""ALFWorld as single steps, as in the GenEnv paper.

An expert's games are split into (state, action) pairs, and an answer is right if its command is the
expert's.  This needs no engine: `world` has the rules.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from genenv_jax.benchmarks.alfworld import commands, expert, generation, prompts, scoring, tasks
from genenv_jax.benchmarks.base import BAD_TOOLS, Message, Rejection, Score, SeedStatistics, Task
from genenv_jax.benchmarks.options import check_choice, check_names
from genenv_jax.benchmarks.records import Published
from genenv_jax.benchmarks.wording import letters

_GRAMMAR_TEXT = {
    commands.PUT_IN_ON: "'put X in/on Y', the texts of json_2.1.1",
    commands.MOVE_TO: "'move X to Y', the texts of alfworld 0.4",
}


@dataclasses.dataclass(kw_only=True, eq=False)
class Steps(Published):
    """Steps of an expert in ALFWorld's games.

    Args, besides those of `Published`:
      eval_splits: splits to hold out.
      grammar: "games" (the grammar of each game's own texts: "put X in/on Y" in json_2.1.1), "put_in_on"
        or "move_to" (texts and rules of the installed alfworld >= 0.4).
      show_admissible: whether prompts list the possible commands.
    """

    name = tasks.NAME
    max_generation = commands.MAX_TEXT

    eval_splits: Sequence[str] = ("valid_unseen",)
    grammar: str = tasks.OWN_GRAMMAR
    show_admissible: bool = True

    def __post_init__(self):
        super().__post_init__()
        check_choice("grammar", self.grammar, (tasks.OWN_GRAMMAR, *commands.GRAMMARS))
        check_names("eval_splits", self.eval_splits, tasks.EVAL_SPLITS)
        if not self.eval_splits:
            raise ValueError(f"eval_splits = (): expected some of {', '.join(tasks.EVAL_SPLITS)}")
        self._games: dict[str, list[tasks.Game]] = {}

    def load(self, split: str) -> list[Task]:
        """Seeds come from the training games; those that match held-out tasks are left out."""
        held_out = self.found("eval")
        return held_out if split == "eval" else self.sound(self.found("seed"), held_out)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_games": {}}

    def found(self, split: str) -> list[Task]:
        """The expert's steps in the games of "seed" or "eval"."""
        of_games = (game.steps(split, self.likely, self.grammar) for game in self.games(split))
        return [task for steps in of_games for task in steps]

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
                root = directory / tasks.ROOT
                raise FileNotFoundError(f"{root}: no games to be the {split} split")
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
        """The situation alone: a copy of a held-out one is found even if it changes the list of commands."""
        return letters(task.messages[-1]["content"])

    def signature(self, task: Task) -> str:
        """The kind of chore and the next verb."""
        goal, _ = prompts.split_state(task.messages[-1]["content"])
        verb = task.answer.get("action", "").partition(" ")[0]
        return " ".join([*generation.asked(goal), verb])

    def difficulty(self, task: Task) -> float:
        """The number of commands before the situation."""
        _, observations = prompts.split_state(task.messages[-1]["content"])
        return float(f"\n{observations}".count(f"\n{prompts.COMMAND}"))

    def prompt(self, task: Task) -> list[Message]:
        """For steps only; for a whole game, use `episode`."""
        spec = task.answer
        shown = spec.get("admissible", ()) if self.show_admissible else ()
        grammar = spec.get("grammar", commands.PUT_IN_ON)
        return prompts.agent_messages(task.messages[-1]["content"], grammar, shown)

    def agent_answer(self, task: Task) -> str:
        return f"Action: {task.answer['action']}"

    def verdict(self, task: Task, answer: str) -> Score:
        return scoring.step_score(task, answer)

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        grammar = seed.answer["grammar"]
        return prompts.simulator_messages(self.simulator_answer(seed), grammar, statistics)

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        goal, observations = prompts.split_state(task.messages[-1]["content"])
        listed = "\n".join(task.answer["admissible"])
        return prompts.sections_text(goal, observations, listed, task.answer["action"])

    def read(self, text: str, seed: Task) -> Task | Rejection:
        return generation.read(text, seed)

    def fault(self, task: Task) -> Rejection | None:
        """Reasons of `generation.fault`, BAD_TOOLS, WRONG_ANSWER."""
        if rejection := generation.fault(task):
            return rejection
        length = sum(len(message["content"]) for message in self.prompt(task))
        if length > prompts.PROMPT_CHARS:
            return Rejection(BAD_TOOLS, f"a prompt of {length} characters")
        return super().fault(task)

    def aggregate(self, results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
        return scoring.aggregate(results)

    def facts(self) -> dict[str, str]:
        found = self.games("eval")
        counts = Counter(game.split for game in found)
        grammars = sorted({game.played_in(self.grammar) for game in found})
        return {
            "protocol": "expert steps answered one by one (expert: explorer); right is the expert's own "
            "command",
            "grammar": ", ".join(f"{g} ({_GRAMMAR_TEXT[g]})" for g in grammars),
            "games": f"{tasks.ROOT}: "
            + ", ".join(
                f"{counts[split]} of {split} (officially {tasks.OFFICIAL_COUNTS[split]})"
                for split in self.eval_splits
            ),
            "admissible commands": "listed in the prompt" if self.show_admissible else "not shown",
            "steps": "by the rules",
        }
