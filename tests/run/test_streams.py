import collections
import itertools
import re

import jax
import numpy as np
import pytest

from genenv_jax.run.streams import Stream, key, rng
from tests.commands import ROOT

HOST = [stream for stream in Stream if stream.value[0] < 16]
DEVICE = [stream for stream in Stream if stream.value[0] >= 16]


def of_a_run(streams, ids=range(12)):
    """Every one of `streams`, with all its ids."""
    for stream in streams:
        for values in itertools.product(ids, repeat=len(stream.value[1])):
            yield stream, *values


def test_no_two_streams_of_a_run_coincide():
    firsts = collections.Counter(tuple(rng(0, *stream).random(3)) for stream in of_a_run(HOST))
    assert max(firsts.values()) == 1 and len(firsts) > 70
    root = jax.random.key(0)
    keys = collections.Counter(
        tuple(np.asarray(jax.random.key_data(key(root, *stream))).tolist())
        for stream in of_a_run(DEVICE, range(4))
    )
    assert max(keys.values()) == 1 and len(keys) == 4 + 4 + 16 + 4 + 1 + 4


def test_numbers_are_given_once():
    numbers = [stream.value[0] for stream in Stream]
    assert len(set(numbers)) == len(numbers)  # equal values would be one stream, which `enum.unique` refuses


def test_a_stream_follows_from_seed_and_ids():
    draw = lambda *of: rng(*of).random(4).tolist()  # noqa: E731
    assert draw(3, Stream.MIXTURE, 5) == draw(3, Stream.MIXTURE, 5)
    assert draw(3, Stream.MIXTURE, 5) != draw(4, Stream.MIXTURE, 5)
    assert draw(3, Stream.SEEDS, 0) != draw(3, Stream.GENERATOR)


@pytest.mark.parametrize("ids", [(), (1, 2)])
def test_ids_are_those_of_the_stream(ids):
    with pytest.raises(ValueError, match=r"MIXTURE has the ids \('epoch',\)"):
        rng(0, Stream.MIXTURE, *ids)
    with pytest.raises(ValueError, match="GENERATE"):
        key(jax.random.key(0), Stream.GENERATE, *ids)


def test_a_run_has_no_other_streams():
    """Other generators take a bare seed, as those of a data set or of a statistic do."""
    by_hand = re.compile(r"default_rng\((?!(self\.)?seed\))|random\.key\((?!(config\.)?seed\)|0\))")
    found = {
        file.relative_to(ROOT).as_posix(): line
        for file in (ROOT / "genenv_jax").rglob("*.py")
        for line in file.read_text().splitlines()
        if by_hand.search(line) and file.name != "streams.py"
    }
    assert found == {}
