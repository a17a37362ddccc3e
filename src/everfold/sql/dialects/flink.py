"""Flink SQL: parse a script, a query, an expression or a type.

Raises SqlError `syntax`, `too-deep`, `unknown-type`, `wrong-type`, `wrong-literal`; and
UnsupportedFeature `unsupported-statement`, `unsupported-clause`, `unsupported-type`,
`timestamp-precision`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from everfold.sql import syntax
from everfold.sql.dialects.grammar import Grammar
from everfold.sql.dialects.token_stream import MAX_NESTING, too_deep_error
from everfold.sql.dialects.tokens import Part
from everfold.sql.statements import Statement
from everfold.types import DataType

T = TypeVar("T")


def parse_statements(text: str, source: str = "<sql>", part: Part | None = None) -> tuple[Statement, ...]:
    """Parse the statements of a script or of a part of it."""
    return _parse(Grammar(text, source, part), Grammar.script)


def parse_query(text: str, source: str = "<sql>") -> syntax.Query:
    """Parse one query."""
    return _parse(Grammar(text, source), lambda grammar: grammar.whole_query()[0])


def parse_expression(text: str, source: str = "<sql>") -> syntax.Expression:
    """Parse one expression."""
    return _parse(Grammar(text, source), lambda grammar: grammar.whole_expression()[0])


def parse_type(text: str, source: str = "<type>") -> DataType:
    """Parse a data type."""
    grammar = Grammar(text, source)
    found = grammar.data_type()
    if not grammar.is_at_end:
        raise grammar.expected_error("the end of the type")
    return found


def _parse(grammar: Grammar, parse: Callable[[Grammar], T]) -> T:
    """Parse the whole text."""
    try:
        found = parse(grammar)
    except RecursionError:  # the caller was already near the recursion limit
        raise too_deep_error(grammar.here(), MAX_NESTING) from None
    grammar.accept(";")
    if not grammar.is_at_end:
        raise grammar.expected_error("the end")
    return found
