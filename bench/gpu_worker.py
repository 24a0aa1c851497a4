"""The accelerator as a worker of bench/gpu.py: each measurement on the default device."""

import dataclasses
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import protocol
from workloads import Work

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.lora import LoraConfig, split
from genenv_jax.models.scoring import CompletionBatch
from genenv_jax.parallel.rules import param_shapes
from genenv_jax.players import learner
from genenv_jax.players.optimizer import make_optimizer
from genenv_jax.rl.losses import LossConfig
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine
from genenv_jax.typing import Params

_CALLS = 20  # in a row, to hide the host's part


class Accelerator:
    """The measurements; see `protocol.serve`.

    options: the script's arguments, and "shapes": config.json of each model.
    """

    def __init__(self, options: dict[str, Any]):
        self.options = options

    def describe(self) -> dict[str, str]:
        device = jax.devices()[0]
        return {"device": device.device_kind, "platform": device.platform, "jax": jax.__version__}

    def rates(self) -> dict[str, float]:
        """Bytes per second, read and written, of a copy; FLOPs per second of a bfloat16 matrix product."""
        card = jax.default_backend() != "cpu"
        megabytes, sides = (2048, (4096, 8192)) if card else (4, (64, 128))
        # A negation reads and writes as a copy does, and no compiler removes it.
        x = jax.random.normal(jax.random.key(0), (megabytes * 2**19,), jnp.bfloat16)
        seconds = _median(_repeated(jax.jit(jnp.negative), x), 10) / _CALLS
        products = []
        for n in sides:
            a = jax.random.normal(jax.random.key(n), (n, n), jnp.bfloat16)
            taken = _median(_repeated(jax.jit(jnp.matmul), a, a), 10) / _CALLS
            products.append(2 * n**3 / taken)
        return {"copy": 2 * x.nbytes / seconds, "matmul": max(products)}

    def decode(self, model: str, work: dict[str, Any]) -> dict[str, Any]:
        """Seconds of prefill and of a decoding step, and the memory peak in bytes."""
        work = Work(**work)
        config = self._config(model)
        params = random_params(config, "bfloat16")
        prompts = work.prompt_tokens(config.vocab_size).tolist()

        def seconds(new: int) -> float:
            sampling = SamplingParams(new, work.group, eos_ids=())
            engine = Engine(config, sampling, work.prompts, (work.prompt,), jax.device_put)

            def run() -> None:
                lengths = engine(params, prompts, jax.random.key(0)).lengths
                assert (lengths == new).all()

            return _median(run, self.options["repeats"])

        first, full = seconds(1), seconds(work.new)
        return {"prefill": first, "step": (full - first) / (work.new - 1), "peak": _peak()}

    def update(self, model: str, work: dict[str, Any]) -> dict[str, Any]:
        """Seconds of a GRPO step, the compiler's temporaries and the memory peak in bytes."""
        o, work = self.options, Work(**work)
        config = self._config(model, remat=o["remat"], attention=o["attention"])
        frozen = {}
        if o["lora_rank"]:
            config = dataclasses.replace(config, lora=LoraConfig(o["lora_rank"]))
            frozen, trained = split(random_params(config, "bfloat16"))
            trained = jax.tree.map(lambda x: x.astype(jnp.float32), trained)
        else:
            trained = random_params(config, "float32")
        batch = CompletionBatch(
            work.prompt_tokens(config.vocab_size),
            np.full(work.prompts, work.prompt, np.int32),
            work.completion_tokens(config.vocab_size),
            np.full((work.prompts, work.group), work.new, np.int32),
        )
        batch, advantages = jax.device_put((batch, work.advantages()))
        optimizer = make_optimizer(1e-6, moments="bfloat16")
        state = learner.init_state(trained, optimizer, copy=False)
        del trained
        old = jnp.full((work.prompts, work.group, work.new), -np.log(config.vocab_size))
        batch = learner.GRPOBatch(batch, old, old, advantages)
        step = learner.make_grpo_step(config, LossConfig(), optimizer, o["micro_batches"])
        step = step.lower(state, frozen, batch).compile()

        def run() -> None:
            nonlocal state
            state, _ = jax.block_until_ready(step(state, frozen, batch))

        return {
            "step": _median(run, o["repeats"]),
            "temporaries": step.memory_analysis().temp_size_in_bytes,
            "peak": _peak(),
        }

    def _config(self, model: str, **options: Any) -> TransformerConfig:
        shape, unroll = self.options["shapes"][model], self.options["unroll_layers"]
        return TransformerConfig.from_huggingface(shape, dtype="bfloat16", unroll_layers=unroll, **options)


def _median(run: Callable[[], None], repeats: int) -> float:
    """Median seconds of a call, after two that are not counted."""
    times = []
    for _ in range(2 + repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def _repeated(function: Callable, *args: Any) -> Callable[[], None]:
    """`_CALLS` calls in a row, waiting for the last."""

    def run() -> None:
        for _ in range(_CALLS):
            out = function(*args)
        jax.block_until_ready(out)

    return run


def random_params(config: TransformerConfig, dtype: str) -> Params:
    """Random parameters of a decoder, drawn on the device a layer at a time.

    float32 copies or random bits of a whole stack of layers would not fit beside a large model.
    """

    def draw(key, leaf):
        def normal(key, shape):
            return (0.02 * jax.random.normal(key, shape, "bfloat16")).astype(dtype)

        if len(leaf.shape) < 2 or leaf.shape[0] != config.num_layers:
            return normal(key, leaf.shape)
        keys = jax.random.split(key, leaf.shape[0])
        return jax.lax.map(lambda key: normal(key, leaf.shape[1:]), keys)

    leaves, tree = jax.tree.flatten(param_shapes(config))
    draw = jax.jit(draw, static_argnums=1)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    return tree.unflatten(
        [draw(k, jax.ShapeDtypeStruct(x.shape, x.dtype)) for k, x in zip(keys, leaves, strict=True)]
    )


def _peak() -> int | None:
    """Most bytes that were in use on the device, if it keeps count."""
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


if __name__ == "__main__":
    protocol.serve(lambda: Accelerator(json.loads(sys.argv[1])))
