"""The filter of system calls, its instructions run here as the kernel runs them."""

import pathlib
import re
import struct

import pytest

from genenv_jax.scoring import seccomp

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}
SPECIAL = (*(numbers for numbers, *_ in seccomp._ONLY_WITH.values()), *seccomp._SIGNALS, seccomp._CLONE)


def decide(machine, number, *arguments, files=True, network=True, architecture=None):
    """The filter's verdict on a call: runs its instructions as the kernel does."""
    data = struct.pack("=iIQ", number, architecture or MACHINES[machine], 0)
    data += struct.pack("=6Q", *arguments, *[0] * (6 - len(arguments)))
    code, at, register = list(seccomp._filter(machine, files, network, 1000)), 0, 0
    tests = {0x15: lambda a, k: a == k, 0x35: lambda a, k: a >= k, 0x45: lambda a, k: bool(a & k)}
    while True:
        opcode, true, false, operand = code[at]
        at += 1
        if opcode == 0x06:
            return {0x7FFF0000: "allow", 0x50001: "EPERM", 0x50026: "ENOSYS"}[operand]
        if opcode == 0x20:
            (register,) = struct.unpack_from("=I", data, operand)
        else:
            at += true if tests[opcode](register, operand) else false


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("files", "network"), [(False, False), (True, False), (False, True)])
def test_the_filter_allows_its_list_and_nothing_else(machine, files, network):
    column = seccomp._ARCHITECTURES[machine][0]
    allowed = {**seccomp._CALLS, **(seccomp._FILE_CALLS if files else {})}
    allowed |= seccomp._NETWORK_CALLS if network else {}
    numbers = {pair[column] for pair in allowed.values()} - {-1}
    for number in range(1000):
        if number not in {pair[column] for pair in SPECIAL}:
            refusal = "EPERM" if number < 424 else "ENOSYS"
            verdict = decide(machine, number, files=files, network=network)
            assert verdict == ("allow" if number in numbers else refusal), number


@pytest.mark.parametrize("machine", MACHINES)
def test_what_an_argument_decides(machine):
    column = seccomp._ARCHITECTURES[machine][0]
    numbers = {name: pair[column] for name, (pair, *_) in seccomp._ONLY_WITH.items()}
    clone, kill = seccomp._CLONE[column], seccomp._SIGNALS[0][column]
    for number, arguments, verdict in (
        (clone, (0x3D0F00,), "allow"),  # as pthread_create
        (clone, (0x1200011,), "EPERM"),  # as fork
        *((kill, (who,), "allow" if who == 1000 else "EPERM") for who in (1000, 0, 1, 2**32 - 1)),
        *((numbers["prlimit64"], (who, 7), "EPERM" if who else "allow") for who in (0, 1)),
        *((numbers["fcntl"], (3, command), "allow") for command in (0, 1, 2, 3, 4, 1030)),
        # Locks, owners of signals, leases, watches, pipes and seals.
        *((numbers["fcntl"], (3, to), "EPERM") for to in (6, 7, 8, 10, 15, 37, 1024, 1026, 1031, 1033)),
        (numbers["ioctl"], (3, 0x5401), "allow"),
        *((numbers["ioctl"], (3, to), "EPERM") for to in (0x40086602, 0x5412, 0x40049409, 0)),
        *((numbers["prctl"], (option,), "EPERM") for option in (1, 4, 38)),
    ):
        assert decide(machine, number, *arguments) == verdict, (number, arguments)
    assert decide(machine, 0, architecture=0x40000003) == "EPERM"  # 32-bit calls
    if machine == "x86_64":
        assert decide(machine, 0x40000000 + 41) == "EPERM"


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_the_kernels(machine):
    header = pathlib.Path(HEADERS[machine])
    if not header.is_file():
        pytest.skip(f"{header} is not installed")
    found = re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", header.read_text())
    kernels = {name: int(number) for name, number in found}
    kernels.setdefault("newfstatat", kernels.get("fstatat"))
    ours = {**seccomp._CALLS, **seccomp._FILE_CALLS, **seccomp._NETWORK_CALLS}
    ours |= {name: numbers for name, (numbers, *_) in seccomp._ONLY_WITH.items()}
    ours |= {"kill": seccomp._SIGNALS[0], "tgkill": seccomp._SIGNALS[1], "clone": seccomp._CLONE}
    column = seccomp._ARCHITECTURES[machine][0]
    assert {name: pair[column] for name, pair in ours.items()} == {
        name: kernels.get(name, -1) for name in ours
    }
