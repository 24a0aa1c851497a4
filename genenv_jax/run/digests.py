"""Digests of files, to detect damage that a file's own format does not reveal.

Needs no JAX.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
from collections.abc import Collection

from genenv_jax.run.jsonl import read_json

NAME = "digests.json"
_PIECE = 1 << 22  # bytes read at a time


class Growing:
    """The digest of an append-only file; no byte is read twice."""

    def __init__(self, path: str | os.PathLike[str]):
        self._path = path
        self._digest, self._done = hashlib.blake2b(digest_size=32), 0

    def __call__(self, size: int | None = None) -> str:
        """Digest (hex) of the first `size` bytes (not fewer than in the last call), or of the whole file."""
        with open(self._path, "rb") as file:
            file.seek(self._done)
            while size is None or self._done < size:
                piece = file.read(_PIECE if size is None else min(_PIECE, size - self._done))
                if not piece:
                    break
                self._digest.update(piece)
                self._done += len(piece)
        return self._digest.hexdigest()


def _digests(root: pathlib.Path, names: list[str]) -> dict[str, str]:
    # hashlib releases the GIL, so threads help.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return dict(zip(names, pool.map(lambda name: Growing(root / name)(), names), strict=True))


def _names(root: pathlib.Path) -> set[str]:
    """All files below a directory, relative to it."""
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def seal(directory: str | os.PathLike[str], without: Collection[str] = ()) -> None:
    """Writes the digests of all files of a complete directory into it, before other processes see it.

    without: names of files that may still change.
    """
    root = pathlib.Path(directory)
    names = [name for name in _names(root) if name.split("/")[-1] not in (NAME, *without)]
    (root / NAME).write_text(json.dumps(_digests(root, sorted(names)), indent=2) + "\n")


def check(directory: str | os.PathLike[str], part: int = 0, parts: int = 1, alone: bool = False) -> None:
    """Compares a sealed directory with its digests.

    part, parts: with several processes, each reads every `parts`-th file, starting at number `part`.
    alone: no other files may lie beside them.
    Raises ValueError, naming the file, if one is damaged, missing or unexpected, OSError if unreadable.
    """
    root = pathlib.Path(directory)
    sealed = read_json(root / NAME, "digests of the files beside it")
    names, there = sorted(sealed)[part::parts], _names(root)
    if missing := sorted(set(names) - there):
        raise ValueError(f"{directory}/{missing[0]} is missing")
    if alone and (strange := sorted(there - sealed.keys() - {NAME})):
        raise ValueError(f"{directory}/{strange[0]} is not one of the files that were written")
    found = _digests(root, names)
    if damaged := [name for name in names if found[name] != sealed[name]]:
        raise ValueError(f"{directory}/{damaged[0]} is damaged: its bytes are not those that were written")
