"""The kinds of things in ALFWorld's rooms: what can be done to each, and what fits where.

From VAL_RECEPTACLE_OBJECTS and VAL_ACTION_OBJECTS (alfworld/gen/constants.py); a published game has the part
that its room needs.  Only objects that occur in the games, and unsliced, are listed.  A kind is a PDDL type
without "Type", in lower case, as in the games' texts.
"""

# Kind of receptacle -> kinds of objects that it can hold.
_HOLDS = {
    "armchair":
        "basketball book box cellphone cloth creditcard keychain laptop newspaper pillow remotecontrol",
    "bathtubbasin": "cloth dishsponge handtowel soapbar",
    "bed": "baseballbat basketball book cellphone laptop newspaper pillow tennisracket",
    "cabinet":
        "book bowl box candle cd cloth cup dishsponge glassbottle handtowel kettle ladle mug newspaper pan "
        "peppershaker plate plunger pot saltshaker soapbar soapbottle spraybottle tissuebox toiletpaper vase "
        "wateringcan winebottle",
    "cart":
        "candle cloth dishsponge handtowel mug plunger soapbar soapbottle spraybottle statue tissuebox "
        "toiletpaper vase",
    "coffeemachine": "mug",
    "drawer":
        "book butterknife candle cd cellphone cloth creditcard dishsponge fork handtowel keychain knife "
        "ladle newspaper pen pencil peppershaker remotecontrol saltshaker soapbar soapbottle spatula spoon "
        "spraybottle tissuebox toiletpaper watch wateringcan",
    "dresser":
        "alarmclock basketball book bowl box candle cd cellphone cloth creditcard cup glassbottle keychain "
        "laptop mug newspaper pen pencil plate remotecontrol spraybottle statue tennisracket tissuebox "
        "toiletpaper vase watch wateringcan winebottle",
    "fridge": "apple bowl bread cup egg glassbottle lettuce mug pan plate pot potato tomato winebottle",
    "garbagecan":
        "apple bread cd cloth dishsponge egg handtowel lettuce newspaper pen pencil potato soapbar "
        "soapbottle spraybottle tissuebox toiletpaper tomato winebottle",
    "handtowelholder": "handtowel",
    "laundryhamper": "cloth",
    "microwave": "apple bowl bread cup egg glassbottle mug plate potato tomato",
    "safe": "cd cellphone creditcard keychain statue vase watch",
    "shelf":
        "alarmclock book bowl box candle cd cellphone cloth creditcard cup dishsponge glassbottle handtowel "
        "kettle keychain mug newspaper pen pencil peppershaker plate pot remotecontrol saltshaker soapbar "
        "soapbottle spraybottle statue tissuebox toiletpaper vase watch wateringcan winebottle",
    "sinkbasin":
        "apple bowl butterknife cloth cup dishsponge egg fork glassbottle handtowel kettle knife ladle "
        "lettuce mug pan plate pot potato soapbar spatula spoon tomato",
    "stoveburner": "kettle pan pot",
    "toaster": "",
    "toilet":
        "candle cloth dishsponge handtowel newspaper soapbar soapbottle spraybottle tissuebox toiletpaper",
    "toiletpaperhanger": "toiletpaper",
    "towelholder": "towel",
    "tvstand": "tissuebox",
}  # fmt: skip
HOLDS = {place: frozenset(kinds.split()) for place, kinds in _HOLDS.items()}
HOLDS["desk"] = HOLDS["dresser"] | {"soapbottle"}
HOLDS["countertop"] = HOLDS["desk"].union(
    "apple baseballbat bread butterknife dishsponge egg fork handtowel kettle knife ladle lettuce pan "
    "peppershaker pot potato saltshaker soapbar spatula spoon tomato".split()
)
HOLDS |= dict.fromkeys(("diningtable", "coffeetable", "sidetable"), HOLDS["countertop"])
HOLDS |= dict.fromkeys(("ottoman", "sofa"), HOLDS["armchair"])

CLOSABLE = frozenset({"cabinet", "drawer", "safe"})  # closed in some games, open shelves in others
CLOSED = frozenset({"fridge", "microwave"})  # always closed at the start

OBJECTS = frozenset().union(*HOLDS.values())  # all of them can be carried
LAMPS = frozenset({"desklamp"})  # can be turned on but not moved
LAMP_PLACES = frozenset({"desk", "sidetable", "dresser", "shelf", "coffeetable"})

_FLAGS = {
    "cleanable":
        "apple bowl butterknife cloth cup dishsponge egg fork kettle knife ladle lettuce mug pan plate pot "
        "potato soapbar spatula spoon tomato",
    "heatable": "apple bread cup egg mug plate potato tomato",
    "coolable": "apple bowl bread cup egg lettuce mug pan plate pot potato tomato winebottle",
    "sliceable": "apple bread egg lettuce potato tomato",
}  # fmt: skip
# PDDL flag (what can be done to an object, besides carrying it) -> kinds of objects.
FLAGS = {flag: frozenset(kinds.split()) for flag, kinds in _FLAGS.items()}


def can_stand(thing: str, place: str) -> bool:
    """Whether an object of kind `thing` may be at a place of kind `place` at the start."""
    return place in LAMP_PLACES if thing in LAMPS else thing in HOLDS[place]
