"""Split JSON records of one shape into the texts of their fields.

The records of a topic often differ only in their values: the fields, their order and the space
between them are those of the first record. Then the positions of the quotes determine all others,
and NumPy compares and cuts all records at once, in half of the time that a parser needs. What does
not look like the first record, or needs a parser (escapes, nested values), is left to one.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.connectors.arrow_arrays import cut_bytes, view_bytes
from everfold.connectors.formats.text_columns import NUMBER, first_bytes

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_SCALAR = rf"^({NUMBER}|true|false|null)$"
"""The regular expression of values without quotes."""
_QUOTE, _BACKSLASH, _SPACE, _ZERO = b'"\\ 0'
_OPEN = re.compile(r" *\{ *")
_AFTER_KEY = re.compile(r"(?P<before> *: *)((?P<value>[^ ,:{}\[\]]+)(?P<after> *(,|\}) *))?")
_AFTER_TEXT = re.compile(r" *(,|\}) *")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of all records.

    texts: its values, without quotes. is_quoted: whether they are JSON strings; all others have to
        be checked.
    """

    texts: pa.StringArray
    is_quoted: bool


@dataclass(frozen=True, slots=True)
class _Part:
    """What is between two quotes, or before the first, or after the last one.

    literal: what it is in each record, None for the text of a string. before, after: around a value
        without quotes.
    name: of the field whose value is here.
    """

    literal: bytes | None = None
    before: bytes = b""
    after: bytes = b""
    name: str | None = None


def split_fields(records: pa.StringArray, wanted: Collection[str]) -> dict[str, Field] | None:
    """Return those of the wanted fields that the records have, None if a parser is needed.

    records: at least one, without NULL.
    """
    import numpy as np

    content = records.buffers()[2]
    edges, text = view_bytes(records)
    text = text[: edges[-1]]
    own = text[edges[0] :]
    if not own.size or own.min() < _SPACE or (own == _BACKSLASH).any():
        return None
    parts = _read_shape(records[0].as_py())
    if parts is None:
        return None
    quotes = np.flatnonzero(own == _QUOTE)
    if quotes.size != len(records) * (len(parts) - 1):
        return None
    ends = np.empty((len(parts), len(records)), np.int32)
    ends[:-1] = quotes.reshape(len(records), -1).T
    ends[:-1] += edges[0]
    ends[-1] = edges[1:]
    if (ends[0] < edges[:-1]).any() or (ends[-2] >= edges[1:]).any():
        return None
    fields: dict[str, Field] = {}
    start = edges[:-1]
    for part, end in zip(parts, ends, strict=True):
        values = _cut(text, part, start, end)
        if values is None:
            return None
        if part.name is not None and part.name in wanted:
            fields[part.name] = Field(cut_bytes(content, *values, records.type), is_quoted=not part.before)
        elif part.before and not _are_scalars(cut_bytes(content, *values, records.type)):
            return None
        start = end + np.int32(1)
    return fields


def _read_shape(record: str) -> list[_Part] | None:
    """Return the parts of a record, None unless it is an object of scalars with distinct names."""
    texts = record.split('"')
    if not _OPEN.fullmatch(texts[0]):
        return None
    parts = [_Part(texts[0].encode())]
    at, is_open = 1, True
    while is_open:
        name, after_key, *after = texts[at : at + 4] if at + 1 < len(texts) else ("", "")
        separator = _AFTER_KEY.fullmatch(after_key)
        if separator is None:
            return None
        parts.append(_Part(name.encode()))
        if separator["value"] is not None:
            parts.append(_Part(before=separator["before"].encode(), after=separator["after"].encode(), name=name))
            is_open = "," in separator["after"]
            at += 2
        elif len(after) == 2 and _AFTER_TEXT.fullmatch(after[1]):
            parts += [_Part(after_key.encode()), _Part(name=name), _Part(after[1].encode())]
            is_open = "," in after[1]
            at += 4
        else:
            return None
    names = [part.name for part in parts if part.name is not None]
    return parts if at == len(texts) and len(set(names)) == len(names) else None


def _cut(text: np.ndarray, part: _Part, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return where the values of a part are, None if a record does not look like the first one."""
    if part.literal is not None:
        is_same = (end - start == len(part.literal)).all() and _has_bytes(text, start, part.literal)
        return (start, end) if is_same else None
    first, last = start + len(part.before), end - len(part.after)
    if part.before and (first >= last).any():
        return None
    is_same = _has_bytes(text, start, part.before) and _has_bytes(text, last, part.after)
    return (first, last) if is_same else None


def _has_bytes(text: np.ndarray, positions: np.ndarray, expected: bytes) -> bool:
    return all((text.take(positions + at) == byte).all() for at, byte in enumerate(expected))


def _are_scalars(texts: pa.StringArray) -> bool:
    """Return whether all texts are numbers or words of JSON; none is empty."""
    import numpy as np
    import pyarrow.compute as pc

    starts, content = view_bytes(texts)
    are_digits = (content[starts[0] : starts[-1]] - _ZERO < 10).all()
    if are_digits and ((first_bytes(texts) != _ZERO) | (np.diff(starts) == 1)).all():
        return True
    return bool(pc.all(pc.match_substring_regex(texts, _SCALAR)).as_py())
