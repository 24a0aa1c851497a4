"""BFCL's whole conversations: the multi-turn checker on the official classes."""

import json
import pathlib
import random
from collections.abc import Callable, Iterator

from bench.agreement.bfcl import CRASH, VERSION, install_stub
from bench.agreement.tally import Case, Judge, Verdict
from bench.bad_answers.bfcl_conversations import Play, plays
from genenv_jax.benchmarks.base import Rejection, Task
from genenv_jax.benchmarks.bfcl import backends, tasks
from genenv_jax.benchmarks.bfcl.benchmark import BFCL
from genenv_jax.benchmarks.bfcl.categories import CONVERSATION, MULTI_TURN
from genenv_jax.benchmarks.bfcl.turns import reason_word

_PER_TASK = 6
_UNPLAYED = ("answers reversed", "a turn more")  # no episode continues like this


def cases(data_dir: pathlib.Path | None, seed: int, share: float) -> Iterator[Case]:
    """Every conversation with plays of many kinds."""
    for task in tasks.load(VERSION, MULTI_TURN, data_dir, "eval", CONVERSATION):
        rng = random.Random(f"agreement {seed} {task.id}")
        if rng.random() < share:
            for kind, play in plays(task, rng, _PER_TASK):
                yield Case(kind, task, json.dumps(play), play)


def ours(data_dir: pathlib.Path | None) -> Judge:
    """Our verdicts on whole answers, which those on episodes must equal."""
    benchmark = BFCL(
        data_dir=data_dir,
        seed_categories=(),
        eval_categories=MULTI_TURN,
        multi_turn_rule="conversation",
    )

    def judge(case: Case) -> Verdict:
        score = benchmark.score(case.task, case.text)
        value = case.kind in _UNPLAYED or played(benchmark, case.task, case.given)
        return Verdict(score.success, score.reason, value)

    return judge


def played(benchmark: BFCL, task: Task, play: Play) -> bool:
    """Whether an episode succeeds with the answers of a play.

    An answer that a change made undecodable is not given: it would end the turn, whereas the official
    evaluator, which sees only the final record, skips it.
    """
    episode = benchmark.episode(task)
    for turn in play:
        for answer in turn:
            calls = backends.decode(answer)
            if answer is not turn[-1] and (isinstance(calls, Rejection) or not calls):
                continue
            if score := episode.step(answer):
                return score.success
    return False


def official(data_dir: pathlib.Path | None, clones: pathlib.Path) -> Judge:
    """The verdicts of the installed bfcl-eval on plays."""
    judged = official_judge()

    def judge(case: Case) -> Verdict:
        error = judged(case.task, case.given)
        return Verdict(not error, error, case.kind in _UNPLAYED or not error)

    return judge


def official_judge() -> Callable[[Task, Play], str]:
    """The official decoder and checker as (task, play) -> word of the error, "" for a pass."""
    install_stub()
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
    from bfcl_eval.model_handler.utils import default_decode_execute_prompting

    def decoded(text: str) -> list[str]:
        try:
            return default_decode_execute_prompting(text, False)
        except Exception:  # an answer that does not decode is skipped, as officially
            return []

    def judge(task: Task, play: Play) -> str:
        # As `_evaluate_single_multi_turn_entry` (eval_runner.py) does before it calls the checker.
        calls = task.answer["calls"]
        if len(play) != len(calls):
            return "force_terminated"
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
        finally:  # its objects are module variables, which the next play would inherit
            made = vars(multi_turn_utils)
            for name in [name for name in made if name.endswith("_instance")]:
                del made[name]
        return "" if verdict["valid"] else reason_word(verdict["error_type"])

    return judge
