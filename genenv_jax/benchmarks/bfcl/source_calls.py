"""Decodes a Java or JavaScript call such as `A.f(x=1, y=new int[]{1, 2})` without running it.

It follows BFCL's parsers (`model_handler/parser/{java,js}_parser.py`) and uses the same tree-sitter grammars,
so it repairs broken text in the same way.  Only one call counts: in JavaScript the first statement that is
just a call, in Java the first call anywhere.  An argument's value is its source text.

The official Java parser differs: it rejects some short calls without a semicolon, and reads non-ASCII text at
wrong offsets.  Here both are read as written.
"""

import functools
import importlib
import importlib.util
from typing import Any

from genenv_jax.benchmarks.base import TOO_DEEP, UNPARSABLE, Rejection
from genenv_jax.benchmarks.safe_parse import bracketed, check_text

INSTALL = "pip install -e '.[bfcl]'"
POSITIONAL = "*"  # key of an argument that has no name
_MODULES = {"java": "tree_sitter_java", "javascript": "tree_sitter_javascript"}
_MAX_CHARS = 4_096  # broken texts can take quadratic time; references have up to 500
_MAX_DEPTH = 200  # of a syntax tree


class _UnreadError(Exception):
    """What is not read as a call: reason, detail."""


def require() -> None:
    """Raises ValueError with the remedy if the grammars are not installed."""
    for name in ("tree_sitter", *_MODULES.values()):
        if importlib.util.find_spec(name) is None:
            raise ValueError(f"BFCL's Java and JavaScript categories need the package {name}: {INSTALL}")


@functools.cache
def _language(name: str) -> Any:
    grammar = importlib.import_module(_MODULES[name])
    return importlib.import_module("tree_sitter").Language(grammar.language(), name)


def decode_source_calls(text: str, language: str) -> list[dict[str, dict[str, str]]] | Rejection:
    """Decodes a model's answer into one Java or JavaScript call, the one that counts officially.

    Backticks, spaces and the outer brackets of `[f(a=1, b="x")]` are optional, and other statements may
    surround the call.

    Returns:
      `[{name: {argument: source text}}]`, string literals without their quotes, or a `Rejection`
      (EMPTY, NOT_TEXT, TOO_LONG, TOO_DEEP, UNPARSABLE).
    """
    if rejection := check_text(text, _MAX_CHARS):
        return rejection
    source = bracketed(text)[1:-1]
    try:
        if language == "java":
            return [_java_call(_java_nodes(source))]
        return [_javascript_call(_nodes(source, language))]
    except _UnreadError as error:
        return Rejection(*error.args)


def _nodes(source: str, language: str) -> list[Any]:
    """All nodes of the syntax tree, parents before children."""
    parser = importlib.import_module("tree_sitter").Parser()
    parser.set_language(_language(language))
    found, waiting = [], [(parser.parse(source.encode()).root_node, 0)]
    while waiting:  # not recursive: the text controls the tree's depth
        node, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise _UnreadError(TOO_DEEP, f"expressions nested beyond {_MAX_DEPTH}")
        found.append(node)
        waiting += [(child, depth + 1) for child in reversed(node.children)]
    if any(node.is_error for node in found):
        raise _UnreadError(UNPARSABLE, "a syntax error")
    return found


def _java_nodes(source: str) -> list[Any]:
    """The nodes of a program, or of one call without its semicolon."""
    try:
        return _nodes(source, "java")
    except _UnreadError as error:
        if error.args[0] == TOO_DEEP:
            raise
        nodes = _nodes(f"{source}\n;", "java")
        statements = [node for node in nodes[0].children if not node.is_extra]
        calls = [statement.child(0).type for statement in statements if statement.children]
        if calls != ["method_invocation"] or nodes[0].has_error:
            raise
        return nodes


def _java_call(nodes: list[Any]) -> dict[str, dict[str, str]]:
    call = next((node for node in nodes if node.type == "method_invocation"), None)
    if call is None:
        raise _UnreadError(UNPARSABLE, "no call")
    owner = call.child_by_field_name("object")
    name = _text(call.child_by_field_name("name"))
    arguments = []
    for child in call.child_by_field_name("arguments").children:
        if child.type == "assignment_expression":
            arguments.append((_text(child.children[0]), _java_value(child.children[2])))
        elif child.type in ("identifier", "class_literal"):
            arguments.append((POSITIONAL, _text(child)))
    return {f"{_text(owner)}.{name}" if owner else name: _once_each(arguments)}


def _java_value(node: Any, nested: bool = False) -> str:
    """The official text of a value: that of its parts, without some white space and class bodies."""
    if node is None:
        raise _UnreadError(UNPARSABLE, "an array or an object without a value")
    if node.type in ("string_literal", "character_literal"):
        return _text(node) if nested else _text(node)[1:-1]
    if node.type == "array_creation_expression":
        kind, value = (_java_value(node.child_by_field_name(f), True) for f in ("type", "value"))
        return f"new {kind}[]{value}"
    if node.type == "object_creation_expression":
        given = node.child_by_field_name("arguments")
        parts = [_java_value(each, True) for each in given.children if each.type not in ",()"]
        return f"new {_java_value(node.child_by_field_name('type'), True)}({', '.join(parts)})"
    if not node.children or node.type in ("class_literal", "method_invocation"):
        return _text(node)
    return "".join(_java_value(child, True) for child in node.children)


def _javascript_call(nodes: list[Any]) -> dict[str, dict[str, str]]:
    statements = [node for node in nodes[0].children if node.type == "expression_statement"]
    for call in (child for statement in statements for child in statement.children):
        if call.type != "call_expression":
            continue
        arguments = []
        for child in call.children[1].children:
            if child.type == "assignment_expression":
                value = _text(child.children[2])
                quoted = any(value.startswith(q) and value.endswith(q) for q in "\"'")
                arguments.append((_text(child.children[0]), value[1:-1] if quoted else value))
            elif child.type in ("identifier", "true"):
                arguments.append((POSITIONAL, _text(child)))
        return {_text(call.children[0]): _once_each(arguments)}
    raise _UnreadError(UNPARSABLE, "no call")


def _once_each(arguments: list[tuple[str, str]]) -> dict[str, str]:
    if len(dict(arguments)) < len(arguments):
        raise _UnreadError(UNPARSABLE, "repeated argument")
    return dict(arguments)


def _text(node: Any) -> str:
    return node.text.decode()
