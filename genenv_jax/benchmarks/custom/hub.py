"""Files of data sets on the Hugging Face hub, by the addresses of `huggingface_hub.HfFileSystem`.

    hf://datasets/OWNER/NAME[@REVISION]/FILE

The revision `~parquet` is the hub's own conversion of a data set to parquet, which most of them have.
"""

import pathlib
import re

SCHEME = "hf://"
_ADDRESS = re.compile(r"hf://datasets/(?P<id>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/]+))?/(?P<file>.+)")
_REVISIONS = {"~parquet": "refs/convert/parquet"}


def download(address: str) -> pathlib.Path:
    """The file at an address, downloaded once and kept in the hub's own cache.

    Raises:
      ValueError: it is not a file's address.
      FileNotFoundError: there is no such file, or the hub cannot be reached and the cache lacks it.
    """
    found = _ADDRESS.fullmatch(address)
    if not found:
        raise ValueError(f"{address}: expected {SCHEME}datasets/OWNER/NAME[@REVISION]/FILE")
    import huggingface_hub.errors  # slow, and few need it

    revision = _REVISIONS.get(found["revision"], found["revision"])
    fetch = huggingface_hub.hf_hub_download
    try:
        return pathlib.Path(fetch(found["id"], found["file"], repo_type="dataset", revision=revision))
    except huggingface_hub.errors.LocalEntryNotFoundError as error:
        raise FileNotFoundError(
            f"{address} could not be fetched from the hub (no network?) and is not cached; expected a file"
        ) from error
    except Exception as error:  # HTTP, cache, name and offline errors share no useful base class
        reason = " ".join(str(error).split())[:300]
        raise FileNotFoundError(f"{address}: {type(error).__name__}: {reason}") from error
