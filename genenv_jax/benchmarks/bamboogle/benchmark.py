"""Bamboogle (Press et al., 2023): 125 questions of two hops, as a benchmark.

Scored by exact match, F1 and sub-EM after the standard normalisation (`answers`), against one gold answer
a question.  The last `<answer>...</answer>` counts, or the whole text where there is none.

What is standard: success and the headline are exact match, as in Search-R1.  The reward is the word F1
by default, because the paper's Eq. 1 scores free-form answers by a similarity in [0, 1].

There is no training data: all 125 questions are one test split.  To train on something, a share of the
questions becomes seeds (`seed_fraction`), with their sub-questions, and the rest is held out.  Seeds that
share a sub-question or a first answer with a held-out question are dropped, since they give half of it
away.  With `seed_fraction` 0 all 125 are held out; only that number compares with published ones.

The published retrieval setting searches Wikipedia of 2018, a corpus of its own.  `mode="search"` stands
in for it: a search finds the question's own sub-questions with their answers (`search`).  Its numbers
compare with each other, not with published ones.  The sub-questions are another group's work: an agent
that follows both and answers with what it found has an exact match on 103 of the 125 (108 if it chooses
well among several answers), and on 11 they lead to something else altogether.
"""

from __future__ import annotations

import dataclasses
import os
import unicodedata
from collections.abc import Sequence
from typing import Any

from genenv_jax.benchmarks.bamboogle import generation as generations
from genenv_jax.benchmarks.bamboogle import prompts, records
from genenv_jax.benchmarks.bamboogle.answers import extract, measure, normalize
from genenv_jax.benchmarks.bamboogle.episode import SearchEpisode
from genenv_jax.benchmarks.bamboogle.judge import EndpointJudge, Judge
from genenv_jax.benchmarks.bamboogle.metrics import official_metrics
from genenv_jax.benchmarks.base import (
    BAD_ANSWER,
    WRONG_ANSWER,
    Message,
    Rejection,
    Score,
    SeedStatistics,
    Task,
)
from genenv_jax.benchmarks.options import check_choice, check_integers, check_most, check_shares
from genenv_jax.benchmarks.safe_parse import check_text
from genenv_jax.benchmarks.subsets import stable_position, stable_subset

CLOSED_BOOK, SEARCH = "closed_book", "search"
_MEASURES = ("em", "f1", "sub_em")
_MIN_F1 = 0.5  # from which an F1 counts as a success, where F1 decides
_WRONG = "wrong_answer"


