"""API-Bank's call match: is this the call that was asked for?

The name must be the gold name, the arguments those of the gold call, no more and no fewer, and each
value must agree under the rule that the official API's own `check_api_call_correctness`
(`api-bank/apis/*.py`, `lv3_apis/*.py`) applies to that parameter.  Where the official check compares
what the API returned, the rule is what decides the return value (a dictionary's keyword, a translation's
text and languages).  All gold calls of the benchmark succeeded, so no rule depends on an exception.

Some of these rules let through what nobody asked for: they do not compare a parameter at all, are content
with half of the words, or take any text for False.  A score may be so lenient; a policy that is trained on it
learns to write such calls.  `mismatch` closes them where it is given the words of the conversation, and
leaves the relaxations of form (case, white space, zeros of a date, quotes of a list, codes of a language).

Officially the call is executed on a fresh data base and its result compared with a stored one.  That
rejects many gold calls (see `benchmark`), so nothing is executed here.
"""

from __future__ import annotations

import collections
import datetime
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.api_bank.calls import Call, as_text
from genenv_jax.benchmarks.base import Rejection
from genenv_jax.benchmarks.safe_parse import parse_json, parse_literal
from genenv_jax.benchmarks.wording import words

# Reasons, after the official evaluator's error statistics.
NAME_MISMATCH = "api_name_mismatch"
INVALID_PARAMETER = "invalid_input_parameter"
MISSING_PARAMETER = "miss_input_argument"
INPUT_MISMATCH = "input_mismatch"

TOOL_SEARCHER = "ToolSearcher"
EXACT, WORDS = "exact", "words"  # how a ToolSearcher's keywords are compared

_MOST_EXTRA = 1  # words of a strictly compared tool search that are not those of the gold one
_JACCARD = 0.5  # the official threshold: strictly more than half of the words in common
_INTEGER = re.compile(r"-?[0-9]{1,40}")
_NUMBER = re.compile(r"-?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})")
_DATE = "%Y-%m-%d"
_TIME = "%Y-%m-%d %H:%M:%S"
_BOOLEAN = ("bool", "boolean")
_LIST_DEPTH = 16
_LIST_CHARS = 16_384
_CODES = {  # languages by their codes; the official API takes either, in any case
    "arabic": "ar", "dutch": "nl", "english": "en", "french": "fr", "german": "de", "greek": "el",
    "hebrew": "iw", "hindi": "hi", "indonesian": "id", "italian": "it", "japanese": "ja",
    "korean": "ko", "polish": "pl", "portuguese": "pt", "russian": "ru", "spanish": "es",
    "swedish": "sv", "thai": "th", "turkish": "tr", "ukrainian": "uk", "vietnamese": "vi",
}  # fmt: skip


def jaccard(left: str, right: str) -> float:
    """Words in common over all words, where words are what single spaces separate."""
    a, b = set(left.split(" ")), set(right.split(" "))
    return len(a & b) / len(a | b)


def split_capitals(keywords: str) -> str:
    """`QueryMeeting` -> "Query Meeting", as the official level-3 evaluator does to keywords."""
    return "".join(f" {c}" if c.isupper() else c for c in keywords).strip()


def read_list(text: str) -> Any:
    """The list or mapping that a value's text denotes (JSON or a Python literal), or a Rejection."""
    value = parse_json(text, _LIST_CHARS, _LIST_DEPTH)
    if isinstance(value, Rejection):
        value = parse_literal(text, _LIST_CHARS, _LIST_DEPTH)
    return list(value) if isinstance(value, tuple) else value


def _trimmed(value: str, gold: str) -> bool:
    return value.strip() == gold.strip()


def _folded(value: str, gold: str) -> bool:
    return value.strip().lower() == gold.strip().lower()


def _receiver(value: str, gold: str) -> bool:
    """Without regard to case, but the API rejects capitals before the @."""
    name = value.strip().partition("@")[0]
    return _trimmed(value, gold) or (_folded(value, gold) and name == name.lower())


