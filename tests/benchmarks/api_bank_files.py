"""Made-up dialogues in API-Bank's file formats, on all three levels."""

import json
import pathlib
from typing import Any

from genenv_jax.benchmarks.api_bank import tasks
from genenv_jax.benchmarks.api_bank.tasks import SPLITS, TOOL_SEARCHER

_PEOPLE = ("Ada", "Bert", "Cleo", "Dirk", "Elsa", "Finn", "Gwen", "Hugo")
_CHORES = ("water the fern", "post the parcel", "sweep the yard", "mend the fence",
           "feed the cat", "order coal", "tune the lute", "wash the van")  # fmt: skip
LEVEL_3 = "history_1d76900/test-data/level-3.json"


def api(name: str, **parameters: str) -> dict[str, Any]:
    """An API description."""
    inputs = {key: {"type": kind, "description": f"The {key}."} for key, kind in parameters.items()}
    return {"name": name, "description": f"Does {name}.", "input_parameters": inputs,
            "output_parameters": {"status": {"type": "str", "description": "How it went."}}}  # fmt: skip


DELETE = api("DeleteReminder", token="str", content="str", time="str")
BOOK = api("BookTable", guest="str", seats="int", dishes="list(str)")
SEARCH = api(TOOL_SEARCHER, keywords="str")


def token(person: str) -> str:
    return f"{person.lower()}-0451"


def _printed(name: str, arguments: dict[str, str]) -> str:
    inside = ", ".join(f"{key}='{value}'" for key, value in arguments.items())
    return f"API-Request: [{name}({inside})]"


def _level_3_tool(tool: dict[str, Any]) -> str:
    """A description with level 3's names for its fields."""
    return json.dumps({"apiCode": tool["name"], "description": tool["description"],
                       "parameters": tool["input_parameters"], "response": {}})  # fmt: skip


def _result(name: str, arguments: dict[str, str], output: Any) -> dict[str, Any]:
    return {"api_name": name, "input": arguments, "output": output, "exception": None}


def dialogues(level: int) -> dict[str, list[dict[str, Any]]]:
    """The dialogues of level 1 (one call) or 2 (a search and a call) by file name."""
    found = {}
    for number, (person, chore) in enumerate(zip(_PEOPLE, _CHORES, strict=True)):
        if level == 1:
            entry = {"token": token(person), "content": chore, "time": f"{number}:00"}
            calls = [("DeleteReminder", entry, "ok")]
            wish = f"This is {person}, {token(person)}. Forget that I {chore} at {number}:00."
        else:
            arguments = {"guest": person, "seats": str(number + 1), "dishes": "['soup', 'pie']"}
            search = (TOOL_SEARCHER, {"keywords": "book a table"}, BOOK)
            calls = [search, ("BookTable", arguments, {"table": number})]
            wish = f"A table for {number + 1} with soup and pie, for {person}."
        turns: list[dict[str, Any]] = [{"role": "User", "text": wish}]
        for name, arguments, output in calls:
            turn = {"role": "API", "api_name": name, "param_dict": arguments}
            turns.append({**turn, "result": _result(name, arguments, output)})
        turns.append({"role": "AI", "text": f"It is done, {person}. Anything else?"})
        found[f"{person}-level-{level}.jsonl"] = turns
    return found


def _records(level: int, replies: bool) -> list[dict[str, Any]]:
    """Records of a file of level 1 or 2."""
    found = []
    for file, turns in dialogues(level).items():
        tools = [DELETE, BOOK] if level == 1 else [SEARCH]
        instruction = "Help.\nAPI descriptions:\n" + "\n".join(map(json.dumps, tools))
        seen, sample = f"User: {turns[0]['text']}\n", 0
        for turn in turns[1:]:
            if turn["role"] == "API":
                text = _printed(turn["api_name"], turn["param_dict"])
                order = "Generate API Request:\n"
            else:
                text, order, sample = turn["text"], "Generate AI Response:\n", sample - 1
            record = {"file": file, "id": sample, "instruction": instruction}
            if (turn["role"] == "AI") == replies:
                found.append({**record, "input": seen + order, "expected_output": text})
            if turn["role"] == "API":
                seen += f"{text}->{turn['result']['output']}\n"
                sample += 2
    return found


