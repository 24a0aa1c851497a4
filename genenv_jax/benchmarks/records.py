"""Benchmarks whose tasks are read from published files, and the reader of their JSON lines."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from genenv_jax.benchmarks.base import Benchmark


@dataclasses.dataclass(kw_only=True, eq=False)
class Published(Benchmark):
    """A benchmark whose tasks are read from published files.

    Args, beside those of `Benchmark`:
      data_dir: where the files are; "" or None looks in the usual places.
      verify_files: compare every file that is read with the table of published files.
    """

    data_dir: str | os.PathLike[str] | None = ""
    verify_files: bool = False

    def __getstate__(self) -> dict[str, Any]:
        """With a place of the files that holds in any working directory."""
        place = os.path.abspath(self.data_dir) if self.data_dir else ""
        return super().__getstate__() | {"data_dir": place}


def read_lines(path: pathlib.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """("file:line", record) of each JSON object of a file, one a line; blank lines are skipped.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: a line is not UTF-8, not JSON or not an object; names file and line.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: expected a file of JSON lines")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            where = f"{path}:{number}"
            if not line.strip():
                continue
            try:
                record = json.loads(line.decode("utf-8"))
            except ValueError as error:
                raise ValueError(f"{where}: not JSON: {error}") from None
            if not isinstance(record, dict):
                raise ValueError(f"{where}: expected an object")
            yield where, record
