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
import re
from collections.abc import Callable, Sequence

from genenv_jax.benchmarks.bamboogle import generation as generations
from genenv_jax.benchmarks.bamboogle import prompts, records
from genenv_jax.benchmarks.bamboogle.answers import extract, measure, normalize
from genenv_jax.benchmarks.bamboogle.episode import SearchEpisode, search_answer
from genenv_jax.benchmarks.bamboogle.judge import EndpointJudge, Judge
from genenv_jax.benchmarks.bamboogle.metrics import official_metrics
from genenv_jax.benchmarks.base import WRONG_ANSWER, Message, Rejection, Score, SeedStatistics, Task
from genenv_jax.benchmarks.options import check_choice, check_integers, check_shares
from genenv_jax.benchmarks.records import Published
from genenv_jax.benchmarks.safe_parse import check_text
from genenv_jax.benchmarks.subsets import stable_position
from genenv_jax.benchmarks.wording import letters

CLOSED_BOOK, SEARCH = "closed_book", "search"
_MEASURES = ("em", "f1", "sub_em")
_MIN_F1 = 0.5  # from which an F1 counts as a success, where F1 decides
_WRONG = "wrong_answer"
_NO_TAG = "no_answer_tag"
# What says nothing of the relation that a question asks for.
_COMMON = frozenset(
    "a an and are as at be been by did do does for from had has have how in into is it its most of on or "
    "she he his her that the their they this to was were what when where which who whom whose with".split()
)


