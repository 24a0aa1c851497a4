"""The format of simulator output: sections that begin with headers, each at the start of a line."""

import json
import re
from collections.abc import Sequence
from typing import Any

from genenv_jax.benchmarks.lenient import parse_lenient
from genenv_jax.benchmarks.safe_parse import check_text
from genenv_jax.benchmarks.task import BAD_TOOLS, EMPTY, UNPARSABLE, Message, Rejection, Tools, chat

TOOLS, TASK, ANSWER = "New Tools:", "New Task:", "New Answer:"
SAME = "same"  # written instead of tools: use the seed's
# White space at the beginning of a line; lines end as for `str.splitlines`.
_ENDS = r"\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
_LINE_START = rf"(?<![^{_ENDS}])[^\S{_ENDS}]*"
_SAME = re.compile(r"[\W_]*(?:the )?same(?: (?:tools|functions|apis))?[\W_]*", re.IGNORECASE | re.ASCII)


def ask(system: str, given: Sequence[str], seed: str, record: str) -> list[Message]:
    """A simulator's prompt, with the seed as its first answer: a small model continues in that form.

    `system` has the rules, with `reply`; `given` is what the task is about, such as tools.
    """
    return [
        *chat(system, *given, "Write a task."),
        {"role": "assistant", "content": seed},
        {"role": "user", "content": f"{record}\n\nWrite the next task, from `{TOOLS}` on."},
    ]


def reply(tools: str, task: str, answer: str, answer_first: bool = False) -> str:
    """Asks for the three sections, with what each contains; tools "": the seed's are kept.

    `ask` shows a task in this form, with the same `answer_first`.  Small models copy what follows a header,
    so no description does.
    """
    listed = f"{tools}, or only the word {SAME} to keep them" if tools else f"only the word {SAME}"
    rest = [f"After `{TASK}` comes {task}.", f"After `{ANSWER}` comes {answer}."]
    return (
        "Reply in the form of your first task: three sections, each header at the start of a "
        f"line, and nothing else. After `{TOOLS}` comes {listed}. "
        f"{' '.join(reversed(rest) if answer_first else rest)}"
    )


def parse_headers(text: str, headers: Sequence[str]) -> tuple[str, ...] | Rejection:
    """The sections of a text, stripped, in the order of the headers.

    Returns UNPARSABLE unless each header appears once, in order, with nothing before the first and text
    after each.
    """
    either = "|".join(map(re.escape, headers))
    before, *rest = re.split(rf"{_LINE_START}({either})", text)
    named, parts = rest[::2], [part.strip() for part in rest[1::2]]
    if named != list(headers):
        expected = f"expected the {len(headers)} headers once and in order"
        return Rejection(UNPARSABLE, f"{expected}, found {', '.join(named[:6]) or 'none'}")
    if before.strip():
        return Rejection(UNPARSABLE, "text before the first header")
    for header, part in zip(headers, parts, strict=True):
        if not part:
            return Rejection(UNPARSABLE, f"{header} is empty")
    return tuple(parts)


def write_with_tools(tools: Tools | None, task: str, answer: str, answer_first: bool = False) -> str:
    """A task with its tools, as a simulator writes it; `tools` None: the seed's tools.

    answer_first: a small model's request for calls that it has already written states more of their values.
    """
    listed = SAME if tools is None else json.dumps([dict(tool) for tool in tools], ensure_ascii=False)
    rest = [f"{TASK} {task.strip()}", f"{ANSWER} {answer}"]
    return "\n".join([f"{TOOLS} {listed}", *(reversed(rest) if answer_first else rest)])


def read_with_tools(text: str, name: str, most: int) -> tuple[str | None, str, str] | Rejection:
    """Inverts `write_with_tools`, whichever is first, except the JSON of the tools (`read_tools`).

    A task of more than `most` characters is rejected under the given name.
    """
    sections = parse_headers(text, (TOOLS, TASK, ANSWER))
    if isinstance(sections, Rejection):
        sections = parse_headers(text, (TOOLS, ANSWER, TASK))
        if isinstance(sections, Rejection):
            return sections
        listed, answer, task = sections
    else:
        listed, task, answer = sections
    if rejection := part_fault(task, name, most):
        return rejection
    return None if is_same(listed) else listed, task, answer


def read_tools(listed: str) -> list[Any] | Rejection:
    """The tools from their JSON (`parse_lenient`), or BAD_TOOLS.

    Also read: one tool without a list, several tools or lists in a row, and OpenAI's {"type": "function",
    "function": a tool}.
    """
    value = parse_lenient(listed, len(listed))
    if isinstance(value, Rejection):
        return Rejection(BAD_TOOLS, f"{value.reason}: {value.detail}"[:200])
    tools: list[Any] = []
    for entry in value if isinstance(value, list) else [value]:
        tools += entry if isinstance(entry, list) else [entry]
    return [tool["function"] if _is_wrapped(tool) else tool for tool in tools]


def _is_wrapped(tool: Any) -> bool:
    return isinstance(tool, dict) and "function" in tool and tool.keys() <= {"type", "function"}


def is_same(section: str) -> bool:
    """Whether a section says only to keep the seed's: `SAME`, perhaps with the noun ("the same tools")."""
    return bool(_SAME.fullmatch(section))


def part_fault(text: Any, name: str, most: int) -> Rejection | None:
    """`check_text` for one part of a generation, named in the rejection; UNPARSABLE if the part is empty."""
    rejection = check_text(text, most)
    if rejection is None:
        return None
    reason = UNPARSABLE if rejection.reason == EMPTY else rejection.reason
    return Rejection(reason, f"{name}: {rejection.detail or 'empty'}")
