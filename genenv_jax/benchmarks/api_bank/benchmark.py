"""API-Bank (Li et al., EMNLP 2023), levels 1, 2 and 3, as a benchmark.

Each task is one step of a conversation: either the next API call (scored by call match, `scoring`; in
training more strictly, `reward`) or the assistant's next reply (scored by ROUGE-L F1, `rouge`).  Success,
reward and the headline number come from the calls: the official "Accuracy" of API calls, per level.  Nothing
is executed: the official execution rejects 82 of its own 620 gold calls; where it accepts them, it agrees
with the comparison (tests/benchmarks).

The official training files of levels 1 and 2 are no longer published.  So the seeds are the training calls
of level 3, and all three test files are held out.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.api_bank import calls, prompts, scoring, tasks
from genenv_jax.benchmarks.api_bank import generation as generations
from genenv_jax.benchmarks.api_bank.reward import score_call
from genenv_jax.benchmarks.api_bank.tasks import CALL, CALL_PREFIX, SPLITS
from genenv_jax.benchmarks.base import Message, Rejection, Score, Task
from genenv_jax.benchmarks.graded import EXACT, GRADED, REWARDS
from genenv_jax.benchmarks.headers import write_with_tools
from genenv_jax.benchmarks.options import check_choice, check_names
from genenv_jax.benchmarks.records import Published
from genenv_jax.benchmarks.subsets import stable_position
from genenv_jax.benchmarks.tools import ToolBenchmark, as_python, meaning_of
from genenv_jax.benchmarks.wording import letters

_SEED_SHARE = 0.5  # share of seeds in a level named in both splits


@dataclasses.dataclass(kw_only=True, eq=False)
class APIBank(Published, ToolBenchmark):
    """API-Bank tasks, prompts and scoring.

    Args, in addition to those of `Published`:
      seed_splits: splits to train on (`tasks.SPLITS`).
      eval_splits: splits to hold out.  Test data of a level named in both is halved by a stable hash of
        the dialogue or sample, so its calls and replies stay together.
      tool_search: how a tool search's keywords are compared, "exact" or "words" (leniently).  For reward,
        "words" allows one word that the gold search lacks, if the conversation contains it.
      reward: "exact", or "graded": in training, a wrong call earns part of the reward, at most half
        (`graded`).
    """

    name = "api_bank"
    max_generation = generations.MAX_CHARS

    seed_splits: Sequence[str] = ("lv3-api-train",)
    eval_splits: Sequence[str] = ("level-1-api", "level-2-api", "level-3-batch-inf")
    tool_search: str = scoring.EXACT
    reward: str = EXACT

    # Methods of `Benchmark`:
    simulator_messages = staticmethod(prompts.simulator_messages)
    read = staticmethod(generations.read)
    text = staticmethod(prompts.wording)
    aggregate = staticmethod(scoring.official_metrics)

    def __post_init__(self):
        super().__post_init__()
        check_names("seed_splits", self.seed_splits, tuple(SPLITS))
        check_names("eval_splits", self.eval_splits, tuple(SPLITS))
        check_choice("tool_search", self.tool_search, (scoring.EXACT, scoring.WORDS))
        check_choice("reward", self.reward, REWARDS)

    def facts(self) -> dict[str, str]:
        return {
            "data": "AlibabaResearch/DAMO-ConvAI, api-bank: tests and training data of commit 1d76900, "
            "dialogues of commit 483554e",
            "rule": "call match on name and parameters with the official relaxations, not executed; "
            "reward without those that leave a value open",
            "tool_search": self.tool_search,
            "seeds": ", ".join(self.seed_splits),
            "held_out": ", ".join(self.eval_splits),
        }

    def load(self, split: str) -> list[Task]:
        """Loads tasks; seeds are deduplicated (`canonical`) and pass `verify`."""
        chosen = self._belonging(split)
        if split == "eval":
            return chosen
        seeds: dict[str, Task] = {}
        for task in self.sound(chosen, self._belonging("eval")):
            seeds.setdefault(self.canonical(task), task)
        return list(seeds.values())

    def _belonging(self, split: str) -> list[Task]:
        """Tasks of the split's files; levels named in both splits are divided by the hash."""
        names, others = self.seed_splits, self.eval_splits
        if split == "eval":
            names, others = others, names
        shared = {SPLITS[name].pool for name in others}
        found = []
        directory = tasks.find_directory(self.data_dir)
        for task in tasks.load(directory, names, split, self.verify_files):
            pool = SPLITS[task.category].pool
            is_seed = stable_position(f"{pool}:{self.source(task)}") < _SEED_SHARE
            if pool not in shared or is_seed == (split == "seed"):
                found.append(task)
        return found

    def prompt(self, task: Task) -> list[Message]:
        if self._in_template(task):
            return prompts.template_messages(task)
        return prompts.agent_messages(task)

    def _in_template(self, task: Task) -> bool:
        return bool(self.call_form) and task.answer["kind"] == CALL

    def own_form(self, task: Task, answer: str) -> str:
        if not self._in_template(task):
            return answer
        return calls.own_form(answer, prompts.template_tools(task))

    def source(self, task: Task) -> str:
        """The dialogue or sample that the task is a step of."""
        return task.answer.get("sample", task.id)

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        new = task.answer.get("new_tools") if seed is None else task.tools != seed.tools
        tools = task.tools if new else None
        return write_with_tools(tools, prompts.dialogue(task), prompts.reference(task))

    def agent_answer(self, task: Task) -> str:
        if self._in_template(task):
            return prompts.template_answer(task, self.call_form)
        prefix = CALL_PREFIX if task.answer["kind"] == CALL else ""
        return prefix + prompts.reference(task)

    def fault(self, task: Task) -> Rejection | None:
        return generations.fault(task) or super().fault(task)

    def canonical(self, task: Task) -> str:
        spec = task.answer
        called = spec["name"] if spec["kind"] == CALL else ""
        return json.dumps([spec["kind"], letters(prompts.dialogue(task)), called])

    def meanings(self, task: Task) -> list[str]:
        spec = task.answer
        calls = [(spec["name"], spec["parameters"])] if spec["kind"] == CALL else []
        return meaning_of(task.tools, calls)

    def requests(self, task: Task) -> list[tuple[str, list[str]]]:
        spec = task.answer
        return [(self.text(task), [spec["kind"], spec.get("name", "")])]

    def signature(self, task: Task) -> str:
        """See `Benchmark.signature`: the API to call; "" for a reply."""
        return task.answer.get("name", "")

    def difficulty(self, task: Task) -> float:
        """The call's position in the conversation, from 1."""
        return 1.0 + prompts.dialogue(task).count(CALL_PREFIX)

    def grounding(self, task: Task) -> Rejection | str:
        return generations.grounding(task)

    def verdict(self, task: Task, answer: str) -> Score:
        if task.answer["kind"] == CALL:
            lenient = self.tool_search == scoring.WORDS
            graded = self.reward == GRADED and task.origin != "eval"
            return score_call(task, answer, prompts.dialogue(task), lenient, graded)
        return scoring.score_reply(task.answer, answer)

    def official_row(self, task: Task, answers: Sequence[str]) -> tuple[str, dict[str, Any]] | None:
        """A line for the authors' evaluator_by_json.py; their level-3 evaluator reads no such files."""
        split, *place = task.id.split(":")
        if SPLITS[task.category].level == 3 or not answers:
            return None
        file, turn = place
        said = as_python(answers[-1], task.tools) if self.call_form else answers[-1]
        return f"{split}.json", {"file": f"{file}.jsonl", "id": int(turn), "pred": said}

    def read_official(self, row: Mapping[str, Any], tasks: Mapping[str, Task]) -> tuple[str, str] | None:
        file, turn, said = (row.get(name) for name in ("file", "id", "pred"))
        if not isinstance(file, str) or type(turn) is not int or not isinstance(said, str):
            raise ValueError('expected "file", a text, "id", an integer, and "pred", a text')
        place = f":{file.removesuffix('.jsonl')}:{turn}"
        return next(((name, said) for name in tasks if name.endswith(place)), None)
