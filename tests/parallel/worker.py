"""One process of several, as test_processes.py starts it: tries everything that they do together.

Prints the results as a JSON object on the last line of stdout.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
import time

from genenv_jax.benchmarks.base import Score, Task
from tests.toy import Toy


def arrays(mesh):
    """What `put`, a jitted function and `fetch` make of host arrays; see the test."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    from genenv_jax.parallel import processes

    rows = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    placed = processes.put({"x": x, "n": np.arange(8, dtype=np.int32)}, rows)

    @jax.jit
    def draw(x, key):
        noise = jax.vmap(lambda i: jax.random.normal(jax.random.fold_in(key, i)))
        return x + noise(jax.numpy.arange(8, dtype=np.uint32))[:, None], x.sum()

    shifted, total = processes.fetch(draw(placed["x"], jax.random.key(7)))
    return {
        "local_shards": len(placed["x"].addressable_shards),
        "remote": not placed["x"].is_fully_addressable,
        "x": processes.fetch(placed["x"]).tolist(),
        "n": processes.fetch(placed)["n"].tolist(),
        "shifted": shifted.tolist(),
        "total": float(total),
        "untouched": processes.fetch({"host": 3, "array": np.ones(2)})["host"],
    }


def agreements(index):
    """What the processes tell one another."""
    from genenv_jax.parallel import processes

    result = {
        "gathered": processes.gather("who", f"process {index}"),
        "again": processes.gather("who", f"process {index} again"),
        "agreed": processes.agree("leader", f"said by {index}"),
        "broadcast": len(processes.broadcast(bytes(range(256)) * 9 if index == 0 else None)),
        "writer": processes.is_writer(),
    }
    processes.barrier("once")
    processes.barrier("once")
    processes.same_everywhere("the same", "a = 1\nb = 2")
    try:
        processes.same_everywhere("the settings", f"a = 1\nb = {index}\nc = {index}")
    except ValueError as error:
        result["different"] = str(error)
    return result


def checkpoints(mesh, directory, index):
    """Saves two checkpoints, damages a part of the newer and restores."""
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    from genenv_jax.parallel import processes
    from genenv_jax.run.checkpoint import Checkpoints

    split = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))

    def states(n):
        # Noise, since what compresses well is kept in the index and not in a process's own files.
        noise = np.random.default_rng(0).uniform(-0.5, 0.5, (8, 256)).astype(np.float32)
        return {"agent": processes.put({"w": n + noise - noise.mean()}, split)}

    saved = Checkpoints(directory, keep=3)
    for epoch in (1, 2):
        saved.save(epoch, states(epoch), {"finished": epoch})
    saved.close()
    processes.barrier("saved")
    reopened = Checkpoints(directory, keep=3)
    newest, host = reopened.restore(states(0))
    result = {"restored": float(processes.fetch(newest["agent"]["w"]).mean().round(5)), "host": host}
    reopened.close()
    # Only what process 1 wrote, and so only what it reads, is damaged.
    if index == 0:
        for file in (directory / "2" / "agent" / "ocdbt.process_1").rglob("*"):
            if file.is_file():
                file.write_bytes(b"damaged")
    processes.barrier("damaged")
    reopened = Checkpoints(directory, keep=3)
    older, host = reopened.restore(states(0))
    result |= {"fallback": float(processes.fetch(older["agent"]["w"]).mean().round(5)), "fallback_host": host}
    reopened.close()
    result["steps"] = sorted(int(p.name) for p in directory.iterdir() if p.name.isdigit())
    return result


def workdirs(directory, index):
    """A shared workdir, and one that each process has for itself."""
    from genenv_jax.run.workdir import make_shared

    make_shared(directory / "shared")
    try:
        make_shared(directory / f"own-{index}" / "run", patience=0.5)
    except ValueError as error:
        return {"not_shared": str(error), "left": os.listdir(directory / "shared")}
    return {}


