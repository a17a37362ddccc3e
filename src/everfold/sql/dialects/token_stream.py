"""The parser's token stream: look ahead, consume tokens, raise errors, locate nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, TypeVar

from everfold.errors import EverfoldError, Span, SqlError, UnsupportedFeature, suggest_name
from everfold.limits import MAX_PARTS, too_complex_error
from everfold.sql import syntax
from everfold.sql.dialects.keywords import AFTER_A_RELATION, NOT_A_NAME, NOT_AN_ALIAS
from everfold.sql.dialects.suggestions import suggest_alternative, suggest_flink
from everfold.sql.dialects.tokens import Part, Token, TokenKind, scan

MAX_DEPTH = 150
"""Maximum height of a tree. Code that recurses over trees relies on it."""
MAX_NESTING = 64
"""Maximum nesting of parentheses, calls and subqueries; a query counts twice.

The parser needs up to ten Python frames per level.
"""

N = TypeVar("N", bound=syntax.Node)
T = TypeVar("T")

_QUOTED_WORD = re.compile(r"`([A-Z]+)`")
NAME_TOKENS = (TokenKind.WORD, TokenKind.QUOTED)
"""The kinds of tokens that are names."""


class TokenStream:
    """A text, its tokens and their keys, and the index of the next token (`at`).

    For the formatter, it records the indexes of tokens that are names and functions' names, and the
    ranges of tokens that are one name or value together, whose spaces matter.
    """

    measures: ClassVar[bool] = False
    """Whether a number may be followed by letters: `10m`."""

    def __init__(self, text: str, source: str, part: Part | None = None) -> None:
        self.text = text
        self.start = 0 if part is None else part.start
        self.source = source
        self.tokens = scan(text, source, part, measures=self.measures)
        self.keys = [token.key for token in self.tokens]
        self.closing = _closing(self.keys)
        self.at = 0
        self.names: set[int] = set()
        self.functions: set[int] = set()
        self.joined: dict[int, int] = {}
        self._last_alias: tuple[int, tuple[str, ...]] | None = None
        self._depth = 0
        self._parts = 0

    # --- looking ----------------------------------------------------------------------------------

    def key(self, ahead: int = 0) -> str:
        """Return the key of the next token, or of one `ahead` tokens further; empty at the end."""
        at = self.at + ahead
        return self.keys[at] if at < len(self.keys) else ""

    def kind(self, ahead: int = 0) -> TokenKind | None:
        """Return the kind of the next token, or of one `ahead` tokens further; None at the end."""
        at = self.at + ahead
        return self.tokens[at].kind if at < len(self.tokens) else None

    def sees(self, *keys: str) -> bool:
        """Return whether these keys come next, in this order."""
        return self.keys[self.at : self.at + len(keys)] == list(keys)

    @property
    def is_at_end(self) -> bool:
        """Whether no token is left."""
        return self.at >= len(self.tokens)

    # --- taking -----------------------------------------------------------------------------------

    def take(self) -> Token:
        """Consume and return the next token; there must be one."""
        token = self.tokens[self.at]
        self.at += 1
        return token

    def accept(self, *keys: str) -> bool:
        """Consume these keys if all of them come next."""
        if self.sees(*keys):
            self.at += len(keys)
            return True
        return False

    def one_of(self, *keys: str) -> str | None:
        """Consume the next token if it is one of these words, and return which."""
        key = self.key()
        if key in keys:
            self.at += 1
            return key
        return None

    def expect(self, *keys: str) -> None:
        """Consume these keys; raise a syntax error if others come next."""
        for key in keys:
            if not self.accept(key):
                raise self.expected_error(f"`{key}`")

    def expect_one_of(self, *keys: str) -> str:
        """Consume and return one of these words; raise a syntax error if another comes next."""
        found = self.one_of(*keys)
        if found is None:
            raise self.expected_error(" or ".join(f"`{key}`" for key in keys))
        return found

    def string(self, what: str) -> str:
        """Consume a string literal; return its value."""
        if self.kind() is not TokenKind.STRING:
            raise self.expected_error(f"{what}, in single quotes")
        return self.take().text

    def identifier(self, what: str, reserved: frozenset[str] = NOT_A_NAME) -> syntax.Identifier:
        """Consume a name."""
        token = self.tokens[self.at] if not self.is_at_end else None
        if token is None or token.kind not in NAME_TOKENS or self.key() in reserved:
            raise self.expected_error(what)
        if not token.text:
            raise self.expected_error(what, help_text="a name has at least one character")
        self.names.add(self.at)
        self.at += 1
        return syntax.Identifier(token.text, span=self.span(self.at - 1))

    def implicit_alias(self, what: str, instead: tuple[str, ...]) -> syntax.Identifier:
        """Consume an alias without AS.

        `instead` are the keywords that may come here: the alias may be one of them, misspelled.
        """
        self._last_alias = self.at, instead
        return self.identifier(what)

    def parse_list(self, parse: Callable[[], T]) -> tuple[T, ...]:
        """Parse one or more items separated by commas."""
        found = [parse()]
        while self.accept(","):
            found.append(parse())
        return tuple(found)

    def parse_enclosed_list(self, parse: Callable[[], T]) -> tuple[T, ...]:
        """Parse one or more items separated by commas, in parentheses."""
        self.expect("(")
        found = self.parse_list(parse)
        self.expect(")")
        return found

    # --- positions --------------------------------------------------------------------------------

    def span(self, first: int, last: int | None = None) -> Span:
        """Return the span from token `first` to token `last` (default: the last one consumed)."""
        last = self.at - 1 if last is None else last
        if not self.tokens:
            return Span(0, len(self.text), self.source, self.text)
        first, last = min(first, len(self.tokens) - 1), min(last, len(self.tokens) - 1)
        return Span(self.tokens[first].start, self.tokens[max(first, last)].end, self.source, self.text)

    def here(self) -> Span:
        """Return the span of the next token; at the end, the position after the last one."""
        if not self.is_at_end:
            return self.span(self.at, self.at)
        end = self.tokens[-1].end if self.tokens else 0
        return Span(end, end, self.source, self.text)

    def slice(self, first: int) -> str:
        """Return the exact text from token `first` to the last one consumed."""
        span = self.span(first)
        return self.text[span.start : span.end]

    # --- limits and errors ------------------------------------------------------------------------

    @contextmanager
    def nested(self, levels: int = 1) -> Iterator[None]:
        """Enter the grammar by so many levels; raise `too-deep` beyond the limit."""
        self._depth += levels
        if self._depth > MAX_NESTING:
            self._depth = 0
            raise too_deep_error(self.here(), MAX_NESTING)
        try:
            yield
        finally:
            self._depth -= levels

    def expected_error(self, what: str, help_text: str | None = None) -> EverfoldError:
        """Return the syntax error for an unexpected next token."""
        if help_text is None and (misspelled := self._misspelled_keyword_error()) is not None:
            return misspelled
        before = self.keys[self.at - 1] if 0 < self.at <= len(self.keys) else ""
        if help_text is None and before == "," and (self.kind() in (TokenKind.WORD, None) or self.key() in (")", ";")):
            help_text = "is there an extra comma before it?"
        if help_text is None and self.key() in NOT_A_NAME and "name" in what:
            help_text = f"to use `{self.take().text}` as a name, put it in backticks"
            self.at -= 1
        if help_text is None:
            help_text = suggest_flink("::" if self.sees(":", ":") else self.key())
        if help_text is None and self.kind() is TokenKind.WORD and self.key() not in NOT_AN_ALIAS:
            clauses = ("FROM", *AFTER_A_RELATION) if "the rest of" in what else ()
            help_text = suggest_name(self.key(), (*_QUOTED_WORD.findall(what), *clauses))
        return SqlError.of("syntax", f"expected {what}, found {self.describe_next()}", self.here(), help_text)

    def _misspelled_keyword_error(self) -> EverfoldError | None:
        """Return the error for an alias just before the next token that was meant as a keyword.

        `FROM t WEHRE (a > 1)` reads like an alias with a list of columns, so the error may come
        three tokens later.
        """
        if self._last_alias is None or suggest_flink(self.key()) is not None:
            return None
        at, keywords = self._last_alias
        distance = self.at - at
        if not (distance == 1 or (distance in (2, 3) and self.keys[at + 1] == "(")):
            return None
        word = self.tokens[at].text
        near = suggest_name(word, keywords) if self.tokens[at].kind is TokenKind.WORD else None
        if near is not None:
            return SqlError.of("syntax", f"unexpected `{word}`", self.span(at, at), near)
        if distance == 1 and self.key() == "(":
            help_text = f"is a comma missing before `{word}`?"
            return SqlError.of("syntax", f"unexpected `(` after the alias `{word}`", self.span(at, at), help_text)
        return None

    def describe_next(self) -> str:
        """Describe the next token for a message."""
        if self.is_at_end:
            return "the end of the script"
        token = self.tokens[self.at]
        match token.kind:
            case TokenKind.STRING | TokenKind.UNICODE | TokenKind.HEX:
                return f"the string {self.slice_of(token)}"
            case TokenKind.NUMBER:
                return f"the number {token.text}"
            case _:
                return "`;`, the end of the statement" if token.key == ";" else f"`{token.text}`"

    def slice_of(self, token: Token) -> str:
        """Return a token as written, shortened to 40 characters."""
        raw = self.text[token.start : token.end]
        return raw if len(raw) <= 40 else raw[:37] + "…'"

    def unsupported_error(self, code: str, what: str, first: int, help_text: str | None = None) -> EverfoldError:
        """Return the error for valid SQL that everfold does not support.

        `what` starts with the words of the construct.
        """
        span = self.span(first, max(first, self.at - 1))
        return UnsupportedFeature.of(code, f"{what} is not supported", span, help_text or suggest_alternative(what))

    def check_size(self, tree: N) -> N:
        """Return the tree; raise if it is too high, or if it makes the script too large."""
        stack: list[tuple[syntax.Node, int]] = [(tree, 1)]
        while stack:
            node, height = stack.pop()
            self._parts += 1
            if self._parts > MAX_PARTS:
                what = "its queries have more names, values, operators and clauses"
                raise too_complex_error(what, MAX_PARTS, self.span(0, 0), "split it into several scripts")
            if height > MAX_DEPTH:
                raise too_deep_error(node.span, MAX_DEPTH)
            stack += ((child, height + 1) for child in syntax.children(node))
        return tree


def too_deep_error(span: Span | None, levels: int) -> EverfoldError:
    """Return the error for an expression or query with too many levels."""
    message = f"this is nested too deeply: at most {levels} levels are allowed"
    return SqlError.of("too-deep", message, span, "split it with a view or WITH")


def _closing(keys: list[str]) -> dict[int, int]:
    """Map the index of each opening parenthesis to that of its closing one."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for at, key in enumerate(keys):
        if key == "(":
            opened.append(at)
        elif key == ")" and opened:
            found[opened.pop()] = at
    return found
