"""Join the lines of a CSV file into records: a field in quotes may contain line breaks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from everfold.connectors.arrow_arrays import view_bytes
from everfold.connectors.formats.csv_columns import find_quotes

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_BYTES = 16 << 20
"""A record that is longer than this at a line break in quotes ends before that line break."""


@dataclass(frozen=True, slots=True)
class OpenQuotes:
    """Finds out whether a quote is open at the end of a line.

    opened: matches a line at whose end a quoted field is open. closed: matches a line that begins
    in a quoted field, up to the end of that field.
    """

    opened: re.Pattern[str]
    closed: re.Pattern[str]
    delimiter: str

    def is_open_after(self, line: str, *, is_open: bool) -> bool:
        """Return whether a quote is open at the end of a line. is_open: at its start."""
        if not is_open:
            return self.opened.match(line) is not None
        end = self.closed.match(line)
        if end is None:
            return True
        rest = line[end.end() :]
        return rest.startswith(self.delimiter) and self.opened.match(rest[len(self.delimiter) :]) is not None


@dataclass(slots=True)
class LineJoiner:
    """Joins lines to records.

    quotes: finds open ones. delimiter, quote, escape: single bytes, 0 for characters of several
    bytes: then every line with a quote is looked at. comments: whether a line that starts with `#`
    is a comment.
    """

    quotes: OpenQuotes
    delimiter: int
    quote: bytes
    escape: bytes | None
    comments: bool
    _waiting: list[tuple[int, bytes]] = field(default_factory=list)
    _waiting_bytes: int = 0

    def join(self, lines: pa.BinaryArray, numbers: Sequence[int]) -> tuple[pa.BinaryArray, Sequence[int]]:
        """Return the records that end in these lines, and the numbers of their first lines.

        lines: without their line breaks.
        """
        import pyarrow as pa

        open_lines = self._find_candidates(lines)
        if not self._waiting and not open_lines:
            return lines, numbers
        records: list[bytes] = []
        firsts: list[int] = []
        for index, (line, number) in enumerate(zip(lines.to_pylist(), numbers, strict=True)):
            if self._waiting or index in open_lines:
                for first, record in self._add(number, line):
                    records.append(record)
                    firsts.append(first)
            else:
                records.append(line)
                firsts.append(number)
        return pa.array(records, pa.binary()), firsts

    def end(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines from that with an open quote on, each alone: it is never closed."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        yield from waiting

    def _add(self, number: int, line: bytes) -> Iterator[tuple[int, bytes]]:
        """Add a line; yield the record that it ends, if it does."""
        if not self._waiting and self.comments and line.startswith(b"#"):
            yield number, line
            return
        text = line.decode("utf-8", "surrogateescape")
        is_open = self.quotes.is_open_after(text, is_open=bool(self._waiting))
        self._waiting.append((number, line))
        self._waiting_bytes += len(line)
        if not is_open:
            parts = list(self.end())
            yield parts[0][0], b"\n".join(part for _, part in parts)
        elif self._waiting_bytes > _MAX_BYTES:
            yield from self.end()

    def _find_candidates(self, lines: pa.BinaryArray) -> set[int]:
        """Return the indexes of lines that may end in quotes."""
        import numpy as np
        import pyarrow.compute as pc

        if self.escape is not None or not self.delimiter or len(self.quote) > 1:
            marks = [self.quote, *([] if self.escape is None else [self.escape])]
            masks = [pc.match_substring(lines, mark) for mark in marks]
            return set(np.flatnonzero(np.logical_or.reduce(masks)).tolist())
        edges, content = view_bytes(lines)
        own = content[edges[0] : edges[-1]]
        starts, ends = edges[:-1] - edges[0], edges[1:] - edges[0]
        if not own.size:
            return set()
        returns = (ends > starts) & (own.take(np.maximum(ends - 1, 0)) == ord("\r"))
        return set(find_quotes(own, starts, ends - returns, self.quote[0], self.delimiter).irregular.tolist())
