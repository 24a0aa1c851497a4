"""Decodes a Java or JavaScript call such as `A.f(x=1, y=new int[]{1, 2})` without running it.

BFCL decodes these two languages with tree-sitter (`model_handler/parser/{java,js}_parser.py`), and
an argument's value is its source text.  This is a small recursive-descent reader of the expressions
that such arguments are made of, and of the statements that a call may stand in.  Of several calls one
counts, as there: in JavaScript the first statement that is a call and nothing else, in Java the first call
wherever it stands.  Comments between arguments and statements are passed over.

It differs from the official decoder
  * where that one depends on tree-sitter's error recovery: tree-sitter rejects some correct Java calls only
    because they lack a semicolon, and reads text that is not ASCII at wrong offsets.  Here both are read
    as written.  Other broken text that it mends is refused;
  * beside statements other than expressions, assignments, declarations of one variable, `return` and
    `throw`, and in Java in blocks and classes: there the call is found, here the answer is refused.
"""

from __future__ import annotations

import itertools
import re

from genenv_jax.benchmarks.base import TOO_DEEP, UNPARSABLE, Rejection
from genenv_jax.benchmarks.bfcl.source_tokens import MalformedError, tokens
from genenv_jax.benchmarks.safe_parse import MAX_CHARS, bracketed, check_text

POSITIONAL = "*"  # key of an argument that has no name
_MAX_DEPTH = 48
_BINARY = frozenset("+ - * / % == != === !== < > <= >= && || & | ^ << ?? ** instanceof in".split())
_ASSIGN = frozenset("= += -= *= /= %= &= |= ^= <<= >>= >>>= **= &&= ||= ??=".split())
_PREFIX = {
    "java": frozenset(("-", "+", "!", "~", "++", "--")),
    "javascript": frozenset(
        ("-", "+", "!", "~", "++", "--", "typeof", "void", "delete", "await", "yield", "...")
    ),
}
_RESERVED = {
    "java": frozenset(
        "class enum extends implements import package throws while do for if else try catch".split()
    ),
    "javascript": frozenset(
        "class extends import export while do for if else try catch var const return".split()
    ),
}
_KEYWORDS = frozenset(("return", "throw"))  # before the value of a statement
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_AFTER_OPERAND = _BINARY | _ASSIGN | {".", "?.", "(", "[", "?"}
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_SUPPLIES_SEMICOLON = 10  # characters of the name that follows


