"""Benchmarks with tasks to attack: small made-up ones, or a sample of the data sets."""

import contextlib
import pathlib
import random
import tempfile
from collections.abc import Iterator
from typing import Any

from genenv_jax.benchmarks import registry
from genenv_jax.scoring.verification import VerificationConfig, Verifier
from tests.benchmarks import bfcl_classes, custom_files
from tests.benchmarks.small import ALL_WRITERS, WRITERS
from tests.redteam import api_bank
from tests.redteam.exploits import Scene

SAMPLE = {"api_bank": 300}  # tasks of a data set, if 40 lack some kinds of parameters

_SINGLE = (
    "simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple",
)  # fmt: skip
_LIVE = ("live_simple", "live_multiple")
_TURNS = ("multi_turn_base",)


def _bfcl(*categories: str, **options: Any) -> tuple[str, dict[str, Any]]:
    return "bfcl", {"seed_categories": categories, "eval_categories": categories, **options}


# Each scene's benchmark and its options.
SCENES: dict[str, tuple[str, dict[str, Any]]] = {
    "bfcl_single": _bfcl(*_SINGLE, *_LIVE, seed_fraction=0.5),
    "bfcl_turn_static": _bfcl(*_TURNS, multi_turn_rule="turn_static", seed_fraction=0.5),
    "bfcl_turn_state": _bfcl(*_TURNS, multi_turn_rule="turn_state", seed_fraction=0.5),
    "bfcl_conversations": _bfcl(*_TURNS, multi_turn_rule="conversation", episodes=True, seed_fraction=0.5),
    "bfcl_irrelevance": _bfcl("irrelevance", seed_fraction=0.5),
    "api_bank": ("api_bank", {"seed_splits": ("lv3-api-train", "level-1-api"), "tool_search": "words"}),
    "alfworld": ("alfworld", {}),
    "alfworld_games": ("alfworld", {"episodes": True, "eval_protocol": "episode", "played_on": "rules"}),
    "bamboogle": ("bamboogle", {"seed_fraction": 0.5}),
    "travelplanner": ("travelplanner", {}),
    "travelplanner_micro": ("travelplanner", {"reward": "micro"}),
    "custom": ("custom", custom_files.OPTIONS),
    "dial": ("dial", {}),
    "dial_turns": ("dial_turns", {}),
}


@contextlib.contextmanager
def scene(name: str, data_dir: pathlib.Path | None = None) -> Iterator[Scene]:
    """A scene, to be used inside the context.

    Args:
      name: one of SCENES.
      data_dir: of the data sets, whose training tasks are sampled (SAMPLE).  If None, or for benchmarks
        without a data set: all small tasks.
    """
    kind, options = SCENES[name]
    with contextlib.ExitStack() as stack:
        if name in ("bfcl_turn_state", "bfcl_conversations") and data_dir is None:
            stack.enter_context(bfcl_classes.executing())
        if kind not in WRITERS:
            data_dir = None
        if not kind.startswith("dial"):
            directory = data_dir
            if directory is None:
                made = stack.enter_context(tempfile.TemporaryDirectory())
                directory = ALL_WRITERS[kind](pathlib.Path(made))
            options = {**options, "data_dir": str(directory)}
        benchmark = registry.make_benchmark(kind, **options)
        tasks, held_out = list(benchmark.tasks("seed")), benchmark.tasks("eval")
        if data_dir is None and name == "api_bank":
            tasks += api_bank.TASKS
        verifier = Verifier(benchmark, tasks, held_out, VerificationConfig())
        if data_dir is not None:
            tasks = random.Random(0).sample(tasks, min(SAMPLE.get(kind, 40), len(tasks)))
        yield Scene(name, benchmark, tasks, held_out, verifier)
