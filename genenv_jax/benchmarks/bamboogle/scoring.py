"""The official score: exact match, F1 and sub-EM with the standard question-answering normalisation.

Normalisation: lower case, no ASCII punctuation, no articles, single spaces (SQuAD; the same in Search-R1
`verl/utils/reward_score/qa_em.py` and FlashRAG `flashrag/evaluator/utils.py`).  Each measure is the
maximum over the gold answers.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

from genenv_jax.benchmarks.base import Score, Task, mean
from genenv_jax.benchmarks.safe_parse import check_text

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = ("yes", "no", "noanswer")  # answers without partial credit
# What separates candidates; a last comma may be part of a name (`Paris, France`).
_PARTS = re.compile(r"[;/|\n]|\bor\b|,(?=[^,]*,)")
MAX_CHARS = 8_192  # longest answer that is read
NO_ANSWER = "no_answer"
MEASURES = ("em", "sub_em", "f1", "precision", "recall")


def normalize(text: str) -> str:
    """The text without case, punctuation, articles and superfluous spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def extract(text: str) -> str:
    """The contents of the last `<answer>...</answer>`, stripped, or the whole text if there is none.

    Pairs are matched from the left, each opening tag with the next closing tag, as in Search-R1.
    """
    closed = text.split("</answer>")[:-1]
    found = [part.partition("<answer>")[2] for part in closed if "<answer>" in part]
    return (found or [text])[-1].strip()


def measure(prediction: str, golds: Sequence[str]) -> dict[str, float]:
    """How well a prediction agrees with its gold answers; all in [0, 1], and 0 without gold answers.

    Returns:
      em: equality after normalisation.
      sub_em: the prediction contains a gold answer, both normalised ("acc" in FlashRAG).
      f1, precision, recall: over words; 0 if one of the two is yes, no or noanswer and they differ.
    """
    found, best = normalize(prediction), dict.fromkeys(MEASURES, 0.0)
    for expected in map(normalize, golds):
        contained = bool(expected) and expected in found
        values = (float(found == expected), float(contained), *_words(found, expected))
        best = {name: max(best[name], v) for name, v in zip(MEASURES, values, strict=True)}
    return best


def choices(prediction: str, golds: Sequence[str]) -> int:
    """How many candidates an answer lists, by which its reward is divided; 1 for an exact match."""
    own, *others = (len(_PARTS.findall(text.lower())) for text in (prediction, *golds))
    exact = normalize(prediction) in map(normalize, golds)
    return 1 if exact else 1 + max(0, own - max(others, default=0))


def _words(found: str, expected: str) -> tuple[float, float, float]:
    """(F1, precision, recall) over the words of two normalised texts."""
    if found != expected and (found in _CLOSED or expected in _CLOSED):
        return 0.0, 0.0, 0.0
    left, right = found.split(), expected.split()
    common = sum((Counter(left) & Counter(right)).values())
    if not common:
        return 0.0, 0.0, 0.0
    precision, recall = common / len(left), common / len(right)
    return 2 * precision * recall / (precision + recall), precision, recall


def score(golds: Sequence[str], answer: str, reward: str) -> Score:
    """Success is exact match; the reward is the measure named `reward`, divided by `choices`.

    `detail` has all measures.

    The reason of a wrong answer is "no_answer_tag" if the whole text was taken as the answer.
    """
    if rejection := check_text(answer, MAX_CHARS):
        return Score(0.0, False, False, rejection.reason)
    prediction = extract(answer)
    found = measure(prediction, golds)
    if not normalize(prediction):
        return Score(0.0, False, False, NO_ANSWER, found)
    success = found["em"] == 1.0
    wrong = "wrong_answer" if prediction != answer.strip() else "no_answer_tag"
    paid = found[reward] / choices(prediction, golds)
    return Score(paid, success, True, "" if success else wrong, found)


def official_metrics(results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
    """Means over all results; {"accuracy": 0.0} where there are none.

    Returns:
      accuracy                          share of successes (the headline; exact match);
      em, f1, sub_em, precision, recall see `measure`; an unreadable answer counts 0;
      searches, found                   with a search tool: searches made and sub-questions found, per
                                        question;
      judge, judge_failures             with a judge: share of judged answers that it calls correct;
                                        share of verdicts that could not be obtained.
    """
    if not results:
        return {"accuracy": 0.0}
    scores = [score for _, score in results]
    metrics = {"accuracy": mean([score.success for score in scores])}
    for name in ("em", "f1", "sub_em", "precision", "recall"):
        metrics[name] = mean([score.detail.get(name, 0.0) for score in scores])
    for name in ("searches", "found"):
        if values := [score.detail[name] for score in scores if name in score.detail]:
            metrics[name] = mean(values)
    if verdicts := [score.detail["judge"] for score in scores if "judge" in score.detail]:
        if judged := [verdict for verdict in verdicts if verdict is not None]:
            metrics["judge"] = mean(judged)
        metrics["judge_failures"] = 1 - len(judged) / len(verdicts)
    return metrics
