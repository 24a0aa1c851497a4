"""API-Bank's replies to users: ROUGE-L to four digits, called as the official evaluators call it."""

import pathlib
import random
from collections.abc import Iterator

from bench.agreement.tally import Case, Judge, Verdict
from bench.bad_answers.api_bank import replies
from genenv_jax.benchmarks.api_bank import tasks
from genenv_jax.benchmarks.api_bank.benchmark import APIBank

SPLITS = ("level-1-response", "level-2-response", "level-3-batch-inf-response")


def cases(data_dir: pathlib.Path | None, seed: int, share: float) -> Iterator[Case]:
    """Every reply."""
    said = tasks.load(tasks.find_directory(data_dir), SPLITS, "eval")
    for task, other in zip(said, said[5:] + said[:5], strict=True):
        rng = random.Random(f"agreement {seed} {task.id}")
        if rng.random() < share:
            for kind, text in replies(task.answer["text"], other.answer["text"], rng):
                yield Case(f"reply, {kind}", task, text)


def ours(data_dir: pathlib.Path | None) -> Judge:
    """Our reward, which is ROUGE-L."""
    benchmark = APIBank(data_dir=data_dir, eval_splits=SPLITS)

    def judge(case: Case) -> Verdict:
        score = benchmark.score(case.task, case.text)
        return Verdict(True, score.reason, score.reward)

    return judge


def official(data_dir: pathlib.Path | None, clones: pathlib.Path) -> Judge:
    """The package rouge's score."""
    from rouge import Rouge

    package = Rouge()

    def judge(case: Case) -> Verdict:
        text = case.text
        if case.task.answer["level"] == 3:
            text = text.replace("User:", "").replace("AI:", "").strip()
        if not text:
            return Verdict(True, "", 0.0)
        try:
            value = package.get_scores(text, case.task.answer["text"])[0]["rouge-l"]["f"]
        except ValueError:
            return Verdict(True, "the package raises", 0.0)
        return Verdict(True, "", round(value, 4))

    return judge
