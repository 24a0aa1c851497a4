"""A grammar of BFCL conversations in the simulator's format: sound by construction, or broken in one way.

A conversation is drawn class by class: `SCENES` has for each class an initial state, the first turns and
the turns that may be repeated.  `BROKEN` has the ways to break a conversation, with the reason for which it
must be rejected.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Turn = tuple[str, str]  # request, calls
Conversation = dict[str, Any]
_WORDS = (
    "amber basil cedar delta ember fable grove harbor indigo juniper kettle lantern meadow nectar orchid "
    "pebble quartz raven saffron timber umber velvet willow xenon yarrow zephyr"
).split()
_SYMBOLS = ("AAPL", "GOOG", "TSLA", "MSFT", "ALPH", "OMEG", "QUAS")
_DOORS = "'driver', 'passenger', 'rear_left', 'rear_right'"
_FILES = {
    "<name>.txt": {"type": "file", "content": "<second> and more"},
    "<second>": {"type": "directory", "contents": {}},
}
_CLOSED = ("Close ticket <ticket> again.", "[close_ticket(ticket_id=<ticket>)]")
_OPENED = (
    "Open a ticket titled 'Broken <new>' with priority <level>.",
    "[create_ticket(title='Broken <new>', priority=<level>)]",
)
_WATCHED = ("Put <symbol> on my watchlist.", "[add_to_watchlist(stock='<symbol>')]")
# Class: initial state, first turns, and sequences of turns that may follow.  <name>, <second>, <token> and
# <count> are drawn per scene, <new>, <number>, <fuel>, <level>, <symbol> and <ticket> per sequence.
SCENES: dict[str, tuple[dict[str, Any], Sequence[Turn], Sequence[Sequence[Turn]]]] = {
    "GorillaFileSystem": (
        {"root": {"home": {"type": "directory", "contents": _FILES}}},
        [("Show me what <name>.txt says.", "[cat(file_name='<name>.txt')]")],
        [[("Make a folder named <new>.", "[mkdir(dir_name='<new>')]")],
         [("Create an empty file named <new>.txt.", "[touch(file_name='<new>.txt')]")],
         [("Create the file <new>.md, then write '<new> is due' into it.",
           "[touch(file_name='<new>.md'), echo(content='<new> is due', file_name='<new>.md')]")],
         [("Make the folder <new>, and once it is there copy <name>.txt into it.",
           "[mkdir(dir_name='<new>'), cp(source='<name>.txt', destination='<new>')]")]],
    ),
    "MathAPI": ({}, [], [[("What is <number> plus 0.5?", "[add(a=<number>, b=0.5)]")]]),
    "TwitterAPI": (
        {"username": "<name>", "authenticated": True, "tweet_counter": "<count>"}, [],
        [[("Tweet 'All about <new>'.", "[post_tweet(content='All about <new>')]")],
         [("Follow the user <new>.", "[follow_user(username_to_follow='<new>')]")]],
    ),
    "MessageAPI": (
        {"user_count": 2, "user_map": {"Me": "USR001", "<name>": "USR002"}, "current_user": "USR001",
         "inbox": [], "message_count": 0},
        [("What is the user id of <name>?", "[get_user_id(user='<name>')]")],
        [[("Send <name> (USR002) the message 'The <new> is here'.",
           "[send_message(receiver_id='USR002', message='The <new> is here')]")],
         [("Add <new> to my contacts.", "[add_contact(user_name='<new>')]")]],
    ),
    "TicketAPI": (
        {"current_user": "<name>", "ticket_counter": "<count>", "ticket_queue": []}, [],
        [[_OPENED], [_OPENED, _CLOSED]],
    ),
    "TradingBot": (
        {"authenticated": True, "watch_list": ["NVDA"], "market_status": "Open"}, [],
        [[_WATCHED], [("How is the stock <symbol> doing?", "[get_stock_info(symbol='<symbol>')]"), _WATCHED]],
    ),
    "TravelAPI": (
        {"access_token": "<token>", "token_expires_in": 3600, "credit_card_list": {}}, [],
        [[("My token is <token>. Limit my budget to <number> dollars.",
           "[set_budget_limit(access_token='<token>', budget_limit=<number>.0)]")],
         [("What is <number> USD in EUR?",
           "[compute_exchange_rate(base_currency='USD', target_currency='EUR', value=<number>.0)]")]],
    ),
    "VehicleControlAPI": (
        {"fuelLevel": 4.0, "headLightStatus": "off", "batteryVoltage": 12.5},
        [("Lock all four doors.", f"[lockDoors(unlock=False, door=[{_DOORS}])]"),
         ("Turn the headlights on.", "[setHeadlights(mode='on')]")],
        [[("Fill up <fuel> gallons of fuel.", "[fillFuelTank(fuelAmount=<fuel>)]")],
         [("Navigate to <new> street.", "[set_navigation(destination='<new> street')]")]],
    ),
}  # fmt: skip


def _filled(value: Any, values: dict[str, Any]) -> Any:
    """A state or text with names replaced by values."""
    if isinstance(value, dict):
        return {_filled(key, values): _filled(entry, values) for key, entry in value.items()}
    if isinstance(value, tuple):
        return tuple(_filled(entry, values) for entry in value)
    if isinstance(value, str):
        if value == "<count>":
            return values["count"]
        for name, given in values.items():
            value = value.replace(f"<{name}>", str(given))
    return value


def _scene(rng: random.Random, name: str) -> tuple[dict[str, Any], Iterator[Turn]]:
    """An initial state of a class, and turns on it."""
    state, first, following = SCENES[name]
    names = [f"{word}{number}" for number, word in enumerate(rng.sample(_WORDS, len(_WORDS)))]
    numbers, symbols = rng.sample(range(200, 1000), 7), rng.sample(_SYMBOLS, 7)
    scene = {"name": names.pop(), "second": names.pop(), "count": rng.randrange(1, 90)}
    scene["token"] = rng.randrange(10_000, 99_999)

    def turns() -> Iterator[Turn]:
        yield from (_filled(turn, scene) for turn in first)
        for made, (number, symbol) in enumerate(zip(numbers, symbols, strict=True)):
            values = scene | {
                "new": names.pop(), "number": number, "symbol": symbol, "fuel": number / 100,
                "level": 2 + number % 4, "ticket": scene["count"] + made,
            }  # fmt: skip
            yield from (_filled(turn, values) for turn in rng.choice(following))

    return _filled(state, scene), turns()


def draw(rng: random.Random, classes: Sequence[str]) -> Conversation:
    """A sound conversation of 2 to 6 turns over some of the classes."""
    scenes = {name: _scene(rng, name) for name in classes}
    writers = [turns for _, turns in scenes.values()]
    found = [next(writers[i % len(writers)]) for i in range(rng.randrange(2, 7))]
    return {
        "state": {name: state for name, (state, _) in scenes.items() if state},
        "turns": [{"request": request, "calls": calls} for request, calls in found],
    }


# -- broken ones ---------------------------------------------------------------------------------------

# By class: a failing call, and requests to do two things in any order.
_FAILING = {
    "GorillaFileSystem": ("Show lost.txt.", "[cat(file_name='lost.txt')]"),
    "TwitterAPI": ("Show tweet 9999.", "[get_tweet(tweet_id=9999)]"),
    "MessageAPI": ("What is the user id of Nobody?", "[get_user_id(user='Nobody')]"),
    "TicketAPI": ("Show ticket 9999.", "[get_ticket(ticket_id=9999)]"),
    "TradingBot": ("How is the stock ZZZZ doing?", "[get_stock_info(symbol='ZZZZ')]"),
    "VehicleControlAPI": ("Fill up 900 gallons of fuel.", "[fillFuelTank(fuelAmount=900.0)]"),
    "TravelAPI": ("My token is wrong. Limit my budget to 5 dollars.",
                  "[set_budget_limit(access_token='wrong', budget_limit=5.0)]"),
    "MathAPI": ("Divide 1 by 0.", "[divide(a=1, b=0)]"),
}  # fmt: skip
_TWO = {
    "TwitterAPI": ("Tweet 'red' and tweet 'blue'.",
                   "[post_tweet(content='red'), post_tweet(content='blue')]"),
    "MessageAPI": ("Add Kim and Lee to my contacts.",
                   "[add_contact(user_name='Kim'), add_contact(user_name='Lee')]"),
    "TicketAPI": ("Open tickets titled 'Red' and 'Blue'.",
                  "[create_ticket(title='Red'), create_ticket(title='Blue')]"),
}  # fmt: skip
_SEEN = {  # read twice
    "GorillaFileSystem": ("Which folder am I in?", "[pwd()]"),
    "MessageAPI": ("List all users.", "[list_users()]"),
    "TradingBot": ("Show my account information.", "[get_account_info()]"),
    "TwitterAPI": ("List whom I am following.", "[list_all_following()]"),
    "VehicleControlAPI": ("Check the tire pressure.", "[check_tire_pressure()]"),
    "MathAPI": ("What is 2 plus 2?", "[add(a=2, b=2)]"),
}


def _with(conversation: Conversation, *turns: Turn) -> Conversation:
    added = [{"request": request, "calls": calls} for request, calls in turns]
    return {**conversation, "turns": [*conversation["turns"], *added]}


def _of(table: dict[str, Turn], times: int = 1):
    def spoil(found: Conversation, classes: Sequence[str]) -> Conversation | None:
        turn = next((table[name] for name in classes if name in table), None)
        return None if turn is None else _with(found, *[turn] * times)

    return spoil


def _first(**fields: Any):
    """The first turn with other fields; a function maps a field's old value."""

    def spoil(found: Conversation, classes: Sequence[str]) -> Conversation:
        first, *rest = found["turns"]
        made = {key: new(first[key]) if callable(new) else new for key, new in fields.items()}
        return {**found, "turns": [{**first, **made}, *rest]}

    return spoil


