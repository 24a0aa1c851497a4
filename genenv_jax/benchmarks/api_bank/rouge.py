"""ROUGE-L F1 as computed by the package `rouge` 1.0.1, which the official evaluators call.

It is the summary-level variant over *sets* of words: sentences are the parts between full stops, and the
score compares the union of all pairwise longest common subsequences with each text's words.
"""

from collections.abc import Sequence

_EPSILON = 1e-8


def sentences(text: str) -> list[list[str]]:
    """Words of each sentence; a sentence of only white space has the one word "", as officially."""
    return [" ".join(part.split()).split(" ") for part in text.split(".") if part]


def rouge_l(reference: str, prediction: str) -> float:
    """ROUGE-L F1 in [0, 1]; 0 if either text has no sentence (the package raises then).

    Time and memory grow with words(reference) * words(prediction), so callers bound both.
    """
    expected, found = sentences(reference), sentences(prediction)
    if not expected or not found:
        return 0.0
    common: set[str] = set()
    others = {tuple(words): frozenset(words) for words in found}
    for left in dict.fromkeys(map(tuple, expected)):
        known = frozenset(left)
        for right, words in others.items():
            if not words & known <= common:  # otherwise nothing can be added
                # The traceback never keeps words of the prediction that the reference sentence lacks.
                shared = [word for word in right if word in known]
                common |= _common_words(left, shared)
    recall = len(common) / len({word for words in expected for word in words})
    precision = len(common) / len({word for words in found for word in words})
    return 2.0 * ((precision * recall) / (precision + recall + _EPSILON))


def _common_words(left: Sequence[str], right: Sequence[str]) -> set[str]:
    """Words of one longest common subsequence: the one that the package finds."""
    table = [[0] * (len(right) + 1)]
    for word in left:
        above, row = table[-1], [0]
        for j, other in enumerate(right):
            row.append(above[j] + 1 if word == other else max(above[j + 1], row[j]))
        table.append(row)
    i, j = len(left), len(right)
    words = set()
    while i and j:
        if left[i - 1] == right[j - 1]:
            words.add(left[i - 1])
            i, j = i - 1, j - 1
        elif table[i - 1][j] > table[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return words
