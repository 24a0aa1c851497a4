"""Small stateful classes in place of BFCL's official ones, and calls that are expensive for either.

A file system and a calculator with some of the official methods, which return the official texts.
"""

import contextlib
import dataclasses
import decimal
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

from genenv_jax.benchmarks.bfcl import backends


@contextlib.contextmanager
def executing() -> Iterator[None]:
    """These classes execute BFCL's calls."""
    names = (f"{backends._PACKAGE}.{name}" for name in ("gorilla_file_system", "math_api"))
    modules = dict.fromkeys(names, sys.modules[__name__])
    with mock.patch.object(backends, "is_installed", lambda: True), mock.patch.dict(sys.modules, modules):
        yield


@dataclasses.dataclass
class _Directory:
    name: str
    contents: dict[str, Any]


def _loaded(name: str, entry: dict[str, Any]) -> Any:
    if entry["type"] == "file":
        return entry["content"]
    return _Directory(name, {key: _loaded(key, value) for key, value in entry["contents"].items()})


class GorillaFileSystem:
    """Directories, and files that are texts."""

    def __init__(self):
        self.root = None
        self._path: list[_Directory] = []

    def _load_scenario(self, scenario: dict[str, Any], long_context: bool = False) -> None:
        ((name, top),) = scenario.get("root", {"home": {"type": "directory", "contents": {}}}).items()
        self.root = _loaded(name, top)
        self._path = [self.root]

    @property
    def _here(self) -> dict[str, Any]:
        return self._path[-1].contents

    def _missing(self, command: str, name: str) -> dict[str, str] | None:
        known = name in self._here
        return None if known else {"error": f"{command}: {name}: No such file or directory"}

    def pwd(self):
        return {"current_working_directory": "/" + "/".join(entry.name for entry in self._path)}

    def ls(self):
        return {"current_directory_content": sorted(self._here)}

    def cd(self, folder):
        if folder == ".." and len(self._path) > 1:
            self._path.pop()
        elif isinstance(self._here.get(folder), _Directory):
            self._path.append(self._here[folder])
        else:
            return {"error": f"cd: {folder}: No such directory"}
        return {"current_working_directory": self._path[-1].name}

    def touch(self, file_name):
        self._here[file_name] = ""

    def mkdir(self, dir_name):
        self._here[dir_name] = _Directory(dir_name, {})

    def echo(self, content, file_name):
        self._here[file_name] = content

    def cat(self, file_name):
        return self._missing("cat", file_name) or {"file_content": self._here[file_name]}

    def rm(self, file_name):
        return self._missing("rm", file_name) or {"result": bool(self._here.pop(file_name)) or True}

    def cp(self, source, destination):
        """A copy of a directory shares its contents with it."""
        found = self._here[source]
        if isinstance(found, _Directory):
            found = _Directory(destination, found.contents)
        target = self._here.get(destination)
        place = target.contents if isinstance(target, _Directory) else self._here
        place[source if place is not self._here else destination] = found

    def mv(self, source, destination):
        self.cp(source, destination)
        del self._here[source]

    def du(self):
        return {"disk_usage": "some"}

    def find(self, path="."):
        return {"matches": sorted(self._here)}


class MathAPI:
    """A calculator."""

    def add(self, a, b):
        return {"result": a + b}

    def power(self, base, exponent):
        return {"result": base**exponent}

    def mean(self, numbers):
        return {"result": sum(numbers) / len(numbers)}

    def absolute_value(self, number):
        if not isinstance(number, int | float):
            return {"error": "Input must be a number"}
        return {"result": abs(number)}

    def square_root(self, number, precision):
        return {"result": decimal.Decimal(number).sqrt(decimal.Context(prec=precision))}


_BIG = "9" * 4_000
_COPIES = ", ".join(
    f"mkdir(dir_name='p{i}'), cp(source='p{i - 1}', destination='q{i}'), "
    f"mv(source='p{i - 1}', destination='p{i}'), mv(source='q{i}', destination='p{i}')"
    for i in range(1, 30)
)
HEAVY = {
    "power": "[power(base=10, exponent=1000000000)]",
    "big power": f"[power(base={_BIG}, exponent={_BIG})]",
    "negative power": "[power(base=-99999999, exponent=99999999)]",
    "precise logarithm": "[logarithm(value=10, base=3, precision=100000000)]",
    "many logarithms": f"[{', '.join(['logarithm(value=1.5, base=1.00001, precision=500)'] * 128)}]",
    "precise root": "[square_root(number=2, precision=999999999)]",
    "rounding": f"[round_number(number={_BIG}, decimal_places=-1000000000)]",
    "product": f"[multiply(a={_BIG}, b={_BIG})]",
    "long list": f"[standard_deviation(numbers=[{', '.join(['1.5'] * 3000)}])]",
    "repeated list": "[sum_values(numbers=['a'] * 8000)]",
    "deep call": "[" + "add(a=" * 60 + "1" + ", b=1)" * 60 + "]",
    "directory in itself": "[mkdir(dir_name='a'), "
    + "cp(source='a', destination='a'), du(), find(path='.'), " * 40
    + "ls()]",
    "doubling copies": f"[mkdir(dir_name='p0'), touch(file_name='x'), {_COPIES}, du(), find(path='.')]",
    "long file": f"[echo(content='{'a' * 15_000}', file_name='x'), {'cat(file_name=chr), ' * 30}ls()]",
    "many walks": f"[{', '.join(['find(path=0)'] * 128)}]",
    "too many calls": f"[{', '.join(['ls()'] * 2_000)}]",
    "path": "[cd(folder='../../../../etc'), cat(file_name='/etc/passwd')]",
}
