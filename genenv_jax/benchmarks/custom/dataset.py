"""A benchmark of the questions in files, for whoever has data only."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.custom import files
from genenv_jax.benchmarks.custom.benchmark import Custom
from genenv_jax.benchmarks.custom.question import Question
from genenv_jax.benchmarks.options import check_shares
from genenv_jax.benchmarks.subsets import stable_position
from genenv_jax.benchmarks.wording import letters


class CustomFiles(Custom):
    """The questions of one or two files, JSON lines or parquet (`files`), compared by a checker.

    Args, beside those of `Custom`:
      train: the file of the seeds.
      held_out: the file of the held-out questions; "": a share of `train`.
      seed_fraction: share of a single file's questions that become seeds, by a hash of the prompt, so that it
        depends neither on the order of the lines nor on the other lines.
      data_dir: where relative paths start; "": the working directory.
    """

    isolated = False  # all that touches a model's text is bounded

    train: str = ""
    held_out: str = ""
    seed_fraction: float = 0.8
    data_dir: str | os.PathLike[str] = ""

    def __post_init__(self):
        super().__post_init__()
        check_shares(seed_fraction=self.seed_fraction)
        for option in ("train", "held_out"):
            value = getattr(self, option)
            if not isinstance(value, str) or not (value or option == "held_out"):
                raise ValueError(
                    f"{option} = {value!r}: expected a file of questions, JSON lines or .parquet"
                )

    def questions(self, split: str) -> Iterator[Question]:
        """See `Custom.questions`."""
        if self.held_out:
            yield from self._read(self.train if split == "seed" else self.held_out, split)
            return
        for question in self._read(self.train, split):
            place = stable_position(f"custom:{letters(question.prompt)}")
            if (place < self.seed_fraction) == (split == "seed"):
                yield question

    def _read(self, name: str, split: str) -> Iterator[Question]:
        return files.read(pathlib.Path(self.data_dir, name), self.checker, split)

    def source(self, task: Task) -> str:
        """See `Grouped.source`: questions that differ in signs alone are on one side of a split."""
        return letters(self.text(task)) or task.id

    def _facts(self) -> dict[str, str]:
        facts = super()._facts() | {"data": self.train}
        if self.held_out:
            return facts | {"held_out": self.held_out}
        return facts | {"held_out": f"{1 - self.seed_fraction:g} of it, by a hash of the prompt"}
