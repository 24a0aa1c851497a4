"""The bytes of the records of tiny runs, for changes that should not alter any.

    python -m tests.fingerprints before.json              # two at a time; a few minutes
    python -m tests.fingerprints after.json --against=before.json

Runs every arm and option of the curriculum on the toy benchmark, adapters, a 2×2×2 mesh, two processes,
and two epochs of the quickstart.  Prints which files of which run differ, and exits with 1 if any does.
Compare digests of one machine only: compiled code differs between kinds of processor.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

from tests.commands import ROOT
from tests.runs import FILES
from tests.test_options import OPTIONS

# Names without spaces or commas, of the runs of test_options.py and some more.
TOY = {
    "genenv": {},
    "random": {"simulator.train": False},
    "batch": {"simulator.success_rate_over": "batch", "simulator.update_epochs": 2},
    "lora": {"lora.rank": 2},
    "offload": {"memory.offload": "phase", "memory.moments": "bfloat16"},
} | {re.sub(r"\W+", "-", name): settings for name, settings in OPTIONS.items()}
MESH = {"agent.minibatch_size": 8, "simulator.minibatch_size": 4}


def command(name: str, out: pathlib.Path) -> list[list[str]]:
    """The command of each process of a run."""
    flags = [f"--workdir={out / name}"]
    if name.startswith("quickstart"):
        config = "configs/quickstart.py" + (":lora" if name.endswith("lora") else "")
        run = [sys.executable, "-m", "genenv_jax.main", f"--config={config}"]
        settings = {"epochs": 2, "evaluation.every": 1, "tracking.trackers": ()}
    else:
        run = [sys.executable, "-m", "tests.run_toy", "main:Talking" if name == "episodes" else "main"]
        run.append(f"--config=tests/run_toy.py:{out / 'models'}")
        settings = {"epochs": 2, **TOY.get(name, {})}
    if name in ("mesh", "two-processes"):
        sizes = (2, 2, 2) if name == "mesh" else (2, 2, 1)
        settings |= MESH | {f"mesh.{k}": v for k, v in zip(("data", "fsdp", "tensor"), sizes, strict=True)}
        if name == "mesh":
            settings["model.make.num_kv_heads"] = 2
    flags += [f"--config.{key}={value}" for key, value in settings.items()]
    if name != "two-processes":
        return [run + flags]
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    joined = [f"--coordinator_address=localhost:{port}", "--num_processes=2"]
    return [run + flags + joined + [f"--process_id={i}"] for i in range(2)]


def run(name: str, out: pathlib.Path) -> dict[str, str]:
    """Digests of the files of a run."""
    devices = {"mesh": 8, "two-processes": 2}.get(name, 1)
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "OMP_NUM_THREADS": "1",
        "JAX_COMPILATION_CACHE_DIR": str(pathlib.Path(tempfile.gettempdir()) / "fingerprints-xla"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
    }
    log = out / f"{name}.log"
    with log.open("wb") as file:
        started = [
            subprocess.Popen(c, cwd=ROOT, env=environment, stdout=file, stderr=file)
            for c in command(name, out)
        ]
        codes = [process.wait() for process in started]
    if any(codes):
        raise RuntimeError(f"{name}: exit codes {codes}\n{log.read_text()[-3000:]}")
    print(f"{name}: done", flush=True)
    digests = {}
    for file in FILES:
        content = (out / name / file).read_bytes()
        digests[file] = f"{hashlib.sha256(content).hexdigest()[:16]} {len(content)} bytes"
    return digests


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path, help="JSON file to write")
    parser.add_argument("--against", type=pathlib.Path, help="JSON file to compare with")
    parser.add_argument("--only", help="names of runs, separated by commas")
    parser.add_argument("--keep", type=pathlib.Path, help="directory to leave the runs in")
    arguments = parser.parse_args()
    names = [*TOY, "mesh", "two-processes", "quickstart", "quickstart-lora"]
    if arguments.only:
        names = arguments.only.split(",")
    with tempfile.TemporaryDirectory() as scratch:
        out = arguments.keep or pathlib.Path(scratch)
        out.mkdir(parents=True, exist_ok=True)
        first, *rest = names  # makes the toy's model, which the others share
        found = {first: run(first, out)}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            found |= dict(zip(rest, pool.map(lambda n: run(n, out), rest), strict=True))
    arguments.out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    if not arguments.against:
        return 0
    before = json.loads(arguments.against.read_text())
    differ = [
        f"{name}/{file}: {before[name].get(file)} -> {digest}"
        for name in found
        if name in before
        for file, digest in found[name].items()
        if before[name].get(file) != digest
    ]
    print("\n".join(differ) or f"equal: {len(found)} runs")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())
