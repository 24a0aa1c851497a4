"""BFCL's single turns: the AST checker, and whether a call decodes."""

import os
import pathlib
import random
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from typing import Any

from bench.agreement.tally import Case, Judge, Verdict
from bench.bad_answers.bfcl import answers
from bench.bad_answers.bfcl_source import no_call_answers, source_answers
from genenv_jax.benchmarks.bfcl import categories, tasks
from genenv_jax.benchmarks.bfcl.benchmark import BFCL
from genenv_jax.benchmarks.bfcl.turns import reason_word

VERSION = "v4"
CRASH = "checker_error"
_PER_TASK = {"python": 18, "java": 60, "javascript": 90}
_PER_NO_CALL = 6


def cases(data_dir: pathlib.Path | None, seed: int, share: float) -> Iterator[Case]:
    """Every single-turn task with answers of many kinds; `share` of them."""
    names = [c for c in categories.names(VERSION) if c not in categories.MULTI_TURN]
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
    return judge_of(BFCL(data_dir=data_dir))


def judge_of(benchmark: BFCL) -> Judge:
    """A judge that scores as this benchmark."""

    def judge(case: Case) -> Verdict:
        score = benchmark.score(case.task, case.text)
        return Verdict(score.success, score.reason)

    return judge


def official(data_dir: pathlib.Path | None, clones: pathlib.Path) -> Judge:
    """The verdicts of the installed bfcl-eval."""
    install_stub()
    from bfcl_eval.constants.enums import ReturnFormat
    from bfcl_eval.model_handler.utils import default_decode_ast_prompting

    def decode(case: Case) -> Any:
        # As `_evaluate_single_relevance_entry` (eval_runner.py) where no call is right.
        no_call = case.task.answer["kind"] in categories.NO_CALL
        language = "PYTHON" if no_call else case.task.answer["language"].upper()
        return default_decode_ast_prompting(case.text, ReturnFormat[language], False)

    return official_judge(decode)


def official_judge(decode: Callable[[Case], Any]) -> Judge:
    """The official checker's verdicts on what an official decoder reads, after `install_stub`."""
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
    from bfcl_eval.utils import is_empty_output, is_function_calling_format_output

    def judge(case: Case) -> Verdict:
        task, answer = case.task, case.task.answer
        try:
            calls = decode(case)
        except Exception:  # any exception counts as a failure to decode, as officially
            calls = None
        if answer["kind"] in categories.NO_CALL:
            found = not is_empty_output(calls)
            right = found == (answer["kind"] == "relevance")
            return Verdict(right, "" if right else "call" if found else "no_call")
        if not is_function_calling_format_output(calls):
            return Verdict(False, "decoder_failed")
        language, truth = Language[answer["language"].upper()], answer["ground_truth"]
        try:
            result = ast_checker(list(task.tools), calls, truth, language, task.category, "model")
        except Exception:
            return Verdict(False, CRASH)
        valid = result["valid"]
        return Verdict(valid, "" if valid else reason_word(result["error_type"]))

    return judge


def install_stub() -> None:
    """Replaces the table of model handlers, whose import needs every vendor's client."""
    os.environ.setdefault("BFCL_PROJECT_ROOT", tempfile.mkdtemp())

    class AnyModel(dict):
        def __missing__(self, name):
            return types.SimpleNamespace(underscore_to_dot=False)

    stub = types.ModuleType("bfcl_eval.constants.model_config")
    stub.MODEL_CONFIG_MAPPING = AnyModel()
    sys.modules[stub.__name__] = stub
