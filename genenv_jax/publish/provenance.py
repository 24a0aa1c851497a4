"""Which code ran: its commit, and the versions of the packages that its results depend on."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PACKAGES = (
    *("genenv_jax", "jax", "jaxlib", "flax", "optax", "numpy"),
    *("transformers", "tokenizers", "safetensors"),
)


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
