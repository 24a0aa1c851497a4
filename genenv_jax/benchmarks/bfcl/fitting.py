"""Fits messages and descriptions of functions into a prompt, and keeps the results of calls short."""

import itertools
import json
import re
from collections.abc import Callable, Sequence

from genenv_jax.benchmarks.base import Message

_RESULTS_KIND = "results"
RESULTS_CHARS = 8_000  # total, of the results of one answer's calls
_LEAST_RESULT_CHARS = 120
# Approximates a Qwen tokenizer's splits: words with the character before them, digits, other characters.
_TOKEN = re.compile(r"[^\w\n]?[^\W\d_]+|\d|[^\w\s]{1,3}|_|\s+")
_WORD_CHARS = 8  # longer words are more than one token
_CAPITALS_CHARS = 3  # the same for words in capitals, such as stock symbols
_CHARS_A_TOKEN = 3.3  # in prompts that describe functions
_BETWEEN = 12  # most characters between two messages: a role's name and line ends
_AROUND_RESULT = 36  # the same for a result of a call in a chat template
_MOST_RESULTS = 40  # messages with results after one answer
_MARK_CHARS = 35  # most characters of the mark of what was left out
# Characters of older results messages and of the latest, tried in order until a prompt fits.
_RESULT_STEPS = (
    (8_000, 8_000), (3_000, 6_000), (1_200, 4_000), (500, 2_500), (250, 1_200), (120, 600)
)  # fmt: skip


def shortened(text: str, max_chars: int) -> str:
    """`text`, or its beginning and end with the number of characters left out between them."""
    if len(text) <= max_chars:
        return text
    tail = max_chars // 4
    head = max_chars - tail
    left_out = len(text) - head - tail
    return f"{text[:head]} […{left_out} characters left out…] {text[len(text) - tail :]}"


def results_message(names: Sequence[str], results: Sequence[str], max_chars: int = RESULTS_CHARS) -> Message:
    """The message with call results, one line per call, marked so that `fitted` can shorten it further."""
    share = max(_LEAST_RESULT_CHARS, max_chars // max(1, len(results)))
    lines = [
        f"{name}: {shortened(result.encode('utf-8', 'replace').decode(), share)}"
        for name, result in zip(names, results, strict=True)
    ]
    text = shortened("\n".join(["Results of the calls:", *lines]), max_chars)
    return {"role": "user", "content": text, "kind": _RESULTS_KIND}


def tool_messages(results: Sequence[str], max_chars: int = RESULTS_CHARS) -> list[Message]:
    """A message for the result of each call, with at most `max_chars` characters in all, marked as above."""
    if len(results) > _MOST_RESULTS:
        results = [*results[: _MOST_RESULTS - 1], "\n".join(results[_MOST_RESULTS - 1 :])]
    share = max_chars // max(1, len(results))
    messages = []
    for result in results:
        content = result.encode("utf-8", "replace").decode()
        if len(content) > share:
            content = shortened(content, share - _MARK_CHARS)
        messages.append({"role": "tool", "content": content, "kind": _RESULTS_KIND})
    return messages


def fitted(
    tools: Sequence[str],
    messages: Sequence[Message],
    max_tool_chars: int,
    max_chars: int,
    size: Callable[[str], int] = len,
) -> tuple[str, list[Message]]:
    """Tool text and messages that together fit into `max_chars`, if possible.

    tools: the text at each level of detail, measured by `size`.
    """
    # A sentence for every function is worth more than long results.
    for least in tools[1:]:
        for older, latest in _RESULT_STEPS:
            short = _with_short_results(messages, older, latest)
            space = min(max_tool_chars, max_chars - size_of(short))
            if size(least) <= space:
                return next(text for text in tools if size(text) <= space), short
    while size_of(short) + size(tools[-1]) > max_chars:
        request = max((i for i, m in enumerate(short) if m["role"] == "user" and "kind" not in m), default=0)
        if request == 0 and len(short) <= 2:
            break
        # Drop the oldest message before the latest request; if none, the oldest answer after it.
        oldest = 0 if request > 0 else 1
        del short[oldest]
        while short[oldest:] and short[oldest]["role"] == "tool":  # its call is gone
            del short[oldest]
    return tools[-1], short


def size_of(messages: Sequence[Message]) -> int:
    """Size of messages in characters of prose, with room for separators between them.

    Tables of prices and ids have few characters per token: each digit, and most punctuation, is one token.
    """
    # Some templates quote results as JSON.
    return sum(
        _prose_size(json.dumps(message["content"], ensure_ascii=False)) + _AROUND_RESULT
        if message["role"] == "tool"
        else _prose_size(message["content"]) + _BETWEEN
        for message in messages
    )


def _prose_size(text: str) -> int:
    a_token = {True: _CAPITALS_CHARS, False: _WORD_CHARS}  # of capitals, of other words
    tokens = sum(1 + len(word) // a_token[word.isupper()] for word in _TOKEN.findall(text))
    return max(len(text), int(tokens * _CHARS_A_TOKEN))


def _with_short_results(messages: Sequence[Message], older: int, latest: int) -> list[Message]:
    """Messages with the results of an answer cut to `older` characters, the last results to `latest`."""
    short: list[Message] = []
    last = max((i for i, m in enumerate(messages) if m.get("kind") == _RESULTS_KIND), default=0)
    for results, run in itertools.groupby(messages, lambda m: m.get("kind") == _RESULTS_KIND):
        beside = list(run)
        limit = (latest if len(short) + len(beside) > last else older) // len(beside)
        short += [
            {**message, "content": shortened(message["content"], limit)} if results else message
            for message in beside
        ]
    return short


def merged(messages: Sequence[Message]) -> list[Message]:
    """Messages with role and content; merges adjacent messages of one role, as chat templates require.

    Results of calls stay apart.
    """
    merged: list[dict[str, str]] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"] != "tool":
            merged[-1]["content"] += f"\n\n{message['content']}"
        else:
            merged.append({"role": message["role"], "content": message["content"]})
    return merged
