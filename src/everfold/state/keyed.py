"""A keyed table: the newest version of each row of a bucket, found by key, with optional TTL.

Each row has a position `h` (Int64) derived from its keys: equal keys have equal positions, and
different keys may share one. Rows that are read together should be stored close together: the
values of one group share the upper bits of their position. TTL uses the column `touched`.

The table is a log-structured merge tree. A write appends a run: its rows, sorted by position. When
a rank has many runs, they are merged into one run of the next rank. When their rows that replace or
delete others have grown large compared with the base below them, or when there are many runs, they
are folded into it, range by range, as writes pay for it. A row is looked up in the runs from
the newest to the oldest, then in the base. Deleted rows are marked in runs and disappear when the
runs are folded into the base.
docs/design/keyed-state.md has the measurements behind the constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from everfold.errors import StateError
from everfold.state.cache import FrameCache, frame_cache
from everfold.state.segments import (
    DEAD,
    POSITION,
    SEGMENT_BYTES,
    TOUCHED,
    Positions,
    Segment,
    Segments,
    keep_rows,
    positions_of,
    sort_rows,
    take_rows,
)
from everfold.state.store import Store

RANK_RUNS = 32
"""Number of runs of a rank that are merged into one of the next."""
MAX_MERGED_BYTES = 2 * SEGMENT_BYTES
"""Runs of the lowest rank are merged as soon as they have this size together.

Runs of other ranks are not merged if they have it, only folded into the base. A write of more than
this divided by `MANY_RUNS` does not have the lowest rank, so that small writes never rewrite it.
"""
SMALL_BYTES = 32 << 10
"""A table of up to this size is rewritten by every write."""
BASE_SEGMENTS = 16
MIN_SEGMENT_BYTES = SEGMENT_BYTES // 16
"""The base has at least `BASE_SEGMENTS` segments unless they would be smaller than this.

