"""Names of BFCL's categories, their scoring rules, and the rules for multi-turn categories."""

from collections.abc import Mapping
from typing import Any

NON_LIVE = {
    "v3": ("simple", "java", "javascript", "multiple", "parallel", "parallel_multiple"),
    "v4": (
        "simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple"
    ),
}  # fmt: skip
LIVE = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple")
RELEVANCE = ("irrelevance", "live_irrelevance", "live_relevance")
MULTI_TURN = (
    "multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context"
)  # fmt: skip

AST = "ast"  # official rule: the AST checker
CONVERSATION = "conversation"  # official rule: whole conversations, state and response
TURN_STATE = "turn_state"  # one turn alone, executed: state and response
STATIC_MATCH = "static_match"  # one turn alone, calls compared in order, texts as they are

# Option `multi_turn_rule` -> rule.
MULTI_TURN_RULES = {
    "conversation": CONVERSATION, "turn_state": TURN_STATE, "turn_static": STATIC_MATCH
}  # fmt: skip


def names(version: str) -> tuple[str, ...]:
    """Official names of the loadable categories; ValueError for an unknown version."""
    if version not in NON_LIVE:
        raise ValueError(f"BFCL version {version!r}: expected one of {', '.join(NON_LIVE)}")
    return (*NON_LIVE[version], *LIVE, *RELEVANCE, *MULTI_TURN)


def specification(kind: str, language: str, rule: str, truth: list[Any], **more: Any) -> dict[str, Any]:
    """The `Task.answer` of a task of the data set (`tasks.load`); `more`: what only some rules need."""
    common = {"kind": kind, "language": language, "rule": rule, "ground_truth": truth, "same_tools": True}
    return common | more


NO_CALL = ("irrelevance", "relevance")


def varies(spec: Mapping[str, Any]) -> bool:
    """Whether variations of a task may make more or fewer calls than it; `spec`: its `Task.answer`.

    Java and JavaScript have categories of one call only.
    """
    return spec["rule"] == AST and spec["language"] == "python" and spec["kind"] not in NO_CALL


def can_vary(category: str) -> bool:
    """Whether `varies` holds for the tasks of a category."""
    single = category not in MULTI_TURN and language_of(category) == "python"
    return single and kind_of(category) not in NO_CALL


def kind_and_category(seed_category: str, calls: int, tools: int) -> tuple[str, str]:
    """The rule and the category of a generated task for which `varies` holds.

    Args:
      seed_category: decides the family, "live_" or not.
      calls, tools: how many the generated task has, at least one of each.
    """
    live = seed_category.startswith("live_")
    parts = ["parallel"] * (calls > 1) + ["multiple"] * (tools > 1)
    kind = parts[0] if parts else "simple"
    if kind == "simple":
        parts = ["simple"] if live or seed_category == "simple" else ["simple_python"]
    return kind, "_".join(["live"] * live + parts)


def kind_of(category: str) -> str:
    """The rule that checks a category's answers (see `ast_checker.check`)."""
    if "irrelevance" in category:
        return "irrelevance"
    if "relevance" in category:
        return "relevance"
    if "parallel" in category or category in MULTI_TURN:
        return "parallel"
    return "multiple" if "multiple" in category else "simple"


def language_of(category: str) -> str:
    """The language of a category's calls."""
    if "javascript" in category:
        return "javascript"
    return "java" if "java" in category else "python"
