"""The pieces of a script that a formatter moves: tokens with their comments, and brackets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from everfold.aggregates import registry as aggregates
from everfold.sql.dialects.token_stream import TokenStream
from everfold.sql.dialects.tokens import TokenKind
from everfold.sql.functions import registry as functions

_COMMENT = re.compile(r"(?:--|//)[^\n]*|/\*.*?\*/", re.DOTALL)
_CLOSING = {"(": ")", "[": "]", "<": ">", "/*+": "*/"}
_AFTER_A_QUERY = ("UNION", "EXCEPT", "INTERSECT", "ORDER", "LIMIT", "OFFSET", "FETCH")
_GENERIC = ("ARRAY", "MAP", "MULTISET", "ROW")
"""Types with parameters in angle brackets."""


@dataclass(slots=True)
class Piece:
    """A token as it is printed.

    key: a keyword or symbol, `` for names and values. comments: lines before it. notes: comments
    after it in its line.
    """

    text: str
    key: str
    kind: TokenKind
    is_function: bool = False
    has_blank_line_before: bool = False
    comments: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_operand(self) -> bool:
        """Whether it ends a value, so that a sign after it is an operator."""
        return not self.key or self.key in (")", "]", "*", "END", "NULL", "TRUE", "FALSE")


@dataclass(slots=True)
class Group:
    """Brackets and what they enclose."""

    opening: Piece
    items: list[Item]
    closing: Piece

    @property
    def keys(self) -> list[str]:
        """The keys of the enclosed pieces; a bracket's own for a group."""
        return keys_of(self.items)

    @property
    def is_query(self) -> bool:
        """Whether it encloses a query."""
        inside = self.keys
        if inside[:1] == ["("] and isinstance(first := self.items[0], Group):
            return first.is_query and (len(inside) == 1 or inside[1] in _AFTER_A_QUERY)
        return inside[:1] in (["SELECT"], ["WITH"], ["VALUES"])


Item: TypeAlias = Piece | Group


def keys_of(items: Sequence[Item]) -> list[str]:
    """Return the keys of pieces; the opening bracket's for a group."""
    return [each.key if isinstance(each, Piece) else each.opening.key for each in items]


def first_piece(item: Item) -> Piece:
    """Return the first piece of an item."""
    return item if isinstance(item, Piece) else item.opening


def list_pieces(items: Sequence[Item]) -> Iterator[Piece]:
    """Yield all pieces in their order."""
    for each in items:
        if isinstance(each, Piece):
            yield each
        else:
            yield each.opening
            yield from list_pieces(each.items)
            yield each.closing


def make_pieces(parsed: TokenStream, end: int) -> tuple[list[Piece], list[str]]:
    """Return the tokens of a parsed text as pieces, and the comments after the last one.

    `end`: where the text ends.
    """
    found: list[Piece] = []
    at, before = 0, parsed.start
    while at < len(parsed.tokens):
        last = parsed.joined.get(at, at + 1)
        token = parsed.tokens[at]
        piece = _make_piece(parsed, at, last)
        _attach_comments(found, piece, parsed.text[before : token.start])
        if found and piece.key in (",", ";") and not piece.comments:
            found[-1].notes, piece.notes = [], found[-1].notes
        found.append(piece)
        at, before = last, parsed.tokens[last - 1].end
    rest = Piece("", "", TokenKind.SYMBOL)
    _attach_comments(found, rest, parsed.text[before:end])
    return found, rest.comments


def _make_piece(parsed: TokenStream, at: int, last: int) -> Piece:
    token = parsed.tokens[at]
    text = parsed.text[token.start : parsed.tokens[last - 1].end]
    if at in parsed.joined:
        return Piece(text, "", TokenKind.QUOTED)
    is_function = at in parsed.functions
    if token.kind is not TokenKind.WORD:
        return Piece(text, token.key, token.kind, is_function)
    known = is_function and (functions.lookup(token.key) or aggregates.lookup(token.key)) is not None
    if at in parsed.names and not known:
        return Piece(text, "", token.kind, is_function)
    return Piece(token.key, "" if is_function else token.key, token.kind, is_function)


def _attach_comments(before: list[Piece], piece: Piece, gap: str) -> None:
    """Attach the comments between two pieces to the first one if they begin in its line."""
    line_ends = not before
    at = 0
    for match in _COMMENT.finditer(gap):
        space = gap[at : match.start()]
        line_ends = line_ends or "\n" in space
        text = match.group().rstrip()
        if not line_ends:
            before[-1].notes.append(text)
        else:
            if space.count("\n") > 1 and (before or piece.comments):
                if piece.comments:
                    piece.comments.append("")
                else:
                    piece.has_blank_line_before = True
            piece.comments.append(text)
        at = match.end()
    if gap[at:].count("\n") > 1:
        if piece.comments:
            piece.comments.append("")
        else:
            piece.has_blank_line_before = True


def nest(pieces: Sequence[Piece]) -> list[Item]:
    """Return pieces with brackets as groups."""
    root: list[Item] = []
    opened: list[tuple[Piece, list[Item]]] = []
    level = root
    for at, piece in enumerate(pieces):
        before = pieces[at - 1].key if at else ""
        is_opening = piece.key in _CLOSING and (piece.key != "<" or before in _GENERIC)
        if is_opening:
            opened.append((piece, level))
            level = []
        elif opened and piece.key == _CLOSING[opened[-1][0].key]:
            opening, outer = opened.pop()
            outer.append(Group(opening, level, piece))
            level = outer
        else:
            level.append(piece)
    while opened:  # not in a text that is parsed
        opening, outer = opened.pop()
        outer += [opening, *level]
        level = outer
    return root
