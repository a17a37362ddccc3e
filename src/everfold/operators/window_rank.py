"""Window Top-N and window deduplication: emit the first rows of each partition of a window once,
when the watermark has passed it.

`prepare` and every batch keep no more than the first `last` rows of a partition. State: the rows by
the end of their window, one run per batch; a window that has ended is read, ranked, emitted and
removed. Rows of a window that has ended are late: they are dropped and counted. Source: flink 2.3
through `tests/cases/rank`.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from everfold.operators.clock import Clock
from everfold.operators.frames import PART, number_within
from everfold.operators.late_rows import take_late_rows
from everfold.operators.protocol import END_OF_TIME, NO_WATERMARK, ClockSpec, InputColumn, LateRow, Meta, Stats, Step
from everfold.operators.ranking import RankedRows
from everfold.operators.time_zones import closed_until
from everfold.plan.changelog import ORDER
from everfold.plan.expressions import column_references
from everfold.plan.nodes import InWindow, Rank, TimeKind
from everfold.state.bucket_head import read_head, write_head
from everfold.state.partition_rows import NUMBER, number_rows
from everfold.state.runs import Runs
from everfold.state.segments import take_rows
from everfold.state.store import Store
from everfold.types import BIGINT, physical_name

_END = "end"


class WindowRankOperator:
    """The operator of a Rank in windows."""

    updating = False
    ordered = follows_order = True

    def __init__(self, name: str, node: Rank, window: InWindow, clock: ClockSpec, epoch: int = 0) -> None:
        self.name, self._node, self._window, self._clock, self._epoch = name, node, window, clock, epoch
        self._rows = RankedRows(node, newest_first=node.keeps_newest)
        self.schema = node.schema
        end = column_references(node.input.schema)[window.end]
        self.inputs = (InputColumn(name=_END, expression=end, type=BIGINT, as_ms=True), *self._rows.inputs)
        self.hash_columns = self._rows.keys

    def __reduce__(self) -> tuple[type[WindowRankOperator], tuple[str, Rank, InWindow, ClockSpec, int]]:
        return type(self), (self.name, self._node, self._window, self._clock, self._epoch)

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that may be among the first."""
        rows = self._rows.normalize(rows).with_columns_seq(pl.col("seq").alias(NUMBER))
        return self._first(rows).drop(NUMBER, PART, "rank")

    def step(self, store: Store, prepared: Sequence[pl.DataFrame], metas: Sequence[Meta]) -> Step:
        """Process a batch's rows, advance the clock, and emit the first rows of the windows that
        have ended.
        """
        head = read_head(store, self._epoch)
        clock = Clock.decode(self._clock, head.get("clock"))
        runs = Runs.decode(store, self._epoch, "rows", head.get("rows"))
        since = self._last_end(clock)
        before = clock.watermark
        live = clock.advance(metas)
        upto = END_OF_TIME if clock.flush else self._last_end(clock)

        arrived, late, examples = head.get("arrived", 0), head.get("late", 0), tuple[LateRow, ...]()
        frames = [frame for frame in prepared if frame.height]
        rows = number_rows(frames, arrived) if frames else self._none()
        arrived += rows.height
        if since != NO_WATERMARK and self._window.time is not TimeKind.PROCTIME:
            kept = rows.filter(pl.col(_END) > since)
            if kept.height < rows.height:
                dropped = rows.filter(pl.col(_END) <= since)
                examples = take_late_rows(dropped, pl.col(_END), self._rows.page_names, before)
            late, rows = late + rows.height - kept.height, kept
        for (end,), part in rows.filter(pl.col(_END) > upto).partition_by(_END, as_dict=True).items():
            runs.append(end, self._to_page(part))
            runs.compact(end, self._compact)
        due = [rows.filter(pl.col(_END) <= upto)]
        for end in [end for end in runs.index if end <= upto]:
            due += map(self._from_page, runs.read(end))
            runs.drop(end)
        ended = self._first(pl.concat(due, how="diagonal"))
        if clock.flush and ended.height:
            clock.close(int(ended[_END].max()))  # type: ignore[arg-type]

        head = {"clock": clock.encode(), "rows": runs.encode(), "arrived": arrived, "late": late}
        write_head(store, self._epoch, head)
        stats = Stats(self.name, clock.watermark, late, runs.rows, late=examples)
        return Step(self._result_rows(ended), clock.forward_meta(self.name, live, metas), stats)

    def _last_end(self, clock: Clock) -> int:
        """Return the end of the last window that has ended, on the wall clock of the windows."""
        return max(closed_until(clock.watermark, self._window.zone), clock.closed)

    def _first(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows whose row number is at most the last wanted one, in order, with the
        number as `rank`.
        """
        at, part = self._rows.order_rows(rows)
        rank = number_within(part)
        kept = rank <= self._node.last
        return take_rows(rows, at[kept]).with_columns_seq(pl.Series(PART, part[kept]), pl.Series("rank", rank[kept]))

    def _result_rows(self, rows: pl.DataFrame) -> pl.DataFrame:
        rows = rows.filter(pl.col("rank") >= self._node.first).sort(_END, PART, "rank")
        names = [*self._rows.columns, *(["rank"] if self._node.numbered else [])]
        columns = [pl.col(name).alias(physical_name(at)) for at, name in enumerate(names)]
        return rows.select_seq(*columns, pl.col(_END).alias(ORDER))

    # --- pages ------------------------------------------------------------------------------------

    def _compact(self, pages: list[pl.DataFrame]) -> pl.DataFrame:
        return self._to_page(self._first(pl.concat(map(self._from_page, pages))))

    def _to_page(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self._rows.to_page(rows, ["hash", _END, NUMBER], list(self._rows.page_names))

    def _from_page(self, page: pl.DataFrame) -> pl.DataFrame:
        return self._rows.from_page(page, ["hash", _END, NUMBER])

    def _none(self) -> pl.DataFrame:
        fixed = {"hash": pl.Int64(), _END: pl.Int64()}
        return pl.DataFrame(schema={**fixed, **self._rows.types, NUMBER: pl.Int64()})
