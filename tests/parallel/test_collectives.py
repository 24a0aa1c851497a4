"""What travels between devices while a model samples: rows of one token, and no weights, keys or values."""

import dataclasses
import functools
import math
import re

import jax
import numpy as np
import pytest

from genenv_jax.models import huggingface
from genenv_jax.models.config import TransformerConfig, Window
from genenv_jax.parallel import rules
from genenv_jax.parallel.mesh import make_mesh
from genenv_jax.sampling import decoding, turns
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine
from tests import tiny

HEAD, PROMPT, HISTORY, STEPS, SLOTS, GROUP, WINDOW = 20, 88, 56, 3, 16, 2, 28
OPTIONS = SamplingParams(40, GROUP, (3, 40))
_NAMES = "all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute"


def collectives(compiled):
    """(name, shapes, source location) of each collective in a compiled program."""
    for line in compiled.as_text().splitlines():
        if found := re.search(rf"= (.*?) ({_NAMES})(?:-start)?\(", line):
            shapes = re.findall(r"\w+\[([0-9,]*)\]", found[1])
            shapes = [tuple(map(int, filter(None, shape.split(",")))) for shape in shapes]
            where = re.search(r'op_name="([^"]*)"', line)
            yield found[2], shapes, where[1] if where else ""


def compiled_programs(config, params, mesh):
    """The four programs of sampling and of episodes, and one decoding step's rows on a data shard."""
    with rules.activate(mesh, config):
        params = jax.device_put(params, rules.param_shardings(config, mesh))
        put = functools.partial(jax.device_put, device=rules.batch_sharding(mesh))
        static = {"config": config, "options": OPTIONS}
        weights = decoding.prepare(params, config=config)
        engine = Engine(config, OPTIONS, SLOTS, (PROMPT,))
        n = engine.prompts_at_once(PROMPT)
        state = engine.empty_state(jax.random.key(0), PROMPT, 40)
        ints, ids = np.zeros(n, np.int32), np.zeros((n, GROUP), np.uint32)
        tokens = np.zeros((n, PROMPT), np.int32)
        new = put(decoding.Prompts(tokens, ints, ids, ids.astype(np.int32), ints, ints))
        bare = state._replace(generated=())
        yield "read_prompts", decoding.read_prompts.lower(weights, bare, new, **static)
        yield "decode", decoding.decode.lower(weights, state, steps=STEPS, **static)
        caches = turns.empty(config=config, slots=SLOTS, group=GROUP, prompt=PROMPT, length=HISTORY)
        place = np.zeros((SLOTS, GROUP), np.int32)
        rows = put(turns.Rows(place, place, place, place > 0, place.astype(np.uint32)))
        key = jax.random.key(0)
        yield "turns", turns.decode.lower(weights, caches, rows, key, steps=STEPS, **static)
        seen = turns.Observations(tokens[:, :32], *(4 * (ints,)), ids[:, 0])
        yield "observe", turns.observe.lower(weights, caches, put(seen), key, **static)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tiny.write_model(
        tmp_path_factory.mktemp("collectives"), family="qwen3", tokenizer=False, hidden_size=192,
        num_attention_heads=8, head_dim=HEAD, intermediate_size=448,
    )  # fmt: skip
    config = TransformerConfig.from_huggingface(huggingface.read_config(path))
    return config, huggingface.load_params(path, config)


@pytest.mark.parametrize(
    ("sizes", "window", "most"),
    [
        ((1, 2, 4), None, 21),  # more devices on "tensor" than key/value heads
        pytest.param((8, 1, 1), None, 0, marks=pytest.mark.slow),
        pytest.param((1, 8, 1), None, 14, marks=pytest.mark.slow),
        pytest.param((2, 2, 2), None, 18, marks=pytest.mark.slow),
        pytest.param((1, 2, 4), Window(WINDOW, (True, False), 1e4), 21, marks=pytest.mark.slow),
    ],
)
def test_what_travels_while_sampling(model, sizes, window, most):
    """most: collectives of a decoding step with one layer."""
    config, params = model
    config = dataclasses.replace(config, window=window)
    data, fsdp, _ = sizes
    rows = SLOTS * GROUP // data
    widest = max(
        (config.num_heads + 2 * config.num_kv_heads) * HEAD,  # the query, the key and the value
        config.vocab_size // fsdp,  # logits, when some rows of all become all of some rows
    )
    for name, lowered in compiled_programs(config, params, make_mesh(*sizes)):
        found = list(collectives(lowered.compile()))
        assert found
        step = [shapes for _, shapes, where in found if "jit(decode)/while/body" in where]
        for shapes in step:
            assert sum(map(math.prod, shapes)) <= rows * widest, (name, shapes)
        assert len(step) <= most, (name, step)
        for _, shapes, where in found:
            for shape in shapes:  # keys and values have tokens and a head's features
                tokens = {PROMPT, HISTORY, 40, 32, STEPS, WINDOW} & set(shape[:-1])
                assert not (tokens and shape[-1] == HEAD and len(shape) > 3), (name, shape, where)
