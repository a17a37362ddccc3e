"""A keyed table: rows of a bucket that are found by their keys, the newest version of each; TTL by a column `touched`.

Every row has a place `h` (Int64) that follows from its keys: equal keys have equal places, different keys may share one. Rows that are asked for
together should lie close together: the values of one group share the upper bits of their place.

The table is a log-structured merge tree. A write appends a run: its rows, sorted by place. Runs of one rank are merged into one of the next when there
are many, and when all runs together have grown large beside the base below them they are folded into it, range after range, a few in every
batch. A row is looked up in the runs from the newest to the oldest, then in the base. Rows that left are marked in runs, and gone when they
are folded into the base. The measurements behind the constants: docs/design/keyed-state.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from everfold.errors import StateError
from everfold.state.cache import FrameCache, frames
from everfold.state.segments import (
    DEAD,
    PAGE_BYTES,
    PLACE,
    SEGMENT_BYTES,
    TOUCHED,
    Places,
    Segment,
    Segments,
    places_of,
)
from everfold.state.store import Store

RANK_RUNS = 32
"""So many runs of a rank are merged into one of the next. A write of as many bytes as such a run begins there: small ones never rewrite it."""
MAX_MERGED_BYTES = 4 * SEGMENT_BYTES
"""Runs that are larger together are left to be folded into the base."""
BASE_SEGMENTS = 16
LEAST_SEGMENT_BYTES = SEGMENT_BYTES // 8
"""The base has so many segments or more if they are not too small for that: folding goes from one to the next, so they are its steps."""
FOLD_AT = 0.6
"""Folding begins when the runs have this share of the base's bytes."""
WORK = 1.75
"""How many bytes folding may write for each byte that a batch appends."""
_FIRST, _LAST = -1 << 63, (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Run:
    """The rows of a write, or of `RANK_RUNS` runs of the rank below: segments by place. `added`: how many more rows the table has by it."""

    rank: int
    added: int
    segments: list[Segment]

    @property
    def bytes(self) -> int:
        """Of its pages."""
        return sum(segment.bytes for segment in self.segments)


@dataclass(slots=True)
class KeyedTable:
    """Rows of a bucket, each found by its place `h` and its key columns; the newest version of a row counts.

    Columns other than `h`, `touched` (Int64, ms; never less in a later version of a row) and `dead` are the caller's. What an older
    query wrote may lack columns of a newer one: they are NULL.

    runs: newer than the base, oldest first. base: segments by place. folding: how many of the oldest runs are being folded into the
    base, and the place from which on that is to be done. credit: bytes that folding may write. allowance: pages that sweeping may write.
    """

    segments: Segments
    keys: tuple[str, ...]
    runs: list[Run] = field(default_factory=list)
    base: list[Segment] = field(default_factory=list)
    folding: tuple[int, int] | None = None
    credit: int = 0
    allowance: int = 0

    @classmethod
    def decode(
        cls,
        store: Store,
        epoch: int,
        name: str,
        keys: Sequence[str],
        state: dict[str, Any] | None,
        cache: FrameCache | None = None,
    ) -> KeyedTable:
        """From the head page; an empty table if it knows none. `cache`: this process's own if not given."""
        segments = Segments(store, epoch, name, state["next"] if state else 0, cache or frames())
        if state is None:
            return cls(segments, tuple(keys))
        runs = [Run(rank, added, [Segment(*each) for each in run]) for rank, added, run in state["runs"]]
        base = [Segment(*each) for each in state["base"]]
        folding = tuple(state["folding"]) if state["folding"] else None
        return cls(segments, tuple(keys), runs, base, folding, state["credit"], state["allowance"])

    def encode(self) -> dict[str, Any]:
        """For the head page."""
        return {
            "next": self.segments.next,
            "runs": [[run.rank, run.added, [each.encode() for each in run.segments]] for run in self.runs],
            "base": [each.encode() for each in self.base],
            "folding": self.folding,
            "credit": self.credit,
            "allowance": self.allowance,
        }

    @property
    def rows(self) -> int:
        """Rows that have not left. Exact without TTL; a row that expired counts until it is merged away."""
        return max(0, sum(segment.rows for segment in self.base) + sum(run.added for run in self.runs))

    def find(self, wanted: pl.DataFrame, *, expired_before: int | None = None) -> pl.DataFrame:
        """The rows of these keys, one at most for each. `wanted`: `h` and the key columns, no key twice; others are ignored.

        Rows touched before `expired_before` are absent. The result has `h`, the keys and the columns that the pages read had; with no
        page read only `h` and the keys. StateError `damaged-page` or `foreign-state`.
        """
        wanted = wanted.select(PLACE, *self.keys).sort(PLACE)
        found = self._by_place(wanted, expired_before)
        if found is None:
            found = self._by_keys(wanted, expired_before)
        return _live(pl.concat([wanted.clear(), *found], how="diagonal_relaxed"), expired_before)

    def scan(self, ranges: pl.DataFrame, *, expired_before: int | None = None) -> pl.DataFrame:
        """All rows with a place in one of the ranges, as `find` gives them. `ranges`: `low` and `high`, both included, Int64."""
        ranges = _disjoint(ranges)
        lows, highs = places_of(ranges, "low"), places_of(ranges, "high")
        versions = []
        for level in reversed(self._levels()):
            for segment in level:
                inside = slice(highs.searchsorted(segment.low), lows.searchsorted(segment.high, "right"))
                if inside.start < inside.stop and not segment.expired(expired_before):
                    part = self.segments.between(segment, lows[inside], highs[inside])
                    if part.height:
                        versions.append(self._checked(part))
        if not versions:
            return pl.DataFrame(schema={PLACE: pl.Int64})
        return _live(self._newest(versions), expired_before)

    def all(self, *, expired_before: int | None = None) -> pl.DataFrame:
        """All rows, as `find` gives them."""
        everywhere = pl.DataFrame({"low": [_FIRST], "high": [_LAST]}, schema={"low": pl.Int64, "high": pl.Int64})
        return self.scan(everywhere, expired_before=expired_before)

    def write(
        self,
        rows: pl.DataFrame,
        dead: pl.DataFrame | None = None,
        *,
        added: int,
        expired_before: int | None = None,
    ) -> None:
        """New versions of whole rows (`h`, keys, any columns), no key twice; `dead`: `h`, keys (and `touched` if the table has it) of
        rows that leave.

        added: how many of `rows` were not there before, less the number of `dead`. Folding takes rows touched before `expired_before` away.
        """
        if dead is not None and dead.height:
            when = [TOUCHED] if TOUCHED in dead.columns else []
            gone = dead.select(PLACE, *self.keys, *when, pl.lit(True).alias(DEAD))
            rows = pl.concat([rows, gone], how="diagonal")
        if rows.height:
            self._append(rows.sort(PLACE), added)
        self._fold(int(rows.estimated_size()), expired_before)

    def sweep(self, expired_before: int, budget_pages: int) -> None:
        """Takes rows that have expired off the disk: whole segments unread, and others by rewriting them, so many pages a call on average."""
        for segment in [each for level in self._levels() for each in level if each.expired(expired_before)]:
            self.segments.delete(segment)
        self.base = [each for each in self.base if not each.expired(expired_before)]
        self.runs = [
            replace(
                run,
                added=run.added if any(not each.expired(expired_before) for each in run.segments) else 0,
                segments=[each for each in run.segments if not each.expired(expired_before)],
            )
            for run in self.runs
        ]
        if self.folding is None:
            self.runs = [run for run in self.runs if run.segments]
        worth = [at for at, each in enumerate(self.base) if each.expired_share(expired_before) >= 0.25]
        if not worth:
            self.allowance = 0
            return
        self.allowance += budget_pages
        at = min(worth, key=lambda at: self.base[at].oldest or 0)
        if self.allowance >= self.base[at].pages:
            self.allowance = 0
            rows = _unexpired(self.segments.read(self.base[at]), expired_before)
            self.segments.delete(self.base[at])
            self.base[at : at + 1] = self.segments.write(rows, self._step_bytes)

    def _by_place(self, wanted: pl.DataFrame, expired_before: int | None) -> list[pl.DataFrame] | None:
        """The newest versions of these keys as long as no two keys meet in one place; None if some do."""
        places = left = places_of(wanted)
        if (places[1:] == places[:-1]).any():
            return None
        found = []
        for level in self._levels():
            missed = np.ones(len(left), dtype=bool)
            for segment, inside in _spread(level, left, expired_before):
                rows, hits = self.segments.find_first(segment, left[inside])
                if rows is not None:
                    found.append(rows)
                    missed[inside] = ~hits
            left = left[missed]
            if not len(left):
                break
        if not found:
            return found
        rows = self._checked(pl.concat(found, how="diagonal_relaxed", rechunk=True))
        pairs = wanted[places.searchsorted(places_of(rows))]
        return [rows] if all(rows[key].eq_missing(pairs[key]).all() for key in self.keys) else None

    def _by_keys(self, wanted: pl.DataFrame, expired_before: int | None) -> list[pl.DataFrame]:
        """The newest versions of these keys."""
        found = []
        for level in self._levels():
            places = np.unique(places_of(wanted))
            spread = _spread(level, places, expired_before)
            parts = [self.segments.find(segment, places[inside]) for segment, inside in spread]
            parts = [part for part in parts if part.height]
            if parts:
                rows = self._checked(pl.concat(parts, how="diagonal_relaxed"))
                on = [PLACE, *self.keys]
                found.append(rows.join(wanted, on=on, how="semi", nulls_equal=True))
                wanted = wanted.join(rows, on=on, how="anti", nulls_equal=True)
        return found

    @property
    def _step_bytes(self) -> int:
        """How many bytes a segment of the base is to have."""
        share = sum(each.bytes for level in self._levels() for each in level) // BASE_SEGMENTS
        return min(max(share, LEAST_SEGMENT_BYTES), SEGMENT_BYTES)

    def _levels(self) -> list[list[Segment]]:
        """Newest first."""
        return [*(run.segments for run in reversed(self.runs)), self.base]

    def _append(self, rows: pl.DataFrame, added: int) -> None:
        """Adds a run, merged with those before it if they are many or all of the table is small."""
        every = [each for level in reversed(self._levels()) for each in level]
        if not every or (not self.folding and rows.estimated_size() + sum(each.bytes for each in every) <= PAGE_BYTES):
            self.runs, self.folding = [], None
            self.base = self.segments.write(_without_dead(self._merged(every, rows)))
            return
        rank = int(rows.estimated_size() > MAX_MERGED_BYTES // RANK_RUNS)
        merged: list[Run] = []
        while tail := self._tail(rank):
            merged = tail + merged
            del self.runs[-len(tail) :]
            rank += 1
        rows = self._merged([each for run in merged for each in run.segments], rows)
        self.runs.append(Run(rank, added + sum(run.added for run in merged), self.segments.write(rows)))

    def _tail(self, rank: int) -> list[Run]:
        """The newest runs if they are to become one with a new one of this rank: enough of them have it, and they are not too large."""
        frozen = self.folding[0] if self.folding else 0
        tail = self.runs[max(frozen, len(self.runs) - RANK_RUNS + 1) :]
        if len(tail) < RANK_RUNS - 1 or any(run.rank != rank for run in tail):
            return []
        return tail if sum(run.bytes for run in tail) <= MAX_MERGED_BYTES else []

    def _merged(self, old: list[Segment], rows: pl.DataFrame) -> pl.DataFrame:
        """Newer rows and those of segments, which are no longer needed."""
        rows = self._newest([*map(self.segments.read, old), rows])
        for segment in old:
            self.segments.delete(segment)
        return rows

    def _fold(self, appended: int, expired_before: int | None) -> None:
        """Folds runs into the base, as far as the credit goes that the bytes appended since it began have given."""
        if self.folding is None:
            newer, older = sum(run.bytes for run in self.runs), sum(segment.bytes for segment in self.base)
            if not self.runs or newer < FOLD_AT * older:
                return
            self.folding, self.credit = (len(self.runs), _FIRST), 0
        self.credit += int(WORK * appended)
        while self.credit > 0 and self.folding is not None:
            before = self.segments.written
            self._fold_next(*self.folding, expired_before)
            self.credit -= self.segments.written - before

    def _fold_next(self, count: int, low: int, expired_before: int | None) -> None:
        """Folds the next range of the `count` oldest runs, from `low` on: that of a segment of the base, or of several small ones."""
        first = next((at for at, each in enumerate(self.base) if each.low >= low), len(self.base))
        stop, size = first, 0
        step_bytes = self._step_bytes
        while stop < len(self.base) and size < step_bytes // 2:
            size += self.base[stop].bytes
            stop += 1
        high = self.base[stop].low - 1 if stop < len(self.base) else _LAST
        news = [
            self.segments.between(each, np.array([low]), np.array([high]))
            for run in self.runs[:count]
            for each in run.segments
            if each.high >= low and each.low <= high
        ]
        news = [part for part in news if part.height]
        if news:
            old = self.base[first:stop]
            versions = [*map(self.segments.read, old), *news]
            high = min(high, _nearer(versions, step_bytes))
            folded = _without_dead(self._newest([_upto(part, high) for part in versions]))
            before = sum(_upto(part, high).height for part in versions[: len(old)])
            self.runs[0] = replace(self.runs[0], added=self.runs[0].added - folded.height + before)
            for segment in old:
                self.segments.delete(segment)
            rest = [part.slice(_upto(part, high).height) for part in versions[: len(old)]]
            self.base[first:stop] = [
                segment
                for part in (_unexpired(folded, expired_before), *rest)
                for segment in self.segments.write(part, step_bytes)
            ]
        if high < _LAST:
            self.folding = count, high + 1
            return
        for run in self.runs[:count]:
            for each in run.segments:
                self.segments.delete(each)
        del self.runs[:count]
        self.folding = None

    def _newest(self, versions: list[pl.DataFrame]) -> pl.DataFrame:
        """The newest version of each row, sorted by place; versions are given oldest first, none with a key twice."""
        if len(versions) == 1:
            return versions[0]
        rows = pl.concat(map(self._checked, versions), how="diagonal_relaxed").sort(PLACE, maintain_order=True)
        places = places_of(rows)
        meet = np.append(places[1:] == places[:-1], False)
        if not meet.any():
            return rows
        following = rows.select(pl.col(*self.keys).shift(-1)) if self.keys else rows
        equal = [rows[key].eq_missing(following[key]).to_numpy() for key in self.keys]
        outdated = np.logical_and.reduce([meet, *equal])
        if (meet & ~outdated).any():
            return rows.unique(subset=[PLACE, *self.keys], keep="last", maintain_order=True)
        return rows.filter(~outdated)

    def _checked(self, rows: pl.DataFrame) -> pl.DataFrame:
        for key in self.keys:
            if key not in rows.columns:
                raise StateError.of(
                    "foreign-state",
                    f"the state lacks the key `{key.removeprefix('key ')}`",
                    help="the state belongs to a query with other keys: start a new job, or reset the operator",
                )
        return rows


def _spread(level: Sequence[Segment], places: Places, expired_before: int | None) -> Iterator[tuple[Segment, slice]]:
    """The segments of a level that span some of the places (sorted) and may have a row that lives, each with where those stand."""
    for segment in level:
        if not segment.expired(expired_before):
            inside = slice(places.searchsorted(segment.low), places.searchsorted(segment.high, "right"))
            if inside.start < inside.stop:
                yield segment, inside


def _nearer(versions: Sequence[pl.DataFrame], step_bytes: int) -> int:
    """A place up to which these rows, each part sorted by place, have about two steps' bytes; the last one of all if they have less."""
    size = sum(part.estimated_size() for part in versions)
    if size <= 4 * step_bytes:
        return _LAST
    longest = max(versions, key=len)
    return int(places_of(longest)[int(longest.height * 2 * step_bytes / size)])


def _upto(rows: pl.DataFrame, high: int) -> pl.DataFrame:
    """Rows at places up to that, out of rows sorted by place."""
    return rows.head(int(places_of(rows).searchsorted(high, "right")))


def _disjoint(ranges: pl.DataFrame) -> pl.DataFrame:
    """Ranges sorted, those that overlap joined."""
    ranges = ranges.select("low", "high").sort("low")
    begins = (pl.col("low") > pl.col("high").cum_max().shift()).fill_null(True)
    return ranges.group_by(begins.cum_sum().alias("range"), maintain_order=True).agg(
        pl.col("low").first(), pl.col("high").max()
    )


def _without_dead(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col(DEAD).is_null()).drop(DEAD) if DEAD in rows.columns else rows


def _unexpired(rows: pl.DataFrame, expired_before: int | None) -> pl.DataFrame:
    if expired_before is None or TOUCHED not in rows.columns:
        return rows
    # Rows of a time without TTL do not know when they were touched: they stay until they are written again.
    return rows.filter(pl.col(TOUCHED).is_null() | (pl.col(TOUCHED) >= expired_before))


def _live(rows: pl.DataFrame, expired_before: int | None) -> pl.DataFrame:
    return _unexpired(_without_dead(rows), expired_before)
