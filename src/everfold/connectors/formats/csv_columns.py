"""Decode blocks of CSV records into columns.

The positions of the delimiters and of the quotes of all records are found at once. A block is
decoded if each record has its fields, every quote encloses a field or is doubled within one, and
every value is beyond doubt; others are left to `CsvFormat.decoder`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everfold.connectors.arrow_arrays import cut_bytes, view_bytes
from everfold.connectors.formats.format import Block, RecordColumn
from everfold.connectors.formats.text_columns import convert_texts
from everfold.connectors.formats.text_decode import TextRules
from everfold.types import physical_name

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_BREAKS = b"\r\n"
_MARK = b"\xef"
"""The first byte of a byte order mark."""


@dataclass(frozen=True, slots=True)
class CsvBlocks:
    """Decodes blocks of records.

    columns: all fields of a record, of which only some are needed. delimiter, quote, escape: single
    bytes; None without quotes or escapes. comments: whether a record that starts with `#` is none.
    """

    columns: Sequence[RecordColumn]
    needed: Sequence[RecordColumn]
    rules: TextRules
    delimiter: int
    quote: int | None
    escape: int | None
    null_literal: str | None
    comments: bool

    def __call__(self, records: pa.BinaryArray) -> Block | None:
        """Return the rows of records, None if some record is not regular."""
        import pyarrow as pa

        try:
            texts = records.cast(pa.string())
            fields = self._split(texts)
            if fields is None:
                return None
            columns = [convert_texts(self._null(text), column.type, self.rules) for column, text in fields]
        except pa.ArrowInvalid:
            return None
        schema = pa.schema([(physical_name(column.position), column.type.arrow) for column in self.needed])
        return Block(pa.table(columns, schema))

    def _null(self, texts: pa.StringArray) -> Any:
        import pyarrow.compute as pc

        if self.null_literal is None:
            return texts
        are_null = pc.equal(texts, self.null_literal)
        return pc.if_else(are_null, None, texts) if pc.any(are_null).as_py() else texts

    def _split(self, texts: pa.StringArray) -> list[tuple[RecordColumn, pa.StringArray]] | None:
        """Return the texts of the needed fields, None if a record is not regular."""
        import numpy as np
        import pyarrow.compute as pc

        edges, content = view_bytes(texts)
        first, last = int(edges[0]), int(edges[-1])
        own, starts, ends = content[first:last], edges[:-1] - first, edges[1:] - first
        if any((own == byte).any() for byte in (*_BREAKS, *_MARK)) or self._has_special(own, starts, ends):
            return None
        delimiters = np.flatnonzero(own == self.delimiter)
        quotes = None if self.quote is None else find_quotes(own, starts, ends, self.quote, self.delimiter)
        if quotes is not None and quotes.positions.size:
            if quotes.irregular.size:
                return None
            before = np.searchsorted(quotes.positions, delimiters)
            delimiters = delimiters[before % 2 == 0]
        inner = len(self.columns) - 1
        counts = np.diff(np.searchsorted(delimiters, edges - first))
        if (counts != inner).any():
            return None
        bounds = delimiters.reshape(len(texts), inner)
        fields = []
        for place, column in enumerate(self.columns):
            if column not in self.needed:
                continue
            begin = starts if place == 0 else bounds[:, place - 1] + 1
            end = ends if place == inner else bounds[:, place]
            if quotes is not None and quotes.positions.size:
                are_quoted = (end > begin) & (own.take(begin, mode="clip") == self.quote)
                begin, end = begin + are_quoted, end - are_quoted
            text = cut_bytes(texts.buffers()[2], begin + first, end + first, texts.type)
            if quotes is not None and quotes.are_doubled:
                mark = chr(quotes.byte)
                text = pc.replace_substring(text, mark * 2, mark)
            fields.append((column, text))
        return fields

    def _has_special(self, own: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> bool:
        """Return whether there are escapes or comments."""
        if self.escape is not None and (own == self.escape).any():
            return True
        return self.comments and bool((own.take(starts[ends > starts]) == ord("#")).any())


@dataclass(frozen=True, slots=True)
class Quotes:
    """The quotes in records.

    byte: the quote. positions: of all. irregular: the indexes of the records in which a quote is
    neither around a field nor doubled within one. are_doubled: whether some are.
    """

    byte: int
    positions: np.ndarray
    irregular: np.ndarray
    are_doubled: bool


def find_quotes(own: np.ndarray, starts: np.ndarray, ends: np.ndarray, quote: int, delimiter: int) -> Quotes:
    """Find the quotes in records. starts, ends: where the records are in the bytes."""
    import numpy as np

    positions = np.flatnonzero(own == quote)
    if not positions.size:
        return Quotes(quote, positions, positions, are_doubled=False)
    owner = np.searchsorted(ends, positions, side="right")
    firsts = np.searchsorted(positions, starts)
    order = np.arange(positions.size) - firsts[owner]
    closes = order % 2 == 1
    last = len(own) - 1
    before, after = own.take(np.maximum(positions - 1, 0)), own.take(np.minimum(positions + 1, last))
    opens_field = (positions == starts[owner]) | (before == delimiter) | ((before == quote) & (order > 0))
    ends_field = (positions + 1 == ends[owner]) | (after == delimiter)
    goes_on = (after == quote) & (positions + 1 < ends[owner])
    is_regular = np.where(closes, ends_field | goes_on, opens_field)
    counts = np.bincount(owner, minlength=len(starts))
    is_bad = counts % 2 == 1
    is_bad[owner[~is_regular]] = True
    return Quotes(quote, positions, np.flatnonzero(is_bad), are_doubled=bool((closes & goes_on).any()))
