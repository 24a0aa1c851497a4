"""A directory in which the documented commands run, and replacements for the names in them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil

import tokenizers
from tokenizers import models, pre_tokenizers

from genenv_jax.cli import load_config
from tests import tiny
from tests.benchmarks.test_guide import FILES, GUIDE
from tests.commands import QUICK, ROOT, call
from tests.documented.blocks import Invocation

# Names that stand for a reader's own.
PLACEHOLDERS = {"--config=CONFIG": QUICK}
# The tests have eight devices, a reader usually one.
ONE_DEVICE = ("--config.mesh.data=1", "--config.mesh.fsdp=1", "--config.mesh.tensor=1")
# The quickstart, cut down.
SHORT = (
    "--config.model.make.num_layers=1", "--config.warm_start.steps=3",
    "--config.curriculum.seeds_per_epoch=4", "--config.benchmark.eval_per_depth=2",
    "--config.evaluation.sampled=1", "--config.agent.group_size=2", "--config.compile_ahead=False",
    "--config.compilation_cache=False", "--config.tracking.trackers=()",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Checkout:
    """A directory like a checkout, with what the documentation tells a reader to write there.

    Attributes:
      root: the directory.
      model: a small model in Hugging Face's format, in place of every model that is named.
    """

    root: pathlib.Path
    model: pathlib.Path

    @classmethod
    def make(cls, root: pathlib.Path) -> Checkout:
        """Writes the files into `root`."""
        for name in ("bench", "configs", "launch", "Dockerfile", "setup.py", "Makefile"):
            (root / name).symlink_to(ROOT / name)
        for name, text in FILES.findall(GUIDE):
            (root / name).write_text(text)
        facts = (root / "facts.jsonl").read_text().splitlines(keepends=True)
        (root / "train.jsonl").write_text("".join(facts[:8]))
        (root / "held_out.jsonl").write_text("".join(facts[8:]))
        (root / "tokens").write_text("HF_TOKEN=none\n")
        return cls(root, _model(root / "a-model"))

    @property
    def short(self) -> tuple[str, ...]:
        """Flags of a run that ends soon."""
        return (*SHORT, *ONE_DEVICE, f"--config.model.make.cache_dir={self.root / 'models'}")

    def run(self, program: str, *arguments: str):
        """Runs our program in this process; returns what `subprocess.run` would."""
        return call(program, *arguments, cwd=self.root)

    def make_run(self) -> None:
        """Makes a one-epoch run, in place of each that the documentation assumes finished."""
        done = self.run(*("main", QUICK, "--workdir=runs/quickstart", *self.short, "--config.epochs=1"))
        assert done.returncode == 0, done.stderr
        (self.root / "runs" / "bfcl").symlink_to("quickstart")
        # An agent that has room for the prompts of another benchmark.
        units = self.root / "runs" / "units"
        shutil.copytree(self.root / "runs" / "quickstart", units)
        (units / "agent").rename(units / "dial")
        (units / "agent").symlink_to(self.model)

    def arguments(self, invocation: Invocation) -> list[str]:
        """Its arguments, with local stand-ins for the reader's models and absolute directories."""
        found = []
        for argument in invocation.arguments:
            if argument == "--distributed=auto":  # asks a cluster
                continue
            name, _, value = argument.partition("=")
            if name in ("--model", "--config.model.path") and not (self.root / value).is_dir():
                argument = f"{name}={self.model}"
            elif name == "--workdir":
                argument = f"{name}={value.lstrip('/')}"
            found.append(PLACEHOLDERS.get(argument, argument))
        return found

    def with_model(self, invocation: Invocation) -> list[str]:
        """`arguments`, plus a model where the configuration itself names one on the hub."""
        found = self.arguments(invocation)
        given = any(a.startswith(("--model=", "--config.model.path=")) for a in found)
        if not given and config_of(invocation).model.path:
            found.append(f"--config.model.path={self.model}")
        return found


def config_of(invocation: Invocation):
    """The configuration that an invocation names, without its flags."""
    name = PLACEHOLDERS.get(f"--config={invocation.flag('config')}")
    return load_config(
        name.partition("=")[2] if name else str(ROOT / invocation.flag("config")), invocation.where
    )


def _model(path: pathlib.Path) -> pathlib.Path:
    """A tiny model whose tokens are words, so that prompts are as short as with a large vocabulary."""
    tiny.write_model(path, max_position_embeddings=2**15)
    words = {"<unk>": 0} | {f"word{i}": i for i in range(1, 301)}
    controls = {tiny.PAD: 301, tiny.START: 302, tiny.END: 303}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(words | controls, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(controls))
    (path / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    about = json.loads((path / "tokenizer_config.json").read_text())
    about["model_max_length"] = 2**15
    (path / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
    return path