def _state(change: Callable[[dict[str, Any], str], dict[str, Any] | None]):
    def spoil(found: Conversation, classes: Sequence[str]) -> Conversation | None:
        name = next((name for name in classes if name in found["state"]), None)
        state = None if name is None else change(found["state"], name)
        return None if state is None else {**found, "state": state}

    return spoil


def _other_kind(state: dict[str, Any], name: str) -> dict[str, Any] | None:
    key = next((key for key in state[name] if key != "root"), None)
    return None if key is None else {**state, name: {**state[name], key: [[1]]}}


def _deep(found: Conversation, classes: Sequence[str]) -> str:
    deep = 200 * "[" + 200 * "]"
    return json.dumps({**found, "state": {classes[0]: {}}})[:-1] + f', "x": {deep}}}'


def _again(found: Conversation, classes: Sequence[str]) -> Conversation | None:
    turn = next((_SEEN[name] for name in classes if name in _SEEN), None)
    return turn and _with(found, turn, (f"Once more, please: {turn[0]}", turn[1]))


# Name: (how it is broken, the reason for its rejection).
BROKEN: dict[str, tuple[Callable[[Conversation, Sequence[str]], Conversation | str | None], str]] = {
    "cut short": (lambda found, classes: json.dumps(found)[:-20], "unparsable"),
    "Python instead of JSON": (lambda found, classes: str(found), "unparsable"),
    "no turns key": (lambda found, classes: {"state": found["state"]}, "unparsable"),
    "a turn that is a text": (lambda found, classes: {**found, "turns": ["Do it."]}, "unparsable"),
    "deep nesting": (_deep, "too_deep"),
    "a class that there is not": (lambda found, classes: {**found, "state": {"Nothing": {}}}, "bad_state"),
    "a key that no class reads": (
        _state(lambda state, name: {**state, name: {**state[name], "secret_door": 1}}), "bad_state"),
    "a state of another kind": (_state(_other_kind), "bad_state"),
    "a state without a root": (
        lambda found, classes: {**found, "state": {**found["state"], "GorillaFileSystem": {"root": {}}}}
        if "GorillaFileSystem" in classes else None, "bad_state"),
    "a huge state": (
        _state(lambda state, name: {**state, name: {**state[name], "x": "a" * 9_000}}), "too_long"),
    "a thousand turns": (lambda found, classes: {**found, "turns": [{}] * 1_000}, "too_many_turns"),
    "no turns": (lambda found, classes: {**found, "turns": []}, "empty_turn"),
    "a turn without calls": (_first(calls="[]"), "empty_turn"),
    "a turn without a request": (_first(request=" ?! "), "empty_turn"),
    "a request of thousands of letters": (_first(request="a " * 2_000), "too_long"),
    "fifty calls": (_first(calls=lambda calls: f"[{', '.join([calls[1:-1]] * 50)}]"), "too_many_calls"),
    "a function that there is not": (_first(calls="[fly(to='moon')]"), "bad_answer"),
    "Python instead of calls": (_first(calls="[x for x in (1, 2)]"), "bad_answer"),
    "names alone": (_first(calls=lambda calls: f"[{calls[1:].split('(')[0]}()]"), "bad_answer"),
    "a call that fails": (_of(_FAILING), "not_executable"),
    "the same question again": (_again, "already_known"),
    "the same turn twice": (_of(_SEEN, 2), "repeated_turn"),
    "two things in no order": (_of(_TWO), "open_order"),
    "a request for something else": (_first(request="Tell me a joke, please."), "not_asked"),
    "the calls in the request": (
        lambda found, classes: _first(request=f"Do {found['turns'][0]['calls']}")(found, classes),
        "given_away"),
    "nothing to find": (
        _of({"GorillaFileSystem": ("Find what is called nowhere.", "[find(path='.', name='nowhere')]")}),
        "no_effect"),
    "a needless look": (
        _of({"GorillaFileSystem": (
            "Make a folder named last.", "[find(path='.', name='nowhere'), mkdir(dir_name='last')]")}),
        "needless_call"),
    "a priority that nobody told": (
        _of({"TicketAPI": ("Open a ticket titled 'Late'.", "[create_ticket(title='Late', priority=5)]")}),
        "not_asked"),
    "a text that nobody told": (
        _of({"TwitterAPI": (
            "Tweet something about rain.",
            "[post_tweet(content='Nothing beats the smell of rain on hot asphalt')]")}),
        "not_asked"),
}  # fmt: skip


def spoil(rng: random.Random, name: str, classes: Sequence[str]) -> str | None:
    """A conversation broken in one way; None if the classes do not allow it."""
    found = BROKEN[name][0](draw(rng, classes), classes)
    return found if found is None or isinstance(found, str) else json.dumps(found)
