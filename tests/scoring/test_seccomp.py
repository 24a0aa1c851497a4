"""The filter of system calls, its instructions run here as the kernel runs them."""

import struct

import pytest

from genenv_jax.scoring import seccomp


def decide(machine, architecture, number, argument=0, pid=1000):
    """What the filter says to a call: runs its instructions, as the kernel does."""
    data = struct.pack("=iIQQ", number, architecture, 0, argument)
    code, at, register = list(seccomp._filter(machine, seccomp.GROUPS, pid)), 0, 0
    tests = {
        0x15: lambda a, k: a == k,
        0x35: lambda a, k: a >= k,
        0x45: lambda a, k: bool(a & k),
    }
    while True:
        opcode, true, false, operand = code[at]
        at += 1
        if opcode == 0x06:
            return {0x7FFF0000: "allow", 0x50001: "EPERM", 0x50026: "ENOSYS"}[operand]
        if opcode == 0x20:
            (register,) = struct.unpack_from("=I", data, operand)
        else:
            at += true if tests[opcode](register, operand) else false


@pytest.mark.parametrize(
    ("machine", "architecture"), [("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)]
)
def test_the_filter_refuses_its_list_and_nothing_else(machine, architecture):
    column = seccomp._ARCHITECTURES[machine][0]
    refused = {n[column] for group in seccomp._REFUSED.values() for n in group.values()} - {-1}
    clone, kill, prlimit = (
        numbers[column] for numbers in (seccomp._CLONE, seccomp._KILL, seccomp._PRLIMIT)
    )
    special = {clone, kill, prlimit, seccomp._TGKILL[column], seccomp._CLONE3}
    for number in range(500):
        verdict = decide(machine, architecture, number)
        if number not in special:
            assert verdict == ("EPERM" if number in refused else "allow"), number
    assert decide(machine, architecture, seccomp._CLONE3) == "ENOSYS"
    assert decide(machine, architecture, clone, 0x3D0F00) == "allow"  # as pthread_create
    assert decide(machine, architecture, clone, 0x1200011) == "EPERM"  # as fork
    verdicts = [decide(machine, architecture, kill, who) for who in (1000, 0, 1, 2**32 - 1)]
    assert verdicts == ["allow", "EPERM", "EPERM", "EPERM"]
    assert [decide(machine, architecture, prlimit, who) for who in (0, 1)] == ["allow", "EPERM"]
    assert decide(machine, 0x40000003, 0) == "EPERM"  # 32-bit calls
    if machine == "x86_64":
        assert decide(machine, architecture, 0x40000000 + 41) == "EPERM"
