"""Prompts of the agent and the simulator in ALFWorld, and the sections that the simulator writes."""

from collections.abc import Sequence

from genenv_jax.benchmarks.alfworld import commands, kinds, rooms
from genenv_jax.benchmarks.base import Message, SeedStatistics, chat
from genenv_jax.benchmarks.headers import SAME
from genenv_jax.benchmarks.success_record import success_record

# Characters of the agent's prompt.  4,096 tokens of a Qwen tokeniser hold about 10,500 characters of such
# text, because it has many numbers.
PROMPT_CHARS = 9_500
GOAL = "Your task is to: "
COMMAND = "> "  # before a command in a situation
LEFT_OUT = "[... earlier steps are left out ...]"
HEADERS = ("New Task:", "New Observations:", "New Commands:", "New Action:")

_PUT = {grammar: commands.put("OBJECT", "PLACE", grammar) for grammar in commands.GRAMMARS}

_AGENT_RULES = """\
You are a household robot in a text world. You read what you see and answer with one command at \
a time. You see only what is where you are, so things must be found first; a closed place must be \
opened before you can look into it or use what is inside. You carry at most one object.

Commands: go to PLACE, open PLACE, close PLACE, take OBJECT from PLACE, {put}, examine THING, \
use OBJECT, clean OBJECT with PLACE, heat OBJECT with PLACE, cool OBJECT with PLACE, look, \
inventory. Objects and places have their number behind them, as in "mug 1". A command that is \
not possible has the answer "Nothing happens."

You may think in a few sentences. End your reply with one line of this form:
Action: the command"""
_ADMISSIBLE = "Commands that are possible now:\n{commands}"
_ASK = "What is your next command?"

_SIMULATOR_RULES = """\
You write training tasks for an agent that does household chores in a text world, one command at \
a time. You are shown one situation with the right next command, and how well the agent does in \
situations like it. Write one new situation: a variation, not a copy. Change the chore, the \
objects and places, or how far the agent has come. Exactly one of the possible commands must be \
the sensible next step towards the task.

Reply with exactly these four sections, each header at the start of a line, and nothing else:
{0} the chore in one sentence, naming the kinds of object and place as the commands do
{1} what the agent has seen: first the room, then for every command so far a line "> command" \
and the answer below it; or the word `{same}` to keep it
{2} all commands that are possible now, one a line; or the word `{same}` to keep them
{3} the right next command, one of those

Rules of the world: things are written as a word and a number ("mug 1"); commands are go to PLACE, \
open PLACE, close PLACE, take OBJECT from PLACE, {put}, examine THING, use OBJECT, clean OBJECT \
with PLACE, heat OBJECT with PLACE, cool OBJECT with PLACE, slice OBJECT with OBJECT, look, \
inventory{more}. One object can be carried at a time: nothing can be taken while the hands are \
full, and only what is carried can be put down, cleaned, heated or cooled. The chore must name \
the object that is handled, and the action's object and place must occur in the observations."""

_ROOM_RULES = """\
You write training games for an agent that does household chores in a text world, one command at a \
time. You are shown one game, and how well the agent does in games like it. Write one new game: \
another room, with other things in other places, and another chore. The chore must be possible, \
and must not be done at the start.

Reply with one JSON object of this form and nothing else:
{{"goal": {{"task": TASK, "object": KIND, "place": KIND}}, "places": {{PLACE: [OBJECT, ...], ...}}, \
"closed": [PLACE, ...]}}
TASK is one of: put (an object to a place), two (two objects of the kind to one place), clean \
(it in a sinkbasin, then put it), heat (in a microwave, then put), cool (in a fridge, then put), \
light (look at the object under a lamp that is turned on; the place is desklamp).
"places" has every PLACE of the room with the OBJECTs that are in or on it at the start; both are a \
kind and a number, as in "mug 1". An object is at one place only, one that can hold such things. \
"closed" names places that the agent must open first: {closable}; {closed} is always closed. At \
most {places} places, {objects} objects, {contents} at one place.
Kinds of place: {place_kinds}.
Kinds of object: {object_kinds}."""


def transcript(overview: str, history: Sequence[tuple[str, str]], max_chars: int) -> str:
    """Everything seen so far, in `max_chars`: the room, then each command with its answer.

    One line replaces the oldest pairs of `history` that do not fit.
    """
    overview = overview[:max_chars]
    parts = [f"{COMMAND}{command}\n{observation}" for command, observation in history]
    room = max_chars - len(overview) - len(LEFT_OUT) - 2
    kept: list[str] = []
    for part in reversed(parts):
        if len(part) + 1 > room:
            break
        room -= len(part) + 1
        kept.append(part)
    if len(kept) < len(parts):
        kept.append(LEFT_OUT)
    return "\n".join([overview, *reversed(kept)])


def state_text(goal: str, observations: str) -> str:
    """The text of a task: the chore, an empty line, the observations; `split_state` inverts it."""
    return f"{GOAL}{goal}.\n\n{observations}"


def split_state(text: str) -> tuple[str, str]:
    """The chore and the observations in a task's text."""
    goal, _, observations = text.partition("\n\n")
    return goal.removeprefix(GOAL).removesuffix("."), observations


def agent_messages(state: str, grammar: str, admissible: Sequence[str] = ()) -> list[Message]:
    """The instructions and the situation (`state_text`), with the possible commands if they are told."""
    listed = [_ADMISSIBLE.format(commands="\n".join(admissible))] if admissible else []
    return chat(_AGENT_RULES.format(put=_PUT[grammar]), state, *listed, _ASK)


def agent_chars(grammar: str) -> int:
    """Characters of the agent's prompt without the situation and the possible commands."""
    return sum(len(m["content"]) for m in agent_messages("", grammar, [""]))


def simulator_messages(sections: str, grammar: str, statistics: SeedStatistics) -> list[Message]:
    """Asks for one variation of a situation (as `sections_text`), given the agent's record."""
    system = _SIMULATOR_RULES.format(
        *HEADERS, same=SAME, put=_PUT[grammar], more=", help" if grammar == commands.MOVE_TO else ""
    )
    return chat(system, sections, success_record(statistics, what="situation"))


def sections_text(goal: str, observations: str, admissible: str, action: str) -> str:
    """The four sections, as the simulator writes them."""
    task, state, listed, command = HEADERS
    return f"{task} {goal}\n{state}\n{observations}\n{listed}\n{admissible}\n{command} {action}"


def room_messages(room: str, statistics: SeedStatistics) -> list[Message]:
    """Asks for a new game like a given room (as JSON), given the agent's record."""
    system = _ROOM_RULES.format(
        closable=", ".join(sorted(kinds.CLOSABLE)),
        closed=" or ".join(sorted(kinds.CLOSED)),
        places=rooms.MAX_PLACES,
        objects=rooms.MAX_OBJECTS,
        contents=rooms.MAX_CONTENTS,
        place_kinds=", ".join(sorted(kinds.HOLDS)),
        object_kinds=", ".join(sorted(kinds.OBJECTS | kinds.LAMPS)),
    )
    return chat(system, room, success_record(statistics, what="game"))


# Characters of a step's situation; the longest list of commands in a published game has 2,300 characters.
STATE_CHARS = PROMPT_CHARS - agent_chars(commands.PUT_IN_ON) - 3_500