Folding proceeds from one segment to the next, so segments are its steps.
"""
FOLD_AT = 0.6
"""Folding starts when the rows of the runs that replace or delete others have this share of the
base's bytes.
"""
MANY_RUNS = 16
"""With so many runs, folding starts when all their rows have this share: new rows take no space
twice, but each lookup passes every run.
"""
FOLD_BYTES_PER_APPENDED_BYTE = 1.75
"""Number of bytes that folding may write for each byte that a batch appends."""
_FIRST, _LAST = -1 << 63, (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Run:
    """The rows of a write or of several runs of the rank below: segments sorted by position.

    added: the number of rows that the run adds to the table.
    """

    rank: int
    added: int
    segments: list[Segment]

    @property
    def bytes(self) -> int:
        """The size of its rows, before compression."""
        return sum(segment.bytes for segment in self.segments)

    @property
    def replacing_bytes(self) -> float:
        """About the size of its rows that replace or delete rows of the table."""
        rows = sum(segment.rows for segment in self.segments)
        return self.bytes * (1 - self.added / rows) if rows else 0.0


@dataclass(slots=True)
class KeyedTable:
    """Rows of a bucket, found by position `h` and key columns; the newest version of a row counts.

    Columns other than `h`, `touched` (Int64, ms; never smaller in a later version of a row) and
    `dead` belong to the caller. Rows written by an older query may lack columns of a newer one:
    these are NULL.

    runs: newer than the base, oldest first. base: segments sorted by position. folding: the number
    of oldest runs that are being folded into the base, and the position from which folding
    continues. credit: bytes that folding may write. allowance: pages that sweeping may write.
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
        """Decode the table from its head page entry; an empty table if there is none.

        cache: defaults to the cache of this process.
        """
        segments = Segments(store, epoch, name, state["next"] if state else 0, cache or frame_cache())
        if state is None:
            return cls(segments, tuple(keys))
        runs = [Run(rank, added, [Segment(*each) for each in run]) for rank, added, run in state["runs"]]
        base = [Segment(*each) for each in state["base"]]
        folding = tuple(state["folding"]) if state["folding"] else None
        return cls(segments, tuple(keys), runs, base, folding, state["credit"], state["allowance"])

    def encode(self) -> dict[str, Any]:
        """Encode the table for the head page."""
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
        """The number of live rows.

        Exact without TTL; an expired row counts until it is merged away.
        """
        return max(0, sum(segment.rows for segment in self.base) + sum(run.added for run in self.runs))

    def find(self, wanted: pl.DataFrame, *, expired_before: int | None = None) -> pl.DataFrame:
        """Return the rows of these keys, at most one for each.

        wanted: `h` and the key columns, no key twice; other columns are ignored. Rows touched
        before `expired_before` are omitted. The result has `h`, the keys and the columns of the
        pages that were read; if no page was read, only `h` and the keys. Raises StateError
        `damaged-page` or `foreign-state`.
        """
        columns = [POSITION, *self.keys]
        wanted = sort_rows(wanted if wanted.columns == columns else wanted[columns])
        positions = positions_of(wanted)
        repeated = np.append(positions[1:] == positions[:-1], False)
        repeated[1:] |= repeated[:-1]
        alone = keep_rows(wanted, pl.Series(~repeated))
        found, missed = self._find_by_position(alone, expired_before)
        if repeated.any():
            missed = _concat([missed, keep_rows(wanted, pl.Series(repeated))])
        if missed.height:
            found += self._find_by_keys(missed, expired_before)
        return _keep_live(_concat([wanted.clear(), *found]), expired_before)

    def scan(self, ranges: tuple[Positions, Positions], *, expired_before: int | None = None) -> pl.DataFrame:
        """Return all rows with a position in one of the ranges, in the form of `find`.

        ranges: their lowest positions and their highest ones, both included.
        """
        lows, highs = _merge_ranges(*ranges)
        versions = []
        for level in reversed(self._levels()):
            for segment in level:
                inside = slice(highs.searchsorted(segment.low), lows.searchsorted(segment.high, "right"))
                if inside.start < inside.stop and not segment.is_expired(expired_before):
                    part = self.segments.between(segment, lows[inside], highs[inside])
                    if part.height:
                        versions.append(self._check_keys(part))
        if not versions:
            return pl.DataFrame(schema={POSITION: pl.Int64})
        return _keep_live(self._newest_versions(versions), expired_before)

    def all(self, *, expired_before: int | None = None) -> pl.DataFrame:
        """Return all rows, in the form of `find`."""
        return self.scan((np.array([_FIRST]), np.array([_LAST])), expired_before=expired_before)

    def write(
        self,
        rows: pl.DataFrame,
        dead: pl.DataFrame | None = None,
        *,
        added: int,
        expired_before: int | None = None,
    ) -> None:
        """Write new versions of whole rows (`h`, keys, any columns), no key twice.

        dead: `h`, keys (and `touched` if the table has it) of the rows to delete. added: the number
        of `rows` that are new to the table, less the number of `dead`. Folding removes rows touched
        before `expired_before`.
        """
        if dead is not None and dead.height:
            when = [TOUCHED] if TOUCHED in dead.columns else []
            marks = pl.Series(DEAD, np.ones(dead.height, dtype=bool))
            deleted = dead[[POSITION, *self.keys, *when]].hstack([marks])
            rows = pl.concat([rows, deleted], how="diagonal")
        if rows.height:
            self._append(rows, added)
        self._fold(int(rows.estimated_size()), expired_before)

    def sweep(self, expired_before: int, budget_pages: int) -> None:
        """Delete expired rows: whole segments without reading them, others by rewriting them.

        budget_pages: the number of pages that a call may rewrite on average.
        """
        for segment in [each for level in self._levels() for each in level if each.is_expired(expired_before)]:
            self.segments.delete(segment)
        self.base = [each for each in self.base if not each.is_expired(expired_before)]
        self.runs = [
            replace(
                run,
                added=run.added if any(not each.is_expired(expired_before) for each in run.segments) else 0,
                segments=[each for each in run.segments if not each.is_expired(expired_before)],
            )
            for run in self.runs
        ]
        if self.folding is None:
            self.runs = [run for run in self.runs if run.segments]
        sweepable = [at for at, each in enumerate(self.base) if each.expired_share(expired_before) >= 0.25]
        if not sweepable:
            self.allowance = 0
            return
        self.allowance += budget_pages
        at = min(sweepable, key=lambda at: self.base[at].oldest or 0)
        if self.allowance >= self.base[at].pages:
            self.allowance = 0
            rows = _drop_expired(self.segments.read(self.base[at]), expired_before)
            self.segments.delete(self.base[at])
            self.base[at : at + 1] = self.segments.write(rows, self._step_bytes)

    def _find_by_position(
        self, wanted: pl.DataFrame, expired_before: int | None
    ) -> tuple[list[pl.DataFrame], pl.DataFrame]:
        """Return the newest versions of keys, none of which share a position, and the keys at whose
        position another one was found.
        """
        positions = left = positions_of(wanted)
        found = []
        for level in self._levels() if len(left) else ():
            missed = np.ones(len(left), dtype=bool)
            for segment, inside in _split_by_segment(level, left, expired_before):
                rows, hits = self.segments.find_first(segment, left[inside])
                if rows is not None:
                    found.append(rows)
                    missed[inside] = ~hits
            left = left[missed]
            if not len(left):
                break
        if not found:
            return found, wanted.clear()
        rows = self._check_keys(_concat(found).rechunk())
        pairs = take_rows(wanted, positions.searchsorted(positions_of(rows)))
        if self._have_equal_keys(rows, pairs):
            return [rows], wanted.clear()
        equal = pl.Series(np.ones(rows.height, dtype=bool))
        for key in self.keys:
            equal &= rows[key].eq_missing(pairs[key])
        return [keep_rows(rows, equal)], sort_rows(keep_rows(pairs, ~equal))

    def _find_by_keys(self, wanted: pl.DataFrame, expired_before: int | None) -> list[pl.DataFrame]:
        """Return the newest versions of these keys; keys may share a position."""
        found = []
        for level in self._levels():
            positions = np.unique(positions_of(wanted))
            spread = _split_by_segment(level, positions, expired_before)
            parts = [self.segments.find(segment, positions[inside]) for segment, inside in spread]
            parts = [part for part in parts if part.height]
            if parts:
                rows = self._check_keys(_concat(parts))
                on = [POSITION, *self.keys]
                found.append(rows.join(wanted, on=on, how="semi", nulls_equal=True))
                wanted = wanted.join(rows, on=on, how="anti", nulls_equal=True)
        return found

    @property
    def _bytes(self) -> int:
        """The size of all versions of its rows, before compression."""
        return sum(each.bytes for level in self._levels() for each in level)

    @property
    def _step_bytes(self) -> int:
        """The target size of a segment of the base in bytes."""
        return min(max(self._bytes // BASE_SEGMENTS, MIN_SEGMENT_BYTES), SEGMENT_BYTES)

    def _levels(self) -> list[list[Segment]]:
        """Return the segments of each run and of the base, newest first."""
        return [*(run.segments for run in reversed(self.runs)), self.base]

    def _append(self, rows: pl.DataFrame, added: int) -> None:
        """Append a run, merged with earlier ones if there are many or the whole table is small."""
        every = [each for level in reversed(self._levels()) for each in level]
        if not every or (not self.folding and rows.estimated_size() + sum(each.bytes for each in every) <= SMALL_BYTES):
            self.runs, self.folding = [], None
            self.base = self.segments.write(_drop_dead(self._merge(every, rows)))
            return
        rank = int(rows.estimated_size() > MAX_MERGED_BYTES // MANY_RUNS)
        merged: list[Run] = []
        while tail := self._tail(rank):
            merged = tail + merged
            del self.runs[-len(tail) :]
            rank += 1
        rows = self._merge([each for run in merged for each in run.segments], rows)
        self.runs.append(Run(rank, added + sum(run.added for run in merged), self.segments.write(rows)))

    def _tail(self, rank: int) -> list[Run]:
        """Return the newest runs if they should be merged with a new run of this rank, else none.

        They should if enough of them have that rank and they are not too large together; those of
        the lowest rank as soon as they are large.
        """
        frozen = self.folding[0] if self.folding else 0
        newest = self.runs[max(frozen, len(self.runs) - RANK_RUNS + 1) :]
        others = next((at for at in reversed(range(len(newest))) if newest[at].rank != rank), -1)
        tail = newest[others + 1 :]
        if sum(run.bytes for run in tail) >= MAX_MERGED_BYTES:
            return tail if rank == 0 else []
        return tail if len(tail) == RANK_RUNS - 1 else []

    def _merge(self, old: list[Segment], rows: pl.DataFrame) -> pl.DataFrame:
        """Merge newer rows with the rows of old segments, sorted by position, and delete these
        segments.
        """
        rows = self._newest_versions([*map(self.segments.read, old), rows]) if old else sort_rows(rows)
        for segment in old:
            self.segments.delete(segment)
        return rows

    def _fold(self, appended: int, expired_before: int | None) -> None:
        """Fold runs into the base, range by range, while the credit covers the next range.

        Each appended byte adds to the credit.
        """
        if self.folding is None:
            if not self._should_fold():
                return
            self.folding = len(self.runs), _FIRST
            if self._bytes <= 2 * self._step_bytes:
                self.credit = self._bytes
            else:  # the lowest positions differ, so that not all buckets fold in the same batches
                newest = next(segment for level in self._levels() for segment in level)
                self.credit = -(newest.low % self._next_range(*self.folding)[-1])
        self.credit += int(FOLD_BYTES_PER_APPENDED_BYTE * appended)
        while self.folding is not None:
            first, stop, cost = self._next_range(*self.folding)
            if self.credit < cost:
                break
            before = self.segments.written
            self._fold_range(*self.folding, first, stop, expired_before)
            self.credit -= self.segments.written - before

    def _should_fold(self) -> bool:
        counted = sum(run.bytes if len(self.runs) >= MANY_RUNS else run.replacing_bytes for run in self.runs)
        return bool(self.runs) and counted >= FOLD_AT * sum(segment.bytes for segment in self.base)

    def _next_range(self, count: int, low: int) -> tuple[int, int, int]:
        """Return which segments of the base are folded next with the `count` oldest runs, starting
        at `low`: the first, the one after the last, and about how many bytes this will write.
        """
        first = next((at for at, each in enumerate(self.base) if each.low >= low), len(self.base))
        highs = [*(each.low - 1 for each in self.base[first + 1 :]), _LAST]
        news = [each for run in self.runs[:count] for each in run.segments]
        step_bytes, stop, old, new = self._step_bytes, first, 0, 0
        for stop, high in enumerate(highs, first + 1):
            old += sum(each.bytes for each in self.base[stop - 1 : stop])
            new += sum(each.bytes_between(low, high) for each in news)
            if old + new >= step_bytes:
                break
            low = high + 1
        return first, stop, old + (new if old + new <= 2 * step_bytes else step_bytes)

    def _fold_range(self, count: int, low: int, first: int, stop: int, expired_before: int | None) -> None:
        """Fold the rows of the `count` oldest runs, starting at `low`, into these segments of the
        base.

        If there are many rows, only the lower ones are folded.
        """
        step_bytes = self._step_bytes
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
            high = min(high, _fold_limit(versions, step_bytes))
            folded = _drop_dead(self._newest_versions([_rows_up_to(part, high) for part in versions]))
            before = sum(_rows_up_to(part, high).height for part in versions[: len(old)])
            self.runs[0] = replace(self.runs[0], added=self.runs[0].added - folded.height + before)
            for segment in old:
                self.segments.delete(segment)
            written = self.segments.write(_drop_expired(folded, expired_before), step_bytes)
            # What is left is cut, so that the next ranges are not rewritten with each other.
            share = sum(each.bytes for each in old) / sum(part.estimated_size() for part in versions)
            for part in versions[: len(old)]:
                left = part.slice(_rows_up_to(part, high).height)
                written += self.segments.write(left, int(step_bytes * max(share, 1 / BASE_SEGMENTS)))
            self.base[first:stop] = written
        if high < _LAST:
            self.folding = count, high + 1
            return
        for run in self.runs[:count]:
            for each in run.segments:
                self.segments.delete(each)
        del self.runs[:count]
        self.folding = None

    def _newest_versions(self, versions: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the newest version of each row, sorted by position.

        versions: oldest first, none with a key twice.
        """
        if len(versions) == 1:
            return versions[0]
        rows = sort_rows(_concat([*map(self._check_keys, versions)]))
        positions = positions_of(rows)
        shares_position = np.append(positions[1:] == positions[:-1], False)
        if not shares_position.any():
            return rows
        earlier = np.flatnonzero(shares_position)
        if not self._have_equal_keys(take_rows(rows, earlier), take_rows(rows, earlier + 1)):
            return rows.unique(subset=[POSITION, *self.keys], keep="last", maintain_order=True)
        return keep_rows(rows, pl.Series(~shares_position))

    def _have_equal_keys(self, left: pl.DataFrame, right: pl.DataFrame) -> bool:
        """Return whether the rows of two frames have the same keys, one by one."""
        # `equals` is quicker than `eq_missing`, but does not convert types.
        return all(left[key].equals(right[key]) or left[key].eq_missing(right[key]).all() for key in self.keys)

    def _check_keys(self, rows: pl.DataFrame) -> pl.DataFrame:
        for key in self.keys:
            if key not in rows.columns:
                raise StateError.of(
                    "foreign-state",
                    f"the state lacks the key `{key.removeprefix('key ')}`",
                    help="the state belongs to a query with other keys: start a new job, or reset the operator",
                )
        return rows


def _split_by_segment(
    level: Sequence[Segment], positions: Positions, expired_before: int | None
) -> Iterator[tuple[Segment, slice]]:
    """Yield the segments of a level that span some positions, with the slice that each spans.

    The positions are sorted. Segments that can have no live rows are skipped.
    """
    for segment in level:
        if not segment.is_expired(expired_before):
            inside = slice(positions.searchsorted(segment.low), positions.searchsorted(segment.high, "right"))
            if inside.start < inside.stop:
                yield segment, inside


def _fold_limit(versions: Sequence[pl.DataFrame], step_bytes: int) -> int:
    """Return a position up to which these rows have about the bytes of a step.

    Each part is sorted by position. Return `_LAST` if all rows have at most the bytes of two steps.
    """
    size = sum(part.estimated_size() for part in versions)
    if size <= 2 * step_bytes:
        return _LAST
    longest = max(versions, key=len)
    return int(positions_of(longest)[int(longest.height * step_bytes / size)])


def _rows_up_to(rows: pl.DataFrame, high: int) -> pl.DataFrame:
    """Return the rows up to a position, out of rows sorted by position."""
    return rows.head(int(positions_of(rows).searchsorted(high, "right")))


def _merge_ranges(lows: Positions, highs: Positions) -> tuple[Positions, Positions]:
    """Return ranges sorted, with those that overlap merged."""
    order = np.argsort(lows)
    lows, highs = lows[order], np.maximum.accumulate(highs[order])
    begins = np.ones(len(lows), dtype=bool)
    begins[1:] = lows[1:] > highs[:-1]
    return lows[begins], highs[np.roll(begins, -1)]


def _concat(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate frames; columns that some of them lack are NULL there."""
    types: dict[str, pl.DataType] = {}
    columns = (column for frame in frames for column in zip(frame.columns, frame.dtypes, strict=True))
    differ = any(types.setdefault(name, of) != of for name, of in columns)
    return pl.concat(frames, how="diagonal_relaxed" if differ else "diagonal")


def _drop_dead(rows: pl.DataFrame) -> pl.DataFrame:
    if DEAD not in rows.columns:
        return rows
    return keep_rows(rows[[name for name in rows.columns if name != DEAD]], rows[DEAD].is_null())


def _drop_expired(rows: pl.DataFrame, expired_before: int | None) -> pl.DataFrame:
    if expired_before is None or TOUCHED not in rows.columns:
        return rows
    # Rows written without TTL have no `touched`: they stay until they are written again.
    return rows.filter(pl.col(TOUCHED).is_null() | (pl.col(TOUCHED) >= expired_before))


def _keep_live(rows: pl.DataFrame, expired_before: int | None) -> pl.DataFrame:
    return _drop_expired(_drop_dead(rows), expired_before)
