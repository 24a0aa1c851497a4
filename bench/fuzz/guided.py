"""Fuzzing led by coverage: atheris (libFuzzer) keeps texts that reach new branches, and changes them."""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import tempfile
from collections.abc import Sequence

_SEPARATOR = "\x1d"  # between the texts of one input
_BYTES = 20_000  # of one input
_EXAMPLES = 8  # inputs of each target that it begins with


def fuzz(options: argparse.Namespace, report) -> None:
    """Runs `options.texts` inputs in this process, then calls `report(tallies)` and ends the process.

    Raises ImportError where atheris is not installed.
    """
    import atheris

    with atheris.instrument_imports(include=["genenv_jax.benchmarks", "genenv_jax.scoring"]):
        from bench.fuzz import guard, loop, texts

        directory = pathlib.Path(tempfile.mkdtemp(prefix="fuzz"))
        targets = loop.all_targets(directory, options.names)
    tallies = {target.name: loop.Tally() for target in targets}
    corpus = directory / "corpus"
    corpus.mkdir()
    for number, target in enumerate(targets):
        for index in range(_EXAMPLES):
            subject, written = target.draw(options.seed, index)
            (corpus / f"{number}-{index}").write_bytes(_pack(number, subject, written))
    left = options.texts

    def unpack(data: bytes):
        number, subject = (data + b"\0\0")[:2]
        target = targets[number % len(targets)]
        written = data[2:].decode("utf-8", "replace").split(_SEPARATOR)
        return target, subject % len(target.subjects), written[: target.most]

    def one(data: bytes) -> None:
        nonlocal left
        target, subject, written = unpack(data)
        verdict = loop.run(
            target, subject, written, 10 * options.limit
        )  # instrumented code is slow
        tallies[target.name].add(verdict, written)
        if verdict.outcome in (guard.CRASH, guard.HANG):
            loop.save(options.out, target, subject, written, verdict)
        left -= 1
        if left <= 0:
            report(tallies)  # libFuzzer would end the process without

    def change(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.3:
            return atheris.Mutate(data, most)
        target, subject, written = unpack(data)
        examples = target.examples(target.subjects[subject])
        at = rng.randrange(len(written))
        written[at] = texts.change(rng, written[at], [*examples, *written])
        return (data + b"\0\0")[:2] + _encoded(written)[: most - 2]

    flags = [
        f"-seed={options.seed + 1}",
        f"-max_len={_BYTES}",
        "-len_control=0",
        "-verbosity=0",
        "-timeout=3600",
    ]
    atheris.Setup(["fuzz", str(corpus), *flags], one, custom_mutator=change)
    os.chdir(directory)
    atheris.Fuzz()


def _encoded(written: Sequence[str]) -> bytes:
    return _SEPARATOR.join(written).encode("utf-8", "replace")


def _pack(number: int, subject: int, written: Sequence[str]) -> bytes:
    return bytes((number, subject % 256)) + _encoded(written)[: _BYTES - 2]
