"""The part of PDDL that ALFWorld's problem files use: facts of the initial state, and the goal.

Format: `pddl_problem` in a game.tw-pddl file of json_2.1.1.  Names are in lower case, as Fast Downward
reads them.
"""

import dataclasses
import re
from typing import Any

_TOKEN = re.compile(r"[()]|[^\s()]+")
_COMMENT = re.compile(r";[^\n]*")


@dataclasses.dataclass(frozen=True)
class Problem:
    """Initial facts, each (predicate, argument, ...), and the goal as nested lists; lower case."""

    facts: tuple[tuple[str, ...], ...]
    goal: Any


def parse(text: str) -> Problem:
    """Reads a problem; ValueError if the text is not one.  Facts about distances are left out."""
    tree = _tree(_COMMENT.sub("", text).lower())
    parts = [part for part in tree[1:] if isinstance(part, list) and part]
    sections = {part[0]: part[1:] for part in parts if isinstance(part[0], str)}
    if tree[:1] != ["define"] or ":init" not in sections or len(sections.get(":goal", ())) != 1:
        raise ValueError("expected (define ... (:init ...) (:goal ...))")
    facts = []
    for fact in sections[":init"]:
        if not isinstance(fact, list) or not fact:
            raise ValueError(f"unexpected {str(fact)[:80]} in :init")
        if fact[0] == "=":  # (= (distance a b) 5), (= (total-cost) 0)
            continue
        if not all(isinstance(part, str) for part in fact):
            raise ValueError(f"unexpected {str(fact)[:80]} in :init")
        facts.append(tuple(fact))
    return Problem(tuple(facts), sections[":goal"][0])


def atoms(tree: Any) -> list[tuple[str, ...]]:
    """All flat lists of words in a goal, in order: its conditions."""
    if not isinstance(tree, list):
        return []
    if tree and all(isinstance(part, str) for part in tree):
        return [tuple(tree)]
    return [atom for part in tree for atom in atoms(part)]


def _tree(text: str) -> list[Any]:
    stack: list[list[Any]] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                # The published files have one closing bracket too many at the very end.
                break
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    if len(stack) != 1 or len(stack[0]) != 1 or not isinstance(stack[0][0], list):
        raise ValueError("brackets do not match")
    return stack[0][0]
