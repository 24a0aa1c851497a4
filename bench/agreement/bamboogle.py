"""Bamboogle: exact match (Search-R1), and F1 and sub-EM (FlashRAG), of the last <answer>.

Search-R1 rejects answers without such tags (kinds that end in "no tags"); FlashRAG reads whole predictions.
"""

import importlib
import pathlib
import random
import re
import sys
import types
from collections.abc import Iterator

from bench.agreement.tally import Case, Judge, Verdict
from bench.bad_answers.bamboogle import answers
from genenv_jax.benchmarks.bamboogle import tasks
from genenv_jax.benchmarks.bamboogle.benchmark import Bamboogle

_PAIR = re.compile("<answer>.*?</answer>", re.DOTALL)


def cases(data_dir: pathlib.Path | None, seed: int, share: float) -> Iterator[Case]:
    """All questions with answers of many kinds."""
    questions = tasks.load(tasks.find_directory(data_dir))
    for task, other in zip(questions, questions[1:] + questions[:1], strict=True):
        rng = random.Random(f"agreement {seed} {task.id}")
        if rng.random() < share:
            gold, wrong = task.answer["answers"][0], other.answer["answers"][0]
            for kind, text in answers(task.messages[-1]["content"], gold, wrong, rng):
                untagged = not _PAIR.search(text)
                yield Case(f"{kind}, no tags" if untagged else kind, task, text)


def ours(data_dir: pathlib.Path | None) -> Judge:
    """Exact match, and (F1, sub-EM) of the extracted answer to twelve digits."""
    benchmark = Bamboogle(data_dir=data_dir, seed_fraction=0.0)

    def judge(case: Case) -> Verdict:
        score = benchmark.score(case.task, case.text)
        detail = score.detail or {}
        value = round(detail.get("f1", 0.0), 12), detail.get("sub_em", 0.0)
        return Verdict(score.success, score.reason, value)

    return judge


def official(data_dir: pathlib.Path | None, clones: pathlib.Path) -> Judge:
    """The official verdicts."""
    sys.path.insert(0, str(clones / "Search-R1" / "verl" / "utils" / "reward_score"))
    search = importlib.import_module("qa_em")
    for name in ("flashrag", "flashrag.evaluator"):  # their own files import models and indices
        module = sys.modules[name] = types.ModuleType(name)
        module.__path__ = [str(clones / "FlashRAG" / name.replace(".", "/"))]
    metrics = importlib.import_module("flashrag.evaluator.metrics")
    config = {"dataset_name": "bamboogle"}
    f1, sub = metrics.F1_Score(config), metrics.Sub_ExactMatch(config)

    def judge(case: Case) -> Verdict:
        golds = list(case.task.answer["answers"])
        # Its prompts contain a pair of tags, so it finds an answer only in a second pair.
        found = search.extract_solution(f"<answer>x</answer>{case.text}")
        found = case.text if found is None else found
        accepted = bool(search.em_check(found, golds))
        value = (
            round(f1.token_level_scores(found, golds)["f1"], 12),
            sub.calculate_sub_em(found, golds),
        )
        return Verdict(accepted, "" if accepted else "wrong_answer", value)

    return judge
