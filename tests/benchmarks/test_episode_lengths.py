"""Configurations of BFCL conversations and Bamboogle searches: options, and limits that the episodes fit."""

import pytest

from genenv_jax.benchmarks import registry
from genenv_jax.benchmarks.base import SeedStatistics
from genenv_jax.benchmarks.bfcl import backends
from genenv_jax.experiment.plan import load_config
from genenv_jax.models.make import chat_text, train_tokenizer
from tests.benchmarks.small import WRITERS

VARIANTS = ("conversations", "conversations,debug", "search", "search,debug")
_FILES = {"conversations": "bfcl", "search": "bamboogle"}


def _config(variant):
    return load_config(f"configs/{_FILES[variant.partition(',')[0]]}.py:{variant}", "config")


def _benchmark(config, data_dir, **more):
    options = {**config.benchmark.to_dict(), "verify_files": False, "data_dir": str(data_dir)}
    options |= more
    return registry.make_benchmark(options.pop("name"), **options)


def _lengths(benchmark, tasks, seeds):
    """Maximum tokens of an opening, of the rest, and of the simulator's prompt and text.

    Counted with a vocabulary of 2,048: more than with a large vocabulary.
    """
    untried = SeedStatistics()
    texts = [
        chat_text([*messages, {"role": "assistant", "content": answer}])
        for seed in seeds[:12]
        for messages, answer in (
            (benchmark.agent_messages(seed), benchmark.agent_answer(seed)),
            (benchmark.simulator_messages(seed, untried), benchmark.simulator_answer(seed)),
        )
    ]
    tokenizer = train_tokenizer(texts, 2048)

    def length(messages):
        return len(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False))

    openings, after = [], []
    for task in tasks:
        episode, score = benchmark.episode(task), None
        openings.append(length(episode.messages()))
        *answers, last = benchmark.agent_answers(task)
        for answer in answers:
            assert episode.step(answer) is None
        grown = [*episode.messages(), {"role": "assistant", "content": last}]
        after.append(length(grown) - openings[-1])
        score = episode.step(last)
        assert score.success and score.reward == 1.0
    prompts = [length(benchmark.simulator_messages(seed, SeedStatistics(9, 9))) for seed in seeds]
    answers = map(benchmark.simulator_answer, seeds)
    written = [length([{"role": "assistant", "content": answer}]) for answer in answers]
    return max(openings), max(after), max(prompts), max(written)


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_trained_on_are_episodes(variant, tmp_path, monkeypatch):
    monkeypatch.setattr(backends, "is_installed", lambda: True)
    config = _config(variant)
    limits = config.limits
    assert limits.agent_episode >= limits.agent_response
    assert bool(config.model.path) != ("debug" in variant)
    assert bool(config.benchmark.get("max_seeds")) == ("debug" in variant)
    benchmark = _benchmark(config, WRITERS[config.benchmark.name](tmp_path), seed_fraction=0.5)
    assert benchmark.episodes
    assert all(benchmark.is_interactive(task) for task in benchmark.tasks("eval"))


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("variant", ["conversations", "search"])
def test_episodes_fit_their_limits(variant, data_dir):
    if variant == "conversations" and not backends.is_installed():
        pytest.skip(backends.INSTALL)
    config = _config(variant)
    benchmark = _benchmark(config, data_dir)
    seeds, held_out = benchmark.tasks("seed"), benchmark.tasks("eval")
    found = _lengths(benchmark, [*seeds, *held_out], seeds)
    print(variant, "opening, episode, simulator's prompt and text:", *found)
    limits = config.limits
    assert found[0] <= limits.agent_prompt and found[1] <= limits.agent_episode
    assert found[2] <= limits.simulator_prompt and found[3] <= limits.simulator_response
    small = _config(f"{variant},debug").limits
    assert found[0] <= small.agent_prompt and found[2] <= small.simulator_prompt
