"""Supervised training of a model on a benchmark's demonstrations: the warm start.

    genenv supervised --config=configs/quickstart.py --out=runs/base

makes the configuration's small model, or loads the one that `model.path` names, trains it according to
`config.warm_start` and writes a Hugging Face directory.  `genenv train` does the same if the model is not in
the cache yet.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import flags
from jax.sharding import Mesh

from genenv_jax import cli
from genenv_jax.benchmarks.base import Benchmark, Message
from genenv_jax.benchmarks.demonstrations import (
    AGENT,
    SIMULATOR,
    Completion,
    Demonstration,
    Transcript,
    endless,
    seed_demonstrations,
    split_seeds,
)
from genenv_jax.config import Config, validate
from genenv_jax.models import huggingface, lora
from genenv_jax.models.huggingface.directory import CARD
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.models.make import chat_text, make_model
from genenv_jax.parallel import processes
from genenv_jax.parallel.rules import param_shardings
from genenv_jax.players import build
from genenv_jax.players.lengths import check_prompts
from genenv_jax.players.offload import place
from genenv_jax.publish import card
from genenv_jax.run import digests
from genenv_jax.run.checkpoint import Checkpoints
from genenv_jax.run.programs import enable_compilation_cache, user_cache
from genenv_jax.run.progress import Progress
from genenv_jax.run.streams import Stream, rng
from genenv_jax.run.workdir import make_shared
from genenv_jax.system import signals
from genenv_jax.system.ownership import owned, remove_stale, scratch_name
from genenv_jax.system.signals import held
from genenv_jax.trainers.warm_start import VARIATIONS, fine_tune, train

# Increase when the training of made or given models changes, so that cached ones are rebuilt.
_MADE, _TUNED = 5, 4
_LONGEST_WARM_START = 24 * 3600.0  # seconds that the other processes wait
_TOKENIZER_TEXTS = 4000  # demonstrations that the tokenizer is trained on


def base_model(config: Config, benchmark: Benchmark, mesh: Mesh, role: str = AGENT) -> pathlib.Path:
    """The directory of the model that a player starts from; both share it unless `warm_start.roles` differs.

    A named model (directory or hub id) is resolved, and fine-tuned if `warm_start.steps` is positive.
    Otherwise the first process makes and trains a small model.  A model is trained only once: it is kept in a
    cache that all processes share, under a name derived from everything that it depends on (demonstrations
    and settings).  A made model's demonstrations hold out the benchmark's held-out tasks, so runs that differ
    only in their seed tasks share it.

    Raises ValueError before training if processes do not share the cache, prompts exceed the limits, the mesh
    does not divide the small model, or the cached model's files are damaged.
    """
    given = _given(config)
    tuned = config.warm_start.steps and config.warm_start.roles in ("both", role)
    if given and not tuned:
        return given
    cache = pathlib.Path(config.model.make.cache_dir or user_cache() / "models")
    name = _fine_tuned_name(config, benchmark, given) if given else _made_name(config, benchmark)
    directory = cache / name
    make_shared(cache, setting="config.model.make.cache_dir")
    if processes.is_writer():
        remove_stale(cache)
    if not _is_there(directory):
        _make(config, benchmark, given, directory, mesh)
    elif processes.is_writer():  # a kill may have left the training's checkpoint
        shutil.rmtree(cache / f".{name}", ignore_errors=True)
    _check_cached(directory)
    return directory


def _make(
    config: Config, benchmark: Benchmark, given: pathlib.Path | None, directory: pathlib.Path, mesh: Mesh
) -> None:
    """Fine-tunes the given model, or makes a small one, into `directory`."""
    if given:
        fine_tune_model(config, benchmark, given, directory, mesh)
        return
    if processes.is_writer():
        make_base_model(config, benchmark, directory, mesh)
    processes.barrier("the base model", timeout=_LONGEST_WARM_START)


def _given(config: Config) -> pathlib.Path | None:
    """The directory of the model that `config.model.path` names, downloaded if it is a hub id."""
    return huggingface.resolve(config.model.path) if config.model.path else None


def _is_there(directory: pathlib.Path) -> bool:
    """Whether process 0 sees a model in the cache, which gets its name once it is complete."""
    there = directory.is_dir() and any(directory.iterdir())
    return processes.agree("is the model there", str(there)) == "True"


def _check_cached(directory: pathlib.Path) -> None:
    """Raises ValueError if a cached model is damaged."""
    error = ""
    if processes.is_writer():
        try:
            digests.check(directory, alone=True)
        except (OSError, ValueError) as damage:
            error = f"{damage}; remove {directory} to make the model again"
    if error := processes.agree("the cached model", error):
        raise ValueError(error)


def _made_name(config: Config, benchmark: Benchmark) -> str:
    """A name derived from everything that the made model depends on."""
    depends_on = {
        "format": _MADE,
        "seed": config.seed,
        "make": config.model.make.shape(),
        "warm_start": dataclasses.asdict(config.warm_start),
        "demonstrations": _digest(_tokenizer_texts(benchmark, config.seed)),
        "held_out": _digest(sorted(benchmark.canonical(task) for task in benchmark.tasks("eval"))),
        "limits": _limits(config),
    }
    return _cache_name(benchmark.name, depends_on)


def _fine_tuned_name(config: Config, benchmark: Benchmark, path: pathlib.Path) -> str:
    """A name derived from everything that the fine-tuned model depends on."""
    depends_on = {
        "format": _TUNED,
        "seed": config.seed,
        "model": huggingface.fingerprint(path),
        "dtype": config.model.dtype,
        "lora": dataclasses.asdict(config.lora),
        "warm_start": dataclasses.asdict(config.warm_start),
        "moments": config.memory.moments,
        "limits": _limits(config),
        **({"thinking": True} if config.model.thinking else {}),
        "demonstrations": [_digest(_texts(part)) for part in _demonstrations(config, benchmark)],
    }
    return _cache_name(f"{path.name}-{benchmark.name}", depends_on)


def fine_tune_model(
    config: Config, benchmark: Benchmark, path: pathlib.Path, directory: pathlib.Path, mesh: Mesh
) -> None:
    """Fine-tunes the model in `path` and writes it to `directory`, whole or not at all.

    Beside the model, warm_start.json records the losses and the kept step.  A killed training resumes from
    its checkpoint, which stays in the directory's parent until the model is complete.

    Raises what `fine_tune` does.
    """
    unfinished = directory.parent / f".{_fine_tuned_name(config, benchmark, path)}"
    with _alone(unfinished):
        if _is_there(directory):
            return  # another run has made it meanwhile
        host = build.open_model(config, path, mesh)
        seeds, held_out = benchmark.tasks("seed"), benchmark.tasks("eval")
        check_prompts(config.limits, host.model, benchmark, seeds, held_out)
        training, validation = _demonstrations(config, benchmark)
        checkpoints = Checkpoints(unfinished.absolute(), keep=1)
        with host.activate():
            model, frozen = host.model, {}
            if config.lora.rank:
                adapted = host.adapted(config.lora)
                model, frozen = adapted.model, host.load_params(config.model.dtype)
                trained = build.make_adapters(adapted, config.seed, number=2)
            else:
                trained = host.load_params()
            tuned = fine_tune(
                config.warm_start,
                config.limits,
                config.memory.moments,
                model,
                trained,
                frozen,
                host.put,
                training,
                validation,
                rng(config.seed, Stream.PASSES),
                checkpoints,
            )
            checkpoints.close()
            params = place(tuned.params, on_device=True)
            if config.lora.rank:
                # Merge into the base as stored on disk: the frozen base may be rounded to the compute dtype.
                params = lora.join(host.load_params(), params)
            notes = {"best": tuned.best, "losses": tuned.records}
            best = next(record for record in tuned.records if record["step"] == tuned.best)
            tools = benchmark.about().get("tools", "")
            files = {"warm_start.json": notes, CARD: card.of_warm_start(config, path, best, tools)}
            # Renamed into the cache together with its digests: without them it is not complete.
            made = unfinished.with_name(f"{unfinished.name}.made")
            host.model.save(made, params, lora=model.config.lora, notes=files)
        if processes.is_writer():
            digests.seal(made)
            made.rename(directory)
            shutil.rmtree(unfinished, ignore_errors=True)


@contextlib.contextmanager
def _alone(unfinished: pathlib.Path) -> Iterator[None]:
    """Holds the model's lock within the block; waits while another run makes the same model."""
    with contextlib.ExitStack() as stack:
        if processes.is_writer():
            unfinished.parent.mkdir(parents=True, exist_ok=True)
            lock = unfinished.with_name(f"{unfinished.name}.lock")
            stack.enter_context(owned(lock, "this model", _say_waiting))
        processes.barrier("the model's lock", timeout=_LONGEST_WARM_START)
        yield


