"""Uploads an exported model to the Hugging Face hub, private by default.

    genenv publish runs/quickstart/agent OWNER/NAME
    genenv publish runs/quickstart/agent OWNER/NAME --public

DIRECTORY is agent/, simulator/, agent_adapter/ or simulator_adapter/ of a finished run, or the --out of
`genenv_jax.supervised`.  Its model files and its card (README.md) are uploaded in one commit; the repository
is created if missing.  The token comes from $HF_TOKEN or from `hf auth login`.
"""

import pathlib
from collections.abc import Sequence

from genenv_jax import cli
from genenv_jax.models.huggingface.directory import CARD, HUB_FILES, HUB_LEFT_OUT, on_hub, read_json

_EXPECTED = "expected an exported model, such as agent/ of a finished run"


def push(directory: pathlib.Path, name: str, public: bool = False) -> str:
    """Uploads the files of an exported model or adapter to the hub repository `name`, created if missing.

    Args:
      directory: as exported by `genenv_jax.main` or `genenv_jax.supervised`.
      name: "OWNER/NAME".
      public: whether a new repository is public; also required for a repository that is public already.
    Returns:
      the address of the commit.
    Raises:
      ValueError, OSError: the directory is not a complete export, or refers to a local path; the name is not
        valid; there is no token; the repository is public and `public` is false; or the hub refuses or cannot
        be reached.
    """
    check(directory)
    # Imported here: it is slow, and a wrong directory should be reported at once.
    import huggingface_hub
    from huggingface_hub.utils import validate_repo_id

    if name.count("/") != 1:
        raise ValueError(f"repository {name!r}: expected OWNER/NAME")
    try:
        validate_repo_id(name)
    except ValueError as error:
        raise ValueError(f"repository {name!r}: expected OWNER/NAME: {error}") from error
    token = huggingface_hub.get_token()
    if not token:
        raise ValueError("no token for the hub: expected one in HF_TOKEN or from `hf auth login`")
    hub = huggingface_hub.HfApi(token=token)
    try:
        hub.create_repo(name, private=not public, exist_ok=True)
        # An existing repository keeps its visibility.
        open_to_all = not public and not hub.repo_info(name).private
        if not open_to_all:
            commit = hub.upload_folder(
                repo_id=name,
                folder_path=directory,
                allow_patterns=list(HUB_FILES),  # no other file leaves the machine
                ignore_patterns=list(HUB_LEFT_OUT),
                commit_message=f"Upload of {directory.resolve().name}",
            )
    except Exception as error:  # HTTP, connection and offline errors share no useful base class
        reason = str(error).strip() or type(error).__name__
        raise OSError(f"{name} could not be uploaded: {reason[:500]}") from error
    if open_to_all:
        raise ValueError(f"{name} is public: expected --public, or a private or new repository")
    return str(commit.commit_url)


def check(directory: pathlib.Path) -> None:
    """Raises ValueError or OSError if a directory is not a complete export, or refers to a local path."""
    if not directory.is_dir():
        raise NotADirectoryError(f"{directory} is not a directory; expected an exported model")
    for pattern in ("*config.json", "*.safetensors", CARD):
        if not any(directory.glob(pattern)):
            raise FileNotFoundError(f"{directory} holds no {pattern}; {_EXPECTED}")
    for file in sorted(directory.glob("*config.json")):
        for key, value in read_json(file).items():
            if key.endswith("name_or_path") and value and not on_hub(value):
                raise ValueError(
                    f"{file}: {key} = {value!r} is a path on this machine; expected a name on the hub (for "
                    "an adapter, upload its base first, or upload the merged model instead)"
                )


def main(argv: Sequence[str] | None = None) -> None:
    """Command line; `argv` lacks the program's name.  Exits with 2 if nothing was uploaded."""
    parser = cli.Parser(
        prog="genenv publish", description="Uploads an exported model to the Hugging Face hub."
    )
    parser.add_argument("directory", help="exported model or adapter")
    parser.add_argument("name", help="repository on the hub, OWNER/NAME")
    parser.add_argument("--public", action="store_true", help="make a new repository public")
    arguments = parser.parse_args(argv)
    with cli.one_line_errors():
        print(push(pathlib.Path(arguments.directory), arguments.name, arguments.public))


if __name__ == "__main__":
    main()
