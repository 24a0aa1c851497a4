"""The commands that the documentation shows, as bash reads them: which programs, with which arguments."""

import ast
import dataclasses
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator

import markdown_it
import nbformat

from tests.commands import ROOT

# Languages that a fence may declare.  Every line of "sh" is run; the others hold no commands.
COMMANDS = "sh"
LANGUAGES = (COMMANDS, "text", "python", "json")

# Nothing is on PATH, so bash finds no program.  The handler records each instead, with its line and its piped
# input.  Tools whose results a line uses do run.
_RECORD = r"""
command_not_found_handle() {
  local at="$RECORD/$DOC_LINE-$BASHPID-$RANDOM"
  printf '%s\0' "$DOC_LINE" "$@" >"$at"
  case $1 in
    envsubst | id | mkdir) PATH=$TOOLS "$@" ;;
    *) if [[ -p /dev/stdin ]]; then PATH=$TOOLS cat >"$at.stdin"; fi ;;
  esac
}
launch/tpu_vm.sh() { command_not_found_handle launch/tpu_vm.sh "$@"; }
export TOOLS=$PATH RECORD=$1 DOC_LINE
PATH=/nowhere
set -eT
trap '((${#FUNCNAME[@]})) || DOC_LINE=$LINENO' DEBUG
source "$2"
"""


@dataclasses.dataclass(frozen=True)
class Block:
    """Code of a page.

    Attributes:
      page: path relative to the repository; for a notebook, followed by "#" and the cell's id.
      line: number of the first line of code.
      language: as declared; "": none.
    """

    page: str
    line: int
    language: str
    text: str


@dataclasses.dataclass(frozen=True)
class Invocation:
    """A program that a documented command starts.

    Attributes:
      where: page:line.
      program: the module after "python -m", a script's path after "python", else the first word; a command
        of `genenv` is "genenv COMMAND".
      arguments: what follows `program`.
      stdin: its piped input.
    """

    where: str
    program: str
    arguments: tuple[str, ...]
    stdin: str

    def flag(self, name: str) -> str | None:
        """The last value given to --NAME=VALUE."""
        given = [a.partition("=")[2] for a in self.arguments if a.startswith(f"--{name}=")]
        return given[-1] if given else None


def blocks() -> Iterator[Block]:
    """All code of README.md, CONTRIBUTING.md, docs/, the notebooks' texts, and the docstrings of configs/."""
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        yield from _markdown(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"))
    for page in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(page, as_version=nbformat.NO_CONVERT).cells:
            if cell.cell_type == "markdown":
                yield from _markdown(f"notebooks/{page.name}#{cell.id}", cell.source)
    for page in sorted((ROOT / "configs").rglob("*.py")):
        text = ast.get_docstring(ast.parse(page.read_text(encoding="utf-8")), clean=False) or ""
        for block in _markdown(page.relative_to(ROOT).as_posix(), text):
            # Indented blocks of a docstring hold commands.
            yield dataclasses.replace(block, language=block.language or COMMANDS)


def _markdown(page: str, text: str) -> Iterator[Block]:
    for token in markdown_it.MarkdownIt().parse(text):
        if token.type in ("fence", "code_block"):
            first = token.map[0] + (2 if token.type == "fence" else 1)
            yield Block(page, first, token.info.strip(), token.content)


def invocations(block: Block) -> list[Invocation]:
    """The programs that a block of commands starts, in the order of their lines.

    Raises AssertionError where bash rejects the block.
    """
    with tempfile.TemporaryDirectory() as place:
        directory = pathlib.Path(place)
        (directory / "launch").symlink_to(ROOT / "launch")
        (directory / ".venv/bin").mkdir(parents=True)
        (directory / ".venv/bin/activate").touch()  # as `make` creates it
        (directory / "block").write_text(block.text)
        (directory / "record").mkdir()
        before = {"PATH": os.environ["PATH"], "PWD": place, "HOME": "/home/user"}
        done = subprocess.run(
            ["bash", "-c", _RECORD, "bash", directory / "record", directory / "block"], cwd=place, env=before,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0 and not done.stderr, f"{block.page}:{block.line}: bash: {done.stderr}"
        found = []
        for file in (directory / "record").iterdir():
            if not file.suffix:
                line, *words = file.read_text().split("\0")[:-1]
                where = f"{block.page}:{block.line + int(line) - 1}"
                program, arguments = _program(words)
                piped = file.with_suffix(".stdin")
                stdin = piped.read_text() if piped.exists() else ""
                invocation = Invocation(where, program, tuple(arguments), stdin)
                found.append((int(line), file.stat().st_mtime_ns, invocation))
        return [invocation for *_, invocation in sorted(found, key=lambda item: item[:2])]


def _program(words: list[str]) -> tuple[str, list[str]]:
    if words[0] == "python" and words[1:2] == ["-m"]:
        return words[2], words[3:]
    if words[0] == "python" and words[1:]:
        return words[1], words[2:]
    if words[0] == "genenv" and words[1:]:
        return f"genenv {words[1]}", words[2:]
    return words[0], words[1:]
