"""What a traveller asks for: the fields that the constraints need, and how to parse them from the text.

The published training and validation queries have only texts, so this module parses the fields from them.
The fields are used for scoring and for choosing the rows of a prompt (`prompts`); they are never shown.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

DAYS = {3: 1, 5: 2, 7: 3}  # lengths of trips, and how many cities each visits
HOUSE_RULES = ("smoking", "parties", "children under 10", "visitors", "pets")
ROOM_TYPES = ("shared room", "not shared room", "private room", "entire room")
TRANSPORTATION = ("no flight", "no self-driving")
CUISINES = ("Chinese", "American", "Italian", "Mexican", "Indian", "Mediterranean", "French")
LEVELS = ("easy", "medium", "hard")
# Fields of the official record.
_FIELDS = "org dest days visiting_city_number date people_number local_constraint budget".split()
# Fields of `Query`, and their names in the official record.
LOCAL_CONSTRAINTS = {
    name: name.replace("_", " ") for name in ("house_rule", "cuisine", "room_type", "transportation")
}
_MAX_PEOPLE = 20
_MAX_BUDGET = 10**6
_MONTHS = "January February March April May June July August September October November December".split()
_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()
_NUMBERS = {word: number for number, word in enumerate(_WORDS)}
_NUMBER = rf"(\d{{1,2}}|{'|'.join(_NUMBERS)})"
_PARTY = "people|persons?|travell?ers?|individuals?|participants?|adults?|guests?|friends"

_YEAR = re.compile(r"\b(20\d\d)\b")
_MONTH = "|".join(_MONTHS)
_DAY = re.compile(
    rf"\b(?:(?P<before>{_MONTH}) )?(?P<day>\d{{1,2}})(?P<th>st|nd|rd|th)?\b"
    rf"(?: of (?P<after>{_MONTH})\b)?"
)
_BUDGET = re.compile(r"\$ ?(\d{1,3}(?:,\d{3})+|\d{1,9})")
_any_case = functools.partial(re.compile, flags=re.IGNORECASE)
_LENGTH = _any_case(rf"\b{_NUMBER}[- ]days?\b")
_WEEK = _any_case(r"\b(?:a|one|week)[- ](?:week|long)\b")
_CITY_NUMBER = _any_case(rf"\b{_NUMBER} (?:[a-z]+ )?cit(?:y|ies)\b")
_PEOPLE = (
    _any_case(rf"\b(?:group|party) of {_NUMBER}\b"),
    _any_case(rf"\b{_NUMBER} (?:{_PARTY})\b"),
    _any_case(rf"\bfor {_NUMBER}\b(?![- ](?:days?|nights?|weeks?|[a-z]* ?cit))(?!\d|st|nd|rd|th)"),
)
_PAIR = _any_case(r"\b(?:duo|couple|pair)\b")
_SENTENCE = re.compile(r"(?<=[.!?;]) +")
_NEGATION = _any_case(r"\b(?:no|not|non|without|avoid\w*|exclud\w*|rather|except|never|cannot|other)\b|n't\b")
_FLIGHT = _any_case(r"\bfl(?:y|ying|ights?)\b|\bair(?:line|plane| travel)\b")
_DRIVE = _any_case(r"\bself-?driv\w*|\bdriv(?:e|ing)\b")
# What the fields would have as wishes, within a sentence.  Official texts say "not restrict parties".
_RULES = r"smok\w+|pets?|visitors?|child\w*|kids"
_UNWISHED = _any_case(
    r"(?:\b(?:no|not|non|without|avoid\w*|exclud\w*|except|never|cannot|(?:rather|other) than)\b|n't\b)"
    r"(?:[ -](?!fl(?:y|ight)|self|driv|forbid|prohibit|ban|restrict|more|less|only|shared)\w+){0,3}?[ -]"
    rf"(?:{_RULES}|{'|'.join(CUISINES)}|(?:private|entire) (?:room|home|apartment)s?)\b"
    rf"|\b(?:{_RULES}) (?:(?:must|should|may|can|is|are|be) ){{0,3}}"
    r"(?:not (?:allowed|permitted)|forbidden|banned)\b"
)
# The plural tells "parties" from "a party of 3"; for "visitor restrictions" the number does not matter.
_RULE_WORDS = {
    "smoking": _any_case(r"\bsmok"),
    "parties": _any_case(r"\bparties\b"),
    "children under 10": _any_case(r"\bchild|\bkids\b"),
    "visitors": _any_case(r"\bvisitors?\b"),
    "pets": _any_case(r"\bpets?\b"),
}
_ROOM_WORDS = (
    ("private room", _any_case(r"\bprivate rooms?\b")),
    ("entire room", _any_case(r"\bentire (?:rooms?|homes?|apartments?)\b")),
    ("not shared room", _any_case(r"\b(?:not|non|n't|neither)(?: be)?[- ]shared|\bnot shared")),
    ("shared room", _any_case(r"\bshared rooms?\b")),
)
_ORIGIN = _any_case(
    r"(?:\bfrom|\b(?:depart|leav|start)\w*"
    r"|\b(?:start|begin|commenc|initiat|originat|depart)\w*(?: [a-z]+){0,2} (?:in|at|from))$"
)


@dataclasses.dataclass(frozen=True)
class Query:
    """One query; the names and values of the fields are the official ones."""

    org: str  # city of departure
    dest: str  # the city to visit on a 3-day trip; the state on longer trips
    date: tuple[str, ...]  # every day of the trip, such as 2022-03-16; 3, 5 or 7 days
    people_number: int
    budget: int  # dollars for the whole party
    house_rule: str | None = None  # what accommodations must allow (`HOUSE_RULES`)
    cuisine: tuple[str, ...] = ()  # those that must be served (`CUISINES`)
    room_type: str | None = None  # one of `ROOM_TYPES`
    transportation: str | None = None  # one of `TRANSPORTATION`

    @property
    def days(self) -> int:
        """Length of the trip: 3, 5 or 7."""
        return len(self.date)

    @property
    def visiting_city_number(self) -> int:
        """How many cities are visited: 1, 2 or 3."""
        return DAYS[self.days]

    @property
    def asked(self) -> list[str]:
        """The `LOCAL_CONSTRAINTS` that are asked for."""
        return [name for name in LOCAL_CONSTRAINTS if getattr(self, name)]

    @property
    def level(self) -> str:
        """One of `LEVELS`: no local constraints, one, or more (officially three)."""
        return LEVELS[min(len(self.asked), 2)]

    def to_json(self) -> dict[str, Any]:
        """The official record without its text and level; `from_json` inverts it."""
        local = {official: getattr(self, name) for name, official in LOCAL_CONSTRAINTS.items()}
        local["cuisine"] = list(self.cuisine) or None
        own = {"local_constraint": local, "date": list(self.date)}
        return {name: own.get(name) or getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Query:
        """Reads and checks `to_json`'s record, without unknown keys; ValueError says what is wrong."""
        if odd := set(_FIELDS) ^ set(record):
            odd = ", ".join(sorted(map(str, odd)))
            raise ValueError(f"missing or unknown fields: {odd}"[:200])
        names, local = LOCAL_CONSTRAINTS.values(), record["local_constraint"]
        if not isinstance(local, Mapping) or set(local) != set(names):
            raise ValueError(f"local_constraint: expected the keys {', '.join(names)}")
        for name in ("org", "dest"):
            if not isinstance(record[name], str) or not 0 < len(record[name]) <= 64:
                raise ValueError(f"{name}: expected a name")
        days = _integer(record, "days", max(DAYS))
        if days not in DAYS or DAYS[days] != _integer(record, "visiting_city_number", 3):
            raise ValueError("days and visiting_city_number: expected 3 and 1, 5 and 2, or 7 and 3")
        cuisine = [] if local["cuisine"] is None else local["cuisine"]
        if not isinstance(cuisine, list) or not all(isinstance(c, str) for c in cuisine):
            raise ValueError("cuisine: expected a list or null")
        if len(set(cuisine)) != len(cuisine) or not set(cuisine) <= set(CUISINES):
            raise ValueError(f"cuisine: expected some of {', '.join(CUISINES)}, none twice")
        return cls(
            org=record["org"],
            dest=record["dest"],
            date=_checked_dates(record["date"], days),
            people_number=_integer(record, "people_number", _MAX_PEOPLE),
            budget=_integer(record, "budget", _MAX_BUDGET),
            house_rule=_one_of(local, "house rule", HOUSE_RULES),
            cuisine=tuple(c for c in CUISINES if c in cuisine),
            room_type=_one_of(local, "room type", ROOM_TYPES),
            transportation=_one_of(local, "transportation", TRANSPORTATION),
        )


