"""Which gold calls find their entry in the data base by its content, and which by its time.

The official checks of agenda and reminder calls compare `content` loosely, but before that the API is
executed, and it finds the entry by *equal* content or equal time.  Where the gold call's entry has
another time than the call, only the exact content finds it, and the loose comparison never comes to
bear.  The tables are the published ones, `HEAD/init_database`.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

ACCOUNTS = "HEAD/init_database/Account.json"
_TABLES = {
    "Agenda": "HEAD/init_database/Agenda.json",
    "Reminder": "HEAD/init_database/Reminder.json",
}
_ACTIONS = ("Modify", "Delete", "Query")


def table_of(api: str) -> str | None:
    """Path of the table in which an API looks its entry up, or None."""
    for action in _ACTIONS:
        if api.startswith(action):
            return _TABLES.get(api.removeprefix(action))
    return None


def exact_parameters(
    api: str,
    parameters: Mapping[str, str],
    accounts: Mapping[str, Mapping[str, Any]],
    entries: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """Parameters of a gold call that must be equal for the call to find its entry.

    Args:
      api: its name.
      parameters: the gold ones.
      accounts: {user: {"token", ...}}.
      entries: {key: {"username", "content", "time", ...}} of the API's table.

    Returns:
      ["content"], or [] where the time finds the entry (or nothing does: the data base was edited after
      the dialogues were written).
    """
    if table_of(api) is None or not {"token", "content", "time"} <= set(parameters):
        return []
    owners = [user for user, entry in accounts.items() if entry.get("token") == parameters["token"]]
    for entry in entries.values():
        same = {name: entry.get(name) == parameters[name] for name in ("content", "time")}
        if owners and entry.get("username") == owners[0] and any(same.values()):
            return [] if same["time"] else ["content"]
    return []


def read_table(path: pathlib.Path, value: Any) -> Mapping[str, Mapping[str, Any]]:
    """A table, checked for its shape; ValueError names the file."""
    if not isinstance(value, dict) or not all(isinstance(row, dict) for row in value.values()):
        raise ValueError(f"{path}: expected an object of objects")
    return value
