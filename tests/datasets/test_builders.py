"""The data set builders: download with checksums, files that are there, and what comes out."""

import contextlib
import functools
import http.server
import json
import shutil
import subprocess
import sys
import threading
import time

import pytest
import tensorflow_datasets as tfds

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.base import Task
from genenv_jax.datasets import builders
from genenv_jax.datasets.__main__ import main
from tests.benchmarks import bfcl_tasks
from tests.benchmarks.published import published
from tests.benchmarks.small import WRITERS
from tests.commands import exit_code

CONTENT = {"a.json": b'["one", "two"]\n', "deep/b.json": b'["three"]\n'}


def splits(directory):
    """The reader of the benchmark that these tests make up."""
    return {
        split: [
            Task(
                text,
                "made_up",
                split,
                ({"role": "user", "content": f"{text} → “?”"},),
                ({"name": "f", "parameters": {}},),
                {"gold": [1, None, text]},
            )
            for text in json.loads((directory / path).read_text())
        ]
        for split, path in (("train", "a.json"), ("level-1", "deep/b.json"))
    }


@contextlib.contextmanager
def served(directory):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(directory))
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class MadeUp(builders.TaskBuilder, skip_registration=True):
    """Made up."""

    name = benchmark = "made_up"
    homepage = citation = ""
    reader = __name__


@pytest.fixture
def files(tmp_path):
    """A directory of published files, which a server offers."""
    directory = tmp_path / "published"
    for path, content in CONTENT.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)
    with served(directory) as url, published("made_up", directory, url):
        yield directory


def prepare(builder, **options):
    config = tfds.download.DownloadConfig(**options)
    builder.download_and_prepare(download_config=config)


def tasks_of(builder, split):
    return [builders.to_task(example) for example in builder.as_data_source(split)]


def test_download_writes_array_records_of_the_tasks_and_lays_out_the_files(files, tmp_path):
    builder = MadeUp(data_dir=tmp_path / "tfds")
    prepare(builder)
    assert {name: split.num_examples for name, split in builder.info.splits.items()} == {
        "train": 2,
        "level-1": 1,
    }
    assert {name: tasks_of(builder, name) for name in ("train", "level-1")} == splits(files)
    assert all("array_record" in name for name in builder.info.splits["train"].filenames)
    laid_out = data_files.prepared_directory(tmp_path / "tfds") / "made_up"
    assert {path: (laid_out / path).read_bytes() for path in CONTENT} == CONTENT


def test_files_that_are_there_are_used_without_a_download(files, tmp_path):
    builder = MadeUp(data_dir=tmp_path / "tfds")
    prepare(builder, manual_dir=str(files))
    assert tasks_of(builder, "train") == splits(files)["train"]
    assert not data_files.prepared_directory(tmp_path / "tfds").exists()


@pytest.mark.parametrize("damage", [b'["one", "twa"]\n', b'["one"'])
def test_a_published_file_that_has_changed_is_rejected(files, tmp_path, damage):
    (files / "a.json").write_bytes(damage)
    with pytest.raises(ValueError, match=r"not what was published: .*a\.json"):
        prepare(MadeUp(data_dir=tmp_path / "tfds"))
    assert not list((tmp_path / "tfds" / "downloads").rglob("*.tmp.*"))
    with pytest.raises(ValueError, match=r"a\.json has (SHA-256|\d+ bytes).*expected"):
        prepare(MadeUp(data_dir=tmp_path / "tfds"), manual_dir=str(files))
    assert not (data_files.prepared_directory(tmp_path / "tfds") / "made_up" / "a.json").exists()


@pytest.mark.parametrize(
    ("begin", "again", "message"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 2**16, "not what was published: .* bytes or more"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x", "has not ended after 1 s"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n", b"", "has not ended after 1 s"),
        (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n", "has not ended after 1 s"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "has not ended after 1 s"),
        (b"", b"", "has not ended after 1 s"),
        (
            b"HTTP/1.1 302 F\r\nLocation: /a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            None,
            "redirects",
        ),
    ],
)
def test_a_mirror_without_an_end_is_given_up(files, tmp_path, monkeypatch, begin, again, message):
    def endless(handler):
        with contextlib.suppress(OSError):
            handler.wfile.write(begin)
            while again is not None:
                handler.wfile.write(again)
                time.sleep(0.05)

    monkeypatch.setattr(builders, "_SECONDS", 1.0 if "ended" in message else 60.0)
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "do_GET", endless)
    with pytest.raises((OSError, ValueError), match=message):
        prepare(MadeUp(data_dir=tmp_path / "tfds"))
    assert not list((tmp_path / "tfds").rglob("*.json"))


