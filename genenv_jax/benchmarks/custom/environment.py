"""A text environment with Gymnasium's interface, as a benchmark of episodes.

    observation, info = environment.reset(seed=3)
    observation, reward, terminated, truncated, info = environment.step(text)
    environment.close()  # if it has that method

Any object with these methods will do (https://gymnasium.farama.org/api/env/); the package is not needed.
Observations and actions are texts; an action is an answer of the agent without its thoughts.  A task is what
`reset` is given, {"seed": 3}, and the simulator writes another seed, unless the info of `reset` has

  options   a JSON object with which `reset(seed=0, options=options)` gives this very task.  The simulator
            then writes other options; `reset` raises on those that it does not take.
  solution  actions, one per line, that earn the full reward.  They prove the task.

The rewards of an episode are added up; the sum, within [0, 1], is the agent's reward, and 1 is a success.
Equal arguments and actions must give equal observations and rewards.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks import base, imported
from genenv_jax.benchmarks.base import Benchmark, Episode, Message, Rejection, Score, SeedStatistics, Task
from genenv_jax.benchmarks.lenient import parse_lenient
from genenv_jax.benchmarks.options import check_integers
from genenv_jax.benchmarks.places import place
from genenv_jax.benchmarks.safe_parse import check_text
from genenv_jax.benchmarks.success_record import success_record

_MAX_TEXT = 8_192  # characters of an action or an observation
_MAX_DEPTH = 8  # nesting of options
_MAX_SEED = 2**31
_RULES = """\
You write tasks for an agent that acts in an environment by texts. A task is the {key} that the environment \
starts from. You are shown that of one task, what the agent reads there, and how well it does on tasks like \
it. Write one new task: a variation, not a copy.{rules}

