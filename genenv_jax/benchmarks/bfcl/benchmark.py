"""The Berkeley Function Calling Leaderboard (BFCL v3 and v4) as a benchmark.

Tasks that are answered once are delegated to `turns`, whole conversations to `conversations`.  Single turns
are scored by the official AST checker (`ast_checker`) or by whether a call decodes; multi-turn categories by
`multi_turn_rule` (docs/benchmarks.md): "conversation" is the official rule, "turn_state" executes each turn
on its own after the reference calls of the earlier ones (the GenEnv paper's protocol; its comparison is not
published), "turn_static" compares with the reference calls, so it can judge functions that nothing executes.
Both versions of the records use the rules of v4 (bfcl-eval 2026.3.23); only the data and the aggregates of v3
are its own.
"""

import dataclasses
import json
import types
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Episode, Message, Rejection, Score, SeedStatistics, Task
from genenv_jax.benchmarks.bfcl import (
    backends,
    categories,
    conversations,
    episode,
    multi_turn,
    official_files,
    prompts,
    source_calls,
    tasks,
    turns,
)
from genenv_jax.benchmarks.bfcl.conversation_tasks import all_spoken
from genenv_jax.benchmarks.bfcl.metrics import official_metrics
from genenv_jax.benchmarks.bfcl.pairs import PAIRED, joined, paired
from genenv_jax.benchmarks.graded import EXACT, GRADED, REWARDS
from genenv_jax.benchmarks.options import check_choice, check_names, check_shares
from genenv_jax.benchmarks.records import Published
from genenv_jax.benchmarks.subsets import stable_position, stable_subset
from genenv_jax.benchmarks.task import TOOLS
from genenv_jax.benchmarks.tools import ToolBenchmark, as_python
from genenv_jax.benchmarks.wording import letters

_CALLS = (1, 2, 3)  # that prompts ask for; of the parallel seeds' calls, most are two or three