def saved_models(mesh, directory, index):
    """A model that process 0 alone writes, and one whose arrays both hold a part of."""
    import jax

    from genenv_jax.models import huggingface
    from genenv_jax.models.config import TransformerConfig
    from genenv_jax.parallel import processes, rules
    from tests import tiny

    source = directory / "source"
    if index == 0:
        tiny.write_model(source, tokenizer=False)
    processes.barrier("written")
    hf_config = huggingface.read_config(source)
    config = TransformerConfig.from_huggingface(hf_config)
    params = huggingface.load_params(source, config)
    if index == 0:
        # The other does not take part, and arrives only at the next barrier.
        huggingface.save_model(directory / "alone", params, hf_config)
    processes.barrier("saved alone")
    spread = huggingface.load_params(source, config, rules.param_shardings(config, mesh))
    huggingface.save_model(directory / "together", spread, hf_config)
    names = ["source", "alone", "together"]
    return {
        "spread": not all(x.is_fully_addressable for x in jax.tree.leaves(spread)),
        "models": [(directory / name / "model.safetensors").read_bytes().hex() for name in names],
    }


class Odd(Toy):
    """Scores differently in each process, and fails in some, as a time limit can cause."""

    def __init__(self, index):
        super().__init__()
        self.index = index

    def score(self, task, text):
        if text == "never" or (text == "late" and self.index == 1):
            raise TimeoutError
        return Score(1 - self.index / 3, self.index == 0, True, f"in process {self.index}")

    def parse(self, text, seed, task_id, generation):
        if text == "never":
            raise TimeoutError
        message = {"role": "user", "content": f"{text} in process {self.index}"}
        return Task(task_id, self.name, "", (message,), (), [1.5, None], seed.id)

    def verify(self, task):
        return None


def outcomes(index):
    """The outcomes that all processes use where their own scores would differ."""
    from genenv_jax.sampling.sampler import Completion
    from genenv_jax.scoring.requests import SCORE, VERIFY, pack
    from genenv_jax.scoring.scorer import Scorer

    texts = ["fine", "late", "never"]
    task = Task("t", "odd", "", ())
    result = []
    with Scorer(Odd(index), lambda tokens: texts[tokens[0]]) as scorer:
        for question, arguments in ((SCORE, (task,)), (VERIFY, (True, task, "new", 0, "proven"))):
            batch = scorer.batch()
            for i in (2, 0, 1) if index else (0, 1, 2):  # in whatever order
                batch.add(Completion(i, 0, [i], True), question, *arguments)
            collected = batch.collect()
            result.append([completion.content for completion, _ in collected])
            result.append(pack([outcome for _, outcome in collected]))
    return {"outcomes": result}


def teacher(directory, index):
    """Tasks of a server that the first process asks, where no process sees the files of another."""
    from genenv_jax.players.endpoint import EndpointError
    from genenv_jax.tasks.fixed import FixedTasks
    from tests.evaluate.fake_server import serve
    from tests.tasks.teachers import ask, good

    own = directory / f"teacher-{index}"
    own.mkdir()
    server = contextlib.nullcontext(("http://127.0.0.1:9/v1", []))
    with server if index else serve(good) as (url, requests):
        fixed = FixedTasks(own / "fixed.jsonl", lambda: ask(own, url, 5), 5, seed=0)
        tasks = [task.to_json() for task in fixed.all()]
        try:
            ask(own, url, 9, budget=70, concurrency=1)
        except EndpointError as error:
            failure = str(error)
    names = sorted(path.name for path in own.iterdir())
    return {"teacher": {"tasks": tasks, "asked": len(requests), "files": names, "failure": failure}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--id", type=int, required=True)
    parser.add_argument("--directory", type=pathlib.Path, required=True)
    parser.add_argument("--timeout", type=float, default=60, help="seconds to wait for the others")
    parser.add_argument("--end", default="", help="raise, or wait for a signal")
    given = parser.parse_args()

    from genenv_jax.cli import one_line_errors
    from genenv_jax.parallel import joining, processes

    address = f"127.0.0.1:{given.port}"
    with one_line_errors():
        joining.initialize(address, given.processes, given.id, timeout=given.timeout)
    from genenv_jax.parallel.mesh import make_mesh

    with processes.together():
        if given.end:
            processes.barrier("all are here")
            (given.directory / f"ready-{given.id}").touch()
            if given.end == "raise" and given.id == 1:
                raise ValueError("this one gives up")
            time.sleep(100)
            sys.exit(0)
        mesh = make_mesh(2, 2, 1)
        result = arrays(mesh) | agreements(given.id) | workdirs(given.directory, given.id)
        result |= checkpoints(mesh, given.directory / "checkpoints", given.id)
        result |= saved_models(mesh, given.directory, given.id)
        result |= outcomes(given.id) | teacher(given.directory, given.id)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
