"""Model directories: where they are, which files belong to them, and their fingerprints."""

import hashlib
import json
import os
import pathlib
import re
from collections.abc import Iterable
from typing import Any

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
GENERATION = "generation_config.json"
CARD = "README.md"
TOKENIZER = "tokenizer.json"
# The files that any version of transformers reads a tokenizer from.
TOKENIZER_FILES = (
    *(TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json"),
)
_LFS = b"version https://git-lfs.github.com/"
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
# The files to fetch for a model on the hub.
HUB_FILES = (*("*.json", "*.safetensors", "*.jinja", "merges.txt", "tokenizer.model", CARD),)
# From its folders, only templates: those in additional_chat_templates also belong to the tokenizer.
HUB_LEFT_OUT = tuple(f"*/{name}" for name in HUB_FILES if name != "*.jinja")


def resolve(path_or_hub_id: str | os.PathLike, weights: bool = True) -> pathlib.Path:
    """The local directory of a model: the argument itself, or a download from the Hugging Face hub.

    Fetches only the configuration, tokenizer, safetensors files (with `weights`) and the card, all from the
    repository's top level except templates.  A name that starts with / . or ~, or has several /, is a
    directory and never sent to the hub.
    Raises FileNotFoundError, naming what was tried, if neither exists or the hub is unreachable.
    """
    name = os.fspath(path_or_hub_id)
    path = pathlib.Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        raise NotADirectoryError(f"{path} is a file; expected the model directory that holds it")
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise FileNotFoundError(
            f"{name}: no such directory; expected a model directory, or the id of a model on the hub"
        )
    # Imported here because it is slow, and local directories do not need it.
    import huggingface_hub

    try:
        return pathlib.Path(
            huggingface_hub.snapshot_download(
                name,
                allow_patterns=[x for x in HUB_FILES if weights or x != "*.safetensors"],
                ignore_patterns=list(HUB_LEFT_OUT),
            )
        )
    except huggingface_hub.errors.LocalEntryNotFoundError as error:
        raise FileNotFoundError(
            f"{name} could not be fetched from the hub (no network?) and is not cached; give a directory "
            "with --config.model.path=DIR"
        ) from error
    except Exception as error:  # HTTP, cache, name and offline errors share no useful base class
        reason = " ".join(str(error).split())[:300]
        raise FileNotFoundError(
            f"{name} is neither a directory nor a model on the hub; tried the directory "
            f"{path.absolute()} and the hub repository {name!r}: {type(error).__name__}: {reason}"
        ) from error


def on_hub(name: object) -> bool:
    """Whether `name` can be a model's name on the hub, and is not a local directory."""
    known = isinstance(name, str) and re.fullmatch(r"([\w-][\w.-]*/)?[\w-][\w.-]*", name)
    return bool(known) and not os.path.isdir(str(name))


def refuse_pointer(file: pathlib.Path) -> None:
    """Raises ValueError if a file is only a Git LFS pointer."""
    with file.open("rb") as stream:
        if stream.read(len(_LFS)) == _LFS:
            raise ValueError(f"{file} is a Git LFS pointer; expected the file itself (git lfs pull)")


def _instead(path: pathlib.Path) -> str:
    """The contents of a directory without a complete model."""
    names = [item.name for item in path.iterdir()] if path.is_dir() else []
    if "adapter_config.json" in names:
        return "; it is an adapter: expected its base with the adapter merged into it"
    names = [name for name in names if name.endswith(_WEIGHTS)] or names
    return f", found {some_of(names)}" if names else ""


def read_json(file: pathlib.Path) -> dict[str, Any]:
    """Reads the object in a JSON file; raises ValueError, naming the file, for anything else."""
    refuse_pointer(file)
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not valid JSON: {error}") from error
    if type(value) is not dict:
        raise ValueError(f"{file} holds a JSON {type(value).__name__}; expected an object")
    return value


def read_config(path: str | os.PathLike) -> dict[str, Any]:
    """The dict in `path`/config.json; for a multimodal Gemma 3, the text model's.

    Raises FileNotFoundError if the directory or file is missing, and ValueError if it is not a JSON
    object.
    """
    path = pathlib.Path(path)
    if not path.is_dir():
        raise FileNotFoundError(f"model directory {path} does not exist")
    if not (path / "config.json").is_file():
        raise FileNotFoundError(
            f"{path} holds no config.json; expected a Hugging Face model directory{_instead(path)}"
        )
    config = read_json(path / "config.json")
    text = config.get("text_config")
    if config.get("model_type") != "gemma3" or not isinstance(text, dict):
        return config
    ids = {key: config[key] for key in config if key.endswith("_token_id")}
    return {"architectures": ["Gemma3ForCausalLM"], **ids, **text, "model_type": "gemma3_text"}


def read_generation_config(path: str | os.PathLike) -> dict[str, Any]:
    """The dict in `path`/generation_config.json; empty if there is no such file."""
    file = pathlib.Path(path) / GENERATION
    return read_json(file) if file.is_file() else {}


def tokenizer_files(path: pathlib.Path) -> list[pathlib.Path]:
    """The files of a model directory that decide how text becomes tokens, templates included."""
    more = sorted(path.glob("additional_chat_templates/*.jinja"))
    return [file for name in TOKENIZER_FILES if (file := path / name).is_file()] + more


def weight_files(path: pathlib.Path) -> dict[pathlib.Path, set[str] | None]:
    """The safetensors files of a model, each with the keys listed in its index (None: no index)."""
    if (path / WEIGHTS).is_file():
        return {path / WEIGHTS: None}
    index = path / INDEX
    if not index.is_file():
        raise FileNotFoundError(
            f"{path} holds neither {WEIGHTS} nor {INDEX}; expected safetensors weights{_instead(path)}"
        )
    keys = read_json(index).get("weight_map")
    if not isinstance(keys, dict) or not keys:
        raise ValueError(f"{index} lacks 'weight_map'; expected an object from key to file name")
    files: dict[pathlib.Path, set[str] | None] = {}
    for key, name in keys.items():
        # File names that leave the directory are refused, not followed.
        if not isinstance(name, str) or pathlib.PurePath(name).name != name:
            raise ValueError(f"{index}: {key} is mapped to {name!r}; expected a plain file name")
        if not (path / name).is_file():
            raise FileNotFoundError(f"{path / name} is missing; {index} expects {key} in it")
        files.setdefault(path / name, set()).add(key)
    return dict(sorted(files.items()))


def some_of(names: Iterable[str]) -> str:
    """The first few names in order, and how many more there are."""
    names = sorted(names)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def fingerprint(path: str | os.PathLike) -> str:
    """SHA-256 (hex) of a model directory: its configurations, tokenizer and templates, and weights.

    Files are read in pieces.  Their names and sizes count; the directory's name does not.
    Raises FileNotFoundError if the configuration or the weights are missing.
    """
    path = pathlib.Path(path)
    read_config(path)
    files = [path / "config.json", path / GENERATION, *tokenizer_files(path), *weight_files(path)]
    digest = hashlib.sha256()
    for file in files:
        if not file.is_file():
            continue
        digest.update(f"{file.name}:{file.stat().st_size}\n".encode())
        with file.open("rb") as stream:
            while piece := stream.read(1 << 22):
                digest.update(piece)
    return digest.hexdigest()
