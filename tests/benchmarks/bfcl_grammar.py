"""A grammar of BFCL conversations in the simulator's format: sound by construction, or broken in one way.

A conversation is drawn class by class: `SCENES` has for each class an initial state and a writer of turns,
which keeps track of what is there.  `BROKEN` has the ways in which one is spoilt, with the reason for which
it is to be turned away.
"""

from __future__ import annotations

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


def _names(rng: random.Random) -> Iterator[str]:
    """Words, none twice."""
    for number, word in enumerate(rng.sample(_WORDS, len(_WORDS))):
        yield f"{word}{number}"


def _files(rng: random.Random) -> tuple[dict[str, Any], Iterator[Turn]]:
    names = _names(rng)
    folder, known, text = next(names), f"{next(names)}.txt", next(names)
    contents = {
        known: {"type": "file", "content": f"{text} {next(names)}"},
        folder: {"type": "directory", "contents": {}},
    }
    state = {"root": {"home": {"type": "directory", "contents": contents}}}

    def turns() -> Iterator[Turn]:
        yield f"Show me what {known} says.", f"[cat(file_name='{known}')]"
        for name in names:
            match rng.randrange(4):
                case 0:
                    yield f"Make a folder named {name}.", f"[mkdir(dir_name='{name}')]"
                case 1:
                    yield (
                        f"Create an empty file named {name}.txt.",
                        f"[touch(file_name='{name}.txt')]",
                    )
                case 2:
                    yield (
                        f"Create the file {name}.md, then write '{name} is due' into it.",
                        f"[touch(file_name='{name}.md'), "
                        f"echo(content='{name} is due', file_name='{name}.md')]",
                    )
                case 3:
                    yield (
                        f"Make the folder {name}, and once it is there copy {known} into it.",
                        f"[mkdir(dir_name='{name}'), cp(source='{known}', destination='{name}')]",
                    )

    return state, turns()


def _numbers(rng: random.Random) -> tuple[dict[str, Any], Iterator[Turn]]:
    def turns() -> Iterator[Turn]:
        for number in rng.sample(range(10, 1000), 20):
            yield f"What is {number} plus 0.5?", f"[add(a={number}, b=0.5)]"

    return {}, turns()


def _tweets(rng: random.Random) -> tuple[dict[str, Any], Iterator[Turn]]:
    names = _names(rng)
    state = {"username": next(names), "authenticated": True, "tweet_counter": rng.randrange(1, 50)}

    def turns() -> Iterator[Turn]:
        for name in names:
            if rng.random() < 0.5:
                yield f"Tweet 'All about {name}'.", f"[post_tweet(content='All about {name}')]"
            else:
                yield f"Follow the user {name}.", f"[follow_user(username_to_follow='{name}')]"

    return state, turns()


def _messages(rng: random.Random) -> tuple[dict[str, Any], Iterator[Turn]]:
    names = _names(rng)
    user = next(names)
    state = {
        "user_count": 2, "user_map": {"Me": "USR001", user: "USR002"}, "current_user": "USR001",
        "inbox": [], "message_count": 0,
    }  # fmt: skip

    def turns() -> Iterator[Turn]:
        yield f"What is the user id of {user}?", f"[get_user_id(user='{user}')]"
        for name in names:
            if rng.random() < 0.5:
                yield (
                    f"Send {user} (USR002) the message 'The {name} is here'.",
                    f"[send_message(receiver_id='USR002', message='The {name} is here')]",
                )
            else:
                yield f"Add {name} to my contacts.", f"[add_contact(user_name='{name}')]"

    return state, turns()


def _tickets(rng: random.Random) -> tuple[dict[str, Any], Iterator[Turn]]:
    names = _names(rng)
    number = rng.randrange(1, 90)
    state = {"current_user": next(names), "ticket_counter": number, "ticket_queue": []}

    def turns() -> Iterator[Turn]:
        for made, name in enumerate(names):
            level = rng.randrange(2, 6)
            yield (
                f"Open a ticket titled 'Broken {name}' with priority {level}.",
                f"[create_ticket(title='Broken {name}', priority={level})]",
            )
            if rng.random() < 0.5:
                yield (
                    f"Close ticket {number + made} again.",
                    f"[close_ticket(ticket_id={number + made})]",
                )

    return state, turns()


def _shares(rng: random.Random) -> tuple[dict[str, Any], Iterator[Turn]]:
    state = {"authenticated": True, "watch_list": ["NVDA"], "market_status": "Open"}

    def turns() -> Iterator[Turn]:
        for symbol in rng.sample(_SYMBOLS, len(_SYMBOLS)):
            if rng.random() < 0.5:
                yield f"How is the stock {symbol} doing?", f"[get_stock_info(symbol='{symbol}')]"
            yield f"Put {symbol} on my watchlist.", f"[add_to_watchlist(stock='{symbol}')]"

    return state, turns()


def _flights(rng: random.Random) -> tuple[dict[str, Any], Iterator[Turn]]:
    token = str(rng.randrange(10_000, 99_999))
    state = {"access_token": token, "token_expires_in": 3600, "credit_card_list": {}}

    def turns() -> Iterator[Turn]:
        for amount in rng.sample(range(200, 9000), 20):
            if rng.random() < 0.5:
                yield (
                    f"My token is {token}. Limit my budget to {amount} dollars.",
                    f"[set_budget_limit(access_token='{token}', budget_limit={amount}.0)]",
                )
            else:
                yield (
                    f"What is {amount} USD in EUR?",
                    f"[compute_exchange_rate(base_currency='USD', target_currency='EUR', value={amount}.0)]",
                )

    return state, turns()


