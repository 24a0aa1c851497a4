"""Stand-ins for the classes that speak to W&B and Trackio."""

import sys

from genenv_jax.run import tracking
from genenv_jax.run.samples import generation_row, spread
from tests.runs import lines


class FakeTracker:
    """Records all it is given, over all openings; `where` it raises: at "open", "log", "close" or nowhere."""

    where = ""

    def __init__(self):
        self.ids, self.logged, self.closed, self.closed_within = [], [], 0, None
        self.on_log = lambda: None

    def _fail(self, where):
        if where == self.where:
            raise ConnectionError("no network\n and no second line")

    def __call__(self, project, run_id, workdir, config):
        self._fail("open")
        self.project, self.config = project, config
        self.ids.append(run_id)
        return self

    def log(self, step, scalars, tables):
        self._fail("log")
        self.logged.append((step, dict(scalars), dict(tables), self.on_log()))

    def close(self):
        self.closed, self.closed_within = self.closed + 1, sys.exc_info()[0]
        self._fail("close")


class Failing(FakeTracker):
    where = "log"


def install(monkeypatch, **kinds):
    """Replaces each named service, installed or not; returns the stand-ins."""
    fakes = {name: kind() for name, kind in kinds.items()}
    monkeypatch.setattr(tracking, "_SERVICES", tracking._SERVICES | fakes)
    missing = tracking._missing
    monkeypatch.setattr(tracking, "_missing", lambda name: [] if name in fakes else missing(name))
    return list(fakes.values())


def assert_as_recorded(workdir, rows, samples, sizes):
    """Checks that a tracker's (step, scalars, tables) match a run's files; sizes: of the tables."""
    assert [{"step": step, **scalars} for step, scalars, _ in rows] == lines(workdir)
    generations = lines(workdir, "tasks.jsonl")
    for step, _, tables in rows:
        names = {"held_out_sampled", "held_out_greedy"} | ({"generations", "answers"} if step else set())
        assert set(tables) == {f"samples/{name}" for name in names}
        assert all(row["epoch"] == step for rows in tables.values() for row in rows)
        assert {len(rows) for rows in tables.values()} <= sizes
        if step:
            mine = [g for g in generations if g["epoch"] == step]
            assert tables["samples/generations"] == [generation_row(g) for g in spread(mine, samples)]
