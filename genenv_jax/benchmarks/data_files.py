"""Finds the files of a benchmark and checks that they are the published ones.

The table `sources/<name>.tsv` lists a benchmark's upstream files: path below the benchmark's directory,
URL, size in bytes and SHA-256, each file at a fixed commit.  `genenv_jax.datasets` downloads the files
in this table; a run checks the files that it reads against it.
"""

import csv
import dataclasses
import functools
import hashlib
import os
import pathlib
from collections.abc import Iterable

PathLike = str | os.PathLike[str]
_SOURCES = pathlib.Path(__file__).parent / "sources"


@dataclasses.dataclass(frozen=True)
class Source:
    """One upstream file."""

    path: str  # relative to the benchmark's directory, with forward slashes
    url: str  # where the file is published, at a fixed commit
    size: int  # in bytes
    sha256: str  # hexadecimal


def table(name: str) -> pathlib.Path:
    """The path of the benchmark's table of files; benchmarks that generate their tasks have none."""
    return _SOURCES / f"{name}.tsv"


def names() -> list[str]:
    """The benchmarks that have published files."""
    return sorted(path.stem for path in _SOURCES.glob("*.tsv"))


@functools.cache
def sources(name: str) -> tuple[Source, ...]:
    """The files in the benchmark's table, in order."""
    with table(name).open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return tuple(Source(row["path"], row["url"], int(row["bytes"]), row["sha256"]) for row in rows)


def prepared_directory(data_dir: PathLike | None = None) -> pathlib.Path:
    """Where `genenv_jax.datasets` puts downloaded files below the TensorFlow Datasets directory `data_dir`.

    None uses $TFDS_DATA_DIR, by default ~/tensorflow_datasets.
    """
    root = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return pathlib.Path(root).expanduser() / "genenv_files"


def find(
    name: str, marker: str, data_dir: PathLike | None = None, subdirectories: Iterable[str] = ()
) -> pathlib.Path:
    """The directory of a benchmark's files; FileNotFoundError names the remedy and the roots.

    Args:
      marker: a pattern (`pathlib.Path.glob`) that some file in the directory matches.
      data_dir: the directory itself or one above it.  None or "" searches $GENENV_DATA (default:
        `shared/data` next to the repository), then the download directory of `genenv_jax.datasets`.
      subdirectories: names of subdirectories, besides `name`, that may hold the files.
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


def verify(name: str, directory: pathlib.Path, paths: Iterable[str] | None = None, below: str = "") -> None:
    """Checks files of a benchmark, relative to its directory, against the table; None: all files in it.

    `below`: the directory's own place in the table, such as "v4/".

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: a file has the wrong size (a broken download) or contents, or is not in the table.
    """
    published = {source.path: source for source in sources(name)}
    for path in published if paths is None else paths:
        listed = below + path
        if listed not in published:
            raise ValueError(
                f"{name} has no upstream file {listed!r}; set config.benchmark.verify_files to False to use "
                "it unchecked"
            )
        _verify_file(directory / path, published[listed])


def _verify_file(path: pathlib.Path, source: Source) -> None:
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
