"""Runs the official multi-turn checker beside ours and keeps its verdicts.

Not needed by the tests, which read `bench/official/bfcl_conversations.json`.  To make that file anew, in the
environment that `bfcl_official` describes, with `mpmath==1.3.0` besides:

    GENENV_DATA=... python -m bench.official.bfcl_conversations

The file holds ids of conversations and one letter a play (`bench.bad_answers.bfcl_conversations`), and no
benchmark text.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable

from bench.bad_answers.bfcl_conversations import Play, plays
from bench.official.bfcl import CRASH, LETTERS, VERSION, digest, official_scorer
from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.bfcl import backends, records
from genenv_jax.benchmarks.bfcl.categories import CONVERSATION, MULTI_TURN

VERDICTS = pathlib.Path(__file__).with_suffix(".json")


def conversations(data_dir: pathlib.Path | None = None) -> list[Task]:
    """Every whole conversation."""
    return records.load(VERSION, MULTI_TURN, data_dir, "eval", CONVERSATION)


def plays_of(task: Task) -> list[Play]:
    """The plays of a conversation that were judged."""
    made = backends.Backends(backends.Scenario.from_json(task.answer["scenario"]))
    return plays(task, made.parameter_order())


def official_judge() -> Callable[[Task, Play], str]:
    """The official decoder and checker as (task, play) -> error type, "" for a pass."""
    os.environ.setdefault("BFCL_PROJECT_ROOT", tempfile.mkdtemp())
    official_scorer()  # puts the stand-in for the model table in its place
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
    from bfcl_eval.model_handler.utils import default_decode_execute_prompting

    def decoded(text: str) -> list[str]:
        try:
            return default_decode_execute_prompting(text, False)
        except Exception:  # an answer that does not decode is passed over, there as here
            return []

    def judge(task: Task, play: Play) -> str:
        # As `_evaluate_single_multi_turn_entry` (eval_runner.py) does before it calls the checker.
        calls = task.answer["calls"]
        if len(play) != len(calls):
            return "multi_turn:force_terminated"
        entry = {
            "id": task.id,
            "initial_config": task.answer["scenario"]["config"],
            "involved_classes": task.answer["scenario"]["classes"],
        }
        steps = [[d for text in turn if (d := decoded(text))] for turn in play]
        try:
            verdict = multi_turn_checker(steps, calls, entry, task.category, "model")
        except Exception:
            return CRASH
        finally:  # its objects are variables of the module, which the next play would take over
            made = vars(multi_turn_utils)
            for name in [name for name in made if name.endswith("_instance")]:
                del made[name]
        return "" if verdict["valid"] else verdict["error_type"]

    return judge


def main() -> None:
    """Writes `bench/official/bfcl_conversations.json`."""
    judge = official_judge()
    errors = [""]
    verdicts: dict[str, str] = {}
    texts: list[str] = []
    for task in conversations():
        letters = ""
        for play in plays_of(task):
            texts.append(json.dumps(play))
            error = judge(task, play)
            if error not in errors:
                errors.append(error)
            letters += LETTERS[errors.index(error)]
        verdicts[task.id] = letters
    document = {"errors": errors, "texts": digest(texts), "verdicts": verdicts}
    VERDICTS.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    print(f"{len(texts)} plays of {len(verdicts)} conversations", file=sys.stderr)


if __name__ == "__main__":
    main()
