"""A simulator whose share of valid tasks falls: what is said, counted and taken back."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from genenv_jax.players import learner
from genenv_jax.tasks.generation import Generation, TaskBatch
from genenv_jax.trainers.validity import Guarded, valid_share
from tests import toy
from tests.runs import contents, lines, params, run, same

SEED = toy.Toy().tasks("seed")[0]


def batch(valid, total=10, columns=2):
    """An epoch's generations, of which the first `valid` are tasks."""
    return TaskBatch(
        [
            Generation(*divmod(i, columns), SEED, None, "", task=SEED if i < valid else None)
            for i in range(total)
        ]
    )


class World:
    """A simulator of two numbers whose trainer adds 1 to them, and a session that listens."""

    def __init__(self, **settings):
        self.said, self.parts, self.trained, self.updates = [], {}, {}, []
        settings = {"min_valid_share": 0.5, "collapse_epochs": 2, "on_collapse": "reset"} | settings
        self.simulator = SimpleNamespace(
            config=SimpleNamespace(variations=2, num_from_initial=0, **settings),
            optimizer=optax.adam(0.1),
            load_for=lambda phase: None,
        )
        self.simulator.state = learner.init_state({"w": jnp.zeros(2)}, self.simulator.optimizer)
        session = SimpleNamespace(
            say=self.said.append,
            register=self.parts.__setitem__,
            register_trained=self.trained.__setitem__,
        )
        self.guarded = Guarded(self, self.simulator, session)

    def step(self, epoch, batch):
        """As a trainer: moves the simulator."""
        self.updates.append(epoch)
        state = self.simulator.state
        donated = jax.jit(lambda w: w + 1, donate_argnums=0)(state.params["w"])
        moments = jax.tree.map(lambda x: x + 1, state.opt_state)
        self.simulator.state = learner.TrainState({"w": donated}, moments, state.step + 1)
        return {"simulator/loss": 1.0}

    def epochs(self, shares):
        """Metrics of an epoch for each number of valid tasks in ten, and the simulator after it."""
        for epoch, valid in enumerate(shares):
            metrics = self.guarded.step(epoch, batch(valid))
            yield metrics, float(self.simulator.state.params["w"][0])


def test_a_share_is_of_the_simulators_own_tasks():
    mixed = batch(3)
    assert valid_share(mixed, own=2) == 0.3 and valid_share(mixed, own=1) == 0.4


def test_it_is_said_once_and_taken_back_to_the_last_good_weights():
    world = World()
    seen = list(world.epochs([9, 5, 4, 6, 4, 2]))
    assert [m["simulator/low_validity_epochs"] for m, _ in seen] == [0, 0, 1, 0, 1, 2]
    # 6 of 10 were the last good ones: three updates had been made before they were written.
    assert [w for _, w in seen] == [1, 2, 3, 4, 5, 3] and world.updates == [0, 1, 2, 3, 4]
    assert [m["simulator/reset"] for m, _ in seen] == [0, 0, 0, 0, 0, 1]
    assert world.said == [
        "the simulator has collapsed: under 50% of its tasks were valid in 2 epochs running, now 20%; it is "
        "taken back to its last good weights"
    ]
    fresh = learner.init_state({"w": jnp.full(2, 3.0)}, world.simulator.optimizer)
    jax.tree.map(np.testing.assert_array_equal, world.simulator.state, fresh)
    # The kept weights are no part of what updates destroy, so that it works again.
    assert [w for _, w in world.epochs([0, 0])] == [4, 3]


def test_before_any_good_epoch_it_is_the_initial_simulator():
    assert [w for _, w in World().epochs([0, 1, 0, 0])] == [1, 0, 1, 0]


def test_saying_alone_changes_nothing():
    world = World(on_collapse="say")
    seen = list(world.epochs([1, 2, 3, 0, 9]))
    assert [w for _, w in seen] == [1, 2, 3, 4, 5] and len(world.said) == 1
    assert [m["simulator/low_validity_epochs"] for m, _ in seen] == [1, 2, 3, 4, 0]
    assert not any("simulator/reset" in m for m, _ in seen) and not world.trained


def test_its_state_is_in_the_checkpoint():
    """Two low epochs, a kill after the first: what is restored goes on as the whole did."""
    world, other = World(), World()
    list(world.epochs([9, 9, 0]))
    other.simulator.state = jax.tree.map(jnp.copy, world.simulator.state)
    kept = world.trained["good_simulator"].state
    other.trained["good_simulator"].state = type(kept)(*kept)
    other.parts["validity"].restore(world.parts["validity"].state(), [])
    for one in (world, other):
        assert [w for _, w in one.epochs([0])] == [1]


class Collapsing(toy.Toy):
    """Nothing that is written in the third epoch or the fourth is a task."""

    def parse(self, text, seed, task_id, generation):
        if generation in (2, 3):
            return toy.Rejection(toy.base.UNPARSABLE, "collapsed")
        return super().parse(text, seed, task_id, generation)


@pytest.mark.slow
@pytest.mark.parametrize("lora", [0, 2])
def test_a_run_is_reset_and_resumes_to_the_same_numbers(cache, tmp_path, monkeypatch, capsys, lora):
    monkeypatch.setattr(toy, "Drawing", Collapsing)
    options = {
        "simulator.min_valid_share": 0.3, "simulator.collapse_epochs": 2, "simulator.on_collapse": "reset",
        "lora.rank": lora, "checkpoint.keep": 1,
    }  # fmt: skip
    good = run(cache, tmp_path / "whole", epochs=1, **options)
    run(cache, tmp_path / "whole", epochs=4, **options)
    assert "epoch 4/4  the simulator has collapsed: under 30% " in capsys.readouterr().err
    reset = run(cache, tmp_path / "whole", epochs=4, **options)
    assert same(params(reset, "simulator"), params(good, "simulator"))
    whole = run(cache, tmp_path / "whole", epochs=5, **options)
    assert not same(params(whole, "simulator"), params(good, "simulator"))
    unbroken = run(cache, tmp_path / "unbroken", epochs=5, **options)
    assert contents(tmp_path / "whole") == contents(tmp_path / "unbroken")
    assert same(params(whole, "simulator"), params(unbroken, "simulator"))
    assert [x.get("simulator/reset") for x in lines(tmp_path / "whole")] == [None, 0, 0, 0, 1, 0]
    programs = lines(tmp_path / "unbroken", "timing.jsonl")
    assert not any(
        x["programs/compiled"] for x in programs[2:4]
    )  # keeping weights compiles nothing