def _keyword(value: str, gold: str) -> bool:
    return _folded(value.replace("_", " "), gold.replace("_", " "))


def _formula(value: str, gold: str) -> bool:
    return value.replace(" ", "") == gold.replace(" ", "")


def _words(value: str, gold: str) -> bool:
    return jaccard(value, gold) > _JACCARD


def _folded_words(value: str, gold: str) -> bool:
    return jaccard(value.lower(), gold.lower()) > _JACCARD


def _given(value: str, gold: str) -> bool:
    """The official check asks for the argument but does not compare it."""
    return True


def _canonical_time(text: str, form: str) -> str:
    """A date or time with its leading zeros; the stripped text itself where it is neither."""
    parts = text.strip().split("-")
    if len(parts) == 3:
        parts[0] = parts[0].zfill(4)
    text = "-".join(parts)
    try:
        return datetime.datetime.strptime(text, form).strftime(form)
    except ValueError:
        return text


def _date(value: str, gold: str) -> bool:
    return _canonical_time(value, _DATE) == _canonical_time(gold, _DATE)


def _time(value: str, gold: str) -> bool:
    return _canonical_time(value, _TIME) == _canonical_time(gold, _TIME)


def _day(value: str, gold: str) -> bool:
    """A day of the year: `10-06`, or a whole date whose year is dropped."""
    return _day_of(value) == _day_of(gold)


def _day_of(text: str) -> str:
    text = _canonical_time(text, _DATE)
    # A leap year stands for all: without a year, strptime knows no 29 February.
    for candidate, form in ((text, _DATE), (f"2000-{text}", _DATE)):
        try:
            return datetime.datetime.strptime(candidate, form).strftime("%m-%d")
        except ValueError:
            continue
    return text


def _language(value: str, gold: str) -> bool:
    def code(text: str) -> str:
        text = text.strip().lower()
        if "chinese" in text:
            return "zh-tw" if "traditional" in text else "zh-cn"
        return _CODES.get(text, text)

    return code(value) == code(gold)


def _health_data(value: str, gold: str) -> bool:
    """Records must be well formed, each name once; the official comparison of them is switched off."""
    records = read_list(value)
    if not isinstance(records, list) or not records:
        return False
    names = [record.get("name") if isinstance(record, dict) else None for record in records]
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def _devices(value: str, gold: str) -> bool:
    """Devices of a scene, in any order, without regard to white space and the names' case."""

    def sort(text: str) -> Any:
        devices = read_list(text)
        if not isinstance(devices, list) or not all(isinstance(d, dict) for d in devices):
            return None
        return sorted(
            (str(d.get("name")).strip().lower(), str(d.get("description")).strip()) for d in devices
        )

    found = sort(value)
    return found is not None and found == sort(gold)


# A parameter that was renamed after the dialogues were written: agents are shown the new name.
_RENAMED = {("TimedSwitch", "name"): "device_id", ("CancelTimedSwitch", "name"): "device_id"}

_Rule = Callable[[str, str], bool]

