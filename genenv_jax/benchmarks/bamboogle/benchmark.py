"""Bamboogle (Press et al., 2023): 125 two-hop questions, as a benchmark.

Answers are scored by exact match, F1 and sub-EM after the standard normalisation (`scoring`).  Success is
exact match, as in Search-R1; the reward is the word F1 by default, because the paper's Eq. 1 scores free-form
answers by a similarity in [0, 1].  There is no training data: a share of the questions (`seed_fraction`)
becomes seeds, with their sub-questions, and the rest is held out.  Seeds that share a sub-question or a first
answer with a held-out question are dropped.  With `seed_fraction` 0 all 125 are held out; only those results
compare with published ones.  `mode="search"` finds the question's own sub-questions with their answers
(`episode`), in place of Wikipedia; an agent that follows both has an exact match on 103 of the 125.
"""

import dataclasses
import functools
import itertools
import re

from genenv_jax.benchmarks.bamboogle import generation as generations
from genenv_jax.benchmarks.bamboogle import prompts, scoring, tasks
from genenv_jax.benchmarks.bamboogle.episode import MAX_SEARCHES, SearchEpisode, search_answer
from genenv_jax.benchmarks.bamboogle.scoring import normalize
from genenv_jax.benchmarks.base import Message, Rejection, Score, Task
from genenv_jax.benchmarks.judge import EndpointJudge
from genenv_jax.benchmarks.options import check_choice, check_shares
from genenv_jax.benchmarks.records import Published
from genenv_jax.benchmarks.subsets import stable_position
from genenv_jax.benchmarks.wording import letters, words
from genenv_jax.system.keys import as_line

CLOSED_BOOK, SEARCH = "closed_book", "search"
# Words that say nothing about the relation that a question asks for.
_COMMON = frozenset(
    "a an and are as at be been by did do does for from had has have how in into is it its most of on or "
    "she he his her that the their they this to was were what when where which who whom whose with".split()
)


