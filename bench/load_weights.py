"""How long loading a checkpoint takes, and how much host memory.

    python bench/load_weights.py --shape=Qwen2.5-7B --dtype=bfloat16 --fsdp=1,8

writes a random checkpoint of a published shape, layer by layer, loads it in a process of its own onto
each number of (virtual CPU) devices, and prints one table.  The checkpoint is deleted afterwards.

On a CPU the shards themselves are host memory, so the interesting number is the last column: the peak
beyond them and beyond what the process held before.  "Anonymous" memory leaves out mapped files, which
the kernel takes back when it needs to; the peak resident set counts both.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import ml_dtypes
import numpy as np
import safetensors.numpy

_ROOT = pathlib.Path(__file__).resolve().parent.parent


def _shapes() -> dict[str, dict]:
    """config.json of the Qwen2.5 models, by name."""
    published = json.loads((_ROOT / "launch" / "published_models.json").read_text())
    extra = {"architectures": ["Qwen2ForCausalLM"], "eos_token_id": 151_643}
    return {k: v | extra for k, v in published.items() if v["model_type"] == "qwen2"}


SHAPES = _shapes()
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
GIB = 2**30


def write_checkpoint(path: pathlib.Path, shape: dict, dtype: str) -> tuple[int, int]:
    """One file a layer, so that no more than a layer is in memory.  Returns (all, largest) bytes."""
    rng = np.random.default_rng(0)
    d, f, v = shape["hidden_size"], shape["intermediate_size"], shape["vocab_size"]
    heads = shape["num_attention_heads"]
    h = d // heads
    q, kv = heads * h, shape["num_key_value_heads"] * h

    # Few distinct values, repeated from another place for every tensor: drawing each anew would take
    # much longer than loading, which does not look at them.
    pool = (rng.standard_normal(1 << 20, np.float32) * d**-0.5).astype(DTYPES[dtype])

    def normal(*size: int) -> np.ndarray:
        return np.resize(np.roll(pool, rng.integers(pool.size)), size)

    def layer(i: int) -> dict[str, np.ndarray]:
        sizes = {
            "self_attn.q_proj.weight": (q, d), "self_attn.q_proj.bias": (q,),
            "self_attn.k_proj.weight": (kv, d), "self_attn.k_proj.bias": (kv,),
            "self_attn.v_proj.weight": (kv, d), "self_attn.v_proj.bias": (kv,),
            "self_attn.o_proj.weight": (d, q),
            "mlp.gate_proj.weight": (f, d), "mlp.up_proj.weight": (f, d),
            "mlp.down_proj.weight": (d, f),
            "input_layernorm.weight": (d,), "post_attention_layernorm.weight": (d,),
        }  # fmt: skip
        return {f"model.layers.{i}.{name}": normal(*size) for name, size in sizes.items()}

    parts = [lambda: {"model.embed_tokens.weight": normal(v, d), "model.norm.weight": normal(d)}]
    parts += [lambda i=i: layer(i) for i in range(shape["num_hidden_layers"])]
    if not shape["tie_word_embeddings"]:
        parts.append(lambda: {"lm_head.weight": normal(v, d)})
    weight_map, total, largest = {}, 0, 0
    for n, make in enumerate(parts, start=1):
        name = f"model-{n:05d}-of-{len(parts):05d}.safetensors"
        tensors = make()
        safetensors.numpy.save_file(tensors, path / name, {"format": "pt"})
        weight_map |= dict.fromkeys(tensors, name)
        total += sum(x.nbytes for x in tensors.values())
        largest = max(largest, *(x.nbytes for x in tensors.values()))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    (path / "config.json").write_text(json.dumps(shape | {"torch_dtype": dtype}))
    return total, largest


class AnonymousPeak(threading.Thread):
    """Watches this process's anonymous memory (RssAnon); `peak` is the most it saw, in bytes."""

    def __init__(self):
        super().__init__(daemon=True)
        self.first = self.peak = self.now()
        self.start()

    @staticmethod
    def now() -> int:
        """Bytes of anonymous memory that this process holds."""
        for line in pathlib.Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
        raise OSError("/proc/self/status has no RssAnon; this measures on Linux only")

    def run(self):
        while True:
            self.peak = max(self.peak, self.now())
            time.sleep(0.005)


def load(path: str, fsdp: int, param_dtype: str) -> None:
    """Loads once in this process and prints what it took as JSON."""
    import jax

    from genenv_jax.models import huggingface
    from genenv_jax.models.config import TransformerConfig
    from genenv_jax.parallel.mesh import make_mesh
    from genenv_jax.parallel.rules import param_shardings

    config = TransformerConfig.from_huggingface(huggingface.read_config(path))
    shardings = param_shardings(config, make_mesh(1, fsdp, 1))
    watch = AnonymousPeak()
    start, cpu_start = time.perf_counter(), time.process_time()
    params = jax.block_until_ready(huggingface.load_params(path, config, shardings, param_dtype))
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    shards = sum(s.data.nbytes for x in jax.tree.leaves(params) for s in x.addressable_shards)
    result = {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "shards": shards,
        "anonymous": watch.peak,
        "before": watch.first,
        "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(result))


def main() -> None:
    """Writes, measures, prints, deletes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="Qwen2.5-0.5B")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16", help="type on disk")
    parser.add_argument("--param_dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--fsdp", default="1,8", help="numbers of devices, one run each")
    parser.add_argument("--directory", default=None, help="where the checkpoint is written")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load:
        load(args.load, int(args.fsdp), args.param_dtype)
        return
    with tempfile.TemporaryDirectory(dir=args.directory) as folder:
        shape = SHAPES[args.shape]
        free = shutil.disk_usage(folder).free
        start = time.perf_counter()
        total, largest = write_checkpoint(pathlib.Path(folder), shape, args.dtype)
        print(
            f"{args.shape}-shaped, {args.dtype} on disk: {total / GIB:.2f} GiB in "
            f"{len(list(pathlib.Path(folder).glob('*.safetensors')))} files, largest tensor "
            f"{largest / GIB:.2f} GiB, written in {time.perf_counter() - start:.0f} s "
            f"({free / GIB:.0f} GiB were free)"
        )
        columns = ("seconds", "CPU seconds", "GiB/s", "shards, GiB", "peak anonymous, GiB")
        columns = ("devices", *columns, "peak resident, GiB", "beyond shards, GiB")
        print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
        for devices in args.fsdp.split(","):
            flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
            done = subprocess.run(
                [sys.executable, __file__, "--load", folder, "--fsdp", devices,
                 "--param_dtype", args.param_dtype],
                env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(_ROOT)},
                stdout=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                sys.exit(f"loading onto {devices} devices failed with status {done.returncode}")
            r = json.loads(done.stdout.splitlines()[-1])
            cells = [r["shards"], r["anonymous"], r["resident"]]
            cells.append(r["anonymous"] - r["shards"] - r["before"])
            numbers = " | ".join(f"{x / GIB:.2f}" for x in cells)
            speed = total / GIB / r["seconds"]
            times = f"{r['seconds']:.1f} | {r['cpu_seconds']:.1f} | {speed:.2f}"
            print(f"| {devices} | {times} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
