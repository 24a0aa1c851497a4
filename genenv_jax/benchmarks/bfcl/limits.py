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
      episode_answer_chars: an answer in an episode that agents are trained on.
      answer_calls: in such an answer.
      episode_calls: in all answers of such an episode.
      observation_chars: what comes back after such an answer; more is shortened.
      turns: in a generated conversation.
      turn_chars: the request of one of them.
      reference_calls: in all of them.
      reference_chars: what all of them return.
      state_chars: the initial state of a generated conversation, as JSON.
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
    episode_answer_chars: int = 8_192
    answer_calls: int = 40
    episode_calls: int = 160
    observation_chars: int = 2_000
    turns: int = 8
    turn_chars: int = 1_200
    reference_calls: int = 40
    reference_chars: int = 200_000
    state_chars: int = 8_192
    prompt_tool_chars: int = 8_500
    prompt_chars: int = 13_500
