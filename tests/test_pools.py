"""The pools: durable appends, and the way back to a checkpoint."""

import json
import os

import pytest

from genenv_jax.pools import Pool

RECORDS = [{"b": 1, "a": [1.5, None]}, {"text": 'two\nlines "quoted" é \u2028 \ud800'}, {}]


@pytest.fixture
def pool(tmp_path):
    return Pool(tmp_path / "pool.jsonl")


def test_a_new_pool_is_empty(pool):
    assert pool.path.read_bytes() == b"" and pool.offset() == 0 and list(pool) == []


def test_append_and_read(pool):
    assert pool.append(RECORDS) == 3
    assert pool.append(iter([])) == 0
    assert list(pool) == RECORDS
    lines = pool.path.read_text(encoding="ascii").split(
        "\n"
    )  # any reader of JSON lines can read it
    assert [json.loads(line) for line in lines[:-1]] == RECORDS and lines[-1] == ""
    assert lines[0] == '{"a": [1.5, null], "b": 1}'  # keys sorted: equal records, equal bytes
    assert list(Pool(pool.path)) == RECORDS  # opening keeps what is there


def test_records_are_on_disk_when_append_returns(pool, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    pool.append(RECORDS)
    assert synced == [pool.offset()]  # after the last byte


def test_what_is_no_json_is_refused_before_anything_is_written(pool):
    pool.append(RECORDS[:1])
    for bad in ({"x": float("nan")}, {"x": {1, 2}}):
        with pytest.raises((ValueError, TypeError)):
            pool.append([{"y": 1}, bad])
    assert list(pool) == RECORDS[:1]


def test_a_resumed_run_writes_the_same_bytes(pool, tmp_path):
    pool.append(RECORDS[:1])
    offset = pool.offset()
    assert offset == len(pool.path.read_bytes())
    pool.append(RECORDS[1:])
    whole = pool.path.read_bytes()
    for torn in range(offset, len(whole)):  # killed at any byte of the second append
        path = tmp_path / "torn.jsonl"
        path.write_bytes(whole[:torn])
        resumed = Pool(path)
        resumed.truncate(offset)
        resumed.append(RECORDS[1:])
        assert path.read_bytes() == whole


def test_truncate_to_nothing_and_to_the_same(pool):
    pool.append(RECORDS)
    pool.truncate(pool.offset())
    assert list(pool) == RECORDS
    pool.truncate(0)
    assert list(pool) == []


def test_a_file_that_is_too_short(pool):
    pool.append(RECORDS)
    size = pool.offset()
    with pytest.raises(ValueError, match=rf"pool\.jsonl has {size} bytes.* it had {size + 1};"):
        pool.truncate(size + 1)
    assert pool.offset() == size  # and is left alone


@pytest.mark.parametrize(
    "damage",
    [b'{"a": 1', b"", b"\x00\xff\xfe", "é".encode(), b"5", b"null", b'["a"]', b"{'a': 1}", b"{}{}"],
)
def test_a_damaged_line_is_named(pool, damage):
    pool.path.write_bytes(b'{"a": 1}\n{"b": 2}\n' + damage + b'\n{"c": 3}\n')
    read = []
    with pytest.raises(ValueError, match=r"pool\.jsonl:3: not a JSON object"):
        read.extend(iter(pool))
    records = iter(pool)
    assert [next(records), next(records)] == [{"a": 1}, {"b": 2}]  # what comes before is there


def test_a_torn_last_line_is_named(pool):
    pool.append(RECORDS)
    with pool.path.open("ab") as file:
        file.write(b'{"half": "a rec')
    with pytest.raises(ValueError, match=r"pool\.jsonl:4: "):
        list(pool)
