"""Keys come from the environment; no address, and nothing that is shown or stored, holds one.

Shown text also holds no characters that a terminal or a page would not show as they are.
"""

import os
import re
import urllib.parse

SHORTEST = 8  # characters of a key: a shorter value may be an ordinary word
_NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$")  # of variables that hold one
# Where an address may hold one: before its host (a bucket and the hub have none), in its query or fragment.
_USER = re.compile(r"((?<!gs)(?<!hf)://)[^\s'\"]*@")
_QUERY = re.compile(r"(://[^\s'\"?#]*[?#])[^\s'\"]+")


def check_url(url: str, name: str) -> None:
    """Raises ValueError, naming `name` and never the URL, unless it is a base URL that cannot hold a key."""
    try:
        parts = urllib.parse.urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
    except ValueError:  # malformed port or address
        fits = False
    more = fits and ("@" in parts.netloc or parts.query or parts.fragment)
    if not fits or more or not url.isprintable() or " " in url:
        raise ValueError(
            f"{name}: expected a base URL such as http://localhost:8000/v1, without a key: keys are read "
            "from $OPENAI_API_KEY"
        )


def without_keys(text: str) -> str:
    """Text without the values of the environment's keys or the parts of addresses that may hold keys."""
    for name, value in os.environ.items():
        if len(value) >= SHORTEST and value in text and _NAMES.search(name):
            text = text.replace(value, f"(${name})")
    return _QUERY.sub(r"\1***", _USER.sub(r"\1***@", text))


def visible(text: str) -> str:
    """Text with control and direction characters and lone surrogates spelled out; newlines are kept."""
    if text.isprintable():
        return text
    text = text.replace("\t", "    ")
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)


def as_line(text: object) -> str:
    """Text of an error as one line, without keys, control characters spelled out."""
    return " ".join(visible(without_keys(str(text))).split())
