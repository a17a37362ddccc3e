"""Segments: rows sorted by place that were written at once and never change, in pages of a table.

A page holds some rows of a segment; an index page says which places each of them spans, so a few rows cost a few pages. A segment that is read again and
again is taken whole into the cache of the worker; its token is the digest of its pages and of the first one's number.
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
from everfold.state.pages import MAX_PAGE_BYTES, decode, encode
from everfold.state.store import PageKey, Store

PLACE, TOUCHED, DEAD = "h", "touched", "dead"
"""Int64: where a row lies. Int64, ms: when its newest version was written. Boolean: TRUE in rows that say that a row left."""
PAGE_BYTES = 32 << 10
SEGMENT_BYTES = 4 << 20
"""A longer run of rows is cut into segments of about this size at most, but never between rows of one place."""
Places: TypeAlias = npt.NDArray[np.int64]
_ROWS, _INDEX = 0, 1


@dataclass(frozen=True, slots=True)
class Segment:
    """page: number of its first page. low, high: least and greatest place. oldest, newest: when its rows were touched, None if some have
    no time. token: what its rows are called in the cache."""

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
        """For the head page."""
        return [getattr(self, name) for name in self.__slots__]

    def expired(self, before: int | None) -> bool:
        """Whether all its rows were touched before that."""
        return before is not None and self.newest is not None and self.newest < before

    def expired_share(self, before: int) -> float:
        """How much of the time between its oldest and its newest row lies before that: about the share of rows that have expired."""
        if self.oldest is None or self.newest is None or self.oldest >= before:
            return 0.0
        return (before - self.oldest) / (self.newest - self.oldest + 1)


@dataclass(slots=True)
class Segments:
    """Writes and reads the segments of one table of a bucket. `next`: number of the next page. `written`: bytes written so far."""

    store: Store
    epoch: int
    table: str
    next: int
    cache: FrameCache
    written: int = 0

    def write(self, rows: pl.DataFrame, segment_bytes: int = SEGMENT_BYTES) -> list[Segment]:
        """Rows, sorted by place, as segments of about so many bytes."""
        return [self._write(part) for part in _cut(rows, segment_bytes)]

    def read(self, segment: Segment) -> pl.DataFrame:
        """All rows."""
        known = self.cache.get(segment.token)
        if known is None:
            known = _together([self._page(segment.page + at) for at in range(segment.pages)])
            self.cache.put(segment.token, known)
        return known

    def find_first(self, segment: Segment, places: Places) -> tuple[pl.DataFrame | None, npt.NDArray[np.bool_]]:
        """A row at each of these places (sorted, unique) that has one, None if none has; and which have."""
        rows = self._spanning(segment, places, places)
        there = places_of(rows)
        at = there.searchsorted(places)
        hits = there.take(at, mode="clip") == places if len(there) else np.zeros(len(places), dtype=bool)
        return (_taken(rows, at[hits]) if hits.any() else None), hits

    def find(self, segment: Segment, places: Places) -> pl.DataFrame:
        """The rows at these places (sorted, unique)."""
        rows = self._spanning(segment, places, places)
        there = places_of(rows)
        starts, stops = np.searchsorted(there, places, "left"), np.searchsorted(there, places, "right")
        counts = stops - starts
        if counts.max() > 1:
            # Places that several rows share: their ranges, one behind the other.
            ends = counts.cumsum()
            return _taken(rows, np.arange(ends[-1]) + np.repeat(starts - ends + counts, counts))
        return _taken(rows, starts[counts == 1])

    def between(self, segment: Segment, lows: Places, highs: Places) -> pl.DataFrame:
        """The rows in these ranges (sorted, disjoint; both ends included)."""
        rows = self._spanning(segment, lows, highs)
        there = places_of(rows)
        starts, stops = np.searchsorted(there, lows, "left"), np.searchsorted(there, highs, "right")
        parts = [rows.slice(start, stop - start) for start, stop in zip(starts, stops, strict=True) if stop > start]
        return pl.concat(parts) if parts else rows.clear()

    def delete(self, segment: Segment) -> None:
        """Removes a segment; nothing is read."""
        for at in range(segment.pages):
            self.store.delete(self._key(segment.page + at, _ROWS))
        if segment.pages > 1:
            self.store.delete(self._key(segment.page, _INDEX))
        self.cache.drop(segment.token)

    def _write(self, rows: pl.DataFrame) -> Segment:
        blobs, heights = _paged(rows)
        digest = hashlib.blake2b(self.next.to_bytes(8, "little"), digest_size=12)
        for at, blob in enumerate(blobs):
            self.store.put(self._key(self.next + at, _ROWS), blob)
            digest.update(blob)
            self.written += len(blob)
        places = rows[PLACE]
        if len(blobs) > 1:
            stops = pl.Series(heights).cum_sum()
            index = pl.DataFrame({"low": places.gather(stops - pl.Series(heights)), "high": places.gather(stops - 1)})
            blob = encode(index)
            self.store.put(self._key(self.next, _INDEX), blob)
            self.written += len(blob)
        timed = TOUCHED in rows.columns and not rows[TOUCHED].null_count()
        segment = Segment(
            page=self.next,
            pages=len(blobs),
            rows=rows.height,
            bytes=sum(map(len, blobs)),
            low=places[0],
            high=places[-1],
            oldest=rows[TOUCHED].min() if timed else None,  # type: ignore[arg-type]
            newest=rows[TOUCHED].max() if timed else None,  # type: ignore[arg-type]
            token=urlsafe_b64encode(digest.digest()).decode(),
        )
        self.next += len(blobs)
        self.cache.put(segment.token, rows)
        return segment

    def _spanning(self, segment: Segment, lows: Places, highs: Places) -> pl.DataFrame:
        """Rows of the segment, at least all those in one of the ranges (sorted, disjoint)."""
        if segment.pages == 1:
            return self.read(segment)
        known = self.cache.get(segment.token)
        if known is not None:
            return known
        index = self._index(segment)
        wanted = highs.searchsorted(places_of(index, "low")) < lows.searchsorted(places_of(index, "high"), "right")
        pages = {at: self.cache.get(f"{segment.token}-{at}") for at in np.flatnonzero(wanted).tolist()}
        missing = [at for at, page in pages.items() if page is None]
        if 2 * self.cache.missed(segment.token, len(missing)) > segment.pages:
            return self.read(segment)
        for at in missing:
            page = pages[at] = self._page(segment.page + at)
            self.cache.put(f"{segment.token}-{at}", page, shared=False)
        found = [page for page in pages.values() if page is not None]
        return _together(found) if found else pl.DataFrame(schema={PLACE: pl.Int64})

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


def places_of(rows: pl.DataFrame, column: str = PLACE) -> Places:
    """The places of rows, not copied."""
    return rows[column].to_numpy()


def _taken(rows: pl.DataFrame, at: npt.NDArray[np.int64]) -> pl.DataFrame:
    return rows[pl.Series(at.astype(np.uint32))]


def _together(pages: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(pages, rechunk=True) if len(pages) > 1 else pages[0]


def _cut(rows: pl.DataFrame, segment_bytes: int) -> list[pl.DataFrame]:
    """Rows in parts of about so many bytes, rows of one place together."""
    if rows.is_empty():
        return []
    parts = round(rows.estimated_size() / segment_bytes)
    if parts < 2:
        return [rows]
    step = -(-rows.height // parts)
    places = places_of(rows)
    starts = [0, *np.unique(np.searchsorted(places, places[step::step], "left")).tolist()]
    stops = [*starts[1:], rows.height]
    return [rows.slice(start, stop - start) for start, stop in zip(starts, stops, strict=True) if stop > start]


def _paged(rows: pl.DataFrame) -> tuple[list[bytes], list[int]]:
    """Rows as pages of about `PAGE_BYTES`, and how many rows each has; none is larger than pages may be unless a single row is."""
    step = max(1, PAGE_BYTES * rows.height // max(1, int(rows.estimated_size())))
    blobs: list[bytes] = []
    heights: list[int] = []
    waiting = [rows.slice(start, step) for start in range(0, rows.height, step)][::-1]
    while waiting:
        part = waiting.pop()
        blob = encode(part)
        if len(blob) > MAX_PAGE_BYTES and part.height > 1:
            half = part.height // 2
            waiting += [part.slice(half), part.head(half)]
        else:
            blobs.append(blob)
            heights.append(part.height)
    return blobs, heights
