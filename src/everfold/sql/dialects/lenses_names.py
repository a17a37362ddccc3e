"""What Lenses SQL writes in other ways than Flink's: names of topics with `-` and `.` in them, durations, and paths that begin with such a name."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from everfold.errors import EverfoldError, Span, SqlError
from everfold.sql.dialects.expressions import Expressions
from everfold.sql.dialects.keywords import NOT_A_NAME
from everfold.sql.dialects.lenses_nodes import Duration
from everfold.sql.dialects.nodes import ColumnPath

_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_IN_A_NAME = (TokenType.VAR, TokenType.NUMBER, TokenType.INTERVAL, TokenType.DASH, TokenType.DOT)
_BEGINS_A_NAME = (TokenType.VAR, TokenType.NUMBER, TokenType.INTERVAL)
_EXAMPLE = "write a whole number and one of ms, s, m, h, d, as `10m`"


def duration_text(ms: int) -> str:
    """A duration as it is written, in the greatest unit of which it is a whole number: `90m`."""
    unit = next(unit for unit in reversed(_MS) if ms % _MS[unit] == 0)
    return f"{ms // _MS[unit]}{unit}"


class Names(Expressions):
    """The grammar of names and durations, and of expressions over a source.

    sources: names of the source with signs in them, before whose dot they are one name in expressions.
    """

    measures: ClassVar[bool] = True
    sources: tuple[str, ...] = ()

    def topic(self, what: str = "a topic") -> tuple[exp.Identifier, Span]:
        """A topic's name, in backticks or bare: all that stands there without a space."""
        first = self.at
        if self.kind() is TokenType.IDENTIFIER:
            return self.identifier(f"{what}'s name"), self.span(first)
        if self.kind() not in _BEGINS_A_NAME or (self.key() in NOT_A_NAME and not self.goes_on()):
            raise self.expected(f"{what}'s name")
        while self.goes_on():
            self.at += 1
        self.at += 1
        name = self.slice(first)
        if name[-1] in "-.":
            raise self.expected("the rest of the name", "put a name that ends with a sign into backticks")
        return self.node(exp.Identifier, first, this=name, quoted=True), self.span(first)

    def goes_on(self) -> bool:
        """Whether the next token and the one behind it can be parts of one bare name."""
        return self.kind(1) in _IN_A_NAME and self.tokens[self.at].end + 1 == self.tokens[self.at + 1].start

    def path(self, what: str) -> ColumnPath:
        """A name and what follows behind dots."""
        first = self.at
        parts = [self.identifier(what)]
        while self.accept("."):
            parts.append(self.identifier("a name behind the dot", frozenset()))
        return self.node(ColumnPath, first, parts=parts)

    def duration(self, what: str) -> Duration:
        """`10m`."""
        first = self.at
        if self.kind() not in (TokenType.INTERVAL, TokenType.NUMBER):
            raise self.expected(f"{what}, which is a duration", _EXAMPLE)
        text = self.take().text
        digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
        unit = _MS.get(text[len(digits) :].lower())
        if unit is None or not digits.isdecimal():
            raise self._wrong_duration(f"`{text}` is no duration", first)
        return self.node(Duration, first, this=text, ms=int(digits) * unit)

    def _wrong_duration(self, message: str, first: int) -> EverfoldError:
        return SqlError.of("wrong-duration", message, self.span(first), _EXAMPLE)

    # --- expressions --------------------------------------------------------------------------------------------------

    def primary(self) -> exp.Expression:
        """What operators bind; a source's name with signs in it is one word there."""
        first = self.at
        source = self._source() if self.kind() in _BEGINS_A_NAME else None
        if source is None:
            return super().primary()
        parts = [source]
        while self.accept("."):
            parts.append(self.identifier("a name behind the dot", frozenset()))
        return self.node(ColumnPath, first, parts=parts)

    def _source(self) -> exp.Identifier | None:
        """The source's name, if that stands here with a dot behind it; it is taken."""
        first = self.at
        start = self.tokens[first].start
        for name in self.sources:
            if not self.text.startswith(f"{name}.", start):
                continue
            while self.tokens[self.at].start < start + len(name):
                self.at += 1
            return self.node(exp.Identifier, first, this=name, quoted=True)
        return None

    def starts_query(self, ahead: int = 0) -> bool:
        """Never: there are no queries in expressions."""
        return False

    def query(self) -> exp.Expression:
        """Refused: a source is a topic, or the name of a WITH."""
        raise self.refused("subquery", "a query within a query", self.at, "give it a name: WITH name AS (SELECT …);")

    def order_by(self) -> exp.Order:
        """Refused: rows have no order but that of their arrival."""
        raise self.refused("unsupported-clause", "ORDER BY", self.at, "leave it out")

    def window(self, first: int, **args: object) -> exp.Window:
        """Refused: windows are those of WINDOW BY."""
        raise self.refused("unsupported-clause", "OVER", first, "write WINDOW BY")