def _integer(record: Mapping[str, Any], name: str, most: int) -> int:
    value = record[name]
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{name}: expected an integer from 1 to {most}")
    return value


def _one_of(local: Mapping[str, Any], name: str, values: Sequence[str]) -> str | None:
    value = local[name]
    if value is not None and value not in values:
        raise ValueError(f"{name}: expected null or one of {', '.join(values)}")
    return value


def _checked_dates(value: Any, days: int) -> tuple[str, ...]:
    try:
        expected = _consecutive(datetime.date.fromisoformat(value[0]), days)
    except (TypeError, ValueError, IndexError, KeyError, OverflowError):
        raise ValueError("date: expected a list of days such as 2022-03-16") from None
    if value != list(expected):
        raise ValueError(f"date: expected {days} consecutive days")
    return expected


def _consecutive(first: datetime.date, days: int) -> tuple[str, ...]:
    return tuple(str(first + datetime.timedelta(days=index)) for index in range(days))


class Gazetteer:
    """Finds names of cities and states in texts; made from the state of each city."""

    def __init__(self, states: Mapping[str, str]):
        self.cities = frozenset(states)
        self.states = frozenset(states.values())
        names = sorted(self.cities | self.states, key=lambda name: (-len(name), name))
        self._names = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))})(?!\w)")

    def mentions(self, text: str) -> list[tuple[str, int, int]]:
        """The names in a text from left to right, each with its start and end; the longest name wins."""
        return [(found.group(), *found.span()) for found in self._names.finditer(text)]