def _samples(training: bool) -> list[dict[str, Any]]:
    """Requirements of level 3, each a search and a call; none is both in training and in the tests."""
    found = []
    for number, person in enumerate(_PEOPLE):
        seats, keywords = (number + 12, "TableBooking") if training else (number + 2, "BookTable")
        wish = f"{'Reserve' if training else 'Book'} {seats} seats for {person}."
        arguments = {"guest": person, "seats": str(seats)}
        apis = [
            {"api_name": TOOL_SEARCHER, "input": {"keywords": keywords},
             "output": _result(TOOL_SEARCHER, {"keywords": keywords}, [SEARCH, BOOK])},
            {"api_name": "BookTable", "input": arguments,
             "output": _result("BookTable", arguments, {"table": number})},
        ]  # fmt: skip
        found.append({"requirement": wish, "response": f"Booked for {person}.", "apis": apis})
    return found


def _level_3_records(replies: bool, training: bool) -> list[dict[str, Any]]:
    found = []
    for number, sample in enumerate(_samples(training)):
        seen = f"{_level_3_tool(SEARCH)}\nUser: {sample['requirement']}\n"
        for index, call in enumerate(sample["apis"]):
            text = _printed(call["api_name"], call["input"])
            record = {"instruction": "Help.", "input": f"{seen}Generate API Request: "}
            record |= {"output": text} | ({} if training else {"sample_id": number, "api_id": index})
            if not replies:
                found.append(record)
            seen += f"{text}->{call['output']}\n"
        if replies:
            text = f"AI: {sample['response']}" if training else sample["response"]
            record = {"instruction": "Help.", "input": f"{seen}Generate AI Response: "}
            record |= {"output": text, "sample_id": number, "api_id": len(sample["apis"])}
            found.append(record)
    return found


def write(root: pathlib.Path) -> pathlib.Path:
    """Writes all files below `root`; returns it.

    Reminders of the first person are found by content only, of the second by content and time, of the
    others not at all.  One training record lacks the brackets, one is duplicated.
    """
    training = _level_3_records(False, True)
    training[-1]["output"] = training[-1]["output"].replace("[", "").replace("]", "")
    contents: dict[str, Any] = {
        SPLITS["level-1-api"].path: _records(1, False),
        SPLITS["level-2-api"].path: _records(2, False),
        SPLITS["level-1-response"].path: _records(1, True),
        SPLITS["level-2-response"].path: _records(2, True),
        SPLITS["level-3-batch-inf"].path: _level_3_records(False, False),
        SPLITS["level-3-batch-inf-response"].path: _level_3_records(True, False),
        SPLITS["lv3-api-train"].path: [*training, training[0]],
        SPLITS["lv3-response-train"].path: _level_3_records(True, True),
        LEVEL_3: _samples(False),
        tasks.ACCOUNTS: {person: {"token": token(person)} for person in _PEOPLE},
        tasks.table_of("QueryAgenda"): {},
        tasks.table_of("QueryReminder"): {
            "1": {"username": "Ada", "content": _CHORES[0], "time": "9:30"},
            "2": {"username": "Bert", "content": _CHORES[1], "time": "1:00"},
        },
    }
    for path, content in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(json.dumps(content))
    for level, split in ((1, "level-1-api"), (2, "level-2-api")):
        directory = root / "HEAD/lv1-lv2-samples" / SPLITS[split].dialogues
        directory.mkdir(parents=True)
        for file, turns in dialogues(level).items():
            (directory / file).write_text("\n".join(map(json.dumps, turns)) + "\n")
    return root
