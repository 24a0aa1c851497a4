"""What a result was made with: the command, the settings, the code and its packages, the machine."""

from __future__ import annotations

import collections
import functools
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from genenv_jax.config import Config, changes
from genenv_jax.models.huggingface.directory import on_hub
from genenv_jax.system.keys import without_keys

if TYPE_CHECKING:
    import jax

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PACKAGES = (
    *("genenv_jax", "jax", "jaxlib", "flax", "optax", "numpy"),
    *("transformers", "tokenizers", "safetensors"),
)


def made_with(config: Config, devices: Iterable[jax.Device] = ()) -> dict[str, str]:
    """What a page says about how its numbers were made, without keys or host names.

    devices: those that computed them.
    """
    program, *rest = sys.orig_argv
    if rest and not rest[0].startswith("-"):  # a script, which Python runs
        program, *rest = rest
    kinds = collections.Counter(device.device_kind for device in devices)
    machine = [f"{count} × {kind}" for kind, count in kinds.items()]
    machine += [f"{os.cpu_count()} cores", platform.machine(), platform.system()]
    code = [f"{name} {version}" for name, version in versions().items()]
    return {
        "command": without_keys(shlex.join([pathlib.Path(program).name, *rest])),
        "code": ", ".join([*code, *([f"commit {commit()}"] if commit() else [])]),
        "machine": ", ".join(machine),
        "settings": "\n".join(settings(config)),
    }


def settings(config: Config) -> list[str]:
    """The settings that differ from the defaults, as --print_config shows them, without local paths."""
    return [
        f"config.{key} = {_shown(value)}  (default: {_shown(default)})".replace("`", "'")
        for key, (value, default) in changes(ConfigDict(config.to_dict())).items()
    ]


def _shown(value: Any) -> str:
    """A setting's value without paths and addresses; hub ids are shown."""
    if isinstance(value, (tuple, list)):
        text = ", ".join(map(_shown, value))
        return f"[{text}]" if isinstance(value, list) else f"({text}{',' * (len(value) == 1)})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_shown(item)}' for key, item in value.items())}}}"
    if isinstance(value, str) and "://" in value:
        return "(an address)"
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else ""
    return "(a path)" if re.search(r"[/\\~]", text) and not on_hub(value) else repr(value)


@functools.cache  # this process runs the code as it was at the start
def commit() -> str:
    """The commit of the code, with "and changes" if tracked files differ from it; "" if it is unknown.

    For a checkout it comes from git, for an installation from a repository from pip's record.
    """
    return _of_checkout() or _of_installation()


def versions() -> dict[str, str]:
    """Versions by name, of Python and of the installed ones among the packages."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # a checkout that is not installed
            continue
    return found


def _of_checkout() -> str:
    # An environment may lie inside another repository, so this file must be tracked by git.
    head = _git("rev-parse", "--verify", "HEAD")
    if not head or not _git("ls-files", "--", str(pathlib.Path(__file__).resolve())):
        return ""
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return f"{head} and changes" if changed else head


def _git(*arguments: str) -> str:
    """The output of git; "" if it fails or is not installed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(
            ["git", "-C", str(_ROOT), *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
            env=environment,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _of_installation() -> str:
    """The commit that pip installed, see PEP 610."""
    try:
        text = importlib.metadata.distribution("genenv_jax").read_text("direct_url.json")
        return str(json.loads(text or "{}").get("vcs_info", {}).get("commit_id", ""))
    except (importlib.metadata.PackageNotFoundError, ValueError, AttributeError):
        return ""
