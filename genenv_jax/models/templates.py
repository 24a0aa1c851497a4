"""Tries a chat template where it can do no harm.

A template is a program by the model's authors.  Its sandbox keeps it from files and code, but not from
endless loops or from filling memory, and a single computation cannot be interrupted.  So it is first rendered
once, for ordinary conversations, in a process of its own with limits.
"""

import functools
import json
import pathlib
import resource
import signal
import subprocess
import sys
from typing import Any

_SECONDS = 2  # of CPU for all conversations; templates take milliseconds
_MEMORY = 2**31  # bytes; Linux only
_LONGEST = 10**6  # characters of a rendered conversation
_PATIENCE = 300.0  # seconds until the process ends, on a busy machine
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from genenv_jax.models.templates import render; render()"
)
_WORDS = "Some words, and 12 more. " * 400
_FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}


def _conversations() -> list[dict[str, Any]]:
    """Arguments of the template: roles with and without tools, short and long texts."""
    call = {"id": "probe0000", "type": "function"}
    call |= {"function": {"name": "f", "arguments": {"x": 1}}}
    result = {"role": "tool", "content": "1", "tool_call_id": "probe0000", "name": "f"}
    tools = [{"type": "function", "function": _FUNCTION}]
    tried = []
    for text in ("a", _WORDS):
        system, user, answer = ({"role": role, "content": text} for role in ("system", "user", "assistant"))
        called = [user, {**answer, "tool_calls": [call]}, result, answer]
        for messages in ([user], [user, *[answer, user] * 8], called):
            for before in ([], [system]):
                tried.append({"messages": [*before, *messages], "tools": None})
                tried.append({"messages": [*before, *messages], "tools": tools})
    return [{**given, "enable_thinking": on} for given in tried for on in (False, True)]


def check(path: pathlib.Path, written: Any, trusted: str = "") -> None:
    """Raises ValueError if a template takes too much time, memory or room for ordinary conversations.

    Errors that it raises are ignored here.

    written: a tokenizer's template, or templates by name.  trusted: a template that is not tried.
    """
    for template in written.values() if isinstance(written, dict) else [written]:
        if isinstance(template, str) and template != trusted and (fault := _fault(template)):
            raise ValueError(f"{path}: the chat template {fault}")


@functools.lru_cache(maxsize=64)
def _fault(template: str) -> str:
    """What is wrong with a template; "" if it can be used."""
    given = json.dumps([template, _conversations()])
    command = [sys.executable, "-c", _PROGRAM, json.dumps(sys.path)]
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return f"does not finish within {_PATIENCE:g} s"
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"takes more than {_SECONDS} s for a few messages"
    if done.returncode:
        return f"cannot be tried: {done.stderr.strip()[-200:]}"
    return done.stdout.strip()


def render() -> None:
    """The process: reads a template and conversations, and prints what is wrong with them."""
    from transformers.utils.chat_template_utils import render_jinja_template

    template, conversations = json.load(sys.stdin)
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + _SECONDS + 1
    for limit, most in (("RLIMIT_CPU", seconds), ("RLIMIT_DATA", _MEMORY), ("RLIMIT_CORE", 0)):
        resource.setrlimit(getattr(resource, limit), (most, most))
    for given in conversations:
        messages = given.pop("messages")
        try:
            (text,), _ = render_jinja_template(
                [messages],
                chat_template=template,
                add_generation_prompt=True,
                date_string="26 Jul 2024",
                **given,
            )
        except MemoryError:
            return print(f"takes more than {_MEMORY // 2**30} GiB of memory for a few messages")
        except Exception:  # it is a program and may raise anything
            continue
        if len(text) > _LONGEST:
            return print(f"writes {len(text):,} characters for a few messages")
