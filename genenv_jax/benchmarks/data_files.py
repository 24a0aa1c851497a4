"""Where the files of a benchmark are, and whether they are the published ones.

Every benchmark has a table `sources/<name>.tsv` of its upstream files: path below the benchmark's
directory, location, size in bytes and SHA-256, each file at a fixed commit.  `genenv_jax.datasets`
downloads by this table; a run checks what it reads against it.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import hashlib
import os
import pathlib
from collections.abc import Iterable

_SOURCES = pathlib.Path(__file__).parent / "sources"
_FIELDS = ["path", "url", "bytes", "sha256"]


@dataclasses.dataclass(frozen=True)
class Source:
    """One upstream file.

    Attributes:
      path: relative to the benchmark's directory, with forward slashes.
      url: where it is published, at a fixed commit.
      size: bytes.
      sha256: hexadecimal.
    """

    path: str
    url: str
    size: int
    sha256: str


def table(name: str) -> pathlib.Path:
    """The file with the table of the benchmark `name`; there is none of one whose tasks are made."""
    return _SOURCES / f"{name}.tsv"


@functools.cache
def sources(name: str) -> tuple[Source, ...]:
    """The table of the benchmark `name`, in its order; ValueError for a malformed line."""
    path = table(name)
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t")
        if next(rows, None) != _FIELDS:
            raise ValueError(f"{path}:1: expected the columns {', '.join(_FIELDS)}")
        found = []
        for row in rows:
            if len(row) != len(_FIELDS) or not row[2].isdigit():
                raise ValueError(f"{path}:{rows.line_num}: expected {', '.join(_FIELDS)}")
            found.append(Source(row[0], row[1], int(row[2]), row[3]))
    return tuple(found)


def prepared_directory(data_dir: str | os.PathLike[str] | None = None) -> pathlib.Path:
    """Where `genenv_jax.datasets` puts downloaded files.

    Args:
      data_dir: TensorFlow Datasets' directory; None reads $TFDS_DATA_DIR, whose default is
        ~/tensorflow_datasets.
    """
    root = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return pathlib.Path(root).expanduser() / "genenv_files"


def find(
    name: str,
    marker: str,
    data_dir: str | os.PathLike[str] | None = None,
    subdirectories: Iterable[str] = (),
) -> pathlib.Path:
    """The directory that holds the files of a benchmark.

    Args:
      name: of the benchmark, as in the configuration.
      marker: a pattern (`pathlib.Path.glob`) that some file of that directory matches.
      data_dir: that directory or one above it.  None or "" looks in $GENENV_DATA (default: the directory
        `shared/data` beside the repository), then where `genenv_jax.datasets` downloads to.
      subdirectories: further names below which the files may lie, beside `name`.

    Raises:
      FileNotFoundError: none of the places has the files; names the remedy and the roots.
    """
    if data_dir:
        roots = [pathlib.Path(data_dir)]
    else:
        repository = pathlib.Path(__file__).resolve().parents[2]
        shared = os.environ.get("GENENV_DATA") or repository.parent / "shared" / "data"
        roots = [pathlib.Path(shared), prepared_directory()]
    below = ["", *subdirectories, name, *(f"{name}/{sub}" for sub in subdirectories)]
    places = [root / part for root in roots for part in below]
    for place in places:
        if place.is_dir() and any(place.glob(marker)):
            return place
    raise FileNotFoundError(
        f"the files of {name} are missing: `genenv datasets --name={name}` downloads them, or set "
        "config.benchmark.data_dir or GENENV_DATA to a directory that holds them (there is no "
        f"{marker} in or below {' or '.join(map(str, roots))})"
    )


def verify(name: str, directory: pathlib.Path, paths: Iterable[str] | None = None) -> None:
    """Compares files with the table of upstream files.

    Args:
      name: of the benchmark.
      directory: the benchmark's directory.
      paths: what to compare, relative to it; None: every file of the table.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: a file has another size (a broken download) or other contents, or is not in the table.
    """
    published = {source.path: source for source in sources(name)}
    for path in published if paths is None else paths:
        if path not in published:
            raise ValueError(
                f"{name} has no upstream file {path!r}; set config.benchmark.verify_files to False to use "
                "it unchecked"
            )
        verify_file(directory / path, published[path])


def verify_file(path: pathlib.Path, source: Source) -> None:
    """Compares one file with its entry; see `verify`."""
    remedy = "delete it and run `genenv datasets` again"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; it is published at {source.url}")
    size = path.stat().st_size
    if size != source.size:
        raise ValueError(f"{path} has {size} bytes, expected {source.size}: {remedy}")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != source.sha256:
        raise ValueError(f"{path} has SHA-256 {found}, expected {source.sha256}: {remedy}")
