import jax
import pytest
from jax.sharding import AxisType

from genenv_jax.parallel.mesh import make_mesh


@pytest.mark.parametrize(
    ("sizes", "want"),
    [
        ({}, (8, 1, 1)),
        ({"fsdp": 2, "tensor": 2}, (2, 2, 2)),
        ({"data": 1, "fsdp": -1, "tensor": 4}, (1, 2, 4)),
        ({"data": 2, "fsdp": 1, "tensor": -1}, (2, 1, 4)),
    ],
)
def test_sizes(sizes, want):
    mesh = make_mesh(**sizes)
    assert mesh.axis_names == ("data", "fsdp", "tensor")
    assert tuple(mesh.shape.values()) == want
    assert set(mesh.axis_types) == {AxisType.Auto}
    assert {d.id for d in mesh.devices.flat} == {d.id for d in jax.devices()}


def test_some_of_the_devices():
    devices = jax.devices()[2:6]
    mesh = make_mesh(fsdp=2, devices=devices)
    assert tuple(mesh.shape.values()) == (2, 2, 1)
    assert set(mesh.devices.flat) == set(devices)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"data": 3, "fsdp": 2}, r"data=3, fsdp=2, tensor=1\) needs 6 devices, but there are 8"),
        ({"data": 4, "fsdp": 4}, "needs 16 devices, but there are 8; set one axis to -1"),
        ({"tensor": 3}, "multiply to 3, which does not divide the 8 devices, so 'data'"),
        ({"tensor": -1}, r"only one axis may be -1, but \['data', 'tensor'\] are"),
        ({"fsdp": 0}, "mesh axis 'fsdp' has size 0; expected a positive int or -1"),
        ({"fsdp": -2}, "mesh axis 'fsdp' has size -2"),
        ({"devices": []}, "does not divide the 0 devices"),
    ],
)
def test_sizes_that_do_not_fit(sizes, message):
    with pytest.raises(ValueError, match=message):
        make_mesh(**sizes)
