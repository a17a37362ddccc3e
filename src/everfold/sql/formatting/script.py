"""Format a script statement by statement, and check that its meaning is the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass

from everfold.sql import syntax
from everfold.sql.dialects.grammar import Grammar
from everfold.sql.dialects.lenses import LensesGrammar
from everfold.sql.formatting.layout import Layout
from everfold.sql.formatting.pieces import Piece, make_pieces, nest
from everfold.sql.script import parse_script, split_dialects
from everfold.sql.statements import Statement

_GRAMMARS: dict[str, type[Grammar] | type[LensesGrammar]] = {"flink": Grammar, "lenses": LensesGrammar}


def format_script(text: str, source: str = "<sql>", dialect: str = "flink") -> str:
    """Return a script in everfold's style, with the same meaning. `dialect` is its first one.

    Raises the errors of a script that cannot be parsed.
    """
    before = parse_script(text, source, dialect)
    pieces: list[Piece] = []
    comments: list[str] = []
    for language, part in split_dialects(text, source, dialect):
        parsed = _GRAMMARS[language](text, source, part)
        parsed.script()
        found, rest = make_pieces(parsed, part.end)
        if found:
            found[0].comments = comments + found[0].comments
            comments = []
        pieces += found
        comments += rest
    formatted = "\n".join([*_format_statements(pieces), *_end_comments(comments)]).rstrip("\n")
    formatted = formatted + "\n" if formatted else ""
    after = parse_script(formatted, source, dialect)
    assert is_same(before, after), "the formatted script has another meaning"
    return formatted


def _format_statements(pieces: Sequence[Piece]) -> Iterator[str]:
    """Yield the lines of all statements."""
    was_short = True
    for number, statement in enumerate(_split_statements(pieces)):
        layout = Layout()
        first = statement[0]
        layout.statement(nest(statement))
        lines = [each.rstrip() for each in layout.lines]
        is_short = len(lines) == 1
        if number and (first.has_blank_line_before or not (is_short and was_short)):
            yield ""
        yield from lines
        was_short = is_short


def _end_comments(comments: Sequence[str]) -> Iterator[str]:
    if comments:
        yield ""
    yield from comments


def _split_statements(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Yield the pieces of each statement, with its `;`."""
    part: list[Piece] = []
    depth = 0
    for at, each in enumerate(pieces):
        part.append(each)
        keys = [other.key for other in part[-3:]]
        depth += keys == ["STATEMENT", "SET", "BEGIN"] or keys == ["BEGIN", "STATEMENT", "SET"]
        after = pieces[at + 1].key if at + 1 < len(pieces) else ";"
        if each.key == "END" and depth and after == ";":
            depth = 0
        if each.key == ";" and not depth:
            yield part
            part = []
    if part:
        yield part


# --- the same meaning -----------------------------------------------------------------------------


def is_same(one: Iterable[Statement], other: Iterable[Statement]) -> bool:
    """Return whether statements have the same meaning, whatever their layout."""
    return [_meaning(each) for each in one] == [_meaning(each) for each in other]


def _meaning(value: object) -> object:
    """Return a statement without its locations and its text."""
    if isinstance(value, tuple):
        return tuple(map(_meaning, value))
    if isinstance(value, syntax.Node) or not is_dataclass(value):
        return value
    parts = (each.name for each in fields(value) if each.compare and each.name != "text")
    return type(value), tuple(_meaning(getattr(value, name)) for name in parts)
