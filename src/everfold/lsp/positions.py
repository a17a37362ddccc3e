"""Convert between offsets in a text and the positions of the protocol: lines and code units."""

from __future__ import annotations

import re
from bisect import bisect_right

from lsprotocol.types import Position, PositionEncodingKind, Range

from everfold.errors import Span

_LINE_END = re.compile(r"\r\n|\n|\r")


class Positions:
    """The lines of a text. encoding: the code units in which the client counts."""

    def __init__(self, text: str, encoding: PositionEncodingKind | str | None = None) -> None:
        self._text = text
        self._encoding = encoding or PositionEncodingKind.Utf16
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(text))]

    def position(self, offset: int) -> Position:
        """Return the position of an offset."""
        line = bisect_right(self._starts, offset) - 1
        return Position(line, self._units(self._text[self._starts[line] : offset]))

    def offset(self, position: Position) -> int:
        """Return the offset of a position, in its line."""
        if position.line >= len(self._starts):
            return len(self._text)
        start = self._starts[position.line]
        end = self._starts[position.line + 1] if position.line + 1 < len(self._starts) else len(self._text)
        units, at = 0, start
        while at < end and units < position.character:
            units += self._units(self._text[at])
            at += 1
        return at

    def range(self, span: Span) -> Range:
        """Return the range of a span."""
        return Range(self.position(span.start), self.position(max(span.start, span.end)))

    def whole(self) -> Range:
        """Return the range of the whole text."""
        return Range(Position(0, 0), self.position(len(self._text)))

    def _units(self, text: str) -> int:
        match self._encoding:
            case PositionEncodingKind.Utf32:
                return len(text)
            case PositionEncodingKind.Utf8:
                return len(text.encode())
            case _:
                return len(text.encode("utf-16-le")) // 2