class _Reader:
    """Reads expressions from tokens; each method returns the text that BFCL keeps of its node."""

    def __init__(self, source: str, language: str):
        self.source = source
        self.language = language
        self.tokens = tokens(source, language)
        self.index = 0
        self.depth = 0
        self.found: dict[str, dict[str, str]] | None = None  # the call that counts

    def peek(self, ahead: int = 0) -> str:
        """Text of a coming token; "" past the end."""
        index = self.index + ahead
        return self.tokens[index].text if index < len(self.tokens) else ""

    def kind(self, ahead: int = 0) -> str:
        """Kind of a coming token; "" past the end."""
        index = self.index + ahead
        return self.tokens[index].kind if index < len(self.tokens) else ""

    def take(self, *expected: str) -> str:
        """Consumes one token, which must be one of `expected` if any are given."""
        text = self.peek()
        if not text or (expected and text not in expected):
            raise MalformedError(f"expected {' or '.join(expected) or 'more'}, got {text!r}")
        self.index += 1
        return text

    def raw(self, start: int) -> str:
        """Source text from token `start` to the last consumed one."""
        return self.source[self.tokens[start].start : self.tokens[self.index - 1].end]

    def balanced(self) -> str:
        """Consumes a bracketed group whose inside is not looked at (a block, parameters)."""
        start = self.index
        if self.awaits() and self.peek() == "{":
            raise MalformedError("a block before the call")
        expected = []
        while True:
            text = self.take()
            if self.tokens[self.index - 1].kind == "symbol":
                if text in _CLOSING:
                    expected.append(_CLOSING[text])
                elif text in (")", "]", "}") and expected.pop() != text:
                    raise MalformedError("brackets do not match")
            if not expected:
                break
        return "".join(token.text for token in self.tokens[start : self.index])

    def expression(self) -> str:
        """An expression: operands joined by operators, a conditional, an assignment, a lambda."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise RecursionError
        text = self.operand()
        while True:
            symbol = self.peek()
            if symbol == ">" and self.peek(1) == ">":
                text += self.take() + self.take() + self.operand()
            elif symbol in _BINARY or symbol in _ASSIGN:
                text += self.take() + self.operand()
            elif symbol == "?":
                text += self.take() + self.expression() + self.take(":") + self.operand()
            else:
                break
        self.depth -= 1
        return text

    def operand(self) -> str:
        """Prefix operators, a primary expression and what follows it: members, calls, indices."""
        text = ""
        while self.peek() in _PREFIX[self.language] and self.kind() != "string":
            text += self.take()
        if self.is_lambda():
            return text + self.function()
        start = self.index
        counts = self.awaits() and self.is_call()
        if counts:
            self.found = {}  # calls among its arguments do not count
            self.found = self.call()
        rest = self.raw(start) if counts else self.primary()
        while True:
            symbol = self.peek()
            if symbol in (".", "?.", "::") and self.kind(1) == "name":
                rest += self.take() + self.take()
            elif symbol == "(" and self.callable(start):
                if counts or self.awaits():
                    raise MalformedError("a call of another expression than a name")
                self.arguments()
                rest = self.raw(start)  # a call keeps its source text, white space included
            elif symbol == "[":
                rest += self.take() + self.expression() + self.take("]")
            elif symbol in ("++", "--"):
                rest += self.take()
            else:
                return text + rest

    def callable(self, start: int) -> bool:
        """Whether "(" after the operand that began at token `start` is a call."""
        last = self.tokens[self.index - 1]
        return last.kind == "name" or (self.language == "javascript" and self.index > start)

    def awaits(self) -> bool:
        """Whether the next call counts wherever it stands: in Java the first."""
        return self.language == "java" and self.found is None

    def is_lambda(self) -> bool:
        """Whether a function literal comes next."""
        arrow = "->" if self.language == "java" else "=>"
        if self.kind() == "name":
            if self.language == "javascript" and self.peek() in ("function", "async"):
                return self.peek(1) not in (",", ")", "")
            return self.peek(1) == arrow
        if self.peek() != "(":
            return False
        depth = 0
        for index in range(self.index, len(self.tokens)):
            text = self.tokens[index].text
            depth += (text == "(") - (text == ")")
            if not depth:
                return index + 1 < len(self.tokens) and self.tokens[index + 1].text == arrow
        return False

    def function(self) -> str:
        """A lambda, an arrow function or a `function` expression."""
        text = ""
        if self.peek() == "async":
            text += self.take()
        if self.peek() == "function":
            text += self.take()
            if self.peek() == "*":
                text += self.take()
            if self.kind() == "name":
                text += self.take()
            if self.peek() != "(":
                raise MalformedError("function without parameters")
            text += self.balanced()
            if self.peek() != "{":
                raise MalformedError("function without a body")
            return text + self.balanced()
        text += self.balanced() if self.peek() == "(" else self.take()
        text += self.take("->", "=>")
        return text + (self.balanced() if self.peek() == "{" else self.expression())

    def primary(self) -> str:
        """A literal, a name, a group, a collection or an object creation."""
        kind, symbol = self.kind(), self.peek()
        if kind in ("string", "number"):
            return self.take()
        if symbol == "new":
            return self.creation()
        if kind == "name":
            if symbol in _RESERVED[self.language]:
                raise MalformedError(f"reserved word {symbol}")
            return self.take()
        if symbol == "(":
            text = self.take() + self.expression()
            while self.language == "javascript" and self.peek() == ",":
                text += self.take() + self.expression()
            text += self.take(")")
            if self.language == "java" and self.kind() in ("name", "string", "number"):
                text += self.operand()  # what was in parentheses is the type of a cast
            return text
        if self.language == "javascript" and symbol == "[":
            return self.sequence("[")
        if self.language == "javascript" and symbol == "{":
            return self.object()
        raise MalformedError(f"unexpected {symbol!r}")

    def sequence(self, opening: str) -> str:
        """A bracketed list of expressions, perhaps with a trailing comma."""
        closing = _CLOSING[opening]
        text = self.take(opening)
        while self.peek() != closing:
            if self.peek() == "," and self.language == "javascript" and opening == "[":
                text += self.take()  # a hole
                continue
            text += self.initializer() if opening == "{" else self.expression()
            if self.peek() != closing:
                text += self.take(",")
        return text + self.take()

    def initializer(self) -> str:
        """An element of a Java array initialiser."""
        return self.sequence("{") if self.peek() == "{" else self.expression()

    def object(self) -> str:
        """A JavaScript object literal."""
        start = self.index
        self.take("{")
        while self.peek() != "}":
            if self.peek() == "...":
                self.operand()
            elif self.peek() == "[":
                self.sequence("[")
                self.take(":")
                self.expression()
            else:
                if self.kind() not in ("name", "string", "number"):
                    raise MalformedError("object key")
                shorthand = self.kind() == "name"
                self.take()
                if self.peek() == ":":
                    self.take()
                    self.expression()
                elif self.peek() == "(":
                    self.balanced()
                    self.balanced()
                elif not shorthand:
                    raise MalformedError("object key without a value")
            if self.peek() != "}":
                self.take(",")
        self.take()
        return self.raw(start)

    def creation(self) -> str:
        """`new T(...)`, with a body that is dropped, or `new T[]{...}`."""
        self.take("new")
        if self.kind() != "name":
            if self.language == "javascript":
                return "new " + self.primary()  # any expression may stand for the constructor
            raise MalformedError("new without a type")
        name = self.take()
        while self.peek() == "." and self.kind(1) == "name":
            name += self.take() + self.take()
        if self.peek() == "<":
            name += self.type_arguments()
        if self.language == "java" and self.peek() == "[":
            while self.peek() == "[":
                self.take()
                self.take("]")
            return f"new {name}[]{self.sequence('{')}"
        arguments = []
        if self.peek() == "(":
            arguments = self.arguments()
        elif self.language == "java":
            raise MalformedError("new without arguments")
        if self.language == "java" and self.peek() == "{":
            self.balanced()
        return f"new {name}({', '.join(arguments)})"

    def type_arguments(self) -> str:
        """`<A, B<C>>` without its white space."""
        text = self.take("<")
        depth = 1
        while depth:
            symbol = self.take()
            if self.tokens[self.index - 1].kind != "name" and symbol not in "<>,?.[]&":
                raise MalformedError("type argument")
            depth += (symbol == "<") - (symbol == ">")
            text += symbol
        return text

    def separator(self) -> None:
        """The comma between two arguments; Java has none after the last."""
        if self.peek() != ")":
            self.take(",")
            if self.peek() == ")" and self.language == "java":
                raise MalformedError("trailing comma")

    def arguments(self) -> list[str]:
        """The arguments of a call, each as kept text."""
        self.take("(")
        found = []
        while self.peek() != ")":
            found.append(self.expression())
            self.separator()
        self.take()
        return found

    def named_arguments(self) -> dict[str, str]:
        """The arguments of the call that is being decoded, by name."""
        self.take("(")
        found: dict[str, str] = {}
        while self.peek() != ")":
            start = self.index
            target = self.target()
            if target:
                name = target
                self.take("=")
                begin, start = start, self.index
                value = self.expression()
                self.reject_comments(begin, self.index)
                if self.language == "javascript":
                    value = _unquoted_raw(self.raw(start))
                elif self.index == start + 1 and self.kind(-1) == "string":
                    value = value[1:-1]
            else:
                name, value = POSITIONAL, self.expression()
                is_name = self.index == start + 1 and self.kind(-1) == "name"
                if not is_name or value in ("false", "null"):
                    name = ""  # the official decoder passes over other unnamed arguments
            if name and name in found:
                raise MalformedError(f"repeated argument {name}")
            if name:
                found[name] = value
            self.separator()
        self.take()
        return found

    def target(self) -> str:
        """Consumes the name on the left of a coming `=`; "" where there is none."""
        ahead = 1
        if self.kind() != "name":
            return ""
        while self.peek(ahead) == "." and self.kind(ahead + 1) == "name":
            ahead += 2
        if self.peek(ahead) != "=":
            return ""
        if self.peek() in _RESERVED[self.language]:
            raise MalformedError(f"reserved word {self.peek()}")
        start = self.index
        self.index += ahead
        return self.raw(start)

    def call(self) -> dict[str, dict[str, str]]:
        """The call that comes next; `is_call` says whether there is one."""
        start = self.index
        while self.peek() != "(":
            self.take()
        self.reject_comments(start, self.index + 1)
        name = self.raw(start)
        return {name: self.named_arguments()}

    def is_call(self) -> bool:
        """Whether a name and "(" come next."""
        ahead = 1
        if self.kind() != "name" or self.peek() in _RESERVED[self.language] | _KEYWORDS:
            return False
        while self.peek(ahead) == "." and self.kind(ahead + 1) == "name":
            ahead += 2
        return self.peek(ahead) == "("

    def program(self) -> dict[str, dict[str, str]]:
        """The call that counts among the statements, all of which must be readable."""
        while self.index < len(self.tokens):
            if self.peek() == ";":
                self.take()
                continue
            self.statement()
            self.end_statement()
        if self.found is None:
            raise MalformedError("no call")
        return self.found

    def statement(self) -> None:
        """One statement without its end."""
        if self.peek() in _KEYWORDS:
            self.take()
            if self.index == len(self.tokens) or self.peek() == ";" or self.breaks_line():
                return
        elif self.declares():
            if self.peek() != "=":
                return
            self.take()
        elif self.language == "javascript" and self.found is None and self.is_call():
            self.found = self.call()
            if self.peek() in _AFTER_OPERAND:
                raise MalformedError("not a call alone")
            return
        self.expression()

    def declares(self) -> bool:
        """Consumes the type and the name of a variable's declaration, if they come next."""
        start = self.index
        if self.language == "javascript":
            if self.peek() in ("const", "let", "var") and self.kind(1) == "name":
                self.index += 2
                return True
            return False
        try:
            if self.peek() == "final":
                self.take()
            if self.kind() == "name":
                self.take()
                while self.peek() == "." and self.kind(1) == "name":
                    self.take(), self.take()
                if self.peek() == "<":
                    self.type_arguments()
                while self.peek() == "[" and self.peek(1) == "]":
                    self.take(), self.take()
                if self.kind() == "name":
                    self.take()
                    return True
        except MalformedError:
            pass  # a comparison
        self.index = start
        return False

    def breaks_line(self) -> bool:
        """Whether a line break, and no comment over several lines, comes before the next token."""
        gap = self.source[self.tokens[self.index - 1].end : self.tokens[self.index].start]
        return self.language == "javascript" and "\n" in _BLOCK_COMMENT.sub("", gap)

    def end_statement(self) -> None:
        """The end of a statement: a semicolon, in JavaScript a line break, or the end of the text."""
        if self.index == len(self.tokens) or self.peek() == ";" or self.breaks_line():
            return
        # tree-sitter supplies a semicolon only where leaving out the name that follows would cost it more.
        after_call = self.language == "java" and self.tokens[self.index - 1].text == ")"
        if not (after_call and len(self.peek()) >= _SUPPLIES_SEMICOLON and self.is_call()):
            raise MalformedError("text after the statement")

    def reject_comments(self, start: int, end: int) -> None:
        """MalformedError for a comment between tokens `start` and `end`, whose text it would be a part of."""
        for token, following in itertools.pairwise(self.tokens[start:end]):
            if self.source[token.end : following.start].strip():
                raise MalformedError("a comment inside a call's name or an argument")


def _unquoted_raw(text: str) -> str:
    quoted = any(text.startswith(quote) and text.endswith(quote) for quote in "\"'")
    return text[1:-1] if quoted else text


def decode_source_calls(
    text: str, language: str, max_chars: int = MAX_CHARS
) -> list[dict[str, dict[str, str]]] | Rejection:
    """Decodes what a model wrote as one Java or JavaScript call, the one that counts officially.

    Args:
      text: `[f(a=1, b="x")]`; backticks, spaces and the outer brackets are optional, and the call may stand
        among other statements (see above).
      language: "java" or "javascript".
      max_chars: longest text to accept, in characters.

    Returns:
      `[{name: {argument: source text}}]`, string literals without their quotes, or a `Rejection`
      (EMPTY, NOT_TEXT, TOO_LONG, TOO_DEEP, UNPARSABLE).
    """
    rejection = check_text(text, max_chars)
    if rejection:
        return rejection
    text = bracketed(text)
    try:
        return [_Reader(text[1:-1], language).program()]
    except RecursionError:
        return Rejection(TOO_DEEP, f"expressions nested beyond {_MAX_DEPTH}")
    except (MalformedError, IndexError) as error:
        return Rejection(UNPARSABLE, str(error)[:200])
