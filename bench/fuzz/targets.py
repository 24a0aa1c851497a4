"""Where texts of models enter: the benchmarks, with the tasks that texts are about."""

import contextlib
import dataclasses
import pathlib
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.bad_answers import bad_answers
from bench.fuzz import texts
from bench.fuzz.promises import check_messages, check_rejection, check_score, check_task, promise
from genenv_jax.benchmarks import registry
from genenv_jax.benchmarks.alfworld.episode import RulesGame
from genenv_jax.benchmarks.api_bank import prompts as api_bank_prompts
from genenv_jax.benchmarks.base import Benchmark, Rejection, Score, Task
from genenv_jax.benchmarks.bfcl import backends
from genenv_jax.benchmarks.bfcl.categories import TURN_STATE
from genenv_jax.benchmarks.headers import write_with_tools
from genenv_jax.scoring import requests
from genenv_jax.scoring.open_episodes import OpenEpisodes
from genenv_jax.scoring.verification import PARSED, PROVEN, VerificationConfig, Verifier, inspect

_BFCL = (
    *("simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "irrelevance"),
    *("live_simple", "live_irrelevance", "live_relevance", "multi_turn_base"),
)
_WAYS = ("answer", "episode", "generation")
_WRONG = 4  # bad answers to a task among its examples
_TASKS = 120  # per benchmark, that texts are made for
_CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "alfworld": {},
    "alfworld:games": {"episodes": True, "eval_protocol": "episode", "played_on": "rules"},
    "api_bank": {"seed_splits": ("lv3-api-train", "level-1-api", "level-2-api", "level-1-response")},
    "bamboogle": {"seed_fraction": 0.5},
    "bamboogle:search": {"seed_fraction": 0.5, "mode": "search"},
    "bfcl": {"seed_categories": _BFCL, "eval_categories": _BFCL},
    "custom": {"train": "train.jsonl", "held_out": "held_out.jsonl"},
    "bfcl:template": {"seed_categories": _BFCL, "eval_categories": _BFCL},
    "bfcl:turn_state": {"multi_turn_rule": "turn_state"},
    "bfcl:conversation": {"multi_turn_rule": "conversation"},
    "dial": {},
    "dial_turns": {},
    "travelplanner": {},
    "travelplanner:micro": {"reward": "micro"},
}


@dataclasses.dataclass(frozen=True)
class Target:
    """One entry point.

    Attributes:
      name: "benchmark answer", "benchmark generation", ...
      subjects: what a text is about (tasks); at least one entry, None if there is nothing.
      examples: texts of the expected form for a subject.
      run: (subject, texts) -> outcome; raises for a find.
      most: texts of one input; more than one for episodes.
    """

    name: str
    subjects: Sequence[Any]
    examples: Callable[[Any], Sequence[str]]
    run: Callable[[Any, Sequence[str]], str]
    most: int = 1

    def draw(self, seed: int, index: int) -> tuple[int, list[str]]:
        """The input number `index`: index of its subject, and its texts.  Depends on nothing else."""
        rng = random.Random(f"{seed} {self.name} {index}")
        subject = rng.randrange(len(self.subjects))
        examples = self.examples(self.subjects[subject])
        count = rng.randint(1, self.most) if self.most > 1 else 1
        return subject, [texts.write(rng, examples) for _ in range(count)]