def parse_query(text: str, gazetteer: Gazetteer) -> Query:
    """Parses the fields from the text of a query.

    It understands the wording of the official queries; for other texts, ValueError names the field that is
    missing or ambiguous.  A query that does not say how many people travel is for one person.
    """
    dates = _dates(text)
    days = len(dates)
    if days not in DAYS:
        raise ValueError(f"date: {days} days, expected 3, 5 or 7")
    for found in _LENGTH.finditer(text):
        if _value(found.group(1)) != days:
            raise ValueError(f"days: the text says {found.group()!r}, its dates {days} days")
    if _WEEK.search(text) and days != 7:
        raise ValueError(f"days: the text says a week, its dates {days} days")
    numbers = {_value(found.group(1)) for found in _CITY_NUMBER.finditer(text)}
    if numbers - {DAYS[days]}:
        raise ValueError(f"visiting_city_number: expected {DAYS[days]} for {days} days")
    budgets = {int(found.group(1).replace(",", "")) for found in _BUDGET.finditer(text)}
    if len(budgets) != 1:
        raise ValueError(f"budget: expected one amount in dollars, found {len(budgets)}")
    if found := next(filter(None, map(_UNWISHED.search, _SENTENCE.split(text))), None):
        raise ValueError(f"local_constraint: the text does not want what its fields would: {found[0]!r:.100}")
    org, dest = _places(text, days, gazetteer)
    return Query(
        org=org,
        dest=dest,
        date=dates,
        people_number=_people(text),
        budget=budgets.pop(),
        house_rule=_house_rule(text),
        cuisine=tuple(c for c in CUISINES if re.search(rf"\b{c}\b", text)),
        room_type=next((name for name, words in _ROOM_WORDS if words.search(text)), None),
        transportation=_unwanted_transportation(text),
    )


def _value(word: str) -> int:
    return int(word) if word.isdigit() else _NUMBERS[word.lower()]


def _dates(text: str) -> tuple[str, ...]:
    years = set(_YEAR.findall(text))
    if len(years) != 1:
        raise ValueError(f"date: expected one year, found {len(years)}")
    matches = [match for match in _DAY.finditer(text) if match["before"] or match["th"]]
    found = [(match["before"] or match["after"], int(match["day"])) for match in matches]
    months = [month for month, _ in found if month]
    if not months or len(found) < 2:
        raise ValueError("date: expected the first and the last day")
    ends = []
    for month, day in found[:2]:
        month_number = _MONTHS.index(month or months[0]) + 1
        try:
            ends.append(datetime.date(int(next(iter(years))), month_number, day))
        except ValueError:
            raise ValueError(f"date: no day {day} in {month or months[0]}") from None
    length = (ends[1] - ends[0]).days + 1
    if not 1 <= length <= 31:
        raise ValueError("date: expected the first day before the last")
    return _consecutive(ends[0], length)


def _people(text: str) -> int:
    for pattern in _PEOPLE:
        if found := pattern.search(text):
            number = _value(found.group(1))
            if not 1 <= number <= _MAX_PEOPLE:
                raise ValueError(f"people_number: {number}, expected 1 to {_MAX_PEOPLE}")
            return number
    return 2 if _PAIR.search(text) else 1


def _places(text: str, days: int, gazetteer: Gazetteer) -> tuple[str, str]:
    mentions = gazetteer.mentions(text)
    cities = [mention for mention in mentions if mention[0] in gazetteer.cities]
    if not cities:
        raise ValueError("org: no known city")
    cued = [m for m in cities if _ORIGIN.search(text[max(0, m[1] - 60) : m[1]].rstrip())]
    origin = (cued or cities)[0]
    org = origin[0]
    if days == 3:
        others = [name for name, _, _ in cities if name != org]
    else:
        others = [
            name
            for name, begin, end in mentions
            if name in gazetteer.states
            and (begin, end) != origin[1:]
            and text[origin[2] : begin] not in (" in ", ", ")  # the state of the departure city
        ]
    if not others:
        raise ValueError(f"dest: no known {'city' if days == 3 else 'state'}")
    return org, others[0]


def _house_rule(text: str) -> str | None:
    found = [rule for rule in HOUSE_RULES if _RULE_WORDS[rule].search(text)]
    if len(found) > 1:
        raise ValueError(f"house rule: more than one: {', '.join(found)}")
    return found[0] if found else None


def _unwanted_transportation(text: str) -> str | None:
    # The unwanted vehicle is in a sentence with a negation.  Flights are checked first, because a traveller
    # who does not want to fly may mention driving instead.
    sentences = [s for s in _SENTENCE.split(text) if _NEGATION.search(s)]
    if any(_FLIGHT.search(sentence) for sentence in sentences):
        return "no flight"
    if any(_DRIVE.search(sentence) for sentence in sentences):
        return "no self-driving"
    return None