def _say_waiting(holder: str) -> None:
    Progress(0).line(f"warm start  another run is making this model: waiting for {holder}")


def _demonstrations(config: Config, benchmark: Benchmark) -> tuple[list[Demonstration], list[Demonstration]]:
    """Demonstrations for training, and demonstrations of the held-back seeds for validation."""
    order = rng(config.seed, Stream.DEMONSTRATIONS)
    parts = split_seeds(benchmark, config.warm_start.validation_share)
    training, validation = (seed_demonstrations(benchmark, seeds, VARIATIONS, order) for seeds in parts)
    if config.warm_start.roles == SIMULATOR:
        training, validation = ([d for d in part if d.role == SIMULATOR] for part in (training, validation))
    return training, validation


def _texts(demonstrations: Iterable[Demonstration]) -> Iterator[str]:
    return (_text(d.messages, written) for d in demonstrations for written in d.completions)


def _text(messages: Sequence[Message], completion: Completion) -> str:
    """A demonstration as one text."""
    if isinstance(completion, Transcript):
        return chat_text([*messages, *completion.messages()])
    return chat_text([*messages, {"role": "assistant", "content": completion}])


def _limits(config: Config) -> dict[str, Any]:
    """The limits that the warm start depends on: all but the completion widths of later updates."""
    limits = dataclasses.asdict(config.limits)
    if not limits["agent_episode"]:
        del limits["agent_episode"]  # keeps the cache names from before episodes existed
    return {name: limit for name, limit in limits.items() if name != "response_buckets"}


