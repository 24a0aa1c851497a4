"""The Berkeley Function Calling Leaderboard (BFCL v3 and v4) as a benchmark.

Which rule scores which category:
  * single-turn categories: the official AST checker (`ast_checker`), and for (ir)relevance the
    official "does it decode into a call" rule;
  * `multi_turn_long_context` and `multi_turn_base`: each turn on its own, as in the GenEnv paper.
    The calls are compared with the reference calls by the AST checker's `parallel` rule, without
    executing them, so equivalent detours fail.  This is not the official state-and-response rule;
    the metric is named `<category>_static_match` for that reason.
"""

from __future__ import annotations

import dataclasses
import json
import os
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import (
    BAD_ANSWER,
    BAD_TOOLS,
    EMPTY,
    NOT_TEXT,
    TOO_LONG,
    UNPARSABLE,
    WRONG_ANSWER,
    Message,
    Rejection,
    Score,
    SeedStatistics,
    Task,
)
from genenv_jax.benchmarks.bfcl import ast_checker, prompts, records, schemas
from genenv_jax.benchmarks.bfcl.metrics import official_metrics
from genenv_jax.benchmarks.bfcl.records import STATIC_MATCH
from genenv_jax.benchmarks.bfcl.source_calls import decode_source_calls
from genenv_jax.benchmarks.safe_parse import check_text, parse_calls, parse_json

_HEADERS = (prompts.TOOLS_HEADER, prompts.TASK_HEADER, prompts.ANSWER_HEADER)
_NO_CALL = ("irrelevance", "relevance")


@dataclasses.dataclass(frozen=True)
class Limits:
    """Sizes beyond which text from a model is turned away, and sizes of prompts.

    Attributes:
      answer_chars: an agent's answer.
      generation_chars: a simulator's generation.
      request_chars: the request in a generation.
      tools: functions in a generation.
      parameters: parameters of one function in a generation.
      depth: nesting of brackets in calls and JSON.
      prompt_tool_chars: functions in a prompt; more is shortened (`prompts.tool_text`).
      prompt_chars: a whole prompt, as far as shorter functions can bring it there.  4,096 tokens
        of a Qwen tokeniser hold about 14,000 characters of such text.
    """

    answer_chars: int = 16_384
    generation_chars: int = 32_768
    request_chars: int = 12_288
    tools: int = 64
    parameters: int = 64
    depth: int = 64
    prompt_tool_chars: int = 8_500
    prompt_chars: int = 13_500


