"""Runs the official BFCL checker beside ours and keeps its verdicts.

Not needed by the tests, which read `bench/official/bfcl.json`.  To make that file anew, in an
environment of its own (the package's pinned dependencies do not go together with ours):

    pip install --no-deps bfcl-eval==2026.3.23
    pip install tenacity filelock tree_sitter==0.21.3 tree-sitter-java==0.21.0 \
        tree-sitter-javascript==0.21.4
    GENENV_DATA=... python -m bench.official.bfcl

The file holds task ids and one letter a mutation (`bench.bad_answers.bfcl_mutations`), and no benchmark text.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import sys
import tempfile
import types
from collections.abc import Callable, Iterable

from bench.bad_answers.bfcl_mutations import mutations
from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.bfcl import categories, records

VERDICTS = pathlib.Path(__file__).with_suffix(".json")
VERSION = "v4"
CRASH = "crash"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def ast_tasks(data_dir: pathlib.Path | None = None) -> list[Task]:
    """Every task that the official AST checker scores."""
    names = (*categories.NON_LIVE[VERSION], *categories.LIVE)
    return records.load(VERSION, names, data_dir)


def digest(texts: Iterable[str]) -> str:
    """Says whether two sets of mutations are the same."""
    found = hashlib.sha256()
    for text in texts:
        found.update(text.encode() + b"\0")
    return found.hexdigest()


def official_scorer() -> Callable[[Task, str], str]:
    """The official decoder and checker as (task, text) -> error type, "" for a pass."""
    os.environ.setdefault("BFCL_PROJECT_ROOT", tempfile.mkdtemp())

    class AnyModel(dict):
        """Stands for the table of model handlers, whose import needs every vendor's client."""

        def __missing__(self, name):
            return types.SimpleNamespace(underscore_to_dot=False)

    stub = types.ModuleType("bfcl_eval.constants.model_config")
    stub.MODEL_CONFIG_MAPPING = AnyModel()
    sys.modules[stub.__name__] = stub
    from bfcl_eval.constants.enums import Language, ReturnFormat
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
    from bfcl_eval.model_handler.utils import default_decode_ast_prompting
    from bfcl_eval.utils import is_function_calling_format_output

    def score(task: Task, text: str) -> str:
        name = task.answer["language"].upper()
        try:
            calls = default_decode_ast_prompting(text, ReturnFormat[name], False)
        except Exception:  # whatever it raises counts as a failure to decode, there as here
            return "ast_decoder:decoder_failed"
        if not is_function_calling_format_output(calls):
            return "ast_decoder:decoder_wrong_output_format"
        truth = task.answer["ground_truth"]
        try:
            result = ast_checker(
                list(task.tools), calls, truth, Language[name], task.category, "model"
            )
        except Exception:
            return CRASH
        return "" if result["valid"] else result["error_type"]

    return score


def main() -> None:
    """Writes `bench/official/bfcl.json`."""
    score = official_scorer()
    errors = [""]
    verdicts: dict[str, str] = {}
    texts: list[str] = []
    for task in ast_tasks():
        letters = ""
        for text in mutations(task):
            texts.append(text)
            error = score(task, text)
            if error not in errors:
                errors.append(error)
            letters += LETTERS[errors.index(error)]
        verdicts[task.id] = letters
    document = {"errors": errors, "texts": digest(texts), "verdicts": verdicts}
    VERDICTS.write_text(json.dumps(document, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
