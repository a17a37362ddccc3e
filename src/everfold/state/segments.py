"""Segments: immutable sets of rows, sorted by position and stored in pages of a table.

A page holds some rows of a segment. An index page lists the positions that each page spans, so
reading a few rows costs a few pages. A segment that is read repeatedly is cached whole in the
worker. Its cache token is the digest of its pages and of the number of the first one.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from everfold.errors import StateError
from everfold.state.cache import FrameCache
from everfold.state.pages import decode, encode, encode_pages
from everfold.state.store import PageKey, Store

POSITION, TOUCHED, DEAD = "h", "touched", "dead"
"""Columns of a segment's rows.

`h` Int64: the row's position. `touched` Int64, ms: when its newest version was written. `dead`
Boolean: TRUE in rows that mark a deletion.
"""
PAGE_BYTES = 64 << 10
"""Size of the rows of a page, before compression."""
SEGMENT_BYTES = 8 << 20
"""Longer runs are cut into segments of at most about this size, never between rows of one position.
"""
Positions: TypeAlias = npt.NDArray[np.int64]
_ROWS, _INDEX = 0, 1
_FEW_RANGES = 16
"""Up to so many ranges of rows are concatenated; of more, the rows are taken by index."""
_FEW_ROWS = 1_000
"""Up to so many rows, taking rows by index takes less time than a filter."""


@dataclass(frozen=True, slots=True)
class Segment:
    """An immutable set of rows, sorted by position.

    page: the number of its first page. bytes: the size of its rows, before compression. low, high:
    the smallest and largest position. oldest, newest: when its rows were touched, None if some rows
    have no time. token: the key of its rows in the cache.
    """

    page: int
    pages: int
    rows: int
    bytes: int
    low: int
    high: int
    oldest: int | None
    newest: int | None
    token: str

    def encode(self) -> list[Any]:
        """Encode the segment for the head page."""
        return [getattr(self, name) for name in self.__slots__]

    def is_expired(self, before: int | None) -> bool:
        """Return whether all its rows were touched before that time."""
        return before is not None and self.newest is not None and self.newest < before

    def bytes_between(self, low: int, high: int) -> int:
        """Return about how many bytes its rows between two positions have, both included.

        This assumes that the rows are evenly spread.
        """
        low, high = max(low, self.low), min(high, self.high)
        return self.bytes * (high - low + 1) // (self.high - self.low + 1) if low <= high else 0

    def expired_share(self, before: int) -> float:
        """Return which share of the time between its oldest and newest row lies before that time.

        This estimates the share of its rows that have expired.
        """
        if self.oldest is None or self.newest is None or self.oldest >= before:
            return 0.0
        return (before - self.oldest) / (self.newest - self.oldest + 1)


@dataclass(slots=True)
class Segments:
    """Writes and reads the segments of one table of a bucket.

    next: the number of the next page. written: the size of the rows written so far, before
    compression.
    """

    store: Store
    epoch: int
    table: str
    next: int
    cache: FrameCache
    written: int = 0

    def write(self, rows: pl.DataFrame, segment_bytes: int = SEGMENT_BYTES) -> list[Segment]:
        """Write rows, sorted by position, as segments of about `segment_bytes` bytes."""
        return [self._write(part) for part in _cut(rows, segment_bytes)]

    def read(self, segment: Segment) -> pl.DataFrame:
        """Return all rows of a segment."""
        cached = self.cache.get(segment.token)
        if cached is None:
            cached = _concat_pages([self._page(segment.page + at) for at in range(segment.pages)])
            self.cache.put(segment.token, cached)
        return cached

    def find_first(self, segment: Segment, positions: Positions) -> tuple[pl.DataFrame | None, npt.NDArray[np.bool_]]:
        """Return one row at each of these positions that has rows, None if none has.

        positions: sorted, unique. The second result tells for each position whether it has rows.
        """
        rows = self._read_spanning(segment, positions, positions)
        there = positions_of(rows)
        at = there.searchsorted(positions)
        hits = there.take(at, mode="clip") == positions if len(there) else np.zeros(len(positions), dtype=bool)
        return (take_rows(rows, at[hits]) if hits.any() else None), hits

    def find(self, segment: Segment, positions: Positions) -> pl.DataFrame:
        """Return the rows at these positions (sorted, unique)."""
        rows = self._read_spanning(segment, positions, positions)
        there = positions_of(rows)
        starts, stops = np.searchsorted(there, positions, "left"), np.searchsorted(there, positions, "right")
        return _take_ranges(rows, starts, stops)

    def between(self, segment: Segment, lows: Positions, highs: Positions) -> pl.DataFrame:
        """Return the rows in these ranges (sorted, disjoint; both ends included)."""
        rows = self._read_spanning(segment, lows, highs)
        there = positions_of(rows)
        starts, stops = np.searchsorted(there, lows, "left"), np.searchsorted(there, highs, "right")
        return _take_ranges(rows, starts, stops)

    def delete(self, segment: Segment) -> None:
        """Remove a segment without reading it."""
        for at in range(segment.pages):
            self.store.delete(self._key(segment.page + at, _ROWS))
        if segment.pages > 1:
            self.store.delete(self._key(segment.page, _INDEX))
        self.cache.drop(segment.token)

    def _write(self, rows: pl.DataFrame) -> Segment:
        size = max(1, int(rows.estimated_size()))
        step = max(1, PAGE_BYTES * rows.height // size)
        pages = encode_pages(rows, step)
        blobs = [blob for blob, _ in pages]
        digest = hashlib.sha256(self.next.to_bytes(8, "little"))
        for at, blob in enumerate(blobs):
            self.store.put(self._key(self.next + at, _ROWS), blob)
            digest.update(blob)
        self.written += size
        positions = rows[POSITION]
        if len(blobs) > 1:
            heights = pl.Series([height for _, height in pages])
            stops = heights.cum_sum()
            index = pl.DataFrame({"low": positions.gather(stops - heights), "high": positions.gather(stops - 1)})
            self.store.put(self._key(self.next, _INDEX), encode(index))
        has_times = TOUCHED in rows.columns and not rows[TOUCHED].null_count()
        segment = Segment(
            page=self.next,
            pages=len(blobs),
            rows=rows.height,
            bytes=size,
            low=positions[0],
            high=positions[-1],
            oldest=rows[TOUCHED].min() if has_times else None,  # type: ignore[arg-type]
            newest=rows[TOUCHED].max() if has_times else None,  # type: ignore[arg-type]
            token=urlsafe_b64encode(digest.digest()[:12]).decode(),
        )
        self.next += len(blobs)
        self.cache.put(segment.token, rows)
        return segment

    def _read_spanning(self, segment: Segment, lows: Positions, highs: Positions) -> pl.DataFrame:
        """Return rows of the segment: at least those in the given ranges (sorted, disjoint)."""
        if segment.pages == 1:
            return self.read(segment)
        cached = self.cache.get(segment.token)
        if cached is not None:
            return cached
        index = self._index(segment)
        wanted = highs.searchsorted(positions_of(index, "low")) < lows.searchsorted(
            positions_of(index, "high"), "right"
        )
        pages = {at: self.cache.get(f"{segment.token}-{at}") for at in np.flatnonzero(wanted).tolist()}
        missing = [at for at, page in pages.items() if page is None]
        if 2 * self.cache.record_misses(segment.token, len(missing)) > segment.pages:
            return self.read(segment)
        for at in missing:
            page = pages[at] = self._page(segment.page + at)
            self.cache.put(f"{segment.token}-{at}", page, shared=False)
        found = [page for page in pages.values() if page is not None]
        return _concat_pages(found) if found else pl.DataFrame(schema={POSITION: pl.Int64})

    def _index(self, segment: Segment) -> pl.DataFrame:
        token = f"{segment.token}-index"
        index = self.cache.get(token)
        if index is None:
            index = decode(self._get(segment.page, _INDEX))
            self.cache.put(token, index, shared=False)
        return index

    def _page(self, number: int) -> pl.DataFrame:
        return decode(self._get(number, _ROWS))

    def _get(self, number: int, part: int) -> bytes:
        blob = self.store.get(self._key(number, part))
        if blob is None:
            raise StateError.of("damaged-page", f"page {number} of the state table `{self.table}` is missing")
        return blob

    def _key(self, number: int, part: int) -> PageKey:
        return PageKey(self.epoch, self.table, number, part)


def positions_of(rows: pl.DataFrame, column: str = POSITION) -> Positions:
    """Return the positions of rows, without copying them."""
    return rows[column].to_numpy()


def take_rows(rows: pl.DataFrame, at: npt.NDArray[np.int64]) -> pl.DataFrame:
    """Return the rows at these indexes."""
    count = len(at)
    if not count:
        return rows.clear()
    if int(at[-1]) - int(at[0]) == count - 1 and (at[1:] > at[:-1]).all():  # a slice is much quicker
        return rows.slice(int(at[0]), count)
    return rows[pl.Series(at.astype(np.uint32))]


def _take_ranges(rows: pl.DataFrame, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> pl.DataFrame:
    """Return the rows of these ranges of indexes."""
    filled = np.flatnonzero(stops > starts)
    starts, counts = starts[filled], (stops - starts)[filled]
    if len(filled) <= _FEW_RANGES:
        parts = [rows.slice(start, count) for start, count in zip(starts, counts, strict=True)]
        return pl.concat(parts) if parts else rows.clear()
    ends = counts.cumsum()
    return take_rows(rows, np.arange(ends[-1]) + np.repeat(starts - ends + counts, counts))


def keep_rows(rows: pl.DataFrame, kept: pl.Series) -> pl.DataFrame:
    """Return the rows that are marked with TRUE; nothing is copied if all are."""
    if kept.all(ignore_nulls=False):
        return rows
    return take_rows(rows, np.flatnonzero(kept.to_numpy())) if rows.height <= _FEW_ROWS else rows.filter(kept)


def sort_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Sort rows by position; those of a position keep their order."""
    return rows if rows[POSITION].is_sorted() else rows.sort(POSITION, maintain_order=True)


def _concat_pages(pages: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(pages, rechunk=True) if len(pages) > 1 else pages[0]


def _cut(rows: pl.DataFrame, segment_bytes: int) -> list[pl.DataFrame]:
    """Cut rows into parts of about `segment_bytes` bytes, keeping rows of one position together."""
    if rows.is_empty():
        return []
    parts = round(rows.estimated_size() / segment_bytes)
    if parts < 2:
        return [rows]
    step = -(-rows.height // parts)
    positions = positions_of(rows)
    starts = [0, *np.unique(np.searchsorted(positions, positions[step::step], "left")).tolist()]
    stops = [*starts[1:], rows.height]
    return [rows.slice(start, stop - start) for start, stop in zip(starts, stops, strict=True) if stop > start]
