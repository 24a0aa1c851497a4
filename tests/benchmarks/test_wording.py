"""Folded texts, their words, and what two texts have in common."""

import random

import pytest

from genenv_jax.benchmarks.wording import Subsequences, fold, letters, words


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Telephone", "tеlерhоnе"),  # Cyrillic е, р, о
        ("TAXI", "ТАХІ"),
        ("Rome in May", "Rοmε in Μαy".replace("ε", "e")),  # Greek ο, Μ, α
        ("find it", "ｆｉｎｄ ｉｔ"), ("find it", "fi\u200bnd i\u00adt"), ("café", "CAFE\u0301"),
        ("Straße", "STRASSE"), ("Москва", "МОСКВА"),
    ],
)  # fmt: skip
def test_look_alikes_are_the_same(text, same):
    assert text != same and fold(text) == fold(same) and letters(text) == letters(same)


def test_other_words_are_not():
    assert len({fold(text) for text in ("Rome", "Roma", "Rom", "Tome", "Рим", "ローマ")}) == 6


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Two dogs, 3.50 cats!", ["2", "dogs", "3.5", "cats"]),
        ("1,000.0 and 1000", ["1000", "and", "1000"]),
        ("1,2", ["1", "2"]),
        ("Twenty-four, sixty one or ninety", ["24", "61", "or", "90"]),
        ("twenty five-star hotels", ["20", "5", "star", "hotels"]),
        ("٣a ❶ १२", ["3", "a", "1", "12"]),
        ("-3.25kg", ["3.25", "kg"]),
        ("don't add_all", ["don", "t", "add", "all"]),
        ("東京 weather", ["東", "京", "weather"]),
        (" ... ", []),
    ],
)
def test_words(text, found):
    assert words(text) == found


def test_longest_common_subsequences_are_those_of_the_textbook():
    rng = random.Random(0)
    for _ in range(200):
        a, b = (rng.choices("abcd", k=rng.randrange(12)) for _ in range(2))
        table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
        for i, left in enumerate(a):
            for j, right in enumerate(b):
                longest = max(table[i][j + 1], table[i + 1][j])
                table[i + 1][j + 1] = table[i][j] + 1 if left == right else longest
        assert Subsequences(a).common(b) == table[-1][-1]


def test_long_texts_cost_little(bounded):
    sequence = Subsequences(["the"] * 3_000)
    assert sequence.common(["the"] * 6_000) == 3_000
    assert len(words("a" * 200_000)) == 1
