"""A run needs only the `Sampler` interface: a sampler without a cache replaces the engine."""

from genenv_jax.players import build
from tests.runs import lines, run
from tests.sampling.uncached import Uncached


def test_a_run_with_another_sampler(cache, tmp_path, monkeypatch):
    """The same texts for the same keys, and the same rewards."""
    settings = {"epochs": 1, "compile_ahead": False}
    run(cache, tmp_path / "engine", **settings)
    monkeypatch.setattr(build, "EpisodeEngine", Uncached)
    made = run(cache, tmp_path / "uncached", **settings)
    assert type(made.agent.sampler) is type(made.simulator.sampler) is Uncached
    first, second = tmp_path / "engine", tmp_path / "uncached"
    assert (first / "d_train.jsonl").read_bytes() == (second / "d_train.jsonl").read_bytes()
    texts = [[record["text"] for record in lines(of, "tasks.jsonl")] for of in (first, second)]
    assert texts[0] == texts[1]
