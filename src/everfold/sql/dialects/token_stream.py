"""The parser's place in the tokens: looking, taking, complaining, and building nodes that know where they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from everfold.errors import EverfoldError, Span, SqlError, UnsupportedFeature
from everfold.limits import MAX_PARTS, too_complex
from everfold.sql.dialects.keywords import NOT_A_NAME
from everfold.sql.dialects.suggestions import in_flink, instead_of
from everfold.sql.dialects.tokens import Part, scan

MAX_DEPTH = 150
"""How high a tree may be. Whatever recurses over trees relies on it."""
MAX_NESTING = 64
"""How deep parentheses, calls and sub-queries may nest (a query counts twice): a level takes the parser up to ten Python frames."""

E = TypeVar("E", bound=exp.Expression)
T = TypeVar("T")

NAMED = (TokenType.VAR, TokenType.IDENTIFIER)
"""What names are made of."""


class Cursor:
    """A text, its tokens, and the token that is next (`at`).

    `keys` has what the grammar compares: a word in capitals, a sign as it is, `""` for quoted names, texts and numbers and at the end.
    """

    measures: ClassVar[bool] = False
    """Whether a number may have letters behind it: `10m`."""

    def __init__(self, text: str, source: str, part: Part | None = None) -> None:
        self.text = text
        self.source = source
        self.tokens = scan(text, source, part, measures=self.measures)
        self.keys = [_key(token) for token in self.tokens]
        self.closing = _closing(self.keys)
        self.at = 0
        self._depth = 0
        self._parts = 0

    # --- looking ------------------------------------------------------------------------------------------------------

    def key(self, ahead: int = 0) -> str:
        """What the grammar compares, of the next token or one further ahead."""
        at = self.at + ahead
        return self.keys[at] if at < len(self.keys) else ""

    def kind(self, ahead: int = 0) -> TokenType | None:
        """The type of the next token or one further ahead, None at the end."""
        at = self.at + ahead
        return self.tokens[at].token_type if at < len(self.tokens) else None

    def sees(self, *keys: str) -> bool:
        """Whether these keys come next, in this order."""
        return self.keys[self.at : self.at + len(keys)] == list(keys)

    @property
    def done(self) -> bool:
        """Whether no token is left."""
        return self.at >= len(self.tokens)

    # --- taking -------------------------------------------------------------------------------------------------------

    def take(self) -> Token:
        """The next token; there must be one."""
        token = self.tokens[self.at]
        self.at += 1
        return token

    def accept(self, *keys: str) -> bool:
        """Takes these keys if they come next, all of them."""
        if self.sees(*keys):
            self.at += len(keys)
            return True
        return False

    def one_of(self, *keys: str) -> str | None:
        """Takes the next token if it is one of these words, and says which."""
        key = self.key()
        if key in keys:
            self.at += 1
            return key
        return None

    def expect(self, *keys: str) -> None:
        """Takes these keys; it is a syntax error if others come."""
        for key in keys:
            if not self.accept(key):
                raise self.expected(f"`{key}`")

    def expect_one_of(self, *keys: str) -> str:
        """Takes one of these words; it is a syntax error if another comes."""
        found = self.one_of(*keys)
        if found is None:
            raise self.expected(" or ".join(f"`{key}`" for key in keys))
        return found

    def string(self, what: str) -> str:
        """Takes a text in quotes."""
        if self.kind() is not TokenType.STRING:
            raise self.expected(f"{what}, in single quotes")
        return self.take().text

    def identifier(self, what: str, reserved: frozenset[str] = NOT_A_NAME) -> exp.Identifier:
        """Takes a name. Names are case-sensitive with and without backticks, so `quoted` is true of all."""
        token = self.tokens[self.at] if not self.done else None
        if token is None or token.token_type not in NAMED or self.key() in reserved:
            raise self.expected(what)
        if not token.text:
            raise self.expected(what, help_text="a name has at least one character")
        self.at += 1
        return self.node(exp.Identifier, self.at - 1, this=token.text, quoted=True)

    def listed(self, parse: Callable[[], T]) -> list[T]:
        """One or more, between commas."""
        found = [parse()]
        while self.accept(","):
            found.append(parse())
        return found

    def enclosed(self, parse: Callable[[], T]) -> list[T]:
        """One or more between commas, in parentheses."""
        self.expect("(")
        found = self.listed(parse)
        self.expect(")")
        return found

    # --- places -------------------------------------------------------------------------------------------------------

    def span(self, first: int, last: int | None = None) -> Span:
        """The place from one token to another (by index; to the one taken last if not said)."""
        last = self.at - 1 if last is None else last
        if not self.tokens:
            return Span(0, len(self.text), self.source, self.text)
        first, last = min(first, len(self.tokens) - 1), min(last, len(self.tokens) - 1)
        return Span(self.tokens[first].start, self.tokens[max(first, last)].end + 1, self.source, self.text)

    def here(self) -> Span:
        """The place of the next token; behind the last one at the end."""
        if not self.done:
            return self.span(self.at, self.at)
        end = self.tokens[-1].end + 1 if self.tokens else 0
        return Span(end, end, self.source, self.text)

    def slice(self, first: int) -> str:
        """The exact text from one token to the one taken last."""
        span = self.span(first)
        return self.text[span.start : span.end]

    def node(self, kind: type[E], first: int, last: int | None = None, /, **args: object) -> E:
        """A node that stands from one token to another (to the one taken last if not said)."""
        return self.place(kind(**{name: value for name, value in args.items() if value is not None}), first, last)

    def place(self, made: E, first: int, last: int | None = None) -> E:
        """Tells a node where it stands: from one token to another (to the one taken last if not said)."""
        end = self.tokens[self.at - 1 if last is None else last]
        start = self.tokens[first]
        made.meta.update(line=start.line, col=start.col, start=start.start, end=end.end)
        return made

    # --- limits and errors --------------------------------------------------------------------------------------------

    @contextmanager
    def nested(self, levels: int = 1) -> Iterator[None]:
        """One level deeper in the grammar."""
        self._depth += levels
        if self._depth > MAX_NESTING:
            self._depth = 0
            raise too_deep(self.here(), MAX_NESTING)
        try:
            yield
        finally:
            self._depth -= levels

    def expected(self, what: str, help_text: str | None = None) -> EverfoldError:
        """The error of a next token that is not what the grammar wants."""
        before = self.keys[self.at - 1] if 0 < self.at <= len(self.keys) else ""
        if (
            help_text is None
            and before == ","
            and self.kind() in (TokenType.VAR, TokenType.R_PAREN, TokenType.SEMICOLON, None)
        ):
            help_text = "is the comma before it one too many?"
        if help_text is None and self.key() in NOT_A_NAME and "name" in what:
            help_text = f"if `{self.take().text}` is meant as a name, put it into backticks"
            self.at -= 1
        if help_text is None:
            help_text = in_flink("::" if self.sees(":", ":") else self.key())
        return SqlError.of("syntax", f"expected {what}, found {self.found()}", self.here(), help_text)

    def found(self) -> str:
        """The next token, for a message."""
        if self.done:
            return "the end of the script"
        token = self.tokens[self.at]
        match token.token_type:
            case TokenType.STRING | TokenType.UNICODE_STRING | TokenType.HEX_STRING:
                return f"the text {self.slice_of(token)}"
            case TokenType.NUMBER:
                return f"the number {token.text}"
            case TokenType.SEMICOLON:
                return "`;`, the end of the statement"
            case _:
                return f"`{token.text}`"

    def slice_of(self, token: Token) -> str:
        """A token as it was written, shortened."""
        raw = self.text[token.start : token.end + 1]
        return raw if len(raw) <= 40 else raw[:37] + "…'"

    def refused(self, code: str, what: str, first: int, help_text: str | None = None) -> EverfoldError:
        """The error of SQL that is right, but that everfold does not do; `what` begins with the construct's own words."""
        span = self.span(first, max(first, self.at - 1))
        return UnsupportedFeature.of(code, f"{what} is not supported", span, help_text or instead_of(what))

    def checked(self, tree: E) -> E:
        """The tree, if it is not too high, and the script not too large with it."""
        stack: list[tuple[exp.Expression, int]] = [(tree, 1)]
        while stack:
            node, height = stack.pop()
            self._parts += 1
            if self._parts > MAX_PARTS:
                what = "its queries have more names, values, operators and clauses"
                raise too_complex(what, MAX_PARTS, self.span(0, 0), "make several scripts of it")
            if height > MAX_DEPTH:
                raise too_deep(Span(node.meta["start"], node.meta["end"] + 1, self.source, self.text), MAX_DEPTH)
            for value in node.args.values():
                children: Sequence[object] = value if isinstance(value, list) else (value,)
                stack.extend((child, height + 1) for child in children if isinstance(child, exp.Expression))
        return tree


def too_deep(span: Span | None, levels: int) -> EverfoldError:
    """The error of an expression or query with too many levels."""
    message = f"this is nested too deeply: {levels} levels are the most"
    return SqlError.of("too-deep", message, span, "split it with a view or WITH")


def _closing(keys: list[str]) -> dict[int, int]:
    """Where each parenthesis is closed."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for at, key in enumerate(keys):
        if key == "(":
            opened.append(at)
        elif key == ")" and opened:
            found[opened.pop()] = at
    return found


def _key(token: Token) -> str:
    match token.token_type:
        case TokenType.VAR:
            return token.text.upper()
        case (
            TokenType.STRING | TokenType.IDENTIFIER | TokenType.NUMBER | TokenType.HEX_STRING | TokenType.UNICODE_STRING
        ):
            return ""
        case _:
            return token.text
