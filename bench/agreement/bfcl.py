"""BFCL's single turns: the AST checker, and whether a call decodes."""

from __future__ import annotations

import os
import pathlib
import random
import sys
import tempfile
import types
from collections.abc import Callable, Iterator

from bench.agreement.tally import Case, Judge, Verdict
from bench.bad_answers.bfcl import answers
from bench.bad_answers.bfcl_source import no_call_answers, source_answers
from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.bfcl import categories, tasks
from genenv_jax.benchmarks.bfcl.benchmark import BFCL
from genenv_jax.benchmarks.bfcl.turns import reason_word

VERSION = "v4"
CRASH = "checker_error"
_PER_TASK = {"python": 18, "java": 60, "javascript": 90}
_PER_NO_CALL = 6


def cases(data_dir: pathlib.Path | None, seed: int, share: float) -> Iterator[Case]:
    """Every single-turn task with answers of many kinds; `share` of them."""
    names = [c for c in categories.categories(VERSION) if c not in categories.MULTI_TURN]
    for task in tasks.load(VERSION, names, data_dir, "eval"):
        rng = random.Random(f"agreement {seed} {task.id}")
        if rng.random() >= share:
            continue
        kind, language = task.answer["kind"], task.answer["language"]
        if kind in categories.NO_CALL:
            made, group = no_call_answers(task, rng, _PER_NO_CALL), kind
        elif language == "python":
            made, group = answers(task, rng, _PER_TASK[language]), "python"
        else:
            made, group = source_answers(task, rng, _PER_TASK[language]), language
        for name, text in made:
            yield Case(f"{group}, {name}", task, text)


def ours(data_dir: pathlib.Path | None) -> Judge:
    """Our verdicts."""
    benchmark = BFCL(data_dir=data_dir)

    def judge(case: Case) -> Verdict:
        score = benchmark.score(case.task, case.text)
        return Verdict(score.success, score.reason)

    return judge


def official(data_dir: pathlib.Path | None, clones: pathlib.Path) -> Judge:
    """Those of the installed package bfcl-eval."""
    checked = official_scorer()
    from bfcl_eval.constants.enums import ReturnFormat
    from bfcl_eval.model_handler.utils import default_decode_ast_prompting
    from bfcl_eval.utils import is_empty_output

    def decodes(text: str) -> bool:
        # As `_evaluate_single_relevance_entry` (eval_runner.py).
        try:
            return not is_empty_output(
                default_decode_ast_prompting(text, ReturnFormat.PYTHON, False)
            )
        except Exception:  # whatever it raises counts as a failure to decode, there as here
            return False

    def judge(case: Case) -> Verdict:
        if case.task.answer["kind"] in categories.NO_CALL:
            found = decodes(case.text)
            wanted = case.task.answer["kind"] == "relevance"
            return Verdict(
                found == wanted, "" if found == wanted else "call" if found else "no_call"
            )
        error = checked(case.task, case.text)
        return Verdict(not error, error)

    return judge


def install_stub() -> None:
    """Puts a stand-in for the table of model handlers, whose import needs every vendor's client."""
    os.environ.setdefault("BFCL_PROJECT_ROOT", tempfile.mkdtemp())

    class AnyModel(dict):
        def __missing__(self, name):
            return types.SimpleNamespace(underscore_to_dot=False)

    stub = types.ModuleType("bfcl_eval.constants.model_config")
    stub.MODEL_CONFIG_MAPPING = AnyModel()
    sys.modules[stub.__name__] = stub


def official_scorer() -> Callable[[Task, str], str]:
    """The official decoder and checker as (task, text) -> word of the error, "" for a pass."""
    install_stub()
    from bfcl_eval.constants.enums import Language, ReturnFormat
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
    from bfcl_eval.model_handler.utils import default_decode_ast_prompting
    from bfcl_eval.utils import is_function_calling_format_output

    def score(task: Task, text: str) -> str:
        name = task.answer["language"].upper()
        try:
            calls = default_decode_ast_prompting(text, ReturnFormat[name], False)
        except Exception:  # whatever it raises counts as a failure to decode, there as here
            return "decoder_failed"
        if not is_function_calling_format_output(calls):
            return "decoder_failed"
        truth = task.answer["ground_truth"]
        try:
            result = ast_checker(
                list(task.tools), calls, truth, Language[name], task.category, "model"
            )
        except Exception:
            return CRASH
        return "" if result["valid"] else reason_word(result["error_type"])

    return score