Reply with one JSON object and nothing else: {{"{key}": ...}}"""


@dataclasses.dataclass(kw_only=True, eq=False)
class TextEnvironment(Benchmark):
    """The tasks of an environment; see the module.

    Args, besides those of `Benchmark`:
      env: "module:name" of a class or function that makes the environment, without arguments.  It may have
        `worker_needs`.
      held_out_tasks: tasks that are held out, the seeds from 0.
      train_tasks: tasks for training, the seeds after these.
      max_turns: actions after which an episode ends.
      instruction: the agent's system message; "": none.
      rules: further rules for the simulator; "": none.
    """

    name = "gymnasium"
    episodes = True
    isolated = True

    env: str
    held_out_tasks: int = 64
    train_tasks: int = 256
    max_turns: int = 16
    instruction: str = ""
    rules: str = ""

    def __post_init__(self):
        super().__post_init__()
        counts = {"held_out_tasks": self.held_out_tasks, "train_tasks": self.train_tasks}
        check_integers(1, 2**20, **counts, max_turns=self.max_turns)
        for option in ("instruction", "rules"):
            if not isinstance(value := getattr(self, option), str):
                raise ValueError(f"{option} = {value!r}: expected a text")
        self._make = imported.find_callable("env", self.env, "a class or function that makes an environment")
        self.worker_needs = tuple(getattr(self._make, "worker_needs", ()))

    def load(self, split: str) -> list[Task]:
        held_out = self._data("eval", range(self.held_out_tasks))
        if split == "eval":
            return list(held_out.values())
        first = self.held_out_tasks
        seeds = self._data("seed", range(first, first + self.train_tasks))
        return [task for key, task in seeds.items() if key not in held_out]

    def _data(self, split: str, seeds: Iterable[int]) -> dict[str, Task]:
        """The distinct tasks of some seeds by their canonical form; ValueError names one that is unsound."""
        found: dict[str, Task] = {}
        for seed in seeds:
            where = f"config.benchmark.env = {self.env!r}: reset(seed={seed})"
            try:
                task = self._task({"seed": seed}, f"{split}-{seed}", split)
            except Exception as error:
                raise ValueError(f"{where}: {type(error).__name__}: {error}{place(error)}") from error
            if fault := self.verify(task):
                raise ValueError(f"{where}: {fault.reason}: {fault.detail}")
            found.setdefault(self.canonical(task), task)
        return found

    def open(self, arguments: Mapping[str, Any]) -> tuple[Any, str, Mapping[str, Any]]:
        """A new environment, its first observation and the info; raises what making it and `reset` raise."""
        environment = self._make()
        found = environment.reset(**{"seed": 0, **arguments})
        if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], Mapping):
            raise TypeError(f"reset returned {found!r:.80}: expected (text, info)")
        return environment, _text(found[0]), found[1]

    def _task(self, arguments: Mapping[str, Any], task_id: str, origin: str) -> Task:
        """The task that `reset` makes of its arguments; raises if it makes none."""
        environment, observation, info = self.open(arguments)
        _close(environment)
        if "options" in info:
            options = json.loads(json.dumps(info["options"], allow_nan=False))
            if not isinstance(options, dict):
                raise TypeError(f"options in info: {options!r:.80}: expected an object")
            arguments = {"options": options}
        solution = info.get("solution")
        if solution is not None:
            solution = [solution] if isinstance(solution, str) else list(solution)
            if not solution or any(check_text(one, _MAX_TEXT) or "\n" in one for one in solution):
                raise TypeError(f"solution in info: {solution!r:.80}: expected lines, at least one")
        return Task(
            id=task_id,
            benchmark=self.name,
            category=f"{len(solution)} actions" if solution else "all",
            messages=({"role": "user", "content": observation},),
            answer={"reset": dict(arguments), "solution": solution},
            origin=origin,
        )

    def fault(self, task: Task) -> Rejection | None:
        """See `Benchmark.fault`; a generated task without a solution is not proven."""
        self.episode(task).close()  # raises if `reset` does not give the task again
        if task.answer["solution"]:
            return super().fault(task)
        if task.origin == "generated":
            return Rejection(
                base.WRONG_ANSWER, "no solution in the info of reset: nothing proves it solvable"
            )
        return None

    def canonical(self, task: Task) -> str:
        return json.dumps(task.answer["reset"], sort_keys=True)

    def text(self, task: Task) -> str:
        """What `reset` is given: observations may begin alike."""
        return self.canonical(task)

    def difficulty(self, task: Task) -> float | None:
        """The number of actions in the solution."""
        return float(len(task.answer["solution"])) if task.answer["solution"] else None

    def prompt(self, task: Task) -> list[Message]:
        said = {"role": "system", "content": self.instruction}
        return [*([said] if self.instruction else []), *super().prompt(task)]

    def episode(self, task: Task) -> EnvironmentEpisode:
        return EnvironmentEpisode(self, task)

    def agent_answers(self, task: Task) -> list[str]:
        return list(task.answer["solution"] or ())

    def agent_answer(self, task: Task) -> str:
        return "\n".join(self.agent_answers(task))

    def verdict(self, task: Task, answer: str) -> Score:
        """Plays the lines of `answer`."""
        return self.episode(task).play(answer.split("\n"))

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        (key,) = seed.answer["reset"]
        system = _RULES.format(key=key, rules=self.rules and f" {self.rules}")
        shown = f"The agent reads:\n{seed.messages[-1]['content']}"
        return base.chat(system, f"Task:\n{self.simulator_answer(seed)}", shown, success_record(statistics))

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        return json.dumps(task.answer["reset"], ensure_ascii=False)

    def read(self, text: str, seed: Task) -> Task | Rejection:
        """See `Benchmark.read`: NOT_EXECUTABLE if `reset` raises or returns no text."""
        value = parse_lenient(text, self.max_generation, _MAX_DEPTH)
        if isinstance(value, Rejection):
            return value
        (key,) = seed.answer["reset"]
        given = value[key] if isinstance(value, dict) and value.keys() == {key} else None
        if key == "seed":
            fits, form = type(given) is int and 0 <= given < _MAX_SEED, f"from 0 to {_MAX_SEED - 1}"
        else:
            fits, form = isinstance(given, dict), "an object"
        if not fits:
            return Rejection(base.UNPARSABLE, f"expected an object with {key} alone, {form}")
        try:
            return self._task(value, seed.id, "generated")
        except Exception as error:
            return Rejection(base.NOT_EXECUTABLE, f"{type(error).__name__}: {error}"[:200] + place(error))

    def facts(self) -> dict[str, str]:
        return {"environment": self.env}


class EnvironmentEpisode(Episode):
    """One episode of a task's environment; raises if `reset` does not give the task again."""

    def __init__(self, benchmark: TextEnvironment, task: Task):
        super().__init__(benchmark.agent_messages(task), benchmark.max_turns)
        self._environment, observation, _ = benchmark.open(task.answer["reset"])
        self._return = 0.0
        if observation != task.messages[-1]["content"]:
            self.close()
            raise ValueError(
                f"reset gave {observation!r:.80}: expected the same as before for the same arguments"
            )

    def take(self, answer: str) -> Score | Sequence[Message]:
        """An action is invalid if `step` raises, or does not return a finite reward and a text."""
        if rejection := check_text(answer, _MAX_TEXT):
            return Score(0.0, False, False, rejection.reason)
        try:
            observation, reward, terminated, truncated, _ = self._environment.step(answer.strip())
            self._return += float(reward)
            if not math.isfinite(self._return):
                raise ValueError(f"step's reward is {reward}: expected a finite number")
            ended = bool(terminated or truncated)
            after = [] if ended else [{"role": "user", "content": _text(observation)}]
        except Exception as error:
            said = f"{type(error).__name__}: {error}"[:200] + place(error)
            return Score(0.0, False, False, f"malformed_task_{type(error).__name__.lower()}", {"error": said})
        if ended:
            return self._score("not_solved" if terminated else base.STEP_LIMIT)
        return after

    def stop(self) -> Score:
        return self._score(base.STEP_LIMIT)

    def _score(self, reason: str) -> Score:
        """The score of the rewards so far; reason: used unless it is a success."""
        reward = min(1.0, max(0.0, round(self._return, 6)))
        return Score(reward, reward == 1, True, "" if reward == 1 else reason)

    def close(self) -> None:
        _close(self._environment)


def _close(environment: Any) -> None:
    getattr(environment, "close", lambda: None)()


def _text(observation: Any) -> str:
    if fault := check_text(observation, _MAX_TEXT):
        said = f"{fault.reason} {fault.detail}".strip()
        raise TypeError(f"the observation is {said}: expected a text of at most {_MAX_TEXT:,} characters")
    return observation
