"""Uploads an exported model to the Hugging Face hub, private by default.

    genenv publish runs/quickstart/agent OWNER/NAME
    genenv publish runs/quickstart/agent OWNER/NAME --public

DIRECTORY is agent/, simulator/, agent_adapter/ or simulator_adapter/ of a finished run, or the --out of
`genenv_jax.supervised`.  Its model files and its card (README.md) are uploaded in one commit; the repository
is created if missing.  The token comes from $HF_TOKEN or from `hf auth login`.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from genenv_jax import cli
from genenv_jax.publish.push import push


def main(argv: Sequence[str] | None = None) -> None:
    """Command line; `argv` lacks the program's name.  Exits with 2 if nothing was uploaded."""
    parser = cli.Parser(
        prog="genenv publish",
        description="Uploads an exported model to the Hugging Face hub.",
    )
    parser.add_argument("directory", help="exported model or adapter")
    parser.add_argument("name", help="repository on the hub, OWNER/NAME")
    parser.add_argument("--public", action="store_true", help="for everybody to see")
    arguments = parser.parse_args(argv)
    with cli.one_line_errors():
        print(push(pathlib.Path(arguments.directory), arguments.name, arguments.public))


if __name__ == "__main__":
    main()