def benchmarks(
    wanted: Sequence[str], small: pathlib.Path | None = None, only_small: bool = False
) -> Iterator[tuple[str, Benchmark]]:
    """The benchmarks by the names of their configurations.

    Those whose packages or files are missing are left out.

    Args:
      wanted: words; a configuration is left out if no target's name has one.
      small: has a directory of small files per benchmark, by name, for benchmarks without a data set.
      only_small: use these even beside the data sets.
    """
    for name, options in _CONFIGURATIONS.items():
        if not any(word in f"{name} {what}" for word in wanted for what in _WAYS):
            continue
        kind = name.partition(":")[0]
        if name in ("bfcl:turn_state", "bfcl:conversation") and not backends.is_installed():
            continue
        # Everything held out beyond a few tasks would only cost time.
        limits = {} if kind.startswith("dial") else {"max_seeds": _TASKS, "max_eval": _TASKS // 4}
        found = None
        if kind.startswith("dial") or not (only_small or kind == "custom"):
            with contextlib.suppress(FileNotFoundError):
                there = registry.make_benchmark(kind, **options, **limits)
                there.tasks("seed"), there.tasks("eval")
                found = there
        if found is None and small and (small / kind).is_dir():
            found = registry.make_benchmark(kind, **options, **limits, data_dir=str(small / kind))
        if found is not None:
            if name == "bfcl:template":
                found.use_template("<tool_call>")
            yield name, found


def of_benchmark(name: str, benchmark: Benchmark) -> Iterator[Target]:
    """A benchmark's entry points."""
    seeds, held_out = list(benchmark.tasks("seed")), list(benchmark.tasks("eval"))
    if name == "alfworld":
        benchmark.open_game = RulesGame
        played = [game.task() for game in benchmark.games("eval")[:10]]
    else:
        played = [t for t in (*seeds[:10], *held_out) if benchmark.is_interactive(t)][:30]
    if played:
        yield _episodes(f"{name} episode", benchmark, played)
    yield _answers(f"{name} answer", benchmark, [*seeds, *held_out, *played])
    if ":" not in name or name in ("bfcl:turn_state", "alfworld:games"):
        yield _generations(f"{name} generation", benchmark, seeds, held_out)


def _examples(benchmark: Benchmark, tasks: Sequence[Task], write: Callable[[Task], str]):
    """A function from a task to its own text and those of two others."""
    known: dict[str, str] = {}

    def text_of(task: Task) -> str:
        if task.id not in known:
            known[task.id] = write(task)
        return known[task.id]

    def examples(task: Task) -> list[str]:
        at = zlib.crc32(task.id.encode())
        others = [tasks[(at + 7 * i) % len(tasks)] for i in (1, 2)]
        return [text_of(t) for t in (task, task, *others)]

    return examples


def _answers(name: str, benchmark: Benchmark, tasks: list[Task]) -> Target:
    def run(task: Task, written: Sequence[str]) -> str:
        return check_score(benchmark.score(task, written[0]))

    right, known = _examples(benchmark, tasks, benchmark.agent_answer), {}

    def examples(task: Task) -> list[str]:
        if task.id not in known:
            rng = random.Random(task.id)
            wrong = [text for _, text in bad_answers(benchmark, task, rng)]
            known[task.id] = rng.sample(wrong, _WRONG)
        return [*right(task), *known[task.id]]

    return Target(name, tasks, examples, run)


def _episodes(name: str, benchmark: Benchmark, tasks: list[Task]) -> Target:
    def run(task: Task, written: Sequence[str]) -> str:
        episodes = OpenEpisodes(benchmark)
        for turn in range(len(written) + 1):
            arguments = ("key", task, written[:turn])
            found = requests.answer(benchmark, episodes, requests.EPISODE, arguments)
            if isinstance(found, Score):
                return check_score(found)
            check_messages(found)
        requests.answer(benchmark, episodes, requests.DROP, ("key",))
        return "open"

    def examples(task: Task) -> list[str]:
        lines = benchmark.agent_answer(task)
        if name.startswith("dial"):
            return [*benchmark.agent_answers(task), "1 done 0", lines]
        if name.startswith("alfworld"):
            return [*lines.split("\n"), lines]
        if name.startswith("bamboogle"):
            steps = [f"<search>{step['question']}</search>" for step in task.answer["steps"]]
            return [*steps, *steps, lines]
        return ["[" + ", ".join(turn) + "]" for turn in task.answer["calls"]] + ["Done.", lines]

    return Target(name, tasks, examples, run, most=8)


def _generations(name: str, benchmark: Benchmark, seeds: list[Task], held_out: list[Task]) -> Target:
    verifier = Verifier(benchmark, seeds, held_out, VerificationConfig())

    def run(seed: Task, written: Sequence[str]) -> str:
        (text,) = written
        keys = {"done": True, "seed": seed, "task_id": "g", "generation": 0}
        parsed = benchmark.parse(text, seed, "g", 0)
        if isinstance(parsed, Task):
            check_task(benchmark, parsed)
            refusal = benchmark.verify(parsed)
            if refusal is not None:
                check_rejection(refusal)
                promise(not refusal.detail.startswith("malformed task"), f"verify: {refusal.detail}")
        outcome = inspect(benchmark, text, **keys, admit=PROVEN)
        if isinstance(parsed, Task) and isinstance(outcome, Rejection):
            outcome = inspect(benchmark, text, **keys, admit=PARSED)
        if isinstance(outcome, Task):
            compared = verifier.compare(outcome)
            # An admitted task is answered with a changed reference.
            rng = random.Random(text)
            answer = texts.change(rng, benchmark.agent_answer(outcome), [text])
            check_score(benchmark.score(outcome, answer))
            if isinstance(compared, Task):
                return "accepted"
            outcome = compared
        return check_rejection(outcome)

    write = lambda task: benchmark.simulator_answer(task, task)  # noqa: E731
    same = _examples(benchmark, seeds, write)
    new = _examples(benchmark, seeds, benchmark.simulator_answer)
    return Target(name, seeds, lambda seed: [*same(seed), *new(seed), *_with_tools(benchmark, seed)], run)


def _with_tools(benchmark: Benchmark, seed: Task) -> list[str]:
    """A generation that names the seed's tools itself, where generations may."""
    if seed.benchmark == "api_bank":
        dialogue, reference = api_bank_prompts.dialogue(seed), api_bank_prompts.reference(seed)
        found = {
            "name": "Book",
            "input_parameters": {"n": {"type": "int"}, "list": {"type": "list(str)"}},
        }
        searched = f"{dialogue}\nAPI-Request: [ToolSearcher(keywords='book')]->{found}"
        call = "[Book(n='3', list='['a', 4]')]"
        return [
            write_with_tools(seed.tools, dialogue, reference), write_with_tools(None, searched, call)
        ]  # fmt: skip
    if seed.benchmark == "bfcl" and seed.answer["rule"] != TURN_STATE and len(seed.tools) < 8:
        own = dataclasses.replace(seed, answer={**seed.answer, "same_tools": False})
        return [benchmark.simulator_answer(own)] * 2
    return []
