"""An agent's text becomes a command."""

import pytest

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.alfworld import commands


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("go to desk 1", ["go to desk 1"]),
        ("> go to desk 1", ["go to desk 1"]),
        ("I look there.\nAction: Go to  Desk 1.", ["go to desk 1"]),
        ("**Action:** `open drawer 2`", ["open drawer 2"]),
        ("Next action: open drawer 2\n", ["open drawer 2"]),
        ("<think>so</think>\n<action>open drawer 2</action>", ["open drawer 2"]),
        ("put mug 1 in desk 1", ["put mug 1 in/on desk 1"]),
        ("put mug 1 on desk 1", ["put mug 1 in/on desk 1"]),
        ("put mug 1 in/on desk 1", ["put mug 1 in/on desk 1"]),
        ("Action: Put mug 1 in / on desk 1", ["put mug 1 in/on desk 1"]),
        # As AgentGym models answer.
        ("Thought:\nI look there.\n\nAction:\ngo to desk 1", ["go to desk 1"]),
        ("**Action:**\n```\ngo to desk 1\n```\nThen I see.", ["go to desk 1"]),
        ("<action>\ngo to desk 1\n</action>", ["go to desk 1"]),
        ("I go. <ACTION>\n\n go to desk 1 </ACTION>\nand so on", ["go to desk 1"]),
        ("Action:\nAction: go to desk 1", ["go to desk 1"]),
        ("Action:\nlook\nAction:\n1. go to desk 1", ["look", "go to desk 1"]),
        ("Action 1: go to desk 1", ["go to desk 1"]),
        ("2. Action: `go to desk 1`", ["go to desk 1"]),
        ("Action: 12) go to desk 1", ["go to desk 1"]),
        ("[3] `go to desk 1`", ["go to desk 1"]),
        ("Action: look\nthen\nAction: open drawer 2", ["look", "open drawer 2"]),
        ("first this\nthen that", ["then that"]),
        ("move mug 1 to desk 1", ["move mug 1 to desk 1"]),
    ],
)
def test_the_text_of_an_agent_gives_commands(text, expected):
    assert commands.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", base.EMPTY), (" \n", base.EMPTY), ("Action:", base.EMPTY), ("```", base.EMPTY),
     ("<action>\n</action>\nlook", base.EMPTY),
     ("a\0", base.NOT_TEXT), ("a" * (commands.MAX_TEXT + 1), base.TOO_LONG)],
)  # fmt: skip
def test_no_command(text, reason):
    found = commands.parse(text)
    assert isinstance(found, base.Rejection) and found.reason == reason


def test_the_two_grammars():
    put, move = (commands.put("mug 1", "desk 1", grammar) for grammar in commands.GRAMMARS)
    assert (put, move) == ("put mug 1 in/on desk 1", "move mug 1 to desk 1")
    assert commands.is_command(put, commands.PUT_IN_ON)
    assert not commands.is_command(put, commands.MOVE_TO)
    assert commands.is_command(move, commands.MOVE_TO)
    assert not commands.is_command(move, commands.PUT_IN_ON)
    assert commands.is_command("help", commands.MOVE_TO)
    assert not commands.is_command("help", commands.PUT_IN_ON)


@pytest.mark.parametrize(
    "command", ["go to desk", "go desk 1", "dance", "take mug 1", "look 1", "open desk 1 now"]
)
def test_what_is_no_command(command):
    assert not any(commands.is_command(command, grammar) for grammar in commands.GRAMMARS)


def test_entities():
    assert commands.entities("take mug 1 from desk 12") == ["mug 1", "desk 12"]
    assert commands.entities("go to desk 12") == ["desk 12"]
    assert commands.entities("look") == []