def test_a_damaged_file_of_an_earlier_download_is_named(files, tmp_path):
    prepare(MadeUp(data_dir=tmp_path / "tfds"))
    laid_out = data_files.prepared_directory(tmp_path / "tfds") / "made_up"
    (laid_out / "a.json").write_bytes(b"[]")
    shutil.rmtree(tmp_path / "tfds" / "made_up")  # the data set, not its files
    with pytest.raises(ValueError, match=r"a\.json has 2 bytes, expected 15"):
        prepare(MadeUp(data_dir=tmp_path / "tfds"))


def test_files_that_are_missing_or_empty_are_named(files, tmp_path):
    (files / "a.json").write_text("[]")
    (files / "deep" / "b.json").write_text("[]")
    with published("made_up", files), pytest.raises(ValueError, match="no tasks of made_up"):
        prepare(MadeUp(data_dir=tmp_path / "tfds"), manual_dir=str(files))
    (files / "deep" / "b.json").unlink()
    (files / "a.json").write_bytes(CONTENT["a.json"])
    with pytest.raises(FileNotFoundError, match=r"b\.json is missing; it is published at http"):
        prepare(MadeUp(data_dir=tmp_path / "tfds"), manual_dir=str(files))


def test_the_command_says_mistakes_in_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert exit_code(main, ["--name=nothing"]) == 2
    assert "data set 'nothing': expected one of alfworld, api_bank" in capsys.readouterr().err
    assert exit_code(main, []) == 2
    assert "error: --name is missing: expected one of alfworld," in capsys.readouterr().err
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # nobody is there
    assert exit_code(main, ["--name=bamboogle"]) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last == (
        "error: raw.githubusercontent.com cannot be reached; --manual_dir takes files that you have"
    )
    assert exit_code(main, ["--name=bfcl", f"--manual_dir={tmp_path / 'no'}"]) == 2
    assert "--manual_dir" in capsys.readouterr().err


def test_builders_need_no_tensorflow():
    code = (
        "import sys\n"
        "from genenv_jax.datasets import builders\n"
        "print(builders.builder('bfcl', '/nowhere').name, 'tensorflow' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "genenv_bfcl False", result.stderr


@pytest.mark.parametrize("name", [*WRITERS, "bfcl/v3"])
def test_small_files_make_data_sets(tmp_path, name, capsys):
    """By the command; every split that the reader finds has its tasks."""
    benchmark = name.split("/")[0]
    directory = tmp_path / "files"
    if name == "bfcl/v3":
        bfcl_tasks.write(directory, "v3")
    else:
        WRITERS[name](directory)
    directory = directory / "bfcl" if benchmark == "bfcl" else directory
    with published(benchmark, directory):
        assert (
            exit_code(
                main, [f"--name={name}", f"--data_dir={tmp_path}", f"--manual_dir={directory}"]
            )
            == 0
        )
    out = capsys.readouterr().out
    builder = builders.builder(name, tmp_path)
    expected = {split: tasks for split, tasks in builder._read(directory).items() if tasks}
    assert f"data set: {builder.data_path}" in out and all(split in out for split in expected)
    assert set(builder.info.splits) == set(expected)
    first = next(iter(expected))
    assert tasks_of(builder, first) == expected[first]


def test_the_command_downloads_and_names_what_it_cannot_get(files, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(builders._BUILDERS, "made_up", MadeUp)
    assert exit_code(main, ["--name=made_up", f"--data_dir={tmp_path}"]) == 0
    assert (
        f"files:    {data_files.prepared_directory(tmp_path) / 'made_up'}"
        in capsys.readouterr().out
    )
    (files / "a.json").unlink()
    assert exit_code(main, ["--name=made_up", f"--data_dir={tmp_path / 'other'}"]) == 2
    assert "a.json" in capsys.readouterr().err


# What the published releases hold, by their own accounts.
COUNTS = {
    "bfcl": {"simple_python": 400, "live_multiple": 1053, "multi_turn_base": 200},
    "bfcl/v3": {"simple": 400, "live_irrelevance": 882, "multi_turn_miss_func": 200},
    "api_bank": {"level-1-api": 399, "level-2-api": 135, "level-3-batch-inf": 245},
    "alfworld": {"valid_unseen": 134, "valid_unseen_steps": 1075},
    "bamboogle": {"test": 125},
    "travelplanner": {"train": 45},
}
DIRECTORIES = {"api_bank": "api-bank"}


@pytest.mark.data
@pytest.mark.parametrize("name", COUNTS)
def test_the_real_files_make_data_sets(data_dir, tmp_path, name):
    benchmark = name.split("/")[0]
    manual = data_dir / DIRECTORIES.get(benchmark, benchmark)
    builder = builders.builder(name, tmp_path)
    prepare(builder, manual_dir=str(manual))
    found = {split: builder.info.splits[split].num_examples for split in COUNTS[name]}
    assert found == COUNTS[name]
    split = next(iter(COUNTS[name]))
    tasks = tasks_of(builder, split)
    assert len({task.id for task in tasks}) == len(tasks)
    assert all(task.benchmark == benchmark for task in tasks)
