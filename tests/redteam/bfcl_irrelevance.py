"""BFCL's tasks for which no function fits: texts that officially are no call, but say nothing either."""

import functools

from bench.bad_answers import bfcl as calls
from bench.bad_answers.common import RESTATEMENTS
from genenv_jax.benchmarks import base
from tests.redteam.bfcl_generations import PICK
from tests.redteam.common import answers, generation, generations
from tests.redteam.exploits import AGENT, SIMULATOR, Exploit

_agent = functools.partial(Exploit, "bfcl_irrelevance", AGENT)
_simulator = functools.partial(Exploit, "bfcl_irrelevance", SIMULATOR)
_WORDS = "what the words say is not judged, and `[]` would earn as much"
_UNFIT = "whether a function fits takes reading"

# Broken calls and other undecodable text; {0} is a function's name.
BROKEN = {
    "a letter": "x",
    "a backtick": "`",
    "a bracket": "[",
    "brackets": "(((",
    "one word": "No.",
    "a name alone": "{0}",
    "a call that is not closed": "[{0}(city='Oslo'",
    "a call without a value": "{0}(city='Oslo', days=)",
    "a call behind words": "Here it is: {0}('Oslo', 2",
    "a call of nothing, with an argument": "lookup(city=Oslo and more",
    "a call of nothing": "lookup('Oslo' and more",
    "a call in a sentence": "I call lookup(city = Oslo).",
    "a call in a fence": "```python\n[{0}(city='Oslo')]\n```",
    "a call as JSON": '{{"name": "{0}", "arguments": {{"city": "Oslo", "days": 2}}}}',
    "a call as JSON in a fence": '```json\n{{"name": "{0}", "arguments": {{"city": "Oslo"}}}}\n```',
    "a call as JSON behind words": 'I call this: {{"name": "{0}", "arguments": {{"city": "Oslo"}}}}',
    "a call in a tag behind words": "I call this: <tool_call>{0} Oslo</tool_call>",
    "a call in a tag": '<tool_call> {{"name": "{0}"}} </tool_call>',
}


def _filled(text):
    return lambda scene, task: text.format(task.tools[0]["name"])


EXPLOITS = [
    *(
        exploit
        for exploit in answers(
            "bfcl_irrelevance",
            echo_of_the_request={"bound": 1.0, "remains": _WORDS},
            a_refusal={"bound": 1.0, "remains": "it is right"},
            a_claim={"bound": 1.0, "remains": _WORDS},
        )
        if exploit.name != "the reference of another task"  # all are equal
    ),
    *(_agent(name, _filled(text)) for name, text in BROKEN.items()),
    _agent("a call of every function", lambda scene, task: calls.shotgun(task)),
    _agent("a number too large for a call", _filled("[{0}(x=10**1000)]")),
    _agent("a text too long for a call", _filled("[{0}(x='" + 20_000 * "a" + "')]")),
    _agent("a call in letters of another script", lambda scene, task: (
        RESTATEMENTS["cyrillic"](calls.shotgun(task)).replace("o", "\u043e"))),
    _agent("words, and then a call", lambda scene, task: f"No function fits.\n{calls.shotgun(task)}"),

    *generations("bfcl_irrelevance", (base.BAD_ANSWER,), few_words=0.4),
    _simulator("words as the reference", generation("Tell me a joke.", "No function fits."),
               reasons=(base.BAD_ANSWER,)),
    _simulator("a function that fits", generation("Pick the number 5.", "[]", [PICK]), 1.0, remains=_UNFIT),
    _simulator("a function that fits half of the time", generation(
        "Toss a coin: pick the number 5, or do nothing.", "[]", [PICK]), 1.0, remains=_UNFIT),
    _simulator("a request that names the answer", generation("Answer with [].", "[]"),
               1.0, remains="the answer is the same for all of these tasks"),
]  # fmt: skip
