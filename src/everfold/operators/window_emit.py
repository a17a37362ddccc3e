"""Emit control: hold back changes of window results until they are due.

State: `waiting`, the changes by the end of their window, one run per batch; the head has the time
since when those of a window wait. What is emitted for a key is the net change since the last
emission: the row before the first change, and the row after the last. Source: Flink's options
`table.exec.emit.*`; flink 2.3 through `tests/cases/window/emit.case.yaml`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from everfold.operators.changelog import INPUT_KIND, diff_rows, is_retraction
from everfold.operators.clock import Clock
from everfold.operators.layout import page_columns
from everfold.operators.protocol import END_OF_TIME, ClockSpec, InputColumn, Meta, Stats, Step
from everfold.operators.state_names import StateNames
from everfold.operators.time_zones import closed_until
from everfold.plan.expressions import column_references
from everfold.plan.nodes import WindowEmit
from everfold.state.bucket_head import read_head, write_head
from everfold.state.partition_rows import NUMBER, number_rows
from everfold.state.runs import Runs
from everfold.state.store import Store
from everfold.types import BIGINT, physical_name

_END = "end"


class EmitOperator:
    """The operator of a WindowEmit."""

    updating = True
    ordered = follows_order = True

    def __init__(self, name: str, node: WindowEmit, clock: ClockSpec, epoch: int = 0) -> None:
        self.name, self._node, self._clock, self._epoch = name, node, clock, epoch
        below = node.input.schema
        self.schema = node.schema
        self._columns = [f"r{at}" for at in range(len(below))]
        self.hash_columns = tuple(self._columns[at] for at in node.keys)
        end = column_references(below)[node.window.end]
        self.inputs = (
            InputColumn(name=_END, expression=end, type=BIGINT, as_ms=True),
            *map(InputColumn.of, self._columns, column_references(below)),
        )
        names = dict(zip(self._columns, StateNames(node).name_columns(), strict=True))
        self._page_names = {name: name for name in (_END, INPUT_KIND, NUMBER)} | names

    def __reduce__(self) -> tuple[type[EmitOperator], tuple[str, WindowEmit, ClockSpec, int]]:
        return type(self), (self.name, self._node, self._clock, self._epoch)

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows unchanged."""
        return rows

    def step(self, store: Store, prepared: Sequence[pl.DataFrame], metas: Sequence[Meta]) -> Step:
        """Process a batch's changes, advance the clock, and emit those that are due."""
        head = read_head(store, self._epoch)
        clock = Clock.decode(self._clock, head.get("clock"))
        waiting = Runs.decode(store, self._epoch, "waiting", head.get("waiting"))
        waits_since: dict[int, int] = {int(end): at for end, at in head.get("since", {}).items()}
        since = closed_until(clock.watermark, self._node.window.zone)
        live = clock.advance(metas)
        upto = END_OF_TIME if clock.flush else closed_until(clock.watermark, self._node.window.zone)

        rows, arrived = self._number(prepared, head)
        ends = set(rows[_END].unique().to_list())
        due = {
            end
            for end in ends | waiting.index.keys()
            if self._is_due(end, clock.now_ms - waits_since.get(end, clock.now_ms), since, upto)
        }
        emitted = [rows.filter(pl.col(_END).is_in(list(due)))]
        for end in due & waiting.index.keys():
            emitted += map(self._from_page, waiting.read(end))
            waiting.drop(end)
        for (end,), part in rows.filter(~pl.col(_END).is_in(list(due))).partition_by(_END, as_dict=True).items():
            waiting.append(end, self._to_page(part))
            waiting.compact(end, self._compact)
            waits_since.setdefault(end, clock.now_ms)

        head = {
            "clock": clock.encode(),
            "waiting": waiting.encode(),
            "since": {str(end): at for end, at in sorted(waits_since.items()) if end in waiting.index},
            "arrived": arrived,
        }
        write_head(store, self._epoch, head)
        stats = Stats(self.name, clock.watermark, 0, waiting.rows)
        return Step(self._net_changes(emitted), clock.forward_meta(self.name, live, metas), stats)

    def _number(self, prepared: Sequence[pl.DataFrame], head: dict[str, Any]) -> tuple[pl.DataFrame, int]:
        """Return a batch's changes, numbered after the earlier ones, and their total number."""
        frames = [frame.drop("hash") for frame in prepared if frame.height]
        first: int = head.get("arrived", 0)
        if not frames:
            return self._none(), first
        rows = number_rows(frames, first)
        return rows.select_seq(self._none().columns), first + rows.height

    def _is_due(self, end: int, waited_ms: int, since: int, upto: int) -> bool:
        """Whether the changes of a window are due.

        since, upto: the last window end that time had passed before the batch, and has passed now.
        """
        node = self._node
        if end > upto:
            return node.early_ms is not None and waited_ms >= node.early_ms
        late = end <= since and upto < end + node.window.lateness_ms
        return not late or node.late_ms is None or waited_ms >= node.late_ms

    def _net_changes(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the net change of each key."""
        pairs = self._net(pl.concat(frames))
        old = [f"old_{name}" for name in self._columns]
        found = diff_rows(pairs.rename({NUMBER: "seq"}), self._columns, old, had=pl.col("had"), has=pl.col("has"))
        return found.rename({name: physical_name(at) for at, name in enumerate(self._columns)})

    def _net(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return one row per key: its row before the first change, as `old_…`, and after the last
        one.

        `had` and `has`: whether there is such a row.
        """
        rows, retracts = rows.sort(NUMBER), is_retraction()
        others = [name for name in self._columns if name not in self.hash_columns]
        found = rows.group_by(_END, *self.hash_columns, maintain_order=True).agg(
            *(pl.col(name).first().alias(f"old_{name}") for name in others),
            *(pl.col(name).last() for name in others),
            retracts.first().alias("had"),
            (~retracts.last()).alias("has"),
            pl.col(NUMBER).first(),
        )
        return found.with_columns_seq(pl.col(name).alias(f"old_{name}") for name in self.hash_columns)

    # --- pages ------------------------------------------------------------------------------------

    def _compact(self, pages: list[pl.DataFrame]) -> pl.DataFrame:
        """Reduce the changes of each key to the first and the last one."""
        rows = pl.concat(map(self._from_page, pages)).sort(NUMBER)
        nth = pl.int_range(pl.len()).over(_END, *self.hash_columns)
        return self._to_page(rows.filter((nth == 0) | (nth == pl.len().over(_END, *self.hash_columns) - 1)))

    def _to_page(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select_seq(pl.col(name).alias(known) for name, known in self._page_names.items())

    def _from_page(self, page: pl.DataFrame) -> pl.DataFrame:
        return page.select_seq(page_columns(page, self._page_names, self._none().schema))

    def _none(self) -> pl.DataFrame:
        fixed = {_END: pl.Int64(), INPUT_KIND: pl.Int8(), NUMBER: pl.Int64()}
        return pl.DataFrame(
            schema=fixed | {name: of.type.polars for name, of in zip(self._columns, self.schema, strict=True)}
        )
