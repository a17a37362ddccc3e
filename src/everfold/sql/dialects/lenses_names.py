"""Syntax of Lenses SQL that differs from Flink's: names and durations.

Topic names may contain `-` and `.`, also as the first part of a path.
"""

from __future__ import annotations

from typing import ClassVar

from everfold.errors import EverfoldError, Span, SqlError
from everfold.sql import syntax
from everfold.sql.dialects.expressions import Expressions
from everfold.sql.dialects.keywords import NOT_A_NAME
from everfold.sql.dialects.tokens import TokenKind

_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BEGINS_A_NAME = (TokenKind.WORD, TokenKind.NUMBER, TokenKind.MEASURE)
_EXAMPLE = "write a whole number and one of ms, s, m, h, d, as `10m`"


def format_duration(ms: int) -> str:
    """Format a duration in the largest unit that divides it: `90m`."""
    unit = next(unit for unit in reversed(_MS) if ms % _MS[unit] == 0)
    return f"{ms // _MS[unit]}{unit}"


class Names(Expressions):
    """Grammar of names and durations, and of expressions over a source.

    sources: names of the source that contain `-` or `.`. Before a dot in an expression, such a name
    is read as one name.
    """

    measures: ClassVar[bool] = True
    sources: tuple[str, ...] = ()

    def topic(self, what: str = "a topic") -> tuple[syntax.Identifier, Span]:
        """Parse a topic's name, in backticks or bare; a bare name extends to the next space."""
        first = self.at
        if self.kind() is TokenKind.QUOTED:
            return self.identifier(f"{what}'s name"), self.span(first)
        if self.kind() not in _BEGINS_A_NAME or (self.key() in NOT_A_NAME and not self.name_continues()):
            raise self.expected_error(f"{what}'s name")
        while self.name_continues():
            self.at += 1
        self.at += 1
        self.joined[first] = self.at
        name = self.slice(first)
        if name[-1] in "-.":
            raise self.expected_error("the rest of the name", "put a name that ends with `-` or `.` into backticks")
        span = self.span(first)
        return syntax.Identifier(name, span=span), span

    def name_continues(self) -> bool:
        """Return whether the next token and the one after it can be parts of one bare name."""
        continues = self.kind(1) in _BEGINS_A_NAME or self.key(1) in ("-", ".")
        return continues and self.tokens[self.at].end == self.tokens[self.at + 1].start

    def path(self, what: str) -> syntax.ColumnPath:
        """Parse a name and the names after its dots."""
        return self._path_after(self.at, self.identifier(what))

    def _path_after(self, first: int, name: syntax.Identifier) -> syntax.ColumnPath:
        parts = [name]
        while self.accept("."):
            parts.append(self.identifier("a name after the dot", frozenset()))
        return syntax.ColumnPath(tuple(parts), span=self.span(first))

    def duration(self, what: str) -> syntax.Duration:
        """Parse a duration such as `10m`."""
        first = self.at
        if self.kind() not in (TokenKind.MEASURE, TokenKind.NUMBER):
            raise self.expected_error(f"{what}, which is a duration", _EXAMPLE)
        text = self.take().text
        digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
        unit = _MS.get(text[len(digits) :].lower())
        if unit is None or not digits.isdecimal():
            raise self._wrong_duration(f"`{text}` is not a duration", first)
        return syntax.Duration(text, int(digits) * unit, span=self.span(first))

    def _wrong_duration(self, message: str, first: int) -> EverfoldError:
        return SqlError.of("wrong-duration", message, self.span(first), _EXAMPLE)

    # --- expressions ------------------------------------------------------------------------------

    def primary(self) -> syntax.Expression:
        """Parse an operand; a source's name with `-` or `.` in it is one name."""
        first = self.at
        source = self._source() if self.kind() in _BEGINS_A_NAME else None
        return super().primary() if source is None else self._path_after(first, source)

    def _source(self) -> syntax.Identifier | None:
        """Consume the source's name, if it comes next and is followed by a dot."""
        first = self.at
        start = self.tokens[first].start
        for name in self.sources:
            if not self.text.startswith(f"{name}.", start):
                continue
            while self.tokens[self.at].start < start + len(name):
                self.at += 1
            self.joined[first] = self.at
            return syntax.Identifier(name, span=self.span(first))
        return None

    def starts_query(self, ahead: int = 0) -> bool:
        """Return False: expressions contain no queries."""
        return False

    def query(self) -> syntax.Query:
        """Raise: a source is a topic or the name of a WITH."""
        raise self.unsupported_error(
            "subquery", "a query within a query", self.at, "give it a name: WITH name AS (SELECT …);"
        )

    def order_by(self) -> syntax.OrderBy:
        """Raise: rows are ordered only by arrival."""
        raise self.unsupported_error("unsupported-clause", "ORDER BY", self.at, "leave it out")

    def window(self) -> syntax.WindowSpec:
        """Raise: the only windows are those of WINDOW BY."""
        raise self.unsupported_error("unsupported-clause", "OVER", self.at - 1, "write WINDOW BY")
