"""What is on the devices in which phase."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.parallel.mesh import make_mesh
from genenv_jax.players.learner import init_state
from genenv_jax.players.offload import OFFLOADS, Offloader, loaded_trees, place
from genenv_jax.players.optimizer import make_optimizer
from genenv_jax.players.player import Player, Reference

ALL = {"own parameters", "own moments", "other parameters", "other moments", "reference"}


def test_the_table():
    for phase in ("sample", "score", "both", "update"):
        assert loaded_trees(phase, "none") == ALL
        assert loaded_trees(phase, "player") == {"own parameters", "own moments", "reference"}
        assert "reference" in loaded_trees(phase, "phase", lora=True)
    assert loaded_trees("sample", "phase") == {"own parameters"}
    assert loaded_trees("score", "phase") == {"reference"}
    assert loaded_trees("both", "phase") == {"own parameters", "reference"}
    assert loaded_trees("update", "phase") == {"own parameters", "own moments"}


class Dummy(Player):
    """A player with weights and nothing else."""

    def __init__(self, reference, offloader):
        optimizer = make_optimizer(0.1)
        self.reference, self.offloader = reference, offloader
        self.state = init_state({"w": jnp.arange(6.0)}, optimizer)
        offloader.add_player(self)


def where(players, reference):
    """The names of the trees on the devices, as seen by the first player."""
    found = set()
    for owner, player in zip(("own", "other"), players, strict=True):
        moments = [x for x in jax.tree.leaves(player.state.opt_state) if x.ndim]
        for name, leaves in (("parameters", [player.state.params["w"]]), ("moments", moments)):
            kinds = {x.sharding.memory_kind for x in leaves}
            assert len(kinds) == 1
            if kinds == {"device"}:
                found.add(f"{owner} {name}")
        np.testing.assert_array_equal(player.state.params["w"], np.arange(6.0))
    if reference.params["w"].sharding.memory_kind == "device":
        found.add("reference")
    return found


@pytest.mark.parametrize("offload", OFFLOADS)
@pytest.mark.parametrize("lora", [False, True])
def test_phases_find_what_they_need_and_no_more(offload, lora):
    reference = Reference({"w": jnp.ones(3)}, config=None)
    offloader = Offloader(offload, lora)
    offloader.add_reference(reference)
    players = [Dummy(reference, offloader) for _ in range(2)]
    for first, second in (players, players[::-1]):
        for phase in ("sample", "score", "update", "both", "sample"):
            first.load_for(phase)
            assert where((first, second), reference) == loaded_trees(phase, offload, lora)


def test_shardings_are_kept():
    sharding = jax.sharding.NamedSharding(make_mesh(2, 2, 2), jax.sharding.PartitionSpec("fsdp", "tensor"))
    x = jax.device_put(np.arange(64.0).reshape(8, 8), sharding)
    away = place({"x": x}, on_device=False)
    assert away["x"].sharding == sharding.with_memory_kind("pinned_host")
    assert place(away, on_device=False)["x"] is away["x"]
    back = place(away, on_device=True)
    assert back["x"].sharding == x.sharding
    np.testing.assert_array_equal(back["x"], x)