# What `check_api_call_correctness` does to a parameter, where it is not plain equality.
_RULES: dict[tuple[str, str], _Rule] = {
    **{(api, "content"): _words for api in ("AddAgenda", "ModifyAgenda", "QueryAgenda")},
    **{
        (api, "content"): _folded_words
        for api in ("AddReminder", "ModifyReminder", "QueryReminder")
    },
    **{(api, "meeting_topic"): _words for api in ("AddMeeting", "ModifyMeeting", "QueryMeeting")},
    # A deletion is checked by its time; what is deleted also depends on whose it is (the token).
    **{("DeleteAgenda", name): _given for name in ("content", "location")},
    ("DeleteReminder", "content"): _given,
    **{
        ("DeleteMeeting", name): _given
        for name in ("meeting_topic", "end_time", "location", "attendees")
    },
    ("AppointmentRegistration", "patient_name"): _trimmed,
    ("AppointmentRegistration", "doctor_name"): _trimmed,
    ("AppointmentRegistration", "date"): _date,
    ("CancelRegistration", "appointment_id"): _trimmed,
    ("ModifyRegistration", "appointment_id"): _trimmed,
    ("ModifyRegistration", "new_appointment_date"): _date,
    ("ModifyRegistration", "new_appointment_doctor"): _trimmed,
    ("QueryRegistration", "patient_name"): _trimmed,
    ("QueryRegistration", "date"): _date,
    ("Calculator", "formula"): _formula,
    **{  # the parameter was renamed; the dialogues have its old name
        (api, name): _folded
        for api in ("TimedSwitch", "CancelTimedSwitch")
        for name in ("name", "device_id")
    },
    **{(api, "time"): _time for api in ("TimedSwitch", "CancelTimedSwitch")},
    **{(api, "name"): _folded for api in ("AddScene", "DeleteScene", "ModifyScene", "QueryScene")},
    **{(api, "devices"): _devices for api in ("AddScene", "ModifyScene")},
    ("Dictionary", "keyword"): _keyword,
    ("Wiki", "keyword"): _keyword,
    ("SearchEngine", "keyword"): _folded,
    ("DocumentQA", "url"): _trimmed,
    ("DocumentQA", "question"): _trimmed,
    ("EmergencyKnowledge", "symptom"): _folded,
    ("SymptomSearch", "symptom"): _folded,
    ("PlayMusic", "music_name"): _folded,
    ("QueryHealthData", "user_id"): _folded,
    ("QueryHealthData", "start_time"): _time,
    ("QueryHealthData", "end_time"): _time,
    ("QueryHistoryToday", "date"): _day,
    ("QueryStock", "stock_code"): _folded,
    ("QueryStock", "date"): _date,
    ("RecordHealthData", "user_id"): _folded,
    ("RecordHealthData", "time"): _time,
    ("RecordHealthData", "health_data"): _health_data,
    ("SendEmail", "receiver"): _receiver,
    ("SendEmail", "subject"): _trimmed,
    ("SendEmail", "content"): _trimmed,
    ("Translate", "src_lang"): _language,
    ("Translate", "tgt_lang"): _language,
    ("EmailReminder", "content"): _given,  # level 3
}


def _same_words(value: str, gold: str) -> bool:
    """The same words in the same order, without regard to case and punctuation (`wording.words`)."""
    return _trimmed(value, gold) or (bool(words(gold)) and words(value) == words(gold))


def _same_list(value: str, gold: str) -> bool:
    return _typed(value, gold, "list")


def _only_a_language(value: str, gold: str) -> bool:
    """Nothing but a name; the official rule finds `chinese` in any text."""
    names = {"chinese", "simplified", "traditional"}
    return "chinese" not in value.lower() or set(words(value)) <= names


# What else a value must be under official rules that leave it open, where it is compared strictly.
_STRICT: dict[_Rule, _Rule] = {
    _words: _same_words,
    _folded_words: _same_words,
    _given: _same_words,
    _health_data: _same_list,
    _language: _only_a_language,
}


def _typed(value: str, gold: str, kind: str) -> bool:
    """Plain equality, after the cast that the official `ToolManager.api_call` makes."""
    form = {"int": _INTEGER, "integer": _INTEGER, "float": _NUMBER, "number": _NUMBER}.get(kind)
    if form and form.fullmatch(value) and form.fullmatch(gold):
        return float(value) == float(gold)
    if kind in _BOOLEAN:
        return (value == "True") == (gold == "True")
    if kind.startswith("list") or gold[:1] in ("[", "{"):
        expected = read_list(gold)
        if not isinstance(expected, Rejection):
            found = read_list(value)
            return type(found) is type(expected) and _plain(found) == _plain(expected)
    return value == gold


