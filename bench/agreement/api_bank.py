"""API-Bank's calls, as the official evaluation executes them; tool searches are left out.

The sentence-embedding model, the translation service, the search index and the HTTP client that the official
modules import are replaced by empty stand-ins; what needs a network fails, as it does without one.  The
level-3 script keeps one database for all predictions; here each has a fresh one, so verdicts do not depend on
their order.

The official execution rejects 82 of its own gold calls.  For answers to these, except the gold call itself,
the check takes the gold call's output in place of the executed one.
"""

import copy
import json
import os
import pathlib
import random
import signal
import sys
import types
from collections.abc import Iterator
from typing import Any

from bench.agreement.tally import Case, Judge, Verdict
from bench.bad_answers.api_bank import answers
from genenv_jax.benchmarks.api_bank import scoring, tasks
from genenv_jax.benchmarks.api_bank.benchmark import APIBank
from genenv_jax.benchmarks.base import Task

SPLITS = ("level-1-api", "level-2-api", "level-3-batch-inf")
GOLD = "gold"
_CPU_SECONDS = 1.0  # of an official verdict; its calculator hangs on some formulas


def cases(data_dir: pathlib.Path | None, seed: int, share: float) -> Iterator[Case]:
    """Every call but tool searches."""
    for task in tasks.load(tasks.find_directory(data_dir), SPLITS, "eval"):
        if task.answer["kind"] != tasks.CALL or task.answer["name"] == tasks.TOOL_SEARCHER:
            continue
        rng = random.Random(f"agreement {seed} {task.id}")
        group = "call of the 82, " if scoring.rejects_gold(task) else ""
        if rng.random() < share:
            for kind, text in answers(task, rng):
                yield Case(group + kind, task, text)


def _is_executed(case: Case) -> bool:
    return not scoring.rejects_gold(case.task) or case.kind.endswith(GOLD)


def ours(data_dir: pathlib.Path | None) -> Judge:
    """What `accuracy_executed` counts; for the 82, whether the call is right."""
    benchmark = APIBank(data_dir=data_dir, eval_splits=SPLITS)

    def judge(case: Case) -> Verdict:
        score = benchmark.score(case.task, case.text)
        known = scoring.rejects_gold(case.task) and _is_executed(case)
        return Verdict(score.success and not known, "gold_is_rejected" if known else score.reason)

    return judge


class _Hangs(BaseException):
    """The official code hangs; its own `except Exception` does not catch this."""


def _stop(*_: object) -> None:
    raise _Hangs


def official(data_dir: pathlib.Path | None, clones: pathlib.Path) -> Judge:
    """The executed verdict, or, for the 82, the check."""
    data = tasks.find_directory(data_dir).resolve()
    run = Official(clones / "DAMO-ConvAI" / "api-bank", data)
    signal.signal(signal.SIGVTALRM, _stop)

    def judge(case: Case) -> Verdict:
        signal.setitimer(signal.ITIMER_VIRTUAL, _CPU_SECONDS)
        try:
            word = run.judge(case.task, case.text, _is_executed(case))
        except _Hangs:
            word = "does_not_end"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return Verdict(not word, word)

    return judge


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
        return reader._api_turn(split.dialogues, place[0] + ".jsonl", int(place[1]), task.id)["result"]

    def manager(self, level: int, api: str) -> Any:
        """A tool manager with a fresh database (of the API that is called, and of tokens)."""
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

    def judge(self, task: Task, text: str, executed: bool) -> str:
        """What is wrong with an answer, "" for nothing; not `executed`: see the module's docstring."""
        found = self.find(text)
        if not found:
            return "no_call"
        try:
            api, arguments = self.parse(found)
        except Exception:
            return "not_parsed"
        if api != task.answer["name"]:
            return "another_api"
        gold = copy.deepcopy(self.gold(task))
        manager = self.manager(task.answer["level"], api)
        try:
            result = manager.api_call(api, **arguments)
            if not executed:
                result = {**result, **{k: copy.deepcopy(gold[k]) for k in ("output", "exception")}}
            shown = copy.deepcopy(result)
            if manager.init_tool(api).check_api_call_correctness(result, gold):
                return ""
        except AssertionError:
            return "another_parameter_or_type"
        except TypeError as error:
            return "argument_missing" if "required positional" in str(error) else "evaluator_fails"
        except KeyError:
            return "check_reads_no_field"
        except Exception:  # whatever the official code raises is a verdict of its own
            return "evaluator_fails"
        if shown["exception"]:
            return "exception"
        return "other_output" if shown["output"] != self.gold(task)["output"] else "other_input"


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
