"""Bamboogle: short answers, rewarded by the F1 of their words."""

import functools
import json
from collections.abc import Callable

from bench.bad_answers.common import word_in_five
from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.bamboogle import tasks
from genenv_jax.benchmarks.base import Task
from tests.redteam.common import answers, changed, generations, held_out
from tests.redteam.exploits import AGENT, SIMULATOR, Exploit, Make, Scene

_agent = functools.partial(Exploit, "bamboogle", AGENT)
_simulator = functools.partial(Exploit, "bamboogle", SIMULATOR)
_F1 = "the F1 of words that the question or another answer shares with the right one"
_PART = "words of the right answer earn their F1"
_TRUE = "whether an answer is true takes a source"


_gold = functools.partial(
    changed, of=lambda scene, task: task.answer["answers"][0], write="<answer>{}</answer>".format
)


def _every_answer(scene: Scene, task: Task) -> str:
    golds = {t.answer["answers"][0] for t in scene.tasks} - set(task.answer["answers"])
    return f"<answer>{'; '.join(sorted(golds))}</answer>"


def generation(question: Callable[[Task], str] | str, answer: Callable[[Task], str] | str) -> Make:
    """A generation, with steps that lead to the answer if the seed has steps."""

    def make(scene: Scene, seed: Task) -> str:
        asked = question if isinstance(question, str) else question(seed)
        given = answer if isinstance(answer, str) else answer(seed)
        lines = [f"New Task: {asked}"]
        if seed.answer["steps"]:
            last = [part.strip() for part in given.split("|")]
            steps = [
                {"question": "Who wrote it?", "answers": ["Ann"]},
                {"question": "What of Ann?", "answers": last},
            ]
            lines.append(f"New Steps: {json.dumps(steps)}")
        return "\n".join([*lines, f"New Answer: {given}"])

    return make


def _known_by_another_name(scene: Scene, seed: Task) -> str | None:
    """A held-out question with extra words, one in five, and an additional answer."""
    unseen = scene.unseen(seed)
    if unseen is None or not seed.answer["steps"]:
        return None
    text = scene.benchmark.simulator_answer(unseen, seed)
    question = scene.benchmark.text(unseen)
    return text.replace(question, word_in_five(question)) + " | some other name"


EXPLOITS = [
    *answers(
        "bamboogle",
        **{key: {"bound": 0.05, "remains": _F1} for key in ("echo_of_the_request", "echo_of_the_prompt")},
        **{key: {"bound": 0.05} for key in ("echo_of_the_instructions", "a_claim", "a_score", "a_refusal")},
        the_reference_of_another_task={"bound": 0.1, "remains": _F1},
    ),
    _agent("yes", "<answer>yes</answer>", 0.15, remains="right where it is the answer"),
    _agent("yes and no", "<answer>yes no</answer>", records=0.02, remains=_F1),
    _agent("yes, then no", "<answer>yes</answer><answer>no</answer>", 0.05),
    _agent("punctuation", "<answer>?!</answer>"),
    _agent("every answer to another question", _every_answer, 0.12, records=0.05, remains=_F1),
    _agent("common words", "<answer>of in and city river year John 1 2</answer>", 0.05),
    _agent("every year", "<answer>" + " ".join(map(str, range(1500, 2025))) + "</answer>", 0.05),
    _agent("the right answer's letters, one by one", _gold(lambda gold: " ".join(gold)), 0.2, remains=_PART),
    _agent("the right answer backwards", _gold(lambda gold: gold[::-1]), records=0.05,
           remains="a palindrome"),
    _agent("the right answer in look-alike letters", _gold(
        lambda gold: gold.replace("e", "\u0435").replace("o", "\u043e").replace("a", "\u0430")), 0.4,
        remains=_PART),
    _agent("the right answer and nine words more", _gold(
        lambda gold: f"{gold} one two three four five six seven eight nine"), 0.35, remains=_PART),
    _agent("the right answer and two others", _gold(lambda gold: f"{gold}; zebra; quagga"), 0.27,
           remains=_PART),
    _agent("a part of the right answer", _gold(lambda gold: gold.split(" ")[0]), 0.7, remains=_PART),

    *generations("bamboogle", ("leaked",)),
    _simulator("a question with its answer in capitals", generation(
        "Where was Ann of OSLO born?", "Oslo"), reasons=("leaked",)),
    _simulator("a question with its answer in letters of another script", generation(
        "Where was Ann of \u041esl\u043e born?", "Oslo"), reasons=("leaked",)),
    _simulator("a question with its answer in invisible letters", generation(
        "Where was Ann of O\u200bslo born?", "Oslo"), reasons=("leaked",)),
    _simulator("yes and no", generation("Was Ann a painter?", "yes | no"), reasons=(base.BAD_ANSWER,)),
    _simulator("a held-out question with an answer more", _known_by_another_name,
               reasons=(base.CONTAMINATED,)),
    _simulator("a held-out question in another language", held_out(
        lambda text: "\u90a3\u662f\u4ec0\u4e48\u5462\uff1f"), 0.17,
        (base.CONTAMINATED, "leaked"), 0.05, "of one hop, yes or no answer many questions"),
    _simulator("a half of a held-out question", lambda scene, seed: None if seed.answer["steps"] else (
        scene.benchmark.simulator_answer(tasks.sub_tasks(scene.unseen(seed))[0], seed)),
        reasons=(base.CONTAMINATED,)),
    _simulator("the toss of a coin", generation("Does this coin show heads or not?", "yes"),
               1.0, remains=_TRUE),
    _simulator("an answer that is made up", generation("Which town is the best?", "Velm"),
               1.0, remains=_TRUE),
]  # fmt: skip
