import json
import os

import pytest

from genenv_jax.run import jsonl

RECORDS = [{"b": 1, "a": [1.5, None]}, {"text": 'two\nlines "quoted" é \u2028 \ud800'}, {}]


@pytest.fixture
def file(tmp_path):
    return jsonl.JsonLines(tmp_path / "new" / "records.jsonl")


def test_append_and_read(file):
    assert file.path.read_bytes() == b"" and file.offset() == 0 and list(file) == []
    file.append(RECORDS)
    file.append(iter([]))
    assert list(file) == RECORDS
    lines = file.path.read_text(encoding="ascii").split("\n")  # for any reader of JSON lines
    assert [json.loads(line) for line in lines[:-1]] == RECORDS and lines[-1] == ""
    assert lines[0] == '{"a": [1.5, null], "b": 1}'  # keys sorted: equal records, equal bytes
    assert list(jsonl.JsonLines(file.path)) == RECORDS  # opening keeps what is there


def test_records_are_on_disk_when_append_returns(file, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    file.append(RECORDS)
    assert synced == [file.offset()]  # after the last byte


def test_what_is_no_json_is_refused_before_anything_is_written(file):
    file.append(RECORDS[:1])
    for bad in ({"x": float("nan")}, {"x": {1, 2}}):
        with pytest.raises((ValueError, TypeError)):
            file.append([{"y": 1}, bad])
    assert list(file) == RECORDS[:1]


def test_a_failed_write_leaves_the_file_as_it_was(file, monkeypatch):
    file.append(RECORDS[:1])
    before, real_write, calls = file.path.read_bytes(), os.write, []

    def full_disk(handle, data):
        calls.append(len(data))
        if len(calls) == 1:
            return real_write(handle, bytes(data)[:5])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full_disk)
        with pytest.raises(OSError, match=r"No space left on device: '.*records\.jsonl'"):
            file.append(RECORDS[1:])
    assert len(calls) == 2 and file.path.read_bytes() == before
    file.append(RECORDS[1:])
    assert list(file) == RECORDS


@pytest.mark.parametrize("whole", [b"", b'{"a": 1}\n', b'{"a": "' + b"x" * 200_000 + b'"}\n'])
@pytest.mark.parametrize("torn", [b"", b'{"b', b"y" * 150_000])
def test_a_torn_last_line_is_cut_off_when_the_file_is_opened(tmp_path, whole, torn):
    path = tmp_path / "records.jsonl"
    path.write_bytes(whole + torn)
    assert len(list(jsonl.iter_jsonl(path))) == whole.count(b"\n")  # and ignored by a reader
    jsonl.JsonLines(path)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"nonsense", "Expecting value"),
        (b"[1]", "not a JSON object"),
        (b'{"a": "\xff"}', "codec"),
        (b"\x00\x00", "damaged line"),
        (b"{}{}", "Extra data"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "integer string"),
    ],
)
def test_damaged_lines_are_named_by_file_and_line(tmp_path, line, reason):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line + b"\n" + b'{"a": 2}\n')
    records = jsonl.iter_jsonl(path)
    assert next(records) == {"a": 1}  # earlier records are read
    with pytest.raises(ValueError, match=r"tasks\.jsonl:2: damaged line") as error:
        next(records)
    assert reason in str(error.value)


def test_files_are_whole_or_absent(tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    jsonl.write_json(path, {"b": 1, "a": [2]}, sort_keys=True)
    assert path.read_text() == '{\n  "a": [\n    2\n  ],\n  "b": 1\n}\n'
    assert jsonl.read_json(path, "settings") == {"a": [2], "b": 1}

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            jsonl.write_text(path, "half")
    assert jsonl.read_json(path, "settings") == {"a": [2], "b": 1}
    assert os.listdir(tmp_path) == ["config.json"]
    jsonl.write_jsonl(tmp_path / "x.jsonl", iter(RECORDS))
    assert list(jsonl.iter_jsonl(tmp_path / "x.jsonl")) == RECORDS


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_a_damaged_file_is_named_with_what_was_expected(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"config\.json is damaged: .*; expected settings"):
        jsonl.read_json(path, "settings")


def test_a_read_only_file_is_left_alone(tmp_path):
    path = tmp_path / "records.jsonl"
    jsonl.JsonLines(path).append([{"a": 1}])
    other = jsonl.JsonLines(path, read_only=True)
    other.append([{"a": 2}])
    other.clear()
    assert list(other) == [{"a": 1}]
    jsonl.JsonLines(path).clear()
    assert list(other) == []
    jsonl.JsonLines(tmp_path / "none.jsonl", read_only=True)
    assert not (tmp_path / "none.jsonl").exists()


def test_a_line_is_read_again_from_where_it_begins(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS) + '{"torn')
    found = list(jsonl.iter_jsonl_at(path))
    assert [record for _, record in found] == RECORDS
    assert [jsonl.read_jsonl_at(path, start) for start, _ in found] == RECORDS
    with pytest.raises(ValueError, match=rf"{path}, byte 1: damaged line"):
        jsonl.read_jsonl_at(path, 1)
