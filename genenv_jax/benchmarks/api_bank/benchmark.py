"""API-Bank (Li et al., EMNLP 2023), levels 1, 2 and 3, as a benchmark.

Each task is one step of a conversation: either the API call that has to be made next (scored by call
match, `rules`) or what the assistant says next (scored by ROUGE-L F1, `rouge`).  Success, reward and the
headline number are those of the calls: the official "Accuracy" of API calls, of each level.

Why call match, and not the official execution.  The official evaluators run every call on a fresh data
base and compare the result with a stored one.  Fed with its own gold calls, that code accepts 337 of the
399 calls of level 1 (84.5 %), 80 of the 90 of level 2 and 121 of the 131 of level 3 that are no tool
search.  The rest cannot be won: lists in quotes are cut by its regular expression, two-step APIs need a
state that a fresh data base lacks, the data base was edited after the dialogues were written, an API's
parameter was renamed, one check reads a field that does not exist, translation needs a network.  Here
the name and the parameters are compared with the gold call's, under the same relaxations for each
parameter, and every gold call is accepted.  Where the official execution accepts the gold call, both
give the same verdict on the 17,527 changed predictions that the rules were made with (tests/benchmarks),
and on 13,427 of 13,445 random ones made afterwards.  The other 18 add an agenda or a reminder with the
token of another user, which the official check never compares; here it is wrong.

Score and reward part where the official relaxations leave a value open (nearly half of its words may be
made up, some parameters are never compared).  `success` of a held-out task is the official verdict, on
which all metrics rest.  `reward`, and `success` of every other task, from which p̂ and so the simulator's
reward are made, ask for each parameter by its type (`rules.mismatch`, `said`): what training pays for is
learnt, also where it is a gap of the rule, and a curriculum must count what the agent is paid for.  The
metrics `accuracy_executed` say what the official execution makes of the same answers (`executed`), for
comparison with published numbers.

A tool search is officially judged by what a sentence-embedding model finds.  Here its keywords are
compared (`rules.keywords_match`): exactly, after capitals were split into words, or leniently; both
numbers are among the metrics.

The official training files of levels 1 and 2 are not published any more.  Seeds are therefore the
training calls of level 3, and all three test files are held out.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.api_bank import generation as generations
from genenv_jax.benchmarks.api_bank import prompts, records, rules
from genenv_jax.benchmarks.api_bank.calls import Call, read_call
from genenv_jax.benchmarks.api_bank.metrics import official_metrics
from genenv_jax.benchmarks.api_bank.records import CALL, SPLITS
from genenv_jax.benchmarks.api_bank.rouge import rouge_l
from genenv_jax.benchmarks.base import (
    BAD_ANSWER,
    BAD_TOOLS,
    GIVEN_AWAY,
    MALFORMED,
    TOO_LONG,
    UNDECIDED,
    UNPARSABLE,
    Message,
    Rejection,
    Score,
    SeedStatistics,
    Task,
)
from genenv_jax.benchmarks.grounding import judge, leaves
from genenv_jax.benchmarks.options import check_choice, check_integers, check_names, check_shares
from genenv_jax.benchmarks.records import Published
from genenv_jax.benchmarks.safe_parse import check_text
from genenv_jax.benchmarks.subsets import stable_position
from genenv_jax.benchmarks.wording import letters, words

_MAX_REPLY = 1_024  # characters of a generated reference reply: ROUGE-L costs words times words
_LOW_ROUGE = "low_rouge_l"
_SPEAKER = re.compile("^(?:User|AI):", re.MULTILINE)


@dataclasses.dataclass(kw_only=True, eq=False)
class APIBank(Published):
    """API-Bank tasks, prompts and scoring; implements `genenv_jax.benchmarks.base.Benchmark`.

    Args, beside those of `Published`:
      seed_splits: splits to train on (`records.SPLITS`).
      eval_splits: splits to hold out.  Where a level's test data is named in both, it is divided by a
        stable hash of the dialogue or sample, whose calls and replies stay together.
      seed_fraction: share of such data that becomes seeds.
      tool_search: how a tool search's keywords are compared, "exact" or "words".  For reward, "words" admits
        one word that the gold search does not have, and that must be one of the conversation.
      response_success: ROUGE-L F1 from which a reply counts as a success in p̂.  No official number has
        such a threshold; it matters only where replies are trained on.
      answer_chars: longest answer that is read.
      generation_chars: longest generation of the simulator that is read.
      dialogue_chars: longest conversation in a generation.
      prompt_chars: longest agent prompt of a generated task; 4,096 tokens of a Qwen tokeniser hold about
        13,000 characters of such text.
    """

    name = "api_bank"

    seed_splits: Sequence[str] = ("lv3-api-train",)
    eval_splits: Sequence[str] = ("level-1-api", "level-2-api", "level-3-batch-inf")
    seed_fraction: float = 0.5
    tool_search: str = rules.EXACT
    response_success: float = 0.5
    answer_chars: int = 8_192
    generation_chars: int = 16_384
    dialogue_chars: int = 8_192
    prompt_chars: int = 13_000

    def __post_init__(self):
        super().__post_init__()
        check_names("seed_splits", self.seed_splits, tuple(SPLITS))
        check_names("eval_splits", self.eval_splits, tuple(SPLITS))
        check_choice("tool_search", self.tool_search, (rules.EXACT, rules.WORDS))
        check_shares(seed_fraction=self.seed_fraction, response_success=self.response_success)
        sizes = ("answer_chars", "generation_chars", "dialogue_chars", "prompt_chars")
        check_integers(1, 16_384, **{name: getattr(self, name) for name in sizes})
        self.splits = {"seed": tuple(self.seed_splits), "eval": tuple(self.eval_splits)}

    def facts(self) -> dict[str, str]:
        return {
            "data": "AlibabaResearch/DAMO-ConvAI, api-bank: tests and training data of commit 1d76900, "
            "dialogues of commit 483554e",
            "rule": "call match on name and parameters with the official relaxations, not executed; "
            "reward without those that leave a value open",
            "tool_search": self.tool_search,
            "seeds": ", ".join(self.splits["seed"]),
            "held_out": ", ".join(self.splits["eval"]),
        }

    def load(self, split: str) -> list[Task]:
        """Seeds come once each (`canonical`), and pass `verify`."""
        chosen = self._belonging(split)
        if split == "eval":
            return chosen
        seeds: dict[str, Task] = {}
        for task in self.sound(chosen, self._belonging("eval")):
            seeds.setdefault(self.canonical(task), task)
        return list(seeds.values())

    def _belonging(self, split: str) -> list[Task]:
        directory = records.find_directory(self.data_dir)
        loaded = records.load(directory, self.splits[split], split, self.verify_files)
        other = {_pool(name) for name in self.splits["eval" if split == "seed" else "seed"]}
        return [
            task
            for task in loaded
            if _pool(task.category) not in other
            or (
                stable_position(f"{_pool(task.category)}:{task.answer['sample']}")
                < self.seed_fraction
            )
            == (split == "seed")
        ]

    def prompt(self, task: Task) -> list[Message]:
        return prompts.agent_messages(task)

    def source(self, task: Task) -> str:
        """See `Benchmark.source`: the dialogue or sample, of which the calls are steps."""
        return task.answer["sample"]

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        """See `Benchmark.simulator_messages`."""
        return prompts.simulator_messages(seed, statistics)

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        """See `Benchmark.simulator_answer`; a task of the data set keeps its own APIs."""
        new = task.answer.get("new_tools") if seed is None else task.tools != seed.tools
        return generations.write(
            task.tools if new else None, prompts.dialogue(task), prompts.reference(task)
        )

    def agent_answer(self, task: Task) -> str:
        """See `Benchmark.agent_answer`."""
        prefix = prompts.CALL_PREFIX if task.answer["kind"] == CALL else ""
        return prefix + prompts.reference(task)

    def parse(self, text: str, seed: Task, task_id: str, generation: int) -> Task | Rejection:
        """See `Benchmark.parse`.

        Reasons: those of `generations.read`, and BAD_ANSWER.
        """
        read = generations.read(text, self.generation_chars, self.dialogue_chars)
        if isinstance(read, Rejection):
            return read
        tools = seed.tools if read.tools is None else read.tools
        level, kind = seed.answer["level"], seed.answer["kind"]
        spec: dict[str, Any] = {"kind": kind, "level": level, "sample": task_id}
        if kind == CALL:
            call = read_call(read.answer, self.answer_chars)
            if isinstance(call, Rejection):
                return Rejection(BAD_ANSWER, f"{call.reason}: {call.detail}"[:200])
            types = records.known_apis(read.dialogue, tools).get(call.name, {})
            spec |= {
                "name": call.name,
                "parameters": dict(call.arguments),
                "types": types,
                "target": "",
            }
        else:
            spec["text"] = read.answer
        if read.tools is not None:
            spec["new_tools"] = True
        return Task(
            id=task_id,
            benchmark=self.name,
            category=seed.category,
            messages=({"role": "user", "content": read.dialogue},),
            tools=tuple(tools),
            answer=spec,
            seed_id=seed.id,
            origin="generated",
            generation=generation,
        )

    def fault(self, task: Task) -> Rejection | None:
        """Reasons BAD_TOOLS, BAD_ANSWER, WRONG_ANSWER, UNPARSABLE, TOO_LONG.

        The gold call must be of an API that is described, or that a search in the conversation found,
        with parameters of it, none of them empty, and must be accepted itself.  Calls are not executed:
        new APIs have no implementation.
        """
        spec = task.answer
        if spec.get("new_tools"):
            rejection = generations.check_tools(task.tools)
            if rejection:
                return rejection
        if not prompts.dialogue(task).strip():
            return Rejection(UNPARSABLE, "no conversation")
        if spec["kind"] == CALL:
            known = records.known_apis(prompts.dialogue(task), task.tools)
            if spec["name"] not in known:
                return Rejection(BAD_TOOLS, f"{spec['name'][:60]} is not described")
            for name, value in spec["parameters"].items():
                if name not in known[spec["name"]]:
                    return Rejection(BAD_ANSWER, f"{name[:60]} is not a parameter")
                if not value.strip():
                    return Rejection(BAD_ANSWER, f"{name[:60]} is empty")
        elif task.origin == "generated" and len(spec["text"]) > _MAX_REPLY:
            return Rejection(TOO_LONG, f"a reply of {len(spec['text'])} characters")
        size = sum(len(message["content"]) for message in self.prompt(task))
        if size > self.prompt_chars:
            return Rejection(TOO_LONG, f"an agent prompt of {size} characters")
        return super().fault(task)

    def canonical(self, task: Task) -> str:
        """See `Benchmark.canonical`: the conversation without case and punctuation, and the API."""
        spec = task.answer
        called = spec["name"] if spec["kind"] == CALL else ""
        return json.dumps([spec["kind"], letters(prompts.dialogue(task)), called])

    def text(self, task: Task) -> str:
        """See `Benchmark.text`: the conversation without the results of calls, which are boilerplate."""
        lines = prompts.dialogue(task).split("\n")
        return "\n".join(
            line.partition("->")[0] if line.startswith(prompts.CALL_PREFIX) else line
            for line in lines
        )

    def requests(self, task: Task) -> list[tuple[str, list[str]]]:
        """See `Benchmark.requests`: the conversation, and the API."""
        spec = task.answer
        return [(self.text(task), [spec["kind"], spec.get("name", "")])]

    def signature(self, task: Task) -> str:
        """See `Benchmark.signature`: the API to call; "" where words are asked for."""
        return task.answer.get("name", "")

    def difficulty(self, task: Task) -> float:
        """See `Benchmark.difficulty`: which call of the conversation it is, from 1."""
        return 1.0 + prompts.dialogue(task).count(prompts.CALL_PREFIX)

    def grounding(self, task: Task) -> Rejection | str:
        """See `Benchmark.grounding`; a reply's words are its own, and undecided.

        The keywords of a tool search follow from no request; one of them must be in it.
        """
        try:
            return self._grounding(task)
        except MALFORMED:
            return UNDECIDED

    def _grounding(self, task: Task) -> Rejection | str:
        spec, dialogue = task.answer, prompts.dialogue(task)
        if spec["kind"] != CALL:
            return UNDECIDED
        searches = spec["name"] == rules.TOOL_SEARCHER
        values = list(spec["parameters"].values())
        values = [rules.split_capitals(value) for value in values] if searches else values
        turns = self.text(task).split("\n")
        spoken = "\n".join(turn for turn in turns if not turn.startswith(prompts.CALL_PREFIX))
        for turn in turns:
            made = read_call(turn, self.answer_chars)
            if isinstance(made, Call) and not rules.mismatch(made, spec, said=())[0]:
                return Rejection(GIVEN_AWAY, "the call was made before")
        calls = [(spec["name"], spec["parameters"])]
        known = [tool for tool in task.tools if tool["name"] == spec["name"]]
        described = " ".join(map(str, leaves(known)))
        context = _SPEAKER.sub("", dialogue)  # a keyword may be `user`
        return judge(calls, values, spoken, context, described, prompts.year(task))

    def verdict(self, task: Task, answer: str) -> Score:
        """Calls: 1 for a strict match, else 0; replies: ROUGE-L F1, rounded to four digits as officially.

        Success with a call is the official match for a held-out task, else the strict one.  `reason` is the
        official error statistic's name in snake case (or why the text was not read); of a reply below
        `response_success`, "low_rouge_l".  An answer without a readable call is not valid.
        """
        if task.answer["kind"] == CALL:
            return self._score_call(task, answer)
        return self._score_reply(task.answer, answer)

    def _score_call(self, task: Task, answer: str) -> Score:
        spec = task.answer
        call = read_call(answer, self.answer_chars)
        if isinstance(call, Rejection):
            return Score(0.0, False, False, call.reason)
        searched = self.tool_search == rules.WORDS and call.name == rules.TOOL_SEARCHER
        said = frozenset(words(prompts.dialogue(task)) if searched else ())
        strictly, _ = rules.mismatch(call, spec, self.tool_search, said)
        official, _ = rules.mismatch(call, spec, self.tool_search)
        reason = official if task.origin == "eval" else strictly
        detail = {}
        if spec["name"] == rules.TOOL_SEARCHER:
            detail["tool_search_words"] = not rules.mismatch(call, spec, rules.WORDS)[0]
        return Score(float(not strictly), not reason, True, reason, detail)

    def _score_reply(self, spec: Mapping[str, Any], answer: str) -> Score:
        rejection = check_text(answer, self.answer_chars)
        if rejection:
            return Score(0.0, False, False, rejection.reason, {"rouge_l": 0.0})
        if spec["level"] == 3:  # the level-3 evaluator takes the speakers' names away
            value = rouge_l(spec["text"], answer.replace("User:", "").replace("AI:", "").strip())
            measured = value
        else:
            value = rouge_l(spec["text"], answer)
            measured = round(value, 4)
        reward = round(value, 4)
        success = reward >= self.response_success
        return Score(reward, success, True, "" if success else _LOW_ROUGE, {"rouge_l": measured})

    def aggregate(self, results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
        """See `Benchmark.aggregate` and `metrics.official_metrics`."""
        return official_metrics(results)


def _pool(split: str) -> str:
    """Splits of one pool are made of the same dialogues."""
    return f"level-{SPLITS[split].level}{'-train' if SPLITS[split].training else ''}"
