"""The size of an operator's state in bytes, by purpose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median_low

from everfold.compat.shape import CallShape, OperatorShape
from everfold.inspection.reader import COLUMN, KEY, ORDER, VALUE
from everfold.inspection.slots import ROW_COUNT
from everfold.state.bucket_head import HEAD
from everfold.state.pages import decode
from everfold.state.store import PageKey

_KEYS, _ROWS, _VALUES = "keys", "columns of rows", "values of DISTINCT, MIN and MAX"
_GONE, _REST = "aggregates that are gone", "bookkeeping"
_ROLES = {KEY: _KEYS, COLUMN: _ROWS, ORDER: _ROWS, VALUE: _VALUES}


@dataclass(frozen=True, slots=True)
class StateSizes:
    """The size of an operator's pages in bytes; outdated rows that are not yet removed count.

    pages: number of pages. largest, median: bytes of a page. tables: pages and bytes by table.
    parts: bytes by purpose: each aggregate by its label, keys, the rest; they add up to all bytes.
    """

    pages: int
    bytes: int
    largest: int
    median: int
    tables: Mapping[str, tuple[int, int]]
    parts: Mapping[str, int]


def sizes_of(shape: OperatorShape, pages: Iterable[tuple[PageKey, bytes]]) -> StateSizes:
    """Return the sizes of an operator's pages. StateError `damaged-page`."""
    lengths: list[int] = []
    of_tables: Counter[str] = Counter()
    bytes_of_tables: Counter[str] = Counter()
    parts: Counter[str] = Counter(dict.fromkeys((call.label for call in shape.calls), 0))
    for key, blob in pages:
        lengths.append(len(blob))
        of_tables[key.table] += 1
        bytes_of_tables[key.table] += len(blob)
        parts.update(_columns(shape, key, blob))
    parts[_REST] += sum(lengths) - parts.total()
    return StateSizes(
        pages=len(lengths),
        bytes=sum(lengths),
        largest=max(lengths, default=0),
        median=median_low(lengths or [0]),
        tables={name: (of_tables[name], bytes_of_tables[name]) for name in sorted(of_tables)},
        parts=parts,
    )


def _columns(shape: OperatorShape, key: PageKey, blob: bytes) -> Counter[str]:
    """Return the bytes of a page's columns by purpose, without those of bookkeeping."""
    found: Counter[str] = Counter()
    if key.table == HEAD:
        return found
    page = decode(blob)
    owners = {column: call for call in shape.calls for column in call.find_slots(page.columns).values()}
    for column in page.get_columns():
        part = _part(column.name, owners)
        if part is not None and not (shape.input.updating and column.name == ROW_COUNT):
            found[part] += int(column.estimated_size())
    return found


def _part(column: str, owners: Mapping[str, CallShape]) -> str | None:
    if column in owners:
        return owners[column].label
    role = next((part for kind, part in _ROLES.items() if column.startswith(kind)), None)
    return _GONE if role is None and "|" in column else role
