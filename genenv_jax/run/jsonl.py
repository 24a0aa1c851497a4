"""Files of JSON lines that survive any kill, and single files that are whole or absent.

A run's records are append-only.  Every checkpoint stores their length in bytes.  A resumed run truncates each
file to that length and writes the rest again, so it ends with the same bytes as an uninterrupted run.

Needs no JAX.
"""

import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from absl import logging

from genenv_jax.system.ownership import flush, scratch_name

_BLOCK = 65_536  # bytes read at a time, from a file's end


class JsonLines:
    """One append-only file of JSON objects, one a line.

    A line is whole or absent: records are on disk (fsync) before `append` returns, a failed write is
    truncated, and opening the file removes the torn last line of a killed process.

    Args:
      path: the file; made if missing, with its directory.
      read_only: the file belongs to another process: `append` and `clear` do not change it.
    """

    def __init__(self, path: str | os.PathLike[str], read_only: bool = False):
        self.path, self._file = pathlib.Path(path), -1
        if read_only:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        whole = self._whole()
        if whole != self.offset():
            logging.warning("%s: dropped a torn last line", self.path)
            os.ftruncate(self._file, whole)
        os.fsync(self._file)
        flush(self.path.parent)

    def _whole(self) -> int:
        """Length in bytes of the complete lines, up to the last newline."""
        end = self.offset()
        while end:
            start = max(0, end - _BLOCK)
            newline = os.pread(self._file, end - start, start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
        return 0

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Writes records with sorted keys.

        Raises ValueError for a number that is not finite, OSError if the file cannot be written.
        """
        lines = [json.dumps(record, sort_keys=True, allow_nan=False) + "\n" for record in records]
        if self._file < 0:
            return
        start, content = self.offset(), memoryview("".join(lines).encode("ascii"))
        try:
            while content:
                content = content[os.write(self._file, content) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, start)
            raise _naming(error, self.path) from error

    def offset(self) -> int:
        """Length in bytes, as stored in checkpoints."""
        return self.path.stat().st_size

    def clear(self) -> None:
        """Removes all records."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.fsync(self._file)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """See `iter_jsonl`."""
        return iter_jsonl(self.path)

    def close(self) -> None:
        """Closes the file; calling it again does nothing."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def iter_jsonl(path: str | os.PathLike[str], size: int | None = None) -> Iterator[dict[str, Any]]:
    """Yields the objects of a JSON lines file in order; with `size`, those in its first `size` bytes.

    A last line without a newline is torn (its writer was killed, or is still writing) and is ignored.

    Raises:
      FileNotFoundError: no such file.
      ValueError: a damaged line; the message begins with `file:line`.
    """
    return (record for _, record in iter_jsonl_at(path, size))


def iter_jsonl_at(
    path: str | os.PathLike[str], size: int | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Like `iter_jsonl`, with the byte offset of each object's line, for `read_jsonl_at`."""
    with open(path, "rb") as file:
        start = 0
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n") or (size is not None and size < start + len(line)):
                return
            yield start, _record(line, f"{path}:{number}")
            start += len(line)


def read_jsonl_at(path: str | os.PathLike[str], start: int) -> dict[str, Any]:
    """The object in the line at a byte offset of a file; raises what `iter_jsonl` does."""
    with open(path, "rb") as file:
        file.seek(start)
        return _record(file.readline(), f"{path}, byte {start}")


def _record(line: bytes, place: str) -> dict[str, Any]:
    try:
        return _object(line)
    except ValueError as error:
        raise ValueError(f"{place}: damaged line: {error}") from None


def _object(data: bytes) -> dict[str, Any]:
    """Parses a JSON object.  Raises ValueError with the reason if `data` is not one."""
    try:
        content = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def read_json(path: str | os.PathLike[str], expected: str) -> dict[str, Any]:
    """The JSON object in a file.

    expected: what the file should hold, for the message.
    Raises FileNotFoundError, or ValueError if the file is damaged; both name it.
    """
    try:
        return _object(pathlib.Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}; expected {expected}") from None


def write_jsonl(path: str | os.PathLike[str], records: Iterable[Mapping[str, Any]]) -> None:
    """Writes a file of JSON lines that is whole or absent."""
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))


def write_json(path: str | os.PathLike[str], content: Any, sort_keys: bool = False) -> None:
    """Writes a JSON file that is whole or absent."""
    write_text(path, json.dumps(content, indent=2, sort_keys=sort_keys) + "\n")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file that is whole or absent even if the process is killed."""
    path = pathlib.Path(path)
    partial = scratch_name(path)
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise _naming(error, path) from error
    finally:
        partial.unlink(missing_ok=True)
    flush(path.parent)


def _naming(error: OSError, path: pathlib.Path) -> OSError:
    """The same error with the file's name, which a failed write does not include."""
    return OSError(error.errno, error.strerror, str(path))
