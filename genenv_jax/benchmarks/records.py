"""The base class for benchmarks read from published files, and readers for their JSON."""

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

    Args, besides those of `Benchmark`:
      data_dir: directory of the files; "" or None searches the usual places.
      verify_files: check every file that is read against the table of published files.
    """

    data_dir: str | os.PathLike[str] | None = ""
    verify_files: bool = False

    def __getstate__(self) -> dict[str, Any]:
        """Makes `data_dir` absolute, so that it is valid in any working directory."""
        place = os.path.abspath(self.data_dir) if self.data_dir else ""
        return super().__getstate__() | {"data_dir": place}


def read_lines(path: pathlib.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """("file:line", record) for each line of a file of JSON objects; blank lines are skipped.

    Raises FileNotFoundError, or ValueError naming a line that is not UTF-8, not JSON or not an object.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: expected a file of JSON lines")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            where = f"{path}:{number}"
            if not line.strip():
                continue
            try:
                record = json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{where}: not JSON: {error}") from None
            if not isinstance(record, dict):
                raise ValueError(f"{where}: expected an object")
            yield where, record


def read_json(path: pathlib.Path) -> Any:
    """The value in a JSON file.  Raises FileNotFoundError, or ValueError naming the file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: expected a JSON file")
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from None


def read_list(path: pathlib.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """("file: record index", record) for each object in a file that holds one JSON list of objects.

    Raises FileNotFoundError, or ValueError naming file and record.
    """
    records = read_json(path)
    if not isinstance(records, list):
        raise ValueError(f"{path}: expected a list of records")
    for index, record in enumerate(records):
        where = f"{path}: record {index}"
        if not isinstance(record, dict):
            raise ValueError(f"{where}: expected an object")
        yield where, record


def field(record: Any, name: str, kind: type, where: str) -> Any:
    """A field of a record; raises ValueError naming place and field if it is not of type `kind`."""
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{where}: {name!r} is missing or not a {kind.__name__}")
    return value
