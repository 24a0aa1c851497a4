"""Writes a directory that appears whole or not at all."""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator

from genenv_jax.system.ownership import flush, scratch_name
from genenv_jax.system.signals import held

# One of these is in a directory of a model or of adapters.
_DESCRIBED = ("config.json", "adapter_config.json")


@contextlib.contextmanager
def atomic_directory(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A new directory beside `path` that replaces it when the block ends without an error.

    Raises FileExistsError if `path` is neither empty nor a model's, and OSError, naming `path`, if a write
    fails, even where a library raises another type of error.
    """
    path = path.absolute()
    used = (path.is_dir() and any(path.iterdir())) or path.is_file()
    if used and not any((path / name).is_file() for name in _DESCRIBED):
        raise FileExistsError(f"{path} exists and is not a model directory; expected another path")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, aside = scratch_name(path), scratch_name(path, "old")
    for leftover in (temporary, aside):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for item in (*temporary.rglob("*"), temporary):
            flush(item)
        with held():
            _replace(path, temporary, aside)
    except Exception as error:
        nameless = isinstance(error, OSError) and error.filename is None
        if nameless or "(os error " in str(error):
            raise OSError(f"{path} could not be written: {error}") from error
        raise
    finally:
        with held():
            shutil.rmtree(temporary, ignore_errors=True)
            if path.exists():
                shutil.rmtree(aside, ignore_errors=True)


def _replace(path: pathlib.Path, by: pathlib.Path, aside: pathlib.Path) -> None:
    """Renames `path` to `aside`, then `by` to `path`: a non-empty directory cannot be replaced directly."""
    if path.exists():
        path.rename(aside)
    try:
        by.rename(path)
    except OSError:
        if aside.exists():
            aside.rename(path)
        raise
    flush(path.parent)
