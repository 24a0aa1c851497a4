"""The Berkeley Function Calling Leaderboard (BFCL v3 and v4) as a benchmark.

Which rule scores which category:
  * single-turn categories: the official AST checker (`ast_checker`), and for (ir)relevance the
    official "does it decode into a call" rule, under which any broken text is a correct "no call": it is
    a success, but has no reward unless it says so in words (`refuses`);
  * multi-turn categories: what the option `multi_turn_rule` says.
      "conversation"  the official rule: whole conversations in episodes, state and response compared
                      after every turn (`multi_turn`).  Metrics have the official names.
      "turn_state"    the GenEnv paper's protocol, each turn on its own, executed: the reference calls
                      of the turns before it are executed for both sides, then the agent's answer;
                      state and response are compared.  Needless calls cost reward
                      (`multi_turn.score_turn`).  Metrics are named `<category>_turn_state`.
      "turn_static"   the same protocol without execution: the calls must be the reference calls, in
                      their order, with strings that are equal to the last character
                      (`ast_checker.check_in_order`), so equivalent detours fail, and so do calls that
                      could as well change places.  Metrics are named `<category>_static_match`.

The paper takes turns independently and does not publish how it compares them.  "turn_state" and
"conversation" execute calls with the package bfcl-eval (`backends.INSTALL`); `configs/bfcl.py` chooses
"turn_state" where it is installed.  "turn_static", the default of the class, needs no package, and it also
judges generated tasks with functions of their own, which nothing can execute.  Under "turn_state" a generated
task keeps its seed's functions and must fit its state, which the simulator sees only in part.

With `episodes` agents are trained on whole conversations: the seeds are conversations, played in episodes
that only grow (`episode`), and the simulator writes whole ones, with state, requests and calls
(`generation`), which are proven by execution (`soundness`).

`version` says whose records are read, "v3" or "v4".  The rules are those of v4 (bfcl-eval 2026.3.23) for
both: of v3 there are the data and the aggregates.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import (
    BAD_ANSWER,
    BAD_TOOLS,
    CONTAMINATED,
    EMPTY,
    MALFORMED,
    NOT_EVALUATED,
    NOT_EXECUTABLE,
    NOT_TEXT,
    TOO_DEEP,
    TOO_LONG,
    UNDECIDED,
    UNPARSABLE,
    WRONG_ANSWER,
    Episode,
    Message,
    Rejection,
    Score,
    SeedStatistics,
    Task,
)
from genenv_jax.benchmarks.bfcl import (
    ast_checker,
    backends,
    conversations,
    executed,
    multi_turn,
    prompts,
    records,
    schemas,
    soundness,
    source_calls,
)
from genenv_jax.benchmarks.bfcl import episode as growing
from genenv_jax.benchmarks.bfcl import generation as generations
from genenv_jax.benchmarks.bfcl.categories import (
    AST,
    CONVERSATION,
    MULTI_TURN,
    MULTI_TURN_RULES,
    STATIC_MATCH,
    TURN_STATE,
    categories,
    language_of,
)
from genenv_jax.benchmarks.bfcl.limits import Limits
from genenv_jax.benchmarks.bfcl.metrics import official_metrics
from genenv_jax.benchmarks.grounding import judge, leaves
from genenv_jax.benchmarks.headers import parse_headers
from genenv_jax.benchmarks.options import check_choice, check_names, check_shares
from genenv_jax.benchmarks.records import Published
from genenv_jax.benchmarks.safe_parse import check_text, parse_calls, parse_json
from genenv_jax.benchmarks.subsets import stable_position
from genenv_jax.benchmarks.wording import fold, letters

_NO_CALL = ("irrelevance", "relevance")
NO_REFUSAL = "no_refusal"  # no call, officially, but no words either
# How a call or its remains look: they begin with a bracket or `name(`, or have in them `name(argument=`, the
# keys of a call as JSON, or the tag that some models put around one.
_FENCE = re.compile(r"\s*`*(?:(?<=```)\w+\n)?[\s`'\"]*")
_CALL_FIRST = re.compile(r"[\[({<]|[\w.$]+\(")
_CALL_INSIDE = re.compile(r"\w\s*\(\s*\w+\s*=|[\"'](?:name|arguments)[\"']\s*:|<tool_call>")


@dataclasses.dataclass(kw_only=True, eq=False)
class BFCL(Published):
    """BFCL tasks, prompts and scoring; a `Benchmark`.

    Args, beside those of `Published`:
      version: "v3" or "v4", of the records; see above.
      multi_turn_rule: how multi-turn categories are scored, see above.  Under "conversation" the seeds
        are turns with the rule "turn_state": the simulator varies one request at a time.
      episodes: the seeds, and what the simulator writes, are whole conversations instead.  The rule must be
        "conversation", the seeds' categories multi-turn ones, and `shots` 0.
      seed_categories: categories to train on.
      eval_categories: categories to hold out.  A category named in both is split by a stable hash
        of its official ids; the turns of a conversation, and the multi-turn categories (they ask
        the same), stay on one side together.
      seed_fraction: share of such a category that becomes seeds.  0.75 gives 540 of the 731 turns
        of v4's multi_turn_long_context (539 after `tasks` has dropped a duplicate); the paper
        trains on 544 base samples.
    Raises:
      ValueError: an option out of its range, or a rule that executes calls or a category in Java or
        JavaScript where the package for it is absent.
    """

    name = "bfcl"

    version: str = "v4"
    multi_turn_rule: str = "turn_static"
    seed_categories: Sequence[str] = ("multi_turn_long_context",)
    eval_categories: Sequence[str] = ("multi_turn_long_context",)
    seed_fraction: float = 0.75
    episodes: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_choice("multi_turn_rule", self.multi_turn_rule, tuple(MULTI_TURN_RULES))
        check_names("seed_categories", self.seed_categories, categories(self.version))
        check_names("eval_categories", self.eval_categories, categories(self.version))
        check_shares(seed_fraction=self.seed_fraction)
        rule = MULTI_TURN_RULES[self.multi_turn_rule]
        self._check_episodes(rule)
        turns = rule == CONVERSATION and not self.episodes
        self.rules = {"seed": TURN_STATE if turns else rule, "eval": rule}
        used = (*self.seed_categories, *self.eval_categories)
        self._executes = rule != STATIC_MATCH and any(name in MULTI_TURN for name in used)
        if self._executes:
            backends.require()
        reads_source = any(language_of(name) != "python" for name in used)
        if reads_source:
            source_calls.require()
        # The classes and the grammars are others' code: it runs in worker processes, with a time limit.
        self.isolated = self._executes or reads_source
        self.categories = {"seed": tuple(self.seed_categories), "eval": tuple(self.eval_categories)}
        self.limits = Limits()
        self._held_out_requests: frozenset[str] | None = None

    def _check_episodes(self, rule: str) -> None:
        if not self.episodes:
            return
        if rule != CONVERSATION:
            raise ValueError(
                f"episodes = True, multi_turn_rule = {self.multi_turn_rule!r}: expected 'conversation'"
            )
        check_names("seed_categories, with episodes", self.seed_categories, MULTI_TURN)
        if self.shots:
            raise ValueError(f"shots = {self.shots}: expected 0 with episodes, which have none")

    def load(self, split: str) -> list[Task]:
        """Held-out tasks are all there, those with a contradictory reference included."""
        held_out = self._load("eval")
        if split == "eval":
            return held_out
        self._held_out_requests = frozenset(_conversation_requests(held_out))
        return self.sound(self._load("seed"), held_out)

    def _load(self, split: str) -> list[Task]:
        loaded = records.load(
            self.version,
            self.categories[split],
            self.data_dir,
            split,
            self.rules[split],
            self.verify_files,
        )
        return [task for task in loaded if self._belongs(task, split)]

    def _belongs(self, task: Task, split: str) -> bool:
        other = self.categories["eval" if split == "seed" else "seed"]
        is_turn = task.category in MULTI_TURN
        shared = task.category in other or (
            is_turn and any(category in MULTI_TURN for category in other)
        )
        if not shared:
            return True
        position = stable_position(self.source(task))
        return (position < self.seed_fraction) == (split == "seed")

    def prompt(self, task: Task) -> list[Message]:
        return prompts.agent_messages(task, self.limits.prompt_tool_chars, self.limits.prompt_chars)

    def source(self, task: Task) -> str:
        """See `Benchmark.source`: the turns of a conversation, and of its other categories, share it."""
        return records.split_key(task.id)

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        """See `Benchmark.simulator_messages`."""
        if seed.answer["kind"] == CONVERSATION:
            return generations.simulator_messages(seed, statistics, self.limits)
        return prompts.simulator_messages(
            seed,
            self.agent_answer(seed),
            statistics,
            self.limits.prompt_tool_chars,
            self.limits.prompt_chars,
        )

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        """See `Benchmark.simulator_answer`; a task that keeps its seed's tools has the word `same`."""
        if task.answer["kind"] == CONVERSATION:
            return generations.write(task)
        tools = prompts.SAME_TOOLS
        if not (task.answer["same_tools"] if seed is None else task.tools == seed.tools):
            tools = json.dumps([dict(tool) for tool in task.tools], ensure_ascii=False)
        request = task.messages[-1]["content"].strip() if task.messages else ""
        sections = (tools, request, self.agent_answer(task))
        return "\n".join(f"{h} {s}" for h, s in zip(prompts.HEADERS, sections, strict=True))

    def agent_answer(self, task: Task) -> str:
        """See `Benchmark.agent_answer`; what a generated task was written with, if it was.

        Of a conversation it is the text that `score` reads: the answers of each turn, as JSON.
        """
        spec = task.answer
        if "reference" in spec:
            return spec["reference"]
        if spec["rule"] in (CONVERSATION, TURN_STATE):
            return executed.reference_answer(spec)
        if spec["kind"] == "irrelevance":
            return "[]"
        if spec["kind"] == "relevance":
            return _any_call(task.tools)
        return schemas.render_calls(spec["ground_truth"], task.tools, spec["language"])

    def agent_answers(self, task: Task) -> list[str]:
        """See `Benchmark.agent_answers`: of a conversation the calls of its turns, each turn with its end."""
        if task.answer["kind"] != CONVERSATION:
            return [self.agent_answer(task)]
        return growing.reference_answers(task.answer, self.limits)

    def parse(self, text: str, seed: Task, task_id: str, generation: int) -> Task | Rejection:
        """See `Benchmark.parse`.

        A whole conversation is read by `generation.read`, with its reasons.  Else
        the three sections must appear once each, in order, with nothing before them.  Reasons:
        EMPTY, NOT_TEXT, TOO_LONG, UNPARSABLE (sections), BAD_TOOLS, BAD_ANSWER, and NOT_EXECUTABLE for
        functions of its own under the rule "turn_state".
        """
        if seed.answer["kind"] == CONVERSATION:
            found = generations.read(text, seed, self.limits)
            if isinstance(found, Rejection):
                return found
            fields = {"id": task_id, "origin": "generated", "generation": generation}
            return found.task(seed, **fields)
        rejection = check_text(text, self.limits.generation_chars)
        if rejection:
            return rejection
        sections = parse_headers(text, prompts.HEADERS)
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
        if not same_tools and spec["rule"] == TURN_STATE:
            return Rejection(NOT_EXECUTABLE, "functions of its own")
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
        run: dict[str, Any] = {}
        if spec["rule"] == TURN_STATE:
            run = {"scenario": spec["scenario"], "history": spec["history"]}
            run["calls"] = executed.written_calls(reference)
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
                **run,
            },
            seed_id=seed.id,
            origin="generated",
            generation=generation,
        )

    def fault(self, task: Task) -> Rejection | None:
        """Reasons BAD_TOOLS, BAD_ANSWER, WRONG_ANSWER, NOT_EXECUTABLE, CONTAMINATED.

        The reference answer must decode, call functions that exist with all required parameters
        and no unknown ones, agree with the ground truth made from it, and score full reward.
        Tools taken over from the data set are not held to the rules for new ones.  Under "turn_state" the
        reference calls of a generated task must run without an error.  Where whole conversations are held
        out, no request of theirs may come back (their `canonical` is another than a turn's).  Generated
        conversations are rejected for the reasons of `soundness.fault`, too.
        """
        spec = task.answer
        written = task.origin == "generated"
        if (written or spec["kind"] != CONVERSATION) and self._is_held_out_request(task):
            return Rejection(CONTAMINATED, "a request of a held-out conversation")
        if written and spec["kind"] == CONVERSATION:
            rejection = soundness.fault(task, self.limits)
            if rejection:
                return rejection
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
            if spec["rule"] == TURN_STATE:
                rejection = executed.execution_problem(spec)
                if rejection:
                    return rejection
        if self.episodes and spec["kind"] == CONVERSATION:
            score = growing.play(task, self.agent_answers(task), self.limits)
            if score is None or score.reward < 1.0:
                return Rejection(WRONG_ANSWER, "no end" if score is None else score.reason)
        return super().fault(task)

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
        turn = spec["rule"] in (STATIC_MATCH, TURN_STATE)
        truth = schemas.ground_truth_of(calls, tools, spec["language"], turn)
        return [] if spec["kind"] in _NO_CALL and isinstance(truth, list) else truth

    def _decode(
        self, text: str, tools: Sequence[Mapping[str, Any]], spec: Mapping[str, Any]
    ) -> list[dict[str, dict[str, Any]]] | Rejection:
        """Calls in a text.  The official decoder reads (ir)relevance answers as Python."""
        if spec["language"] != "python" and spec["kind"] not in _NO_CALL:
            return source_calls.decode_source_calls(text, spec["language"])
        order = None
        if spec["rule"] in (STATIC_MATCH, TURN_STATE):
            order = conversations.parameter_order(tools)
        return parse_calls(text, self.limits.answer_chars, self.limits.depth, order)

    def canonical(self, task: Task) -> str:
        """See `Benchmark.canonical`.

        The latest request (of a conversation all) without case, punctuation and white space, the
        sorted names of the tools, and the sorted names of the functions to call.  Argument values are
        left out on purpose: BFCL accepts several for most parameters, and a restated evaluation task must be
        found whichever of them the restatement chose.
        """
        request = self.text(task)
        return json.dumps(
            [letters(request), sorted(tool["name"] for tool in task.tools), _called(task)],
            ensure_ascii=False,
        )

    def text(self, task: Task) -> str:
        """See `Benchmark.text`: the latest request, of a conversation all of them."""
        if task.answer["kind"] == CONVERSATION:
            return "\n".join(_requests(task))
        return task.messages[-1]["content"] if task.messages else ""

    def requests(self, task: Task) -> list[tuple[str, list[str]]]:
        """See `Benchmark.requests`: of a conversation those of its turns, each with the calls of the turn."""
        if task.answer["kind"] != CONVERSATION:
            return [(self.text(task), _called(task))]
        turns, calls = task.answer["turns"], task.answer["calls"]
        return [
            (_spoken(turn), sorted(call.split("(")[0].strip() for call in of))
            for turn, of in zip(turns, calls, strict=False)
        ]

    def signature(self, task: Task) -> str:
        """See `Benchmark.signature`: the names of the functions to call, sorted; "" where none is.

        Of conversations, where these are the seeds, turn by turn.
        """
        if self.episodes and task.answer["kind"] == CONVERSATION:
            return " | ".join(" ".join(names) for _, names in self.requests(task))
        return " ".join(sorted(self._calls(task)))

    def skills(self, task: Task) -> Collection[str]:
        """See `Benchmark.skills`: the names of the functions to call."""
        return set(self._calls(task))

    def difficulty(self, task: Task) -> float:
        """See `Benchmark.difficulty`: the number of calls."""
        return float(len(self._calls(task)))

    def _calls(self, task: Task) -> list[str]:
        return [name for _, names in self.requests(task) for name in names]

    def grounding(self, task: Task) -> Rejection | str:
        """See `Benchmark.grounding`.

        What a schema lists or defaults to need not be said, nor any value of a turn: only the state of its
        conversation may hold it.  Of a whole conversation see `soundness.grounding`.
        """
        spec = task.answer
        try:
            if spec["kind"] == CONVERSATION:
                return soundness.grounding(task, self.limits)
            calls = list(schemas.reference_calls(spec["ground_truth"], task.tools))
            values = [] if spec["rule"] != AST else schemas.unlisted_values(calls, task.tools)
            context = "\n".join(message["content"] for message in task.messages)
            called = {name for name, _ in calls}
            known = [calls, [tool for tool in task.tools if tool["name"] in called]]
            described = " ".join(map(str, leaves(known)))
            return judge(calls, values, self.text(task), context, described)
        except MALFORMED:
            return UNDECIDED

    def verdict(self, task: Task, answer: str) -> Score:
        """A success is an answer that the category's rule accepts.  The reward is 1 for it, else 0, but

          * for irrelevance the official rule accepts whatever does not decode; what is neither `[]` nor a
            refusal in words (`refuses`) earns nothing and is not valid, NO_REFUSAL; of held-out tasks it is
            a success all the same;
          * under "turn_state" needless calls cost reward (`multi_turn.score_turn`).

        `reason` is the official error type in snake case.  An answer that does not decode is not
        valid, but for irrelevance.  Answers beyond `Limits.answer_chars`, with arithmetic out of bounds
        (`safe_parse.parse_calls`) or that are not text are wrong in every category; so are those that are
        nested too deeply or hold what is not evaluated here, unless they refuse in words.

        A whole conversation, which an agent plays with `episode`, is scored from the form that the official
        result files have: JSON, a list of turns, each a list of the agent's answers as text.
        """
        spec = task.answer
        if spec["rule"] == CONVERSATION:
            return executed.score_transcript(task, answer, self.limits)
        if spec["rule"] == TURN_STATE:
            return executed.score_answer(task, answer, self.limits)
        calls = self._decode(answer, task.tools, spec)
        rejected = isinstance(calls, Rejection)
        if rejected and calls.reason in (NOT_TEXT, TOO_LONG):
            return Score(0.0, False, False, calls.reason)
        if spec["kind"] == "irrelevance":
            if not rejected:
                return Score(float(not calls), not calls, True, "decoder_success" if calls else "")
            if calls.reason != EMPTY and refuses(answer, task.tools):
                return Score(1.0, True, True)
            # Officially a call may be decoded from what was not read here.
            no_call = calls.reason not in (TOO_DEEP, NOT_EVALUATED)
            return Score(0.0, no_call and task.origin == "eval", False, NO_REFUSAL)
        if rejected:
            reason = EMPTY if calls.reason == EMPTY else "decoder_failed"
            return Score(0.0, False, False, reason)
        if spec["kind"] == "relevance":
            passed = bool(calls)
            return Score(float(passed), passed, passed, "" if passed else "decoder_failed")
        tools, truth = list(task.tools), spec["ground_truth"]
        if spec["rule"] == STATIC_MATCH:
            verdict = ast_checker.check_in_order(tools, calls, truth)
        else:
            verdict = ast_checker.check(tools, calls, truth, spec["kind"], spec["language"])
        return Score(float(verdict.valid), verdict.valid, True, reason_word(verdict.error))

    def is_interactive(self, task: Task) -> bool:
        """See `Benchmark.is_interactive`: whole conversations are."""
        return task.answer["rule"] == CONVERSATION

    def episode(self, task: Task) -> Episode:
        """See `Benchmark.episode`; ValueError where calls cannot be executed."""
        limits = self.limits
        if self.episodes:
            return growing.GrowingEpisode(task, limits)
        return multi_turn.ConversationEpisode(
            task,
            max_tool_chars=limits.prompt_tool_chars,
            max_chars=limits.prompt_chars,
            answer_chars=limits.answer_chars,
            depth=limits.depth,
            max_calls=limits.calls,
        )

    def facts(self) -> dict[str, str]:
        facts = {
            "bfcl_version": self.version,
            "bfcl_single_turn_rule": "official AST checker of v4",
            "bfcl_multi_turn_rule": self.multi_turn_rule,
            **({"bfcl_episodes": growing.ABOUT} if self.episodes else {}),
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

    def _is_held_out_request(self, task: Task) -> bool:
        if self.rules["eval"] != CONVERSATION or task.origin == "eval":
            return False
        if self._held_out_requests is None:
            self._held_out_requests = frozenset(_conversation_requests(self._load("eval")))
        is_whole = task.answer["kind"] == CONVERSATION
        asked = _requests(task) if is_whole else [self.text(task)]
        return any(letters(request) in self._held_out_requests for request in asked)

    def aggregate(self, results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
        """See `Benchmark.aggregate` and `metrics.official_metrics`."""
        by_category: dict[str, list[float]] = defaultdict(list)
        for task, score in results:
            rule = task.answer["rule"]
            turn = rule in (STATIC_MATCH, TURN_STATE)
            name = f"{task.category}_{rule}" if turn else task.category
            by_category[name].append(float(score.success))
        return official_metrics(self.version, by_category)


def reason_word(error: str) -> str:
    """An official `error_type` as a short snake_case word; "" for no error."""
    checker, _, word = error.partition(":")
    if checker in ("type_error", "value_error"):
        word = f"{checker}_{word}"
    return (word or checker).replace("/", "_")


def refuses(answer: str, tools: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an answer that does not decode says in words that nothing is called; total.

    It has at least two words, and does not look like a call that went wrong: it does not begin, after
    quotes and the head of a code fence, with a bracket or with `name(`, and holds neither `name(argument=`,
    nor the keys of a call as JSON, nor `<tool_call>`, nor a listed function's name before a parenthesis.
    Look-alike and invisible letters hide none of these.  What the words say is not judged.

    Args:
      answer: what the agent wrote.
      tools: the functions that it could call.
    """
    answer = fold(answer)
    text = answer[_FENCE.match(answer).end() :]
    if _CALL_FIRST.match(text) or _CALL_INSIDE.search(text):
        return False
    names = "|".join(re.escape(fold(tool["name"].rpartition(".")[2])) for tool in tools)
    if names and re.search(rf"(?<!\w)(?:{names})\(", text):
        return False
    # Scripts without spaces: any letter beyond ASCII counts as a word.
    words = sum(any(map(str.isalpha, word)) for word in text.split())
    return max(words, sum(c.isalpha() and not c.isascii() for c in text)) >= 2


def _called(task: Task) -> list[str]:
    """The sorted names of the functions to call."""
    truth, known = task.answer["ground_truth"], task.answer.get("functions")
    if known is not None:
        return known
    return sorted(name for name, _ in schemas.reference_calls(truth, task.tools))


def _spoken(turn: Sequence[Message]) -> str:
    """The users' messages of a turn."""
    return "\n".join(message["content"] for message in turn if message["role"] == "user")


def _requests(task: Task) -> list[str]:
    """The users' messages of a whole conversation."""
    return [
        message["content"]
        for turn in task.answer["turns"]
        for message in turn
        if message["role"] == "user"
    ]


def _conversation_requests(tasks: Sequence[Task]) -> set[str]:
    """The requests of whole conversations, as `letters`."""
    return {
        letters(request)
        for task in tasks
        if task.answer["rule"] == CONVERSATION
        for request in _requests(task)
    }


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
