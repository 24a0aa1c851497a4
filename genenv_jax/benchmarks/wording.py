"""Normalizes what is easily changed in a text: case, accents, look-alike letters, ways to write numbers."""

import base64
import codecs
import contextlib
import re
import unicodedata
from collections.abc import Sequence

# Letters that look like Latin ones, after Unicode's confusables.txt (UTS #39).  The small letters в, к, м,
# н and т look like small capitals, so they are mapped like their capitals.
_LOOK_ALIKES = str.maketrans(
    "АВЕКМНОРСТУХІЈЅԌԚԜавекмнорстухіјѕԁһӏԛԝѵү"  # Cyrillic
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαγινορσυ"  # Greek
    "ıɑɡ",  # Latin
    "ABEKMHOPCTYXIJSGQWabekmhopctyxijsdhlqwvyABEZHIKMNOPTYXayivopouiag",
)
_BASE64 = re.compile("[A-Za-z0-9+/]{4,}")
_INVISIBLE = ("Mn", "Cf")  # accents, joiners, direction marks, soft hyphens
# Scripts without spaces are read character by character.
_WORD = re.compile(
    "[0-9]+(?:,[0-9]{3})*(?:[.][0-9]+)?|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\\W_]"
    "(?:(?![\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])[^\\W_])*"
)
_TO_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty".split()
)
_TENS = "thirty forty fifty sixty seventy eighty ninety".split()
_NUMBERS = {word: str(n) for n, word in enumerate(_TO_TWENTY)} | {w: f"{n}0" for n, w in enumerate(_TENS, 3)}
_ONES = "|".join(_TO_TWENTY[1:10])
# Not "twenty five-star hotels".
_TWO_WORDS = re.compile(rf"\b(twenty|{'|'.join(_TENS)})(?:-({_ONES})\b| ({_ONES})\b(?!-))")


def fold(text: str) -> str:
    """A text in NFKC without case, accents and invisible characters.

    Look-alikes become Latin letters, digits of any script ASCII.
    """
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text).translate(_LOOK_ALIKES).casefold()
    kept = (str(unicodedata.digit(c, c)) for c in decomposed if unicodedata.category(c) not in _INVISIBLE)
    return unicodedata.normalize("NFKC", "".join(kept))


def readings(text: str) -> list[str]:
    """A text as it is, and what it says backwards, in ROT13, in Base64 or by its first letters."""
    found = [text, text[::-1], codecs.encode(text, "rot13")]
    found += ["".join(part[:1] for part in parts) for parts in (text.split("\n"), text.split())]
    for token in _BASE64.findall(text):
        with contextlib.suppress(ValueError):
            found.append(base64.b64decode(f"{token}===").decode())
    return found


def letters(text: str) -> str:
    """The letters and digits of a text, folded, without punctuation and white space."""
    return "".join(character for character in fold(text) if character.isalnum())


def words(text: str) -> list[str]:
    """The folded words and numbers of a text.

    `1,000.0` equals `1000`, and `two` equals `2`, up to `ninety-nine`.
    """
    joined = _TWO_WORDS.sub(lambda two: _NUMBERS[two[1]][0] + _NUMBERS[two[2] or two[3]], fold(text))
    return [_number(word) for word in _WORD.findall(joined)]


def _number(word: str) -> str:
    if not word[0].isdigit():
        return _NUMBERS.get(word, word)
    whole, _, decimals = word.replace(",", "").partition(".")
    decimals = decimals.rstrip("0")
    return f"{whole}.{decimals}" if decimals else whole


class Subsequences:
    """Longest common subsequences of one sequence of words with others.

    The bits of one integer hold a row of the textbook algorithm's table (Hyyrö, "Bit-parallel LCS-length
    computation revisited", 2004).
    """

    def __init__(self, sequence: Sequence[str]):
        self.length = len(sequence)
        self._places: dict[str, int] = {}
        for place, word in enumerate(sequence):
            self._places[word] = self._places.get(word, 0) | 1 << place

    def common(self, other: Sequence[str]) -> int:
        """Length of the longest common subsequence."""
        every = (1 << self.length) - 1
        row = every
        for word in other:
            if places := self._places.get(word):
                taken = row & places
                row = ((row + taken) | (row - taken)) & every
        return self.length - row.bit_count()