@dataclasses.dataclass(kw_only=True, eq=False)
class Bamboogle(Published):
    """Bamboogle's tasks, prompts and scoring.

    Args, besides those of `Published`:
      mode: "closed_book" (one answer) or "search": seeds and generated tasks are two-hop questions, answered
        in episodes with searches.
      reward: "f1", "em" or "sub_em".
      seed_fraction: share of the questions that become seeds, by a stable hash, with their sub-questions.
      judge_url: base URL of an OpenAI-compatible endpoint that judges held-out answers; "": no judge.
      judge_model: the model's name at that endpoint.
    """

    name = "bamboogle"

    mode: str = CLOSED_BOOK
    reward: str = "f1"
    seed_fraction: float = 0.2
    judge_url: str = ""
    judge_model: str = ""

    # Methods of `Benchmark`:
    simulator_messages = staticmethod(prompts.simulator_messages)
    read = staticmethod(generations.read)
    aggregate = staticmethod(scoring.official_metrics)

    def __post_init__(self):
        super().__post_init__()
        check_choice("mode", self.mode, (CLOSED_BOOK, SEARCH))
        check_choice("reward", self.reward, ("em", "f1", "sub_em"))
        check_shares(seed_fraction=self.seed_fraction)
        url, model = self.judge_url, self.judge_model
        self.episodes = self.mode == SEARCH
        self.judge = EndpointJudge(url, model) if url else None
        # A request can outlast its timeout, so scoring runs in worker processes with a time limit.
        self.isolated = bool(url)
        self.worker_needs = ("network",) if url else ()

    def facts(self) -> dict[str, str]:
        facts = {
            "data": "125 questions; LoganMilandin/comp-gap-public, commit 7667305",
            "rule": f"success: em; reward: {self.reward}; SQuAD normalisation",
            "mode": self.mode,
            "seed_fraction": str(self.seed_fraction),
        }
        if self.episodes:
            facts["episodes"] = "conversations only grow; searches and what they find are bounded"
            facts["search"] = f"the question's own sub-questions, {MAX_SEARCHES} searches"
        if self.judge is not None:
            facts["judge"] = self.judge_model
        return facts

    def load(self, split: str) -> list[Task]:
        """Seeds are distinct, pass `verify` and give no held-out question away."""
        directory = tasks.find_directory(self.data_dir)
        sides: dict[bool, list[Task]] = {True: [], False: []}  # whether it is a seed
        for task in tasks.load(directory, split, self.verify_files):
            place = stable_position(f"bamboogle:{task.id}")
            sides[place < self.seed_fraction].append(task)
        if split == "eval":
            return sides[False]
        questions = {key for task in sides[False] for key in _questions(task)}
        first = {key for task in sides[False] for key in _first_answers(task)}
        kept: dict[str, Task] = {}
        for task in sides[True]:
            if _questions(task) & questions or _first_answers(task) & first:
                continue
            for seed in (task, *([] if self.episodes else tasks.sub_tasks(task))):
                if self.verify(seed) is None:
                    kept.setdefault(self.canonical(seed), seed)
        return list(kept.values())

    def prompt(self, task: Task) -> list[Message]:
        return prompts.agent_messages(task, MAX_SEARCHES if self.is_interactive(task) else 0)

    def source(self, task: Task) -> str:
        return task.id.partition(":")[0]

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        return generations.write(task)

    def agent_answer(self, task: Task) -> str:
        return f"<answer>{task.answer['answers'][0]}</answer>"

    def agent_answers(self, task: Task) -> list[str]:
        steps = task.answer["steps"] if self.is_interactive(task) else []
        return [*(search_answer(step["question"]) for step in steps), self.agent_answer(task)]

    def is_interactive(self, task: Task) -> bool:
        return self.episodes and bool(task.answer["steps"])

    def episode(self, task: Task) -> SearchEpisode:
        finish = functools.partial(self.score, task)
        return SearchEpisode(self.agent_messages(task), task.answer["steps"], finish)

    def fault(self, task: Task) -> Rejection | None:
        """Whether a generated answer is true cannot be checked without a source; see `generation.fault`."""
        if rejection := generations.fault(task) or super().fault(task):
            return rejection
        return self._search_fault(task) if self.episodes else None

    def _search_fault(self, task: Task) -> Rejection | None:
        """BAD_STEPS unless every reference search finds a step and the reference answer ends the episode."""
        if not self.is_interactive(task):
            return Rejection(generations.BAD_STEPS, "nothing to search for")
        episode, answers = self.episode(task), self.agent_answers(task)
        ends = [episode.step(answer) is not None for answer in answers]
        if any(ends[:-1]) or not ends[-1] or episode.result.detail["found"] != len(answers) - 1:
            return Rejection(generations.BAD_STEPS, "a search for a step does not find it")
        return None

    def canonical(self, task: Task) -> str:
        return letters(prompts.question(task))

    def meanings(self, task: Task) -> list[str]:
        """The answers of both hops or the only one; held-out questions add each answer alone."""
        hops = [step["answers"] for step in task.answer["steps"][:1]] + [task.answer["answers"]]
        told = [[" ".join(words(normalize(answer))) for answer in answers] for answers in hops]
        alone = [a for of in told for a in of if a not in ("yes", "no")]
        chains = [" > ".join(pair) for pair in itertools.product(*told)]
        return chains + (alone if task.origin == "eval" else [])

    def signature(self, task: Task) -> str:
        """The question's words except names, numbers and the commonest words."""
        words = re.findall(r"\w+", self.text(task))
        return " ".join(word for word in words if word.islower() and word not in _COMMON)

    def difficulty(self, task: Task) -> float:
        """The number of hops."""
        return float(len(task.answer["steps"]) or 1)

    def requests(self, task: Task) -> list[tuple[str, list[str]]]:
        """The question and its sub-questions, which give half of it away, each with all its answers."""
        asked = [(self.text(task), task.answer["answers"])]
        asked += [(step["question"], step["answers"]) for step in task.answer["steps"]]
        return [(question, [normalize(answer)]) for question, of in asked for answer in of]

    def verdict(self, task: Task, answer: str) -> Score:
        """`scoring.score`; `detail` has the judge's verdict on a held-out answer, None without a reply."""
        golds = task.answer["answers"]
        score = scoring.score(golds, answer, self.reward)
        if self.judge is None or task.origin != "eval" or not score.valid:
            return score
        try:
            judged = {"judge": bool(self.judge(self.text(task), golds, scoring.extract(answer)))}
        except Exception as error:  # a network or a server can fail in any way
            judged = {"judge": None, "judge_error": as_line(f"{type(error).__name__}: {error}")[:200]}
        return dataclasses.replace(score, detail={**score.detail, **judged})


def _questions(task: Task) -> set[str]:
    """Canonical wordings of a question and its sub-questions."""
    wordings = [prompts.question(task), *(step["question"] for step in task.answer["steps"])]
    return {letters(wording) for wording in wordings}


def _first_answers(task: Task) -> set[str]:
    """Normalised answers of the first sub-question, except yes and no."""
    answers = task.answer["steps"][0]["answers"] if task.answer["steps"] else []
    return {normalize(answer) for answer in answers} - {"yes", "no", ""}
