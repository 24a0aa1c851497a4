import contextlib
import functools
import http.server
import importlib
import json
import re
import shutil
import sys
import threading
import time

import pytest
import tensorflow_datasets as tfds

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.base import Task
from genenv_jax.datasets import download
from genenv_jax.datasets.__main__ import main
from tests.benchmarks.published import published
from tests.benchmarks.small import WRITERS
from tests.commands import exit_code, printed

CONTENT = {"a.json": b'["one", "two"]\n', "deep/b.json": b'["three"]\n'}


def splits(directory):
    """The reader of the benchmark that these tests make up."""
    files = {"train": "a.json", "level-1": "deep/b.json"}

    def task(split, text):
        message, tool = {"role": "user", "content": f"{text} → “?”"}, {"name": "f", "parameters": {}}
        return Task(text, "made_up", split, (message,), (tool,), {"gold": [1, None, text]})

    texts = {split: json.loads((directory / path).read_text()) for split, path in files.items()}
    return {split: [task(split, text) for text in of] for split, of in texts.items()}


@contextlib.contextmanager
def served(directory):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(directory))
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A directory of the published files of "made_up", which a server offers."""
    monkeypatch.setitem(sys.modules, "genenv_jax.benchmarks.made_up.tasks", sys.modules[__name__])
    directory = tmp_path / "published"
    for path, content in CONTENT.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)
    with served(directory) as url, published("made_up", directory, url):
        yield directory


@pytest.fixture
def datasets(tmp_path, capsys):
    """Runs the command with a data directory; returns the lines it printed, or its error."""

    def run(name, manual_dir=None):
        argv = [f"--name={name}", f"--data_dir={tmp_path / 'tfds'}"]
        code = exit_code(main, argv + [f"--manual_dir={manual_dir}"] * bool(manual_dir))
        printed = capsys.readouterr()
        if code:
            assert code == 2
            return printed.err.splitlines()[-1]
        # TensorFlow Datasets prints lines of its own before and after preparing.
        return [line for line in printed.out.splitlines() if line and "prepar" not in line]

    return run


def exported(data_dir, name, split):
    """The tasks of a data set, as any program can read it."""
    records = tfds.data_source(f"genenv_{name}", split=split, data_dir=data_dir)
    texts = [{field: text.decode() for field, text in record.items()} for record in records]
    lists = ("messages", "tools", "answer")
    return [Task.from_json(t | {field: json.loads(t[field]) for field in lists}) for t in texts]


def test_files_are_downloaded_and_their_tasks_exported(files, tmp_path, datasets):
    said = datasets("made_up")
    laid_out = data_files.prepared_directory(tmp_path / "tfds") / "made_up"
    assert {path: (laid_out / path).read_bytes() for path in CONTENT} == CONTENT
    data_set = tmp_path / "tfds" / "genenv_made_up" / "1.0.0"
    assert [line.split() for line in said[:2]] == [["train", "2"], ["level-1", "1"]]
    assert said[2:] == [f"data set: {data_set}", f"files:    {laid_out}"]
    assert [p for p in data_set.iterdir() if "array_record" in p.name]
    found = {name: exported(tmp_path / "tfds", "made_up", name) for name in ("train", "level-1")}
    assert found == splits(files)
    shutil.rmtree(laid_out)
    assert datasets("made_up") == said and (laid_out / "a.json").is_file()


def test_files_that_are_there_are_used_without_a_download(files, tmp_path, datasets):
    assert f"files:    {files}" in datasets("made_up", files)
    assert exported(tmp_path / "tfds", "made_up", "train") == splits(files)["train"]
    assert not data_files.prepared_directory(tmp_path / "tfds").exists()


@pytest.mark.parametrize("damage", [b'["one", "twa"]\n', b'["one"'])
def test_a_published_file_that_has_changed_is_rejected(files, tmp_path, datasets, damage):
    (files / "a.json").write_bytes(damage)
    assert re.match(r"error: not what was published: .*a\.json has", datasets("made_up"))
    assert re.search(r"a\.json has (SHA-256|\d+ bytes).*expected", datasets("made_up", files))
    assert not list((tmp_path / "tfds").rglob("*.json*"))


@pytest.mark.parametrize(
    ("begin", "again", "message"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 2**16, "not what was published: .* bytes or more"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x", "did not finish within 1 s"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n", b"", "did not finish within 1 s"),
        (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n", "did not finish within 1 s"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "did not finish within 1 s"),
        (b"", b"", "did not finish within 1 s"),
        (b"HTTP/1.1 302 F\r\nLocation: /a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", None,
         "redirects"),
    ],
)  # fmt: skip
def test_a_mirror_without_an_end_is_given_up(files, tmp_path, datasets, monkeypatch, begin, again, message):
    def endless(handler):
        with contextlib.suppress(OSError):
            handler.wfile.write(begin)
            while again is not None:
                handler.wfile.write(again)
                time.sleep(0.05)

    monkeypatch.setattr(download, "_SECONDS", 1.0 if "finish" in message else 60.0)
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "do_GET", endless)
    assert re.search(message, datasets("made_up"))
    assert not list((tmp_path / "tfds").rglob("*.json"))


def test_a_damaged_file_of_an_earlier_download_is_named(files, tmp_path, datasets):
    datasets("made_up")
    (data_files.prepared_directory(tmp_path / "tfds") / "made_up" / "a.json").write_bytes(b"[]")
    assert "a.json has 2 bytes, expected 15" in datasets("made_up")


def test_files_that_are_missing_or_empty_are_named(files, datasets):
    (files / "a.json").write_text("[]")
    (files / "deep" / "b.json").write_text("[]")
    with published("made_up", files):
        assert "no tasks of made_up" in datasets("made_up", files)
    (files / "deep" / "b.json").unlink()
    (files / "a.json").write_bytes(CONTENT["a.json"])
    assert "b.json is missing; it is published at http" in datasets("made_up", files)
    (files / "a.json").unlink()
    assert "a.json" in datasets("made_up")


def test_the_command_says_mistakes_in_one_line(tmp_path, datasets, monkeypatch):
    for name in ("nothing", "bfcl/v2", "bamboogle/v4"):
        assert datasets(name).startswith(f"error: --name={name}: expected one of alfworld, api_bank,")
        assert "bfcl/v4, bfcl/v3; bfcl is bfcl/v4;" in datasets(name)
    assert datasets("bfcl", tmp_path / "no").startswith("error: --manual_dir: ")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # nobody is there
    assert datasets("bamboogle") == (
        "error: raw.githubusercontent.com cannot be reached; if you have the files, pass their directory as "
        "--manual_dir"
    )


@pytest.mark.parametrize("files", ["small", pytest.param("real", marks=pytest.mark.data)])
@pytest.mark.parametrize("name", [*WRITERS, "bfcl/v3"])
def test_files_make_data_sets(request, tmp_path, name, files, datasets):
    """Every split that the reader finds has its tasks."""
    benchmark, _, version = name.partition("/")
    given = [version] if version else []
    if files == "real":
        directory = request.getfixturevalue("data_dir") / benchmark.replace("_", "-")
        table = contextlib.nullcontext()
    else:
        directory = tmp_path / "files"
        WRITERS[benchmark](directory, *given)
        directory = directory / "bfcl" if benchmark == "bfcl" else directory
        table = published(benchmark, directory)
    with table:
        said = datasets(name, directory)
    assert isinstance(said, list), said
    reader = importlib.import_module(f"genenv_jax.benchmarks.{benchmark}.tasks")
    expected = {split: tasks for split, tasks in reader.splits(directory, *given).items() if tasks}
    counts = {split: str(len(tasks)) for split, tasks in expected.items()}
    assert dict(line.split() for line in said[:-2]) == counts
    data_set = "bfcl/v4" if name == "bfcl" else name
    first = next(iter(expected))
    assert exported(tmp_path / "tfds", data_set, first) == expected[first]


def test_the_export_needs_no_tensorflow():
    code = "import sys\nfrom genenv_jax.datasets import export\nprint('tensorflow' in sys.modules)"
    assert printed(code).strip() == "False"
