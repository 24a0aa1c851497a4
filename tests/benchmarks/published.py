"""Tables of upstream files for small files, like those of `genenv_jax/benchmarks/sources` for real ones."""

import contextlib
import hashlib
import pathlib
import tempfile
from collections.abc import Iterator
from unittest import mock

from genenv_jax.benchmarks import data_files


@contextlib.contextmanager
def published(name: str, directory: pathlib.Path, url: str = "https://example.org") -> Iterator[None]:
    """Makes the files now below `directory` the published files of the benchmark `name`, at `url`."""
    lines = ["path\turl\tbytes\tsha256"]
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        content, relative = path.read_bytes(), path.relative_to(directory).as_posix()
        digest = hashlib.sha256(content).hexdigest()
        lines.append(f"{relative}\t{url}/{relative}\t{len(content)}\t{digest}")
    with tempfile.TemporaryDirectory() as tables:
        (pathlib.Path(tables) / f"{name}.tsv").write_text("\n".join(lines) + "\n")
        data_files.sources.cache_clear()
        try:
            with mock.patch.object(data_files, "_SOURCES", pathlib.Path(tables)):
                yield
        finally:
            data_files.sources.cache_clear()