@dataclasses.dataclass(kw_only=True, eq=False)
class BFCL(Published, ToolBenchmark):
    """BFCL tasks, prompts and scoring; a `Benchmark`.

    Args, in addition to those of `Published`:
      version: version of the records, "v3" or "v4".
      multi_turn_rule: how multi-turn categories are scored, see above.  Under "conversation" the seeds
        are turns with the rule "turn_state".
      episodes: use whole conversations as seeds and as generated tasks instead.  Requires the rule
        "conversation", multi-turn seed categories and `shots` 0.
      seed_categories: categories to train on.
      eval_categories: categories to hold out.  A category named in both is split by a stable hash
        (`tasks.split_key`).
      seed_fraction: share of such a category that becomes seeds.  0.75 gives 539 of the 731 turns
        of v4's multi_turn_long_context; the paper trains on 544 base samples.
      pair_functions: pair the seeds; each also has its partner's functions, and the simulator keeps them.
        Its prompts ask for one, two or three calls instead of stating the success rate.  Seeds with three or
        more functions are left out (`pairs.paired`).  A small model's own functions make no sense.
      reward: "exact", or "graded": in training, wrong calls of single turns and under "turn_static" earn
        part of the reward, at most half (`graded`).
    Raises:
      ValueError: an option out of range, or a missing package for a rule that executes calls or for a
        Java or JavaScript category.
    """

    name = "bfcl"
    max_generation = 32_768

    version: str = "v4"
    multi_turn_rule: str = "turn_static"
    seed_categories: Sequence[str] = ("multi_turn_long_context",)
    eval_categories: Sequence[str] = ("multi_turn_long_context",)
    seed_fraction: float = 0.75
    episodes: bool = False
    pair_functions: bool = False
    reward: str = EXACT

    def __post_init__(self):
        super().__post_init__()
        check_choice("multi_turn_rule", self.multi_turn_rule, tuple(categories.MULTI_TURN_RULES))
        check_names("seed_categories", self.seed_categories, categories.names(self.version))
        check_names("eval_categories", self.eval_categories, categories.names(self.version))
        check_shares(seed_fraction=self.seed_fraction)
        check_choice("reward", self.reward, REWARDS)
        rule = categories.MULTI_TURN_RULES[self.multi_turn_rule]
        if self.episodes:
            if rule != categories.CONVERSATION:
                given = f"episodes = True, multi_turn_rule = {self.multi_turn_rule!r}"
                raise ValueError(f"{given}: expected 'conversation'")
            check_names("seed_categories, with episodes", self.seed_categories, categories.MULTI_TURN)
            if self.shots:
                raise ValueError(f"shots = {self.shots}: expected 0 with episodes, which have none")
        in_turns = rule == categories.CONVERSATION and not self.episodes
        self._rules = {"seed": categories.TURN_STATE if in_turns else rule, "eval": rule}
        trains_on_turns = all(name in categories.MULTI_TURN for name in self.seed_categories)
        if self.reward == GRADED and trains_on_turns and rule != categories.STATIC_MATCH:
            raise ValueError("reward = 'graded': expected seeds whose calls are not executed")
        fixed = [name for name in self.seed_categories if not categories.can_vary(name)]
        if self.pair_functions and fixed:
            expected = "expected seed categories of single turns with calls in Python"
            raise ValueError(f"pair_functions = True: {expected}, got {', '.join(fixed)}")
        used = {*self.seed_categories, *self.eval_categories}
        self._executes = rule != categories.STATIC_MATCH and not used.isdisjoint(categories.MULTI_TURN)
        if self._executes:
            backends.require()
        reads_source = any(categories.language_of(name) != "python" for name in used)
        if reads_source:
            source_calls.require()
        # The classes and grammars are third-party code: run it in worker processes with a time limit.
        self.isolated = self._executes or reads_source
        self.categories = {"seed": tuple(self.seed_categories), "eval": tuple(self.eval_categories)}
        self._held_out_requests: frozenset[str] | None = None

    def load(self, split: str) -> list[Task]:
        """Loads tasks; held-out tasks are kept even if their reference is contradictory."""
        held_out = self._load("eval")
        if split == "eval":
            return held_out
        self._held_out_requests = _conversation_requests(held_out)
        seeds = self.sound(self._load("seed"), held_out)
        # `max_seeds` is applied first, so that it parts no pair.
        return paired(stable_subset(seeds, self.max_seeds)) if self.pair_functions else seeds

    def _load(self, split: str) -> list[Task]:
        loaded = tasks.load(
            self.version, self.categories[split], self.data_dir, split, self._rules[split], self.verify_files
        )
        shared = set(self.categories["eval" if split == "seed" else "seed"])
        if shared & {*categories.MULTI_TURN}:
            shared |= {*categories.MULTI_TURN}

        def is_on_this_side(task: Task) -> bool:
            position = stable_position(self.source(task))
            return (position < self.seed_fraction) == (split == "seed")

        return [t for t in loaded if t.category not in shared or is_on_this_side(t)]

    def _of(self, task: Task) -> types.ModuleType:
        return conversations if self.is_interactive(task) else turns

    def prompt(self, task: Task) -> list[Message]:
        shown = self.call_form and prompts.template_messages(task, self.call_form)
        return shown or prompts.agent_messages(task)

    def _form(self, task: Task) -> str:
        """`call_form` if the chat template shows the task's functions, else ""."""
        shown = self.call_form and self.prompt(task)[0]["role"] == TOOLS
        return self.call_form if shown else ""

    def own_form(self, task: Task, answer: str) -> str:
        """Calls to execute become `[f(x=1)]`; `verdict` reads others itself."""
        executed = self.call_form and task.answer["rule"] == categories.TURN_STATE
        return as_python(answer, task.tools) if executed else answer

    def source(self, task: Task) -> str:
        return task.answer.get(PAIRED) or tasks.split_key(task.id)

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        return self._of(seed).simulator_messages(seed, statistics)

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        same = task.answer["same_tools"] if seed is None else task.tools == seed.tools
        return self._of(task).write(task, same)

    def agent_answer(self, task: Task) -> str:
        answer = self._of(task).agent_answer(task)
        form = "" if self.is_interactive(task) else self._form(task)
        return turns.in_form(task, answer, form) if form else answer

    def agent_answers(self, task: Task) -> list[str]:
        if self.is_interactive(task):
            answers, form = episode.reference_answers(task.answer), self._form(task)
            return [prompts.in_form(said, form) for said in answers] if form else answers
        return super().agent_answers(task)

    def read(self, text: str, seed: Task) -> Task | Rejection:
        return self._of(seed).read(text, seed)

    def fault(self, task: Task) -> Rejection | None:
        """Reasons: those of `turns.fault` and `soundness.fault`, WRONG_ANSWER, CONTAMINATED.

        A request of a held-out conversation must not be repeated, which `canonical` cannot detect: it differs
        between a conversation and a turn.
        """
        whole = self.is_interactive(task)
        if (task.origin == "generated" or not whole) and self._is_held_out_request(task):
            return Rejection(base.CONTAMINATED, "a request of a held-out conversation")
        if rejection := self._of(task).fault(task):
            return rejection
        if self.episodes and whole:
            score = self.episode(task).play(self.agent_answers(task))
            return Rejection(base.WRONG_ANSWER, score.reason) if score.reward < 1.0 else None
        return super().fault(task)

    def _is_held_out_request(self, task: Task) -> bool:
        if self._rules["eval"] != categories.CONVERSATION or task.origin == "eval":
            return False
        if self._held_out_requests is None:
            self._held_out_requests = _conversation_requests(self._load("eval"))
        whole = self.is_interactive(task)
        asked = all_spoken(task.answer["turns"]) if whole else [self.text(task)]
        return any(letters(request) in self._held_out_requests for request in asked)

    def canonical(self, task: Task) -> str:
        """The request (of a conversation, all) as `letters`, and the names of the functions to call.

        Argument values are left out: BFCL accepts several for most parameters, and a restated evaluation
        task must be detected whichever it uses.  So are the other functions of a single turn: BFCL has the
        same request in several categories, beside other functions.
        """
        tools = [] if task.answer["rule"] == categories.AST else sorted(tool["name"] for tool in task.tools)
        called = sorted(task.answer.get("functions") or self._calls(task))
        return json.dumps([letters(self.text(task)), tools, called], ensure_ascii=False)

    def meanings(self, task: Task) -> list[str]:
        return self._of(task).meanings(task)

    def text(self, task: Task) -> str:
        return self._of(task).text(task)

    def requests(self, task: Task) -> list[tuple[str, list[str]]]:
        return self._of(task).requests(task)

    def signature(self, task: Task) -> str:
        """The sorted names of the functions to call; turn by turn for conversations, if `episodes` is set."""
        if self.episodes and self.is_interactive(task):
            return " | ".join(" ".join(names) for _, names in self.requests(task))
        return " ".join(sorted(self._calls(task)))

    def skills(self, task: Task) -> Collection[str]:
        return set(self._calls(task))

    def difficulty(self, task: Task) -> float:
        return float(len(self._calls(task)))

    def askable(self, seed: Task) -> Sequence[int]:
        return _CALLS if PAIRED in seed.answer else ()

    def joined(self, one: Task, other: Task) -> Task | None:
        return joined(one, other)

    def _calls(self, task: Task) -> list[str]:
        return [name for _, names in self.requests(task) for name in names]

    def grounding(self, task: Task) -> Rejection | str:
        return self._of(task).grounding(task)

    def verdict(self, task: Task, answer: str) -> Score:
        """`turns.score`; `score_transcript` for a conversation in the form of the official result files."""
        if self.is_interactive(task):
            return multi_turn.score_transcript(task, answer)
        graded = self.reward == GRADED and task.origin != "eval"
        return turns.score(task, answer, bool(self.call_form), graded)

    def is_interactive(self, task: Task) -> bool:
        return task.answer["rule"] == categories.CONVERSATION

    def episode(self, task: Task) -> Episode:
        kind = episode.GrowingEpisode if self.episodes else episode.ShortenedEpisode
        return kind(task, self._form(task))

    def official_row(self, task: Task, answers: Sequence[str]) -> tuple[str, dict[str, Any]] | None:
        if task.answer["rule"] not in (categories.AST, categories.CONVERSATION):
            return None
        result = official_files.result_of(task, answers, bool(self._form(task)))
        file = official_files.file_of(self.version, task.category)
        return file, {"id": task.id, "result": result}

    def read_official(self, row: Mapping[str, Any], tasks: Mapping[str, Task]) -> tuple[str, str] | None:
        if not isinstance(row.get("id"), str) or "result" not in row:
            raise ValueError('expected "id", a text, and "result"')
        task = tasks.get(row["id"])
        return task and (task.id, official_files.answer_of(task, row["result"]))

    def facts(self) -> dict[str, str]:
        facts = {
            "bfcl_version": self.version,
            "bfcl_single_turn_rule": "official AST checker of v4",
            "bfcl_multi_turn_rule": self.multi_turn_rule,
            **({"bfcl_episodes": episode.ABOUT} if self.episodes else {}),
            "bfcl_overall": "memory and web_search (agentic) are not run and count 0",
        }
        if self._executes:
            facts["bfcl_eval_version"] = backends.package_version()
            if self.version == "v3":
                facts["bfcl_v3_classes"] = (
                    "v3 conversations run on the classes of the installed package; in those of 2026.3.23 "
                    "48 of the 800 call functions that have other names there"
                )
        return facts

    def aggregate(self, results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
        by_category: dict[str, list[float]] = defaultdict(list)
        for task, score in results:
            rule = task.answer["rule"]
            alone = rule in (categories.STATIC_MATCH, categories.TURN_STATE)
            name = f"{task.category}_{rule}" if alone else task.category
            by_category[name].append(float(score.success))
        return official_metrics(self.version, by_category)


def _conversation_requests(held_out: Sequence[Task]) -> frozenset[str]:
    """The requests of whole conversations, as `letters`."""
    whole = [task.answer["turns"] for task in held_out if task.answer["rule"] == categories.CONVERSATION]
    return frozenset(letters(request) for of in whole for request in all_spoken(of))