def _cache_name(prefix: str, depends_on: Mapping[str, Any]) -> str:
    text = json.dumps(depends_on, sort_keys=True, default=str)
    return f"{prefix}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _tokenizer_texts(benchmark: Benchmark, seed: int) -> Iterator[str]:
    """The first demonstrations.  One random stream draws all of them, so these determine the rest."""
    pairs = itertools.islice(endless(benchmark, rng(seed, Stream.DEMONSTRATIONS)), _TOKENIZER_TEXTS)
    return (_text(messages, completion) for messages, completion in pairs)


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


@contextlib.contextmanager
def _scratch(directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """A temporary directory next to the model's; `remove_stale` removes it if this process dies."""
    # Not a scratch name of `directory` itself, since saving a model there removes those.
    scratch = scratch_name(directory.with_name(f"{directory.name}-parts"))
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        yield scratch
    finally:
        with held():
            shutil.rmtree(scratch, ignore_errors=True)


def make_base_model(config: Config, benchmark: Benchmark, directory: pathlib.Path, mesh: Mesh) -> None:
    """Makes a model, trains it for `warm_start.steps` and writes it to `directory`.

    The directory appears when the model is complete.  If two processes make the same model, the first one to
    finish wins; both models are equal.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _scratch(directory) as scratch:
        texts = _tokenizer_texts(benchmark, config.seed)
        limits, c = config.limits, config.model.make
        positions = max(prompt + max(answers) for prompt, *answers in map(limits.of, (AGENT, SIMULATOR)))
        untrained = scratch / "untrained"
        make_model(untrained, texts, c, max_positions=positions, seed=config.seed)
        model = LanguageModel.load(untrained, unroll_layers=config.model.unroll_layers)
        check_prompts(limits, model, benchmark, benchmark.tasks("seed"), benchmark.tasks("eval"))
        param_shardings(model.config, mesh)  # raises if it does not divide the model
        pairs = endless(benchmark, rng(config.seed, Stream.DEMONSTRATIONS))
        Progress(0).line(f"base model  made from scratch for both roles, once; kept in {directory.parent}")
        params = train(config.warm_start, limits, pairs, model, model.load_params())
        made = scratch / "made"
        model.save(made, params, notes={CARD: card.of_warm_start(config, None)})
        digests.seal(made)
        try:
            made.rename(directory)
        except OSError:
            if not (directory / digests.NAME).is_file():
                raise


@contextlib.contextmanager
def _new(out: pathlib.Path) -> Iterator[pathlib.Path]:
    """Holds a place for a new model within the block.

    Raises ValueError or OSError if it is taken or cannot be written.
    """
    if not out.name or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise ValueError(f"--out={out} is not empty: expected a new directory")
    with _scratch(out), owned(out.with_name(f".{out.name}.lock"), f"--out={out}"):
        yield out


def main() -> None:
    """The command; see the module's docstring."""
    with cli.one_line_errors():
        config = validate(flags.FLAGS.config)
        signals.resumes.set(bool(config.model.path))  # only given models have checkpoints
        if config.model.path and not config.warm_start.steps:
            raise ValueError("config.warm_start.steps = 0: expected at least 1, else nothing is trained")
        with _new(pathlib.Path(flags.FLAGS.out)) as out:
            if config.compilation_cache:
                enable_compilation_cache()
            benchmark, mesh = build.make_benchmark(config), build.open_mesh(config)
            _make(config, benchmark, _given(config), out, mesh)
    print(flags.FLAGS.out)


if __name__ == "__main__":
    cli.define_config("Configuration file.")
    flags.DEFINE_string("out", None, "Directory of the trained model.")
    flags.mark_flags_as_required(["config", "out"])
    cli.run(main)