class BFCL:
    """BFCL tasks, prompts and scoring; implements `genenv_jax.benchmarks.base.Benchmark`.

    Args:
      version: "v3" or "v4".
      data_dir: see `records.find_directory`; None or "" reads $GENENV_DATA.
      seed_categories: categories to train on.
      eval_categories: categories to hold out.  A category named in both is split by a stable hash
        of its official ids; the turns of a conversation, and the multi-turn categories (they ask
        the same), stay on one side together.
      seed_fraction: share of such a category that becomes seeds.  0.75 gives 540 of the 731 turns
        of v4's multi_turn_long_context (539 after `tasks` has dropped a duplicate); the paper
        trains on 544 base samples.
      max_seeds: at most so many seeds, chosen by a hash of its own; None keeps all.
      max_eval: the same for held-out tasks.
      limits: sizes (`Limits`).

    Raises:
      ValueError: an unknown version or category, or a fraction outside [0, 1].
    """

    name = "bfcl"

    def __init__(
        self,
        *,
        version: str = "v4",
        data_dir: str | os.PathLike[str] | None = None,
        seed_categories: Sequence[str] = ("multi_turn_long_context",),
        eval_categories: Sequence[str] = ("multi_turn_long_context",),
        seed_fraction: float = 0.75,
        max_seeds: int | None = None,
        max_eval: int | None = None,
        limits: Limits | None = None,
    ):
        known = records.categories(version)
        for category in (*seed_categories, *eval_categories):
            if category not in known:
                raise ValueError(
                    f"BFCL {version} category {category!r}: expected one of {', '.join(known)}"
                )
        if not 0 <= seed_fraction <= 1:
            raise ValueError(f"seed_fraction {seed_fraction}: expected a number in [0, 1]")
        self.version = version
        self.data_dir = data_dir
        self.categories = {"seed": tuple(seed_categories), "eval": tuple(eval_categories)}
        self.seed_fraction = seed_fraction
        self.most = {"seed": max_seeds, "eval": max_eval}
        self.limits = limits or Limits()
        self._tasks: dict[str, tuple[Task, ...]] = {}

    def tasks(self, split: str) -> Sequence[Task]:
        """See `Benchmark.tasks`; read on first use and kept.

        Held-out tasks are all there, those that nobody can answer included.  A seed must pass
        `verify`, and must not ask what a held-out task asks (`canonical`).
        """
        if split not in self.categories:
            raise ValueError(f"split {split!r}: expected 'seed' or 'eval'")
        if split not in self._tasks:
            loaded = records.load(self.version, self.categories[split], self.data_dir, split)
            chosen = [task for task in loaded if self._belongs(task, split)]
            if split == "seed":
                held_out = {self.canonical(task) for task in self._all_held_out()}
                chosen = [
                    task
                    for task in chosen
                    if self.canonical(task) not in held_out and self.verify(task) is None
                ]
            most = self.most[split]
            if most is not None and most < len(chosen):
                # Another hash than the split's, which has already sorted out where a task may be.
                order = {task.id: records.split_position(f"order:{task.id}") for task in chosen}
                kept = sorted(chosen, key=lambda task: order[task.id])[:most]
                ids = {task.id for task in kept}
                chosen = [task for task in chosen if task.id in ids]
            self._tasks[split] = tuple(chosen)
        return self._tasks[split]

    def _all_held_out(self) -> list[Task]:
        """Held-out tasks before `max_eval`, so that the seeds do not depend on it."""
        loaded = records.load(self.version, self.categories["eval"], self.data_dir, "eval")
        return [task for task in loaded if self._belongs(task, "eval")]

    def _belongs(self, task: Task, split: str) -> bool:
        other = self.categories["eval" if split == "seed" else "seed"]
        is_turn = task.category in records.MULTI_TURN
        shared = task.category in other or (
            is_turn and any(category in records.MULTI_TURN for category in other)
        )
        if not shared:
            return True
        position = records.split_position(records.split_key(task.id))
        return (position < self.seed_fraction) == (split == "seed")

    def agent_messages(self, task: Task) -> list[Message]:
        """See `Benchmark.agent_messages`."""
        return prompts.agent_messages(task, self.limits.prompt_tool_chars, self.limits.prompt_chars)

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        """See `Benchmark.simulator_messages`."""
        return prompts.simulator_messages(
            seed,
            self.agent_answer(seed),
            statistics,
            self.limits.prompt_tool_chars,
            self.limits.prompt_chars,
        )

    def simulator_answer(self, task: Task) -> str:
        """See `Benchmark.simulator_answer`; a task that keeps its seed's tools says so."""
        tools = prompts.SAME_TOOLS
        if not task.answer["same_tools"]:
            tools = json.dumps([dict(tool) for tool in task.tools], ensure_ascii=False)
        request = task.messages[-1]["content"].strip() if task.messages else ""
        sections = (tools, request, self.agent_answer(task))
        return "\n".join(f"{h} {s}" for h, s in zip(_HEADERS, sections, strict=True))

    def agent_answer(self, task: Task) -> str:
        """See `Benchmark.agent_answer`; what a generated task was written with, if it was."""
        spec = task.answer
        if "reference" in spec:
            return spec["reference"]
        if spec["kind"] == "irrelevance":
            return "[]"
        if spec["kind"] == "relevance":
            return _any_call(task.tools)
        return schemas.render_calls(spec["ground_truth"], task.tools, spec["language"])

    def parse(self, text: str, seed: Task, task_id: str, generation: int) -> Task | Rejection:
        """See `Benchmark.parse`.

        The three sections must appear once each, in order, with nothing before them.  Reasons:
        EMPTY, NOT_TEXT, TOO_LONG, UNPARSABLE (sections), BAD_TOOLS, BAD_ANSWER.
        """
        rejection = check_text(text, self.limits.generation_chars)
        if rejection:
            return rejection
        sections = _sections(text)
        if isinstance(sections, Rejection):
            return sections
        tool_section, request, reference = sections
        rejection = check_text(request, self.limits.request_chars)
        if rejection:
            reason = UNPARSABLE if rejection.reason == EMPTY else rejection.reason
            return Rejection(reason, f"request: {rejection.detail or 'empty'}")
        spec = seed.answer
        same_tools = tool_section.strip("`.").lower() == prompts.SAME_TOOLS
        tools: Any = seed.tools
        if not same_tools:
            tools = parse_json(tool_section, self.limits.generation_chars, self.limits.depth)
            if isinstance(tools, Rejection):
                return Rejection(BAD_TOOLS, f"{tools.reason}: {tools.detail}"[:200])
            rejection = self._check_tools(tools, spec["language"])
            if rejection:
                return rejection
        truth = self._ground_truth(reference, tools, spec)
        if isinstance(truth, Rejection):
            return truth
        return Task(
            id=task_id,
            benchmark=self.name,
            category=seed.category,
            messages=(*seed.messages[:-1], {"role": "user", "content": request}),
            tools=tuple(tools),
            answer={
                "kind": spec["kind"],
                "language": spec["language"],
                "rule": spec["rule"],
                "ground_truth": truth,
                "same_tools": same_tools,
                "reference": reference,
            },
            seed_id=seed.id,
            origin="generated",
            generation=generation,
        )

    def verify(self, task: Task) -> Rejection | None:
        """See `Benchmark.verify`; reasons BAD_TOOLS, BAD_ANSWER and WRONG_ANSWER.

        The reference answer must decode, call functions that exist with all required parameters
        and no unknown ones, agree with the ground truth made from it, and score full reward.
        Tools taken over from the data set are not held to the rules for new ones.
        """
        spec = task.answer
        try:
            if not spec["same_tools"]:
                rejection = self._check_tools(task.tools, spec["language"])
                if rejection:
                    return rejection
            if not task.messages or not task.messages[-1]["content"].strip():
                return Rejection(UNPARSABLE, "no request")
            if "reference" in spec:
                truth = self._ground_truth(spec["reference"], task.tools, spec)
                if isinstance(truth, Rejection):
                    return truth
                if truth != spec["ground_truth"]:
                    return Rejection(BAD_ANSWER, "the reference is not what is checked")
            score = self.score(task, self.agent_answer(task))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            return Rejection(BAD_ANSWER, f"malformed task: {type(error).__name__}: {error}"[:200])
        if score.reward != 1.0:
            return Rejection(WRONG_ANSWER, score.reason)
        return None

    def _check_tools(self, tools: Any, language: str) -> Rejection | None:
        return schemas.check_tools(tools, language, self.limits.tools, self.limits.parameters)

    def _ground_truth(
        self, reference: str, tools: Sequence[Mapping[str, Any]], spec: Mapping[str, Any]
    ) -> list[Any] | Rejection:
        """Ground truth of a written reference answer, or a BAD_ANSWER rejection."""
        calls = self._decode(reference, tools, spec)
        if isinstance(calls, Rejection):
            return Rejection(BAD_ANSWER, f"{calls.reason}: {calls.detail}"[:200])
        if (len(calls) == 0) != (spec["kind"] == "irrelevance"):
            return Rejection(BAD_ANSWER, f"{len(calls)} calls in a {spec['kind']} task")
        static = spec["rule"] == STATIC_MATCH
        truth = schemas.ground_truth_of(calls, tools, spec["language"], static)
        return [] if spec["kind"] in _NO_CALL and isinstance(truth, list) else truth

    def _decode(
        self, text: str, tools: Sequence[Mapping[str, Any]], spec: Mapping[str, Any]
    ) -> list[dict[str, dict[str, Any]]] | Rejection:
        """Calls in a text.  The official decoder reads (ir)relevance answers as Python."""
        if spec["language"] != "python" and spec["kind"] not in _NO_CALL:
            return decode_source_calls(text, spec["language"], self.limits.answer_chars)
        order = records.parameter_order(tools) if spec["rule"] == STATIC_MATCH else None
        return parse_calls(text, self.limits.answer_chars, self.limits.depth, order)

    def canonical(self, task: Task) -> str:
        """See `Benchmark.canonical`.

        The latest request without case, punctuation and white space, the sorted names of the
        tools, and the sorted names of the functions to call.  Argument values are left out on
        purpose: BFCL accepts several for most parameters, and a restated evaluation task must be
        found whichever of them the restatement chose.
        """
        request = task.messages[-1]["content"] if task.messages else ""
        truth = task.answer["ground_truth"]
        called = sorted(name for name, _ in schemas.reference_calls(truth, task.tools))
        return json.dumps(
            [_letters(request), sorted(tool["name"] for tool in task.tools), called],
            ensure_ascii=False,
        )

    def text(self, task: Task) -> str:
        """See `Benchmark.text`: the latest request."""
        return task.messages[-1]["content"] if task.messages else ""

    def score(self, task: Task, answer: str) -> Score:
        """See `Benchmark.score`: 1 for an answer that the category's rule accepts, else 0.

        `reason` is the official error type in snake case.  An answer that does not decode is not
        valid; for irrelevance that is the success.  Answers beyond `Limits.answer_chars` and
        answers that are not text are wrong in every category.
        """
        try:
            return self._score(task, answer)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            # Only a task that `verify` would turn away leads here.
            return Score(0.0, False, False, f"malformed_task_{type(error).__name__.lower()}")

    def _score(self, task: Task, answer: str) -> Score:
        spec = task.answer
        calls = self._decode(answer, task.tools, spec)
        rejected = isinstance(calls, Rejection)
        if rejected and calls.reason in (NOT_TEXT, TOO_LONG):
            return Score(0.0, False, False, calls.reason)
        if spec["kind"] == "irrelevance":
            passed = rejected or not calls
            return Score(float(passed), passed, True, "" if passed else "decoder_success")
        if rejected:
            reason = EMPTY if calls.reason == EMPTY else "decoder_failed"
            return Score(0.0, False, False, reason)
        if spec["kind"] == "relevance":
            passed = bool(calls)
            return Score(float(passed), passed, passed, "" if passed else "decoder_failed")
        verdict = ast_checker.check(
            list(task.tools), calls, spec["ground_truth"], spec["kind"], spec["language"]
        )
        return Score(float(verdict.valid), verdict.valid, True, reason_word(verdict.error))

    def aggregate(self, results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
        """See `Benchmark.aggregate` and `metrics.official_metrics`."""
        by_category: dict[str, list[float]] = defaultdict(list)
        for task, score in results:
            static = task.answer["rule"] == STATIC_MATCH
            name = f"{task.category}_{STATIC_MATCH}" if static else task.category
            by_category[name].append(float(score.success))
        return official_metrics(self.version, by_category)


def reason_word(error: str) -> str:
    """An official `error_type` as a short snake_case word; "" for no error."""
    checker, _, word = error.partition(":")
    if checker in ("type_error", "value_error"):
        word = f"{checker}_{word}"
    return (word or checker).replace("/", "_")


def _letters(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(character for character in folded if character.isalnum())


def _sections(text: str) -> tuple[str, str, str] | Rejection:
    """The three sections of a generation, stripped, or UNPARSABLE."""
    found: list[tuple[int, int, int]] = []
    position = 0
    for line in text.splitlines(keepends=True):
        stripped = line.lstrip()
        for index, header in enumerate(_HEADERS):
            if stripped.startswith(header):
                start = position + len(line) - len(stripped)
                found.append((index, start, start + len(header)))
        position += len(line)
    order = [index for index, _, _ in found]
    if order != list(range(len(_HEADERS))):
        names = ", ".join(_HEADERS[index] for index in order[:6]) or "none"
        return Rejection(UNPARSABLE, f"expected the three headers once and in order, found {names}")
    if text[: found[0][1]].strip():
        return Rejection(UNPARSABLE, "text before the first header")
    ends = [start for _, start, _ in found[1:]] + [len(text)]
    parts = [text[begin:end].strip() for (_, _, begin), end in zip(found, ends, strict=True)]
    for header, part in zip(_HEADERS, parts, strict=True):
        if not part:
            return Rejection(UNPARSABLE, f"{header} is empty")
    return parts[0], parts[1], parts[2]


def _any_call(tools: Sequence[Mapping[str, Any]]) -> str:
    """A well-formed call of the first tool: all that relevance asks for."""
    examples = {"integer": 1, "float": 1.0, "boolean": True, "array": [], "tuple": [], "dict": {}}
    if not tools:
        return "[answer()]"
    parameters = tools[0]["parameters"]
    arguments = (
        f"{name}={examples.get(parameters['properties'][name].get('type'), 'value')!r}"
        for name in parameters["required"]
    )
    return f"[{tools[0]['name']}({', '.join(arguments)})]"