@dataclasses.dataclass(kw_only=True, eq=False)
class Bamboogle(Published):
    """Bamboogle's tasks, prompts and scoring; a `Benchmark`.

    Args, beside those of `Published`:
      mode: "closed_book" (one answer) or "search" (episodes with a search tool).
      success: what counts as a success: "em" (the standard), "sub_em", "f1" (at least 0.5) or "judge".
      reward: "f1", "em" or "sub_em"; with success "judge" the reward is the judge's verdict.
      seed_fraction: share of the questions that become seeds, by a stable hash.
      sub_questions: whether their sub-questions become seeds too.
      episodes: the seeds, and what the simulator writes, are questions of two hops that are searched for, in
        episodes whose conversations only grow.  The mode must be "search".
      max_searches: searches of an episode.
      search_threshold: how much a query must resemble a sub-question to find it (`search.similarity`).
      answer_chars: longest answer that is read.
      generation_chars: longest generation of the simulator that is read.
      judge_url: base URL of an OpenAI-compatible endpoint that judges held-out answers; "": none.
      judge_model: the model's name there.
    """

    name = "bamboogle"

    mode: str = CLOSED_BOOK
    success: str = "em"
    reward: str = "f1"
    seed_fraction: float = 0.2
    sub_questions: bool = True
    episodes: bool = False
    max_searches: int = 3
    search_threshold: float = 0.4
    answer_chars: int = 8_192
    generation_chars: int = 8_192
    judge_url: str = ""
    judge_model: str = ""

    def __post_init__(self):
        super().__post_init__()
        check_choice("mode", self.mode, (CLOSED_BOOK, SEARCH))
        if self.episodes and self.mode != SEARCH:
            raise ValueError(f"episodes = True, mode = {self.mode!r}: expected 'search'")
        check_choice("success", self.success, (*_MEASURES, "judge"))
        check_choice("reward", self.reward, _MEASURES)
        check_shares(seed_fraction=self.seed_fraction, search_threshold=self.search_threshold)
        check_integers(1, 5, max_searches=self.max_searches)
        check_integers(1, 16_384, answer_chars=self.answer_chars)
        check_integers(1, 16_384, generation_chars=self.generation_chars)
        url, judge = self.judge_url, self.judge_model
        if self.success == "judge" and not url:
            raise ValueError("success = 'judge': expected judge_url and judge_model too")
        if url and not judge:
            raise ValueError("judge_model = '': expected the judge's name at judge_url")
        self.judge: Judge | None = EndpointJudge(url, judge) if url else None
        # A request may hang longer than its time-out says: scored in processes, with a limit.
        self.isolated = bool(url)
        self.worker_needs = ("network",) if url else ()

    def facts(self) -> dict[str, str]:
        facts = {
            "data": "125 questions; LoganMilandin/comp-gap-public, commit 7667305",
            "rule": f"success: {self.success}; reward: {self.reward}; SQuAD normalisation",
            "mode": self.mode,
            "seed_fraction": str(self.seed_fraction),
        }
        if self.episodes:
            facts["episodes"] = "conversations only grow; searches and what they find are bounded"
        if self.mode == SEARCH:
            facts["search"] = f"the question's own sub-questions, {self.max_searches} searches"
        if self.judge is not None:
            facts["judge"] = self.judge_model
        return facts

    def load(self, split: str) -> list[Task]:
        directory = records.find_directory(self.data_dir)
        sides: dict[bool, list[Task]] = {True: [], False: []}  # whether it is a seed
        for task in records.load(directory, split, self.verify_files):
            place = stable_position(f"bamboogle:{task.id}")
            sides[place < self.seed_fraction].append(task)
        return sides[False] if split == "eval" else self._seeds(sides[True], sides[False])

    def _seeds(self, candidates: list[Task], held_out: list[Task]) -> list[Task]:
        questions = {key for task in held_out for key in _questions(task)}
        first = {key for task in held_out for key in _first_answers(task)}
        kept: dict[str, Task] = {}
        for task in candidates:
            if _questions(task) & questions or _first_answers(task) & first:
                continue
            parts = records.sub_tasks(task) if self.sub_questions and not self.episodes else []
            for seed in (task, *parts):
                if self.verify(seed) is None:
                    kept.setdefault(self.canonical(seed), seed)
        return list(kept.values())

    def prompt(self, task: Task) -> list[Message]:
        return prompts.agent_messages(task, self.max_searches if self.is_interactive(task) else 0)

    def source(self, task: Task) -> str:
        """See `Benchmark.source`: a question and its sub-questions."""
        return task.id.partition(":")[0]

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        """See `Benchmark.simulator_messages`."""
        return prompts.simulator_messages(seed, statistics)

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        """See `Benchmark.simulator_answer`."""
        steps = prompts.write_steps(task) if task.answer["steps"] else ""
        return generations.write(prompts.question(task), steps, task.answer["answers"])

    def agent_answer(self, task: Task) -> str:
        """See `Benchmark.agent_answer`; in an episode this ends it."""
        return f"<answer>{task.answer['answers'][0]}</answer>"

    def agent_answers(self, task: Task) -> list[str]:
        """See `Benchmark.agent_answers`: a search for each step, as far as there are any, and the answer."""
        steps = task.answer["steps"][: self.max_searches] if self.is_interactive(task) else []
        return [*(search_answer(step["question"]) for step in steps), self.agent_answer(task)]

    def is_interactive(self, task: Task) -> bool:
        """See `Benchmark.is_interactive`: in search mode, where there is something to find."""
        return self.mode == SEARCH and bool(task.answer["steps"])

    def episode(self, task: Task) -> SearchEpisode:
        """See `Benchmark.episode`."""
        return self._episode(task, lambda answer: self.score(task, answer))

    def _episode(self, task: Task, finish: Callable[[str], Score]) -> SearchEpisode:
        return SearchEpisode(
            task,
            self.agent_messages(task),
            finish,
            self.max_searches,
            self.search_threshold,
            self.answer_chars,
            grows=self.episodes,
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

    def fault(self, task: Task) -> Rejection | None:
        """Reasons of `generations.fault`, and WRONG_ANSWER.

        Whether a generated answer is true cannot be checked without a source; the steps must lead to
        it, and the question must not hold it.
        """
        spec = task.answer
        rejection = generations.fault(prompts.question(task), spec["answers"], spec["steps"])
        if rejection:
            return rejection
        found = measure(extract(self.agent_answer(task)), spec["answers"])
        if found.em < 1.0 or found.f1 < 1.0:
            return Rejection(WRONG_ANSWER, _WRONG)
        return self._search_fault(task) if self.episodes else None

    def _search_fault(self, task: Task) -> Rejection | None:
        """BAD_STEPS unless each of the reference's searches finds a step, and its answer is the end."""
        if not self.is_interactive(task):
            return Rejection(generations.BAD_STEPS, "nothing to search for")
        episode = self._episode(task, lambda answer: Score(1.0, True, True))
        answers = self.agent_answers(task)
        scores = [score for answer in answers if (score := episode.step(answer)) is not None]
        if len(scores) != 1 or scores[0].detail["found"] != len(answers) - 1:
            return Rejection(generations.BAD_STEPS, "a search for a step does not find it")
        return None

    def canonical(self, task: Task) -> str:
        """See `Benchmark.canonical`: the question without case, punctuation and white space."""
        return letters(prompts.question(task))

    def text(self, task: Task) -> str:
        """See `Benchmark.text`: the question."""
        return prompts.question(task)

    def signature(self, task: Task) -> str:
        """See `Benchmark.signature`: the question's words, but for names, numbers and the commonest words."""
        words = re.findall(r"\w+", self.text(task))
        return " ".join(word for word in words if word.islower() and word not in _COMMON)

    def difficulty(self, task: Task) -> float:
        """See `Benchmark.difficulty`: the number of hops."""
        return float(len(task.answer["steps"]) or 1)

    def requests(self, task: Task) -> list[tuple[str, list[str]]]:
        """See `Benchmark.requests`: the question and its sub-questions, each with every answer of its own.

        One answer more does not make another question of it, and half of a question gives it away.
        """
        asked = [(self.text(task), task.answer["answers"])]
        asked += [(step["question"], step["answers"]) for step in task.answer["steps"]]
        return [(question, [normalize(answer)]) for question, of in asked for answer in of]

    def verdict(self, task: Task, answer: str) -> Score:
        """`detail` has the measures, and the judge's verdict if there is one.

        A judge is asked about held-out tasks only, unless it decides about success.  Where it cannot be
        reached its verdict is None, and no success.
        """
        rejection = check_text(answer, self.answer_chars)
        if rejection:
            return Score(0.0, False, False, rejection.reason)
        golds = task.answer["answers"]
        prediction = extract(answer)
        found = dataclasses.asdict(measure(prediction, golds))
        question = prompts.question(task)
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
        # Without a tag all of the text is the answer, which is seldom meant.
        wrong = _WRONG if prediction != answer.strip() else _NO_TAG
        return Score(reward, success, True, "" if success else wrong, found)

    def aggregate(self, results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
        """See `Benchmark.aggregate` and `metrics.official_metrics`."""
        return official_metrics(results)


def _questions(task: Task) -> set[str]:
    """Canonical wordings of a question and its sub-questions."""
    wordings = [prompts.question(task), *(step["question"] for step in task.answer["steps"])]
    return {letters(wording) for wording in wordings}


def _first_answers(task: Task) -> set[str]:
    """Normalised answers of the first sub-question, yes and no aside."""
    answers = task.answer["steps"][0]["answers"] if task.answer["steps"] else []
    return {normalize(answer) for answer in answers} - {"yes", "no", ""}