class Bamboogle:
    """Bamboogle's tasks, prompts and scoring; implements `Benchmark`, `Interactive` and `Described`.

    Args:
      data_dir: see `records.find_directory`; "" or None looks in the usual places.
      verify_files: compares the file with the table of published files.
      mode: "closed_book" (one answer) or "search" (episodes with a search tool).
      success: what counts as a success: "em" (the standard), "sub_em", "f1" (at least 0.5) or "judge".
      reward: "f1", "em" or "sub_em"; with success "judge" the reward is the judge's verdict.
      seed_fraction: share of the questions that become seeds, by a stable hash.
      sub_questions: whether their sub-questions become seeds too.
      max_seeds: at most so many seeds, chosen by a hash; 0: all.
      max_eval: the same for held-out tasks.
      max_searches: searches of an episode.
      search_threshold: how much a query must resemble a sub-question to find it (`search.similarity`).
      answer_chars: longest answer that is read.
      generation_chars: longest generation of the simulator that is read.
      judge_url: base URL of an OpenAI-compatible endpoint that judges held-out answers; "": none.
      judge_model: the model's name there.

    Raises:
      ValueError: an option out of its range; names option, value and what was expected.
    """

    name = "bamboogle"

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = "",
        verify_files: bool = False,
        mode: str = CLOSED_BOOK,
        success: str = "em",
        reward: str = "f1",
        seed_fraction: float = 0.2,
        sub_questions: bool = True,
        max_seeds: int = 0,
        max_eval: int = 0,
        max_searches: int = 3,
        search_threshold: float = 0.4,
        answer_chars: int = 8_192,
        generation_chars: int = 8_192,
        judge_url: str = "",
        judge_model: str = "",
    ):
        check_choice("mode", mode, (CLOSED_BOOK, SEARCH))
        check_choice("success", success, (*_MEASURES, "judge"))
        check_choice("reward", reward, _MEASURES)
        check_shares(seed_fraction=seed_fraction, search_threshold=search_threshold)
        check_most(max_seeds=max_seeds, max_eval=max_eval)
        check_integers(1, 5, max_searches=max_searches)
        check_integers(1, 16_384, answer_chars=answer_chars, generation_chars=generation_chars)
        if success == "judge" and not judge_url:
            raise ValueError("success = 'judge': expected judge_url and judge_model too")
        if judge_url and not judge_model:
            raise ValueError("judge_model = '': expected the judge's name at judge_url")
        self.data_dir = data_dir
        self.verify_files = verify_files
        self.mode = mode
        self.success = success
        self.reward = reward
        self.seed_fraction = seed_fraction
        self.sub_questions = sub_questions
        self.most = {"seed": max_seeds, "eval": max_eval}
        self.max_searches = max_searches
        self.search_threshold = search_threshold
        self.answer_chars = answer_chars
        self.generation_chars = generation_chars
        self.judge: Judge | None = EndpointJudge(judge_url, judge_model) if judge_url else None
        self.judge_model = judge_model
        # A request may hang longer than its time-out says: scored in processes, with a limit.
        self.isolated = bool(judge_url)
        self._tasks: dict[str, tuple[Task, ...]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tasks": {}}  # read again where it is needed

    def about(self) -> dict[str, str]:
        """See `Described.about`."""
        facts = {
            "data": "125 questions; LoganMilandin/comp-gap-public, commit 7667305",
            "rule": f"success: {self.success}; reward: {self.reward}; SQuAD normalisation",
            "mode": self.mode,
            "seed_fraction": str(self.seed_fraction),
        }
        if self.mode == SEARCH:
            facts["search"] = f"the question's own sub-questions, {self.max_searches} searches"
        if self.judge is not None:
            facts["judge"] = self.judge_model
        return facts

    def tasks(self, split: str) -> Sequence[Task]:
        """See `Benchmark.tasks`; read on first use and kept."""
        if split not in self.most:
            raise ValueError(f"split {split!r}: expected 'seed' or 'eval'")
        if split not in self._tasks:
            directory = records.find_directory(self.data_dir)
            loaded = records.load(directory, split, self.verify_files)
            sides: dict[bool, list[Task]] = {True: [], False: []}  # whether it is a seed
            for task in loaded:
                place = stable_position(f"bamboogle:{task.id}")
                sides[place < self.seed_fraction].append(task)
            seeds, held_out = sides[True], sides[False]
            chosen = held_out if split == "eval" else self._seeds(seeds, held_out)
            self._tasks[split] = tuple(stable_subset(chosen, self.most[split]))
        return self._tasks[split]

    def _seeds(self, candidates: list[Task], held_out: list[Task]) -> list[Task]:
        questions = {key for task in held_out for key in _questions(task)}
        first = {key for task in held_out for key in _first_answers(task)}
        kept: dict[str, Task] = {}
        for task in candidates:
            if _questions(task) & questions or _first_answers(task) & first:
                continue
            for seed in (task, *(records.sub_tasks(task) if self.sub_questions else ())):
                if self.verify(seed) is None:
                    kept.setdefault(self.canonical(seed), seed)
        return list(kept.values())

    def agent_messages(self, task: Task) -> list[Message]:
        """See `Benchmark.agent_messages`."""
        return prompts.agent_messages(task, self.max_searches if self.is_interactive(task) else 0)

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        """See `Benchmark.simulator_messages`."""
        return prompts.simulator_messages(seed, statistics)

    def simulator_answer(self, task: Task) -> str:
        """See `Benchmark.simulator_answer`."""
        steps = prompts.write_steps(task) if task.answer["steps"] else ""
        return generations.write(prompts.question(task), steps, task.answer["answers"])

    def agent_answer(self, task: Task) -> str:
        """See `Benchmark.agent_answer`; in an episode this ends it."""
        return f"<answer>{task.answer['answers'][0]}</answer>"

    def is_interactive(self, task: Task) -> bool:
        """See `Interactive.is_interactive`: in search mode, where there is something to find."""
        return self.mode == SEARCH and bool(task.answer["steps"])

    def episode(self, task: Task) -> SearchEpisode:
        """See `Interactive.episode`."""
        return SearchEpisode(
            task,
            self.agent_messages(task),
            lambda answer: self.score(task, answer),
            self.max_searches,
            self.search_threshold,
            self.answer_chars,
        )

    def parse(self, text: str, seed: Task, task_id: str, generation: int) -> Task | Rejection:
        """See `Benchmark.parse`; reasons are those of `generations.read`."""
        read = generations.read(text, bool(seed.answer["steps"]), self.generation_chars)
        if isinstance(read, Rejection):
            return read
        return records.make_task(
            task_id,
            read.question,
            read.answers,
            read.steps,
            seed_id=seed.id,
            origin="generated",
            generation=generation,
        )

    def verify(self, task: Task) -> Rejection | None:
        """See `Benchmark.verify`; reasons of `generations.fault`, BAD_ANSWER and WRONG_ANSWER.

        Whether a generated answer is true cannot be checked without a source; the steps must lead to
        it, and the question must not hold it.
        """
        try:
            spec = task.answer
            rejection = generations.fault(prompts.question(task), spec["answers"], spec["steps"])
            if rejection:
                return rejection
            found = measure(extract(self.agent_answer(task)), spec["answers"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            return Rejection(BAD_ANSWER, f"malformed task: {type(error).__name__}: {error}"[:200])
        return None if found.em == 1.0 and found.f1 == 1.0 else Rejection(WRONG_ANSWER, _WRONG)

    def canonical(self, task: Task) -> str:
        """See `Benchmark.canonical`: the question without case, punctuation and white space."""
        return _letters(prompts.question(task))

    def text(self, task: Task) -> str:
        """See `Benchmark.text`: the question."""
        return prompts.question(task)

    def score(self, task: Task, answer: str) -> Score:
        """See `Benchmark.score`; `detail` has the measures, and the judge's verdict if there is one.

        A judge is asked about held-out tasks only, unless it decides about success.  Where it cannot be
        reached its verdict is None, and no success.
        """
        rejection = check_text(answer, self.answer_chars)
        if rejection:
            return Score(0.0, False, False, rejection.reason)
        try:
            golds = task.answer["answers"]
            prediction = extract(answer)
            found = dataclasses.asdict(measure(prediction, golds))
            question = prompts.question(task)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            # Only a task that `verify` rejects leads here.
            return Score(0.0, False, False, f"malformed_task_{type(error).__name__.lower()}")
        if not normalize(prediction):
            return Score(0.0, False, False, "no_answer", found)
        reward = found[self.reward]
        if self.judge is not None and (task.origin == "eval" or self.success == "judge"):
            try:
                found["judge"] = bool(self.judge(question, golds, prediction))
            except Exception as error:  # of a network and a server: all kinds
                found |= {"judge": None, "judge_error": f"{type(error).__name__}: {error}"[:200]}
        if self.success == "judge":
            success = found["judge"] is True
            reward = float(success)
        else:
            success = found[self.success] >= (_MIN_F1 if self.success == "f1" else 1.0)
        return Score(reward, success, True, "" if success else _WRONG, found)

    def aggregate(self, results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
        """See `Benchmark.aggregate` and `metrics.official_metrics`."""
        return official_metrics(results)


def _questions(task: Task) -> set[str]:
    """Canonical wordings of a question and its sub-questions."""
    wordings = [prompts.question(task), *(step["question"] for step in task.answer["steps"])]
    return {_letters(wording) for wording in wordings}


def _first_answers(task: Task) -> set[str]:
    """Normalised answers of the first sub-question, yes and no aside."""
    answers = task.answer["steps"][0]["answers"] if task.answer["steps"] else []
    return {normalize(answer) for answer in answers} - {"yes", "no", ""}


def _letters(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(character for character in folded if character.isalnum())
