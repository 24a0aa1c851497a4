"""BFCL's single turns: the AST checker, and whether a call decodes."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Iterator

from bench.agreement.tally import Case, Judge, Verdict
from bench.bad_answers.bfcl import answers
from bench.bad_answers.bfcl_source import no_call_answers, source_answers
from bench.official.bfcl import official_scorer
from genenv_jax.benchmarks.bfcl import categories, records
from genenv_jax.benchmarks.bfcl.benchmark import BFCL

VERSION = "v4"
_NO_CALL = ("irrelevance", "relevance")
_PER_TASK = {"python": 18, "java": 60, "javascript": 90}
_PER_NO_CALL = 6


def cases(data_dir: pathlib.Path | None, seed: int, share: float) -> Iterator[Case]:
    """Every single-turn task with answers of many kinds; `share` of them."""
    names = [c for c in categories.categories(VERSION) if c not in categories.MULTI_TURN]
    for task in records.load(VERSION, names, data_dir, "eval"):
        rng = random.Random(f"agreement {seed} {task.id}")
        if rng.random() >= share:
            continue
        kind, language = task.answer["kind"], task.answer["language"]
        if kind in _NO_CALL:
            made, group = no_call_answers(task, rng, _PER_NO_CALL), kind
        elif language == "python":
            made, group = answers(task, rng, _PER_TASK[language]), "python"
        else:
            made, group = source_answers(task, rng, _PER_TASK[language]), language
        for name, text in made:
            yield Case(f"{group}, {name}", task, text)


def judges(data_dir: pathlib.Path | None, official: pathlib.Path) -> tuple[Judge, Judge]:
    """Ours and the official one, of the installed package bfcl-eval."""
    benchmark = BFCL(data_dir=data_dir)
    checked = official_scorer()
    from bfcl_eval.constants.enums import ReturnFormat
    from bfcl_eval.model_handler.utils import default_decode_ast_prompting
    from bfcl_eval.utils import is_empty_output

    def ours(case: Case) -> Verdict:
        score = benchmark.score(case.task, case.text)
        return Verdict(score.success, score.reason)

    def decodes(text: str) -> bool:
        # As `_evaluate_single_relevance_entry` (eval_runner.py).
        try:
            return not is_empty_output(
                default_decode_ast_prompting(text, ReturnFormat.PYTHON, False)
            )
        except Exception:  # whatever it raises counts as a failure to decode, there as here
            return False

    def theirs(case: Case) -> Verdict:
        if case.task.answer["kind"] in _NO_CALL:
            found = decodes(case.text)
            wanted = case.task.answer["kind"] == "relevance"
            return Verdict(
                found == wanted, "" if found == wanted else "a call" if found else "no call"
            )
        error = checked(case.task, case.text)
        return Verdict(not error, error)

    return ours, theirs
