"""What a run has left behind, and whether it equals what another has left."""

import json
import pathlib
import re
import subprocess
import sys
from typing import Any

RECORDS = ("metrics", "tasks", "d_train", "d_env", "timing")
# Settings that may differ between commands of a run.
_MAY_CHANGE = ("epochs", "export", "compile_ahead")


def contents(workdir: pathlib.Path) -> dict[str, bytes]:
    """What a run has left that a repetition must also leave, by name."""
    import tensorstore

    found = {}
    for path in sorted(workdir.rglob("*")):
        name = path.relative_to(workdir).as_posix()
        if path.is_file() and not name.startswith("checkpoints/") and name != "timing.jsonl":
            found[name] = _without_place(path.read_bytes(), workdir)
    settings = json.loads(found["config.json"])
    found["config.json"] = _text(settings | dict.fromkeys(_MAY_CHANGE))
    for step in sorted((workdir / "checkpoints").iterdir()):
        host = json.loads(_without_place((step / "host" / "metadata").read_bytes(), workdir))
        host["parts"]["settings"] |= dict.fromkeys(_MAY_CHANGE)
        for part in ("offsets", "digests"):
            host[part].pop("timing", None)
        found[f"checkpoints/{step.name}/host"] = _text(host)
        # Files of a store whose names and layout are random.
        for item in sorted({"agent", "simulator"} & {x.name for x in step.iterdir()}):
            spec = {"driver": "ocdbt", "base": f"file://{step / item}/"}
            store = tensorstore.KvStore.open(spec).result()
            for key in store.list().result():
                name = f"checkpoints/{step.name}/{item}/{key.decode()}"
                found[name] = store.read(key).result().value
    return found


def _without_place(content: bytes, workdir: pathlib.Path) -> bytes:
    return content.replace(str(workdir.parent).encode(), b"")


def _text(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def differences(workdir: pathlib.Path, reference: pathlib.Path) -> list[str]:
    """Names of what differs, is missing or is extra.

    A separate process finds them: one that has opened a store must not be forked any more.
    """
    command = [sys.executable, "-m", "bench.kill.comparison", str(workdir), str(reference)]
    root = pathlib.Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{workdir}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def not_prefixes(workdir: pathlib.Path, reference: pathlib.Path) -> list[str]:
    """Records of an interrupted run that are no prefix of the reference's."""
    names = [f"{name}.jsonl" for name in RECORDS if name != "timing"]
    there = [name for name in names if (workdir / name).exists()]
    return [n for n in there if not (reference / n).read_bytes().startswith((workdir / n).read_bytes())]


def leftovers(*directories: pathlib.Path) -> list[str]:
    """Names of locks, and of scratch files and unfinished checkpoints."""
    pattern = re.compile(r"\..*\.(tmp|old|lock)|\.shared-.*|run\.lock|.*orbax-checkpoint-tmp.*")
    found = (path for d in directories if d.is_dir() for path in d.rglob("*"))
    return sorted(path.name for path in found if pattern.fullmatch(path.name))


if __name__ == "__main__":
    ours, theirs = (contents(pathlib.Path(argument)) for argument in sys.argv[1:])
    names = sorted(ours.keys() | theirs.keys())
    print(json.dumps([name for name in names if ours.get(name) != theirs.get(name)]))