def _car(rng: random.Random) -> tuple[dict[str, Any], Iterator[Turn]]:
    state = {
        "fuelLevel": float(rng.randrange(1, 9)),
        "headLightStatus": "off",
        "batteryVoltage": 12.5,
    }

    def turns() -> Iterator[Turn]:
        yield "Lock all four doors.", f"[lockDoors(unlock=False, door=[{_DOORS}])]"
        yield "Turn the headlights on.", "[setHeadlights(mode='on')]"
        for name, tenths in zip(rng.sample(_WORDS, 6), rng.sample(range(10, 50), 6), strict=True):
            amount = tenths / 10
            yield f"Fill up {amount} gallons of fuel.", f"[fillFuelTank(fuelAmount={amount})]"
            yield f"Navigate to {name} street.", f"[set_navigation(destination='{name} street')]"

    return state, turns()


Scene = Callable[[random.Random], tuple[dict[str, Any], Iterator[Turn]]]
SCENES: dict[str, Scene] = {
    "GorillaFileSystem": _files,
    "MathAPI": _numbers,
    "TwitterAPI": _tweets,
    "MessageAPI": _messages,
    "TicketAPI": _tickets,
    "TradingBot": _shares,
    "TravelAPI": _flights,
    "VehicleControlAPI": _car,
}


def draw(rng: random.Random, classes: Sequence[str]) -> Conversation:
    """A sound conversation of 2 to 6 turns over some of the classes."""
    state, writers = {}, []
    for name in classes:
        state[name], turns = SCENES[name](rng)
        writers.append(turns)
    wanted = rng.randrange(2, 7)
    found = [next(writers[i % len(writers)]) for i in range(wanted)]
    return {
        "state": {name: config for name, config in state.items() if config},
        "turns": [{"request": request, "calls": calls} for request, calls in found],
    }


def write(conversation: Conversation) -> str:
    """As a simulator writes it."""
    return json.dumps(conversation)


# -- broken ones ---------------------------------------------------------------------------------------

# A call that fails, and requests to do two things in no order, by class.
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
    """The first turn with other fields; a function makes a field of what it was."""

    def spoil(found: Conversation, classes: Sequence[str]) -> Conversation:
        first, *rest = found["turns"]
        made = {key: new(first[key]) if callable(new) else new for key, new in fields.items()}
        return {**found, "turns": [{**first, **made}, *rest]}

    return spoil


def _of_class(name: str, *turns: Turn):
    return lambda found, classes: _with(found, *turns) if name in classes else None


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
    return (
        json.dumps({**found, "state": {classes[0]: {}}})[:-1]
        + ', "x": '
        + 200 * "["
        + 200 * "]"
        + "}"
    )


def _again(found: Conversation, classes: Sequence[str]) -> Conversation | None:
    turn = next((_SEEN[name] for name in classes if name in _SEEN), None)
    return turn and _with(found, turn, (f"Once more, please: {turn[0]}", turn[1]))


# Name: (how it is spoilt, the reason for which it is turned away).
BROKEN: dict[str, tuple[Callable[[Conversation, Sequence[str]], Conversation | str | None], str]] = {
    "cut short": (lambda found, classes: write(found)[:-20], "unparsable"),
    "Python instead of JSON": (lambda found, classes: str(found), "unparsable"),
    "no turns key": (lambda found, classes: {"state": found["state"]}, "unparsable"),
    "a turn that is a text": (
        lambda found, classes: {**found, "turns": ["Do it."]}, "unparsable"),
    "deep nesting": (_deep, "too_deep"),
    "a class that there is not": (
        lambda found, classes: {**found, "state": {"Nothing": {}}}, "bad_state"),
    "a key that no class reads": (
        _state(lambda state, name: {**state, name: {**state[name], "secret_door": 1}}), "bad_state"),
    "a state of another kind": (_state(_other_kind), "bad_state"),
    "a state without a root": (
        lambda found, classes: {**found, "state": {**found["state"], "GorillaFileSystem": {"root": {}}}}
        if "GorillaFileSystem" in classes else None, "bad_state"),
    "a huge state": (
        _state(lambda state, name: {**state, name: {**state[name], "x": "a" * 9_000}}), "too_long"),
    "a thousand turns": (
        lambda found, classes: {**found, "turns": [{}] * 1_000}, "too_many_turns"),
    "no turns": (lambda found, classes: {**found, "turns": []}, "empty_turn"),
    "a turn without calls": (_first(calls="[]"), "empty_turn"),
    "a turn without a request": (_first(request=" ?! "), "empty_turn"),
    "a request of thousands of letters": (_first(request="a " * 2_000), "too_long"),
    "fifty calls": (
        _first(calls=lambda calls: f"[{', '.join([calls[1:-1]] * 50)}]"), "too_many_calls"),
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
        _of_class("GorillaFileSystem", ("Find what is called nowhere.", "[find(path='.', name='nowhere')]")),
        "no_effect"),
    "a needless look": (
        _of_class("GorillaFileSystem", (
            "Make a folder named last.", "[find(path='.', name='nowhere'), mkdir(dir_name='last')]")),
        "needless_call"),
    "a priority that nobody told": (
        _of_class("TicketAPI", ("Open a ticket titled 'Late'.", "[create_ticket(title='Late', priority=5)]")),
        "not_asked"),
    "a text that nobody told": (
        _of_class("TwitterAPI", (
            "Tweet something about rain.",
            "[post_tweet(content='Nothing beats the smell of rain on hot asphalt')]")),
        "not_asked"),
}  # fmt: skip


def spoil(rng: random.Random, name: str, classes: Sequence[str]) -> str | None:
    """A conversation that is broken in one way; None where the classes do not allow it."""
    found = BROKEN[name][0](draw(rng, classes), classes)
    return found if found is None or isinstance(found, str) else write(found)
