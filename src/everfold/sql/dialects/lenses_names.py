"""Syntax of Lenses SQL that differs from Flink's: names and durations.

Topic names may contain `-` and `.`, also as the first part of a path.
"""

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

    def topic(self, what: str = "a topic") -> tuple[exp.Identifier, Span]:
        """Parse a topic's name, in backticks or bare; a bare name extends to the next space."""
        first = self.at
        if self.kind() is TokenType.IDENTIFIER:
            return self.identifier(f"{what}'s name"), self.span(first)
        if self.kind() not in _BEGINS_A_NAME or (self.key() in NOT_A_NAME and not self.name_continues()):
            raise self.expected_error(f"{what}'s name")
        while self.name_continues():
            self.at += 1
        self.at += 1
        name = self.slice(first)
        if name[-1] in "-.":
            raise self.expected_error("the rest of the name", "put a name that ends with `-` or `.` into backticks")
        return self.node(exp.Identifier, first, this=name, quoted=True), self.span(first)

    def name_continues(self) -> bool:
        """Return whether the next token and the one after it can be parts of one bare name."""
        return self.kind(1) in _IN_A_NAME and self.tokens[self.at].end + 1 == self.tokens[self.at + 1].start

    def path(self, what: str) -> ColumnPath:
        """Parse a name and the names after its dots."""
        first = self.at
        parts = [self.identifier(what)]
        while self.accept("."):
            parts.append(self.identifier("a name after the dot", frozenset()))
        return self.node(ColumnPath, first, parts=parts)

    def duration(self, what: str) -> Duration:
        """Parse a duration such as `10m`."""
        first = self.at
        if self.kind() not in (TokenType.INTERVAL, TokenType.NUMBER):
            raise self.expected_error(f"{what}, which is a duration", _EXAMPLE)
        text = self.take().text
        digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
        unit = _MS.get(text[len(digits) :].lower())
        if unit is None or not digits.isdecimal():
            raise self._wrong_duration(f"`{text}` is not a duration", first)
        return self.node(Duration, first, this=text, ms=int(digits) * unit)

    def _wrong_duration(self, message: str, first: int) -> EverfoldError:
        return SqlError.of("wrong-duration", message, self.span(first), _EXAMPLE)

    # --- expressions ------------------------------------------------------------------------------

    def primary(self) -> exp.Expression:
        """Parse an operand; a source's name with `-` or `.` in it is one name."""
        first = self.at
        source = self._source() if self.kind() in _BEGINS_A_NAME else None
        if source is None:
            return super().primary()
        parts = [source]
        while self.accept("."):
            parts.append(self.identifier("a name after the dot", frozenset()))
        return self.node(ColumnPath, first, parts=parts)

    def _source(self) -> exp.Identifier | None:
        """Consume the source's name, if it comes next and is followed by a dot."""
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
        """Return False: expressions contain no queries."""
        return False

    def query(self) -> exp.Expression:
        """Raise: a source is a topic or the name of a WITH."""
        raise self.unsupported_error(
            "subquery", "a query within a query", self.at, "give it a name: WITH name AS (SELECT …);"
        )

    def order_by(self) -> exp.Order:
        """Raise: rows are ordered only by arrival."""
        raise self.unsupported_error("unsupported-clause", "ORDER BY", self.at, "leave it out")

    def window(self, first: int, **args: object) -> exp.Window:
        """Raise: the only windows are those of WINDOW BY."""
        raise self.unsupported_error("unsupported-clause", "OVER", first, "write WINDOW BY")
