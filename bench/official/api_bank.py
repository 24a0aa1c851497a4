"""Runs the official API-Bank evaluators beside ours and keeps their verdicts.

Not needed by the tests, which read `bench/official/api_bank.json`.  To make that file anew:

    git clone https://github.com/AlibabaResearch/DAMO-ConvAI
    git -C DAMO-ConvAI checkout 483554eae102996f5ec1f4feab4e78ef29c2a394 -- api-bank
    GENENV_DATA=... python -m bench.official.api_bank DAMO-ConvAI/api-bank

The sentence-embedding model, the translation service, the search index and the HTTP client that the
official modules import are replaced by empty stand-ins; tool searches are left out, and what needs a
network fails, as it does without one.

Two verdicts a prediction, one letter each (`LETTERS`):
  executed  the whole official evaluation: its regular expressions on the text, a fresh data base, the
            API's `check_api_call_correctness`.  (The level-3 script keeps one data base for all
            predictions; here each has a fresh one, or verdicts would depend on their order.)
  compared  only `check_api_call_correctness`, on the arguments as they were meant, with the gold call's
            output in place of the executed one.  This is the rule for parameters by itself.
The file holds task ids and letters, and no benchmark text.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import pathlib
import sys
import types
from collections.abc import Iterable
from typing import Any

from bench.bad_answers.api_bank import is_compared, mutations
from genenv_jax.benchmarks.api_bank import tasks
from genenv_jax.benchmarks.base import Task

VERDICTS = pathlib.Path(__file__).with_suffix(".json")
COMMIT = "483554eae102996f5ec1f4feab4e78ef29c2a394"
SPLITS = ("level-1-api", "level-2-api", "level-3-batch-inf")
LETTERS = {
    "y": "accepted",
    "z": "no call found in the text",
    "f": "the call was not parsed",
    "m": "another API",
    "i": "a parameter that the API does not have, or of another type",
    "a": "a required argument is missing",
    "k": "the check reads a field that does not exist",
    "x": "the API raised an exception",
    "o": "another output",
    "p": "another input",
    "c": "the evaluator itself fails",
}


def compared_tasks(data_dir: pathlib.Path | None = None) -> list[Task]:
    """Every task with a gold call, tool searches aside, as held out: those have the official relaxations."""
    held_out = tasks.load(tasks.find_directory(data_dir), SPLITS, "eval")
    return [task for task in held_out if is_compared(task)]


def digest(texts: Iterable[str]) -> str:
    """Says whether two sets of mutations are the same."""
    found = hashlib.sha256()
    for text in texts:
        found.update(text.encode() + b"\0")
    return found.hexdigest()


class Official:
    """The official code, imported from its directory (which becomes the working directory)."""

    def __init__(self, directory: pathlib.Path, data: pathlib.Path):
        os.chdir(directory)
        sys.path.insert(0, str(directory))
        _stand_ins()
        from api_call_extraction import get_api_call, parse_api_call
        from tool_manager import ToolManager

        self.find, self.parse = get_api_call, parse_api_call
        self.managers = {1: ToolManager(), 3: ToolManager("./lv3_apis")}
        self.data = data
        self.level_3 = json.loads((data / tasks._LEVEL_3).read_text())

    def gold(self, task: Task) -> dict[str, Any]:
        """The stored result of a task's gold call."""
        _, *place = task.id.split(":")
        if task.answer["level"] == 3:
            return self.level_3[int(place[0])]["apis"][int(place[1])]["output"]
        reader = tasks._Reader(self.data, False)
        split = tasks.SPLITS[task.category]
        return reader._api_turn(split.dialogues, place[0] + ".jsonl", int(place[1]), task.id)[
            "result"
        ]

    def manager(self, level: int, api: str) -> Any:
        """A tool manager with a fresh data base (of the API that is called, and of tokens)."""
        first = self.managers[3 if level == 3 else 1]
        fresh = copy.copy(first)
        fresh.inited_tools = {}
        fresh.apis = [
            {k: copy.deepcopy(v) if k == "init_database" else v for k, v in info.items()}
            if info["name"] in (api, "CheckToken")
            else info
            for info in first.apis
        ]
        if "CheckToken" in fresh.list_all_apis():
            fresh.token_checker = fresh.init_tool("CheckToken")
        return fresh

    def verdict(self, task: Task, api: str, arguments: dict[str, Any], executed: bool) -> str:
        """The letter of one call; `executed` False puts the gold output in the result's place."""
        gold = copy.deepcopy(self.gold(task))
        if api != task.answer["name"]:
            return "m"
        manager = self.manager(task.answer["level"], api)
        try:
            result = manager.api_call(api, **arguments)
            if not executed:
                result = {**result, **{k: copy.deepcopy(gold[k]) for k in ("output", "exception")}}
            shown = copy.deepcopy(result)
            if manager.init_tool(api).check_api_call_correctness(result, gold):
                return "y"
        except AssertionError:
            return "i"
        except TypeError as error:
            return "a" if "required positional argument" in str(error) else "c"
        except KeyError:
            return "k"
        except Exception:  # whatever the official code raises is a verdict of its own
            return "c"
        if shown["exception"]:
            return "x"
        return "o" if shown["output"] != self.gold(task)["output"] else "p"

    def executed(self, task: Task, text: str) -> str:
        """The letter of the whole evaluation."""
        found = self.find(text)
        if not found:
            return "z"
        try:
            api, arguments = self.parse(found)
        except Exception:
            return "f"
        return self.verdict(task, api, arguments, executed=True)


def _stand_ins() -> None:
    class Nothing:
        def __init__(self, *args, **kwargs):
            pass

        def __getattr__(self, name):
            raise OSError(f"{name} needs a network or a model")

    contents = {
        "sentence_transformers": {"SentenceTransformer": Nothing, "util": None},
        "googletrans": {"Translator": Nothing, "LANGUAGES": {}},
        "rank_bm25": {"BM25Okapi": Nothing},
        "nltk": {"download": None},
        "nltk.tokenize": {"word_tokenize": str.split},
        "requests": {"get": Nothing().__getattr__},
    }
    for name, values in contents.items():
        module = types.ModuleType(name)
        module.__dict__.update(values)
        sys.modules[name] = module


def main() -> None:
    """Writes `VERDICTS`."""
    data = tasks.find_directory(None).resolve()
    compared_calls = compared_tasks()
    official = Official(pathlib.Path(sys.argv[1]).resolve(), data)
    verdicts, texts = {}, []
    for task in compared_calls:
        executed, compared = "", ""
        for _, _, text, api, arguments in mutations(task):
            texts.append(text)
            executed += official.executed(task, text)
            if arguments is None:
                compared += "z"
            else:
                compared += official.verdict(task, api, dict(arguments), executed=False)
        verdicts[task.id] = [executed, compared]
    kept = {"commit": COMMIT, "texts": digest(texts), "verdicts": verdicts}
    VERDICTS.write_text(json.dumps(kept, separators=(",", ":")) + "\n")
    print(f"{len(compared_calls)} tasks, {len(texts)} predictions")


if __name__ == "__main__":
    main()