def _plain(value: Any) -> str:
    """One text for equal lists: a number and its text are the same, as they are between quotes."""
    if isinstance(value, Mapping):
        return json.dumps({as_text(k): _plain(v) for k, v in value.items()}, sort_keys=True)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return json.dumps([_plain(entry) for entry in value])
    return as_text(value)


def keywords_match(
    value: str, gold: str, target: str, how: str, said: Collection[str] | None = None
) -> bool:
    """Whether two searches for a tool are the same search.

    Officially both are embedded by a sentence model and the tools that they find are compared; capitals
    are split into words first.  EXACT compares the words so made, without regard to case.  WORDS is
    lenient: more than half of all words in common with the gold keywords, or with the name of the tool
    that the gold search found.

    Args:
      value: the keywords of an answer.
      gold: the gold keywords.
      target: name of the tool that the gold search found; "" if unknown.
      how: EXACT or WORDS.
      said: the words of the conversation: `value` may have one word that neither gold keywords nor name have
        (a repeated one counts), and that must be among them; None: any number of any words.
    """
    found, expected = (" ".join(split_capitals(k).lower().split()) for k in (value, gold))
    if found == expected:
        return True
    if how == EXACT or not found:
        return False
    name = " ".join(split_capitals(target).lower().split())
    if said is not None:
        extra = collections.Counter(found.split())
        extra.subtract({*expected.split(), *name.split()})
        extra = +extra
        if extra.total() > _MOST_EXTRA or not all(word in said for word in extra):
            return False
    return jaccard(found, expected) > _JACCARD or (bool(name) and jaccard(found, name) > _JACCARD)


def mismatch(
    call: Call,
    spec: Mapping[str, Any],
    tool_search: str = EXACT,
    said: Collection[str] | None = None,
) -> tuple[str, str]:
    """Compares a call with the gold call.

    Args:
      call: what the agent wrote.
      spec: {"name", "parameters": {parameter: gold value}, "types": {parameter: declared type},
        "target": the tool that a gold search found, "exact": parameters without relaxation (may be
        missing; `lookups`)}.
      tool_search: EXACT or WORDS (`keywords_match`).
      said: None for the official rules, some of which leave a value open.  The words of the conversation
        (`wording.words`) compare every parameter by its type: texts by their words in order, lists entry by
        entry, booleans as such, and see `keywords_match`.

    Returns:
      (reason, detail); ("", "") for a match.
    """
    if call.name != spec["name"]:
        return NAME_MISMATCH, f"{call.name[:60]} where {spec['name']} was expected"
    gold = spec["parameters"]
    arguments = {}
    for name, value in call.arguments.items():
        old = _RENAMED.get((call.name, name))
        arguments[old if old in gold and name not in gold else name] = value
    for name in arguments:
        if name not in gold:
            known = name in spec["types"]
            return (INPUT_MISMATCH if known else INVALID_PARAMETER), f"argument {name[:60]}"
    for name in gold:
        if name not in arguments:
            return MISSING_PARAMETER, name
    strict = said is not None
    for name, expected in gold.items():
        value, text = arguments[name], as_text(expected)
        if name in spec.get("exact", ()):
            same = value == text
        elif call.name == TOOL_SEARCHER and name == "keywords":
            same = keywords_match(value, text, spec.get("target", ""), tool_search, said)
        elif (call.name, name) in _RULES:
            rule = _RULES[call.name, name]
            same = rule(value, text) and (not strict or _STRICT.get(rule, rule)(value, text))
        else:
            kind = str(spec["types"].get(name, "str"))
            same = _typed(value, text, kind)
            # The official cast takes whatever is not `True` for False.
            if strict and kind in _BOOLEAN:
                same = same and _folded(value, text)
        if not same:
            return INPUT_MISMATCH, name
    return "", ""
