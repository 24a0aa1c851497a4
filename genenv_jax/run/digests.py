"""Digests of files, to detect damage that a file's own format does not reveal.

Directories may lie in an object store, see `run.remote`.  Needs no JAX.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
from collections.abc import Callable, Collection
from typing import Any

import fsspec

from genenv_jax.run.jsonl import parse_json

NAME = "digests.json"
_PIECE = 1 << 22  # bytes read at a time


def of_file(path: str | os.PathLike[str], size: int | None = None) -> str:
    """Digest (hex) of a file's first `size` bytes, or of all."""
    return Growing(path)(size)


class Growing:
    """The digest of an append-only file; no byte is read twice."""

    def __init__(self, path: str | os.PathLike[str], open_file: Callable[..., Any] = open):
        self._path, self._open = path, open_file
        self._digest, self._done = hashlib.blake2b(digest_size=32), 0

    def __call__(self, size: int | None = None) -> str:
        """Digest (hex) of the first `size` bytes (not fewer than in the last call), or of the whole file."""
        with self._open(self._path, "rb") as file:
            file.seek(self._done)
            while size is None or self._done < size:
                piece = file.read(_PIECE if size is None else min(_PIECE, size - self._done))
                if not piece:
                    break
                self._digest.update(piece)
                self._done += len(piece)
        return self._digest.hexdigest()


def _digests(files: fsspec.AbstractFileSystem, root: str, names: list[str]) -> dict[str, str]:
    # hashlib releases the GIL, so threads help.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda name: Growing(f"{root}/{name}", files.open)(), names)
        return dict(zip(names, found, strict=True))


def _names(files: fsspec.AbstractFileSystem, root: str) -> set[str]:
    """All files below a directory, relative to it."""
    return {path[len(root) + 1 :] for path in files.find(root)}


def seal(directory: str | os.PathLike[str], without: Collection[str] = ()) -> None:
    """Writes the digests of all files of a complete directory into it, before other processes see it.

    without: names of files that may still change.
    """
    files, root = fsspec.url_to_fs(os.fspath(directory))
    names = [name for name in _names(files, root) if name.split("/")[-1] not in (NAME, *without)]
    content = json.dumps(_digests(files, root, sorted(names)), indent=2) + "\n"
    files.pipe_file(f"{root}/{NAME}", content.encode())


def check(
    directory: str | os.PathLike[str], part: int = 0, parts: int = 1, alone: bool = False
) -> None:
    """Compares a sealed directory with its digests.

    part, parts: with several processes, each reads every `parts`-th file, starting at number `part`.
    alone: no other files may lie beside them.
    Raises ValueError, naming the file, if one is damaged, missing or strange, OSError if one cannot be read.
    """
    files, root = fsspec.url_to_fs(os.fspath(directory))
    content = files.cat_file(f"{root}/{NAME}")
    sealed = parse_json(content, f"{directory}/{NAME}", "digests of the files beside it")
    names, there = sorted(sealed)[part::parts], _names(files, root)
    if missing := sorted(set(names) - there):
        raise ValueError(f"{directory}/{missing[0]} is missing")
    if alone and (strange := sorted(there - sealed.keys() - {NAME})):
        raise ValueError(f"{directory}/{strange[0]} is not of those that were written")
    found = _digests(files, root, names)
    if damaged := [name for name in names if found[name] != sealed[name]]:
        raise ValueError(
            f"{directory}/{damaged[0]} is damaged: its bytes are not those that were written"
        )
