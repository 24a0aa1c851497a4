"""Sizes of what models write and read in BFCL."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Limits:
    """Sizes beyond which text from a model is rejected, and sizes of prompts.

    Attributes:
      answer_chars: an agent's answer.
      generation_chars: a simulator's generation.
      request_chars: the request in a generation.
      tools: functions in a generation.
      parameters: parameters of one function in a generation.
      depth: nesting of brackets in calls and JSON.
      calls: in one answer that is executed (the longest reference answer has 34).
      conversation_chars: a whole conversation's answers as one text (`BFCL.score`).
      prompt_tool_chars: functions in a prompt; more is shortened (`prompts.tool_text`).
      prompt_chars: a whole prompt, as far as shorter functions can bring it there.  4,096 tokens
        of a Qwen tokeniser hold about 14,000 characters of such text.
    """

    answer_chars: int = 16_384
    generation_chars: int = 32_768
    request_chars: int = 12_288
    tools: int = 64
    parameters: int = 64
    depth: int = 64
    calls: int = 128
    conversation_chars: int = 131_072
    prompt_tool_chars: int = 8_500
    prompt_chars: int = 13_500
