"""Environments with Gymnasium's interface, imported without JAX."""

import os
import random
import time


class Doors:
    """Doors to open in order, each paying its share; a wrong one ends the episode."""

    def reset(self, *, seed=None, options=None):
        rng = random.Random(seed)
        doors = options["doors"] if options else rng.choices(range(1, 6), k=rng.randint(1, 4))
        if not 0 < len(doors) < 6 or not all(type(door) is int and 0 < door < 6 for door in doors):
            raise ValueError("expected 1 to 5 doors from 1 to 5")
        self.closed, self.share = list(doors), 1 / len(doors)
        solution = [f"open {door}" for door in doors]
        return f"Open {doors}.", {"options": {"doors": doors}, "solution": solution}

    def step(self, text):
        door = int(text.removeprefix("open "))
        if door == 7:
            time.sleep(600)
        if door == 8:
            os._exit(1)
        right = door == self.closed.pop(0)
        return "open", self.share * right, not right or not self.closed, False, {}


class Guess:
    """A number that only the seed decides: no task can be proven."""

    def reset(self, *, seed=None):
        self.number = random.Random(seed).randint(1, 9)
        return "Guess my number.", {}

    def step(self, text):
        if text == "nothing":
            return "", float("nan"), False, False, {}
        if text == "give up":
            return "", -3, False, True, {}
        return "no", 2 * (text == str(self.number)), text == str(self.number), False, {}


class Unsolved(Doors):
    def reset(self, **of):
        observation, info = super().reset(**of)
        return observation, info | {"solution": ["open 9"]}


class Drifting(Doors):
    def reset(self, **of):
        observation, info = super().reset(**of)
        return f"{observation} {time.monotonic_ns()}", info


class Several(Doors):
    def reset(self, **of):
        observation, info = super().reset(**of)
        return observation, info | {"solution": ["open 1\nopen 2"]}


class Listed(Doors):
    def reset(self, **of):
        observation, info = super().reset(**of)
        return observation, info | {"options": [1]}


class Infinite(Doors):
    def reset(self, **of):
        observation, info = super().reset(**of)
        return observation, info | {"options": {"limit": float("inf")}}


class Number(Doors):
    def reset(self, **of):
        return 3, {}


class Old(Doors):
    def reset(self, **of):
        return super().reset(**of)[0]


class Broken:
    def __init__(self):
        raise RuntimeError("no engine")
