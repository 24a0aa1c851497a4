"""How long loading a checkpoint takes, and how much host memory.

    python bench/load_weights.py --shape=Qwen2.5-7B --dtype=bfloat16 --fsdp=1,8

writes a random checkpoint of a published shape, layer by layer, loads it in a process of its own onto
each number of (virtual CPU) devices, and prints one table.  The checkpoint is deleted afterwards.

On a CPU the shards themselves are host memory, so the interesting number is the last column: the peak of
anonymous memory (without mapped files, which the kernel reclaims when it needs to) beyond them and beyond
what the process held before.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import random_model
from arguments import numbers
from tables import markdown

_ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPES = {
    name: config | {"architectures": ["Qwen2ForCausalLM"], "eos_token_id": 151_643}
    for name, config in json.loads((_ROOT / "launch" / "published_models.json").read_text()).items()
    if config["model_type"] == "qwen2"
}
GIB = 2**30


class AnonymousPeak(threading.Thread):
    """Watches this process's anonymous memory (RssAnon); `peak` is the most it saw, in bytes."""

    def __init__(self):
        super().__init__(daemon=True)
        self.first = self.peak = self._held()
        self.start()

    def run(self):
        while True:
            self.peak = max(self.peak, self._held())
            time.sleep(0.005)

    def _held(self) -> int:
        status = pathlib.Path("/proc/self/status").read_text()
        return int(status.partition("RssAnon:")[2].split()[0]) * 1024


def load(path: str, fsdp: int) -> None:
    """Loads once in this process, in bfloat16, and prints what it took as JSON."""
    import jax

    from genenv_jax.models import huggingface
    from genenv_jax.models.config import TransformerConfig
    from genenv_jax.parallel.mesh import make_mesh
    from genenv_jax.parallel.rules import param_shardings

    config = TransformerConfig.from_huggingface(huggingface.read_config(path))
    shardings = param_shardings(config, make_mesh(1, fsdp, 1))
    watch, start = AnonymousPeak(), time.perf_counter()
    params = jax.block_until_ready(huggingface.load_params(path, config, shardings, "bfloat16"))
    seconds = time.perf_counter() - start
    shards = sum(s.data.nbytes for x in jax.tree.leaves(params) for s in x.addressable_shards)
    print(json.dumps([seconds, shards / GIB, (watch.peak - shards - watch.first) / GIB]))


def measure(folder: str, devices: int) -> list[float]:
    """What `load` prints in a process with that many devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, __file__, "--load", folder, f"--fsdp={devices}"],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(_ROOT)},
        stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"loading onto {devices} devices failed with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Writes, measures, prints, deletes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="Qwen2.5-0.5B")
    parser.add_argument("--dtype", choices=random_model.DTYPES, default="bfloat16", help="type on disk")
    parser.add_argument("--fsdp", type=numbers, default=[1, 8], help="devices, one run each")
    parser.add_argument("--directory", default=None, help="where the checkpoint is written")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load:
        load(args.load, args.fsdp[0])
        return
    with tempfile.TemporaryDirectory(dir=args.directory) as folder:
        path = pathlib.Path(folder)
        random_model.write(path, SHAPES[args.shape], args.dtype)
        files = list(path.glob("*.safetensors"))
        total = sum(file.stat().st_size for file in files) / GIB
        rows = [[str(n), *(f"{x:.2f}" for x in measure(folder, n))] for n in args.fsdp]
    print(f"{args.shape}, {args.dtype} on disk: {total:.2f} GiB in {len(files)} files\n")
    print(markdown(("devices", "seconds", "shards, GiB", "beyond shards, GiB"), rows))


if __name__ == "__main__":
    main()
