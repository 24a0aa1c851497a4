"""Downloads the published files of a benchmark, listed in genenv_jax/benchmarks/sources."""

import contextlib
import hashlib
import os
import pathlib
import signal
import urllib.parse
from collections.abc import Collection, Iterator

import requests

from genenv_jax.benchmarks import data_files

_SECONDS = 600.0  # for one file; the largest has 4 MB
_SILENCE = 30.0  # seconds in which a server must say something


class _TooSlow(Exception):
    pass


def download(name: str, paths: Collection[str], directory: pathlib.Path) -> None:
    """Downloads those of the benchmark's files `paths` that are not below `directory`.

    Raises OSError if a file cannot be fetched, and ValueError if it is not what was published.
    """
    with requests.Session() as session:
        for source in data_files.sources(name):
            target = directory / source.path
            if source.path not in paths or target.is_file():
                continue
            content = _fetch(session, source)
            target.parent.mkdir(parents=True, exist_ok=True)
            # Renamed in one step: an interrupted command leaves no partial file under the final name.
            partial = target.with_name(target.name + ".partial")
            partial.write_bytes(content)
            os.replace(partial, target)


def _fetch(session: requests.Session, source: data_files.Source) -> bytes:
    """A published file; reading stops beyond its listed size, or after `_SECONDS`."""
    content = bytearray()
    request = {"stream": True, "timeout": _SILENCE, "headers": {"Accept-Encoding": "identity"}}
    try:
        with _time_limit(_SECONDS), session.get(source.url, **request) as response:
            response.raise_for_status()
            for piece in response.iter_content(2**16):
                content += piece
                if len(content) > source.size:
                    break
    except _TooSlow:
        raise OSError(f"{source.url} did not finish within {_SECONDS:g} s") from None
    except requests.ConnectionError as error:
        host = urllib.parse.urlsplit(source.url).hostname
        raise OSError(
            f"{host} cannot be reached; if you have the files, pass their directory as --manual_dir"
        ) from error
    if hashlib.sha256(content).hexdigest() != source.sha256:
        raise ValueError(
            f"not what was published: {source.url} has {len(content):,} bytes or more, expected "
            f"{source.size:,} with the SHA-256 {source.sha256}"
        )
    return bytes(content)


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raises _TooSlow after some time, whatever is waited for; for the main thread."""

    def end(*_: object) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
