"""The two growing pools, D_train and D_env: append-only JSON-lines files that survive any kill.

A pool's state in a checkpoint is its length in bytes.  A resumed run cuts the file back to that length
and writes the rest again, so the file ends up with the bytes of a run that was never interrupted.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


class Pool:
    """One append-only file of JSON objects, a line each.

    Args:
      path: the file; made if missing.
      read_only: the file is another process's: `append` and `truncate` leave it as it is.
    """

    def __init__(self, path: str | os.PathLike, read_only: bool = False):
        self.path, self.read_only = pathlib.Path(path), read_only
        if not read_only:
            self.path.touch()

    def append(self, records: Iterable[Mapping[str, Any]]) -> int:
        """Writes records durably (they are on disk when this returns); returns how many."""
        lines = [json.dumps(record, sort_keys=True, allow_nan=False) for record in records]
        if self.read_only:
            return len(lines)
        with self.path.open("a", encoding="ascii") as file:
            file.writelines(line + "\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        return len(lines)

    def offset(self) -> int:
        """Length in bytes: what a checkpoint keeps."""
        return self.path.stat().st_size

    def truncate(self, offset: int) -> None:
        """Cuts the file back to a length from `offset`.

        Raises ValueError where the file is shorter than that: records that the checkpoint knows of
        are gone.
        """
        if self.read_only:
            return
        size = self.offset()
        if size < offset:
            raise ValueError(
                f"{self.path} has {size} bytes, but the checkpoint was written when it had {offset}; "
                "expected the file as the run left it"
            )
        os.truncate(self.path, offset)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Reads the records back; raises ValueError naming the file and line of a damaged one."""
        with self.path.open("rb") as file:  # decoded a line at a time, so that damage has a place
            for number, line in enumerate(file, 1):
                try:
                    record = json.loads(line.decode("ascii"))
                except ValueError as error:
                    raise ValueError(f"{self.path}:{number}: not a JSON object: {error}") from error
                if not isinstance(record, dict):
                    raise ValueError(f"{self.path}:{number}: not a JSON object: {line[:40]!r}")
                yield record
