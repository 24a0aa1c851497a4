"""Opens the model that is evaluated, in either role: a configuration's own, or one behind a server."""

import contextlib
import pathlib
from collections.abc import Iterator, Sequence

from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.benchmarks.demonstrations import SIMULATOR
from genenv_jax.config import Config
from genenv_jax.parallel import processes
from genenv_jax.players import build
from genenv_jax.players.lengths import check_prompts
from genenv_jax.sampling import decoding
from genenv_jax.scoring.attempts import ChatModel
from genenv_jax.supervised import base_model


def modes_of(config: Config, role: str) -> dict[str, tuple[int, float]]:
    """(samples, temperature) by mode; the simulator's only mode is named after its role."""
    if role == SIMULATOR:
        return {role: config.simulator.draws}
    return config.evaluation.modes()


@contextlib.contextmanager
def open_policies(
    config: Config, benchmark: Benchmark, tasks: Sequence[Task], role: str
) -> Iterator[dict[str, ChatModel]]:
    """Policies of the configuration's model by mode; tasks: those it answers, or the seeds it varies."""
    mesh = build.open_mesh(config)
    host = build.open_model(config, base_model(config, benchmark, mesh, role), mesh)
    seeds, held_out = (tasks, ()) if role == SIMULATOR else ((), tasks)
    check_prompts(config.limits, host.model, benchmark, seeds, held_out)
    with host.activate():
        params = decoding.cast(host.load_params(config.model.dtype), host.model.config)
        yield {
            mode: build.make_policy(config, host, params, role, *how, config.evaluation.batch_size)
            for mode, how in modes_of(config, role).items()
        }


def open_endpoint(
    config: Config, url: str, model: str, role: str, concurrency: int, workdir: pathlib.Path, budget: int
) -> dict[str, ChatModel]:
    """Chat models by mode, for a server that is reachable or whose answers are kept.

    budget: tokens that they may spend together; 0: no limit.
    """
    from genenv_jax.players.endpoint import Endpoint, EndpointModel

    if processes.process_count() > 1:
        raise ValueError("--endpoint: expected one process, since more would send no more requests")
    _, longest, _ = config.limits.of(role)
    cache = workdir / "endpoint.jsonl"
    server = Endpoint(
        url, model, max_tokens=longest, cache=cache, max_tokens_total=budget, thinking=config.model.thinking
    )
    server.reach()
    size, seed = config.evaluation.batch_size, config.seed
    return {
        mode: EndpointModel(server, samples, size, seed, concurrency, temperature)
        for mode, (samples, temperature) in modes_of(config, role).items()
    }
