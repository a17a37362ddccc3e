"""ChangelogNormalize: complete changes by key. The last row of each key is stored, so that an
update or a delete can retract the row before it.

State: the table `rows`, one row per key. Source: flink 2.3 through `tests/cases/group`.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from everfold.operators.changelog import INPUT_KIND, diff_rows, is_retraction
from everfold.operators.clock import Clock
from everfold.operators.layout import normalize_keys, page_columns
from everfold.operators.protocol import ClockSpec, InputColumn, Meta, Stats, Step
from everfold.operators.reemit import mark_reemitted
from everfold.operators.state_names import StateNames
from everfold.plan.expressions import column_references
from everfold.plan.nodes import ChangelogNormalize
from everfold.state.bucket_head import read_head, write_head
from everfold.state.keyed import KeyedTable
from everfold.state.store import Store
from everfold.types import physical_name

_OLD = "old_"
_TOUCHED = "touched"
SWEPT_PAGES = 4
"""The number of cold pages that a batch rewrites at most, so that expired state is removed from
disk.
"""


class NormalizeOperator:
    """The operator of a ChangelogNormalize."""

    updating = True
    ordered = follows_order = True

    def __init__(self, name: str, node: ChangelogNormalize, clock: ClockSpec, epoch: int = 0) -> None:
        self.name, self._node, self._clock, self._epoch = name, node, clock, epoch
        self.schema = node.schema
        below = node.input.schema
        self.hash_columns = tuple(f"k{at}" for at in range(len(node.keys)))
        self._values = tuple(
            self.hash_columns[node.keys.index(at)] if at in node.keys else f"r{at}" for at in range(len(below))
        )
        self.inputs = tuple(map(InputColumn.of, self._values, column_references(below)))
        known = dict(zip(self._values, StateNames(node).name_columns(), strict=True))
        self._page_names = known | {key: known[key].replace("column ", "key ", 1) for key in self.hash_columns}

    def __reduce__(self) -> tuple[type[NormalizeOperator], tuple[str, ChangelogNormalize, ClockSpec, int]]:
        return type(self), (self.name, self._node, self._clock, self._epoch)

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the last row of each key: `hash`, `seq`, `kind`, columns."""
        return self._last(rows.with_columns_seq(*normalize_keys(self.inputs, self.hash_columns)))

    def step(self, store: Store, prepared: Sequence[pl.DataFrame], metas: Sequence[Meta]) -> Step:
        """Compare the last row of each key with the stored one."""
        head = read_head(store, self._epoch)
        clock = Clock.decode(self._clock, head.get("clock"))
        table = KeyedTable.decode(
            store, self._epoch, "rows", [self._page_names[key] for key in self.hash_columns], head.get("rows")
        )
        live = clock.advance(metas)
        expired = clock.now_ms - self._node.ttl_ms if self._node.ttl_ms else None
        rows = self._update(table, [frame for frame in prepared if frame.height], clock.now_ms, expired)
        if expired is not None:
            table.sweep(expired, SWEPT_PAGES)
        write_head(store, self._epoch, {"clock": clock.encode(), "rows": table.encode()})
        return Step(rows, clock.forward_meta(self.name, live, metas), Stats(self.name, clock.watermark, 0, table.rows))

    def current(self, store: Store) -> pl.DataFrame:
        """Return the last rows of all keys."""
        head = read_head(store, self._epoch)
        keys = [self._page_names[key] for key in self.hash_columns]
        table = KeyedTable.decode(store, self._epoch, "rows", keys, head.get("rows"))
        now_ms = Clock.decode(self._clock, head.get("clock")).now_ms
        rows = self._from_page(table.all(expired_before=now_ms - self._node.ttl_ms if self._node.ttl_ms else None))
        return mark_reemitted(
            rows.select_seq(pl.col(name).alias(physical_name(at)) for at, name in enumerate(self._values))
        )

    def _last(self, rows: pl.DataFrame) -> pl.DataFrame:
        others = [name for name in rows.columns if name not in self.hash_columns]
        return rows.group_by(self.hash_columns).agg(pl.col(others).last())

    def _update(
        self, table: KeyedTable, frames: Sequence[pl.DataFrame], now_ms: int, expired: int | None
    ) -> pl.DataFrame:
        if frames:
            rows = self._last(pl.concat(frames).sort("seq", maintain_order=True))
            named = {key: known for key, known in self._page_names.items() if key in self.hash_columns}
            wanted = rows.select_seq(
                pl.col("hash").alias("h"), *(pl.col(key).alias(name) for key, name in named.items())
            )
            rows = self._with_old(rows, self._from_page(table.find(wanted, expired_before=expired)))
        else:
            rows = self._with_old(self._none(), self._none())
        had = pl.col("had")
        has = ~is_retraction()
        alive, dead = rows.filter(has), rows.filter(had & ~has)
        added = int(alive.select_seq((~had).sum()).item()) - dead.height
        alive_page, dead_page = self._to_page(alive, now_ms), self._to_page(dead, now_ms)
        table.write(alive_page, dead_page, added=added, expired_before=expired)
        found = diff_rows(rows, self._values, [_OLD + name for name in self._values], had=had, has=has)
        return found.rename({name: physical_name(at) for at, name in enumerate(self._values)})

    def _with_old(self, rows: pl.DataFrame, old: pl.DataFrame) -> pl.DataFrame:
        """Add the stored rows as `old_…`, and `had`: whether there was one."""
        renamed = old.select_seq(
            *self.hash_columns, *(pl.col(name).alias(_OLD + name) for name in self._values), pl.lit(True).alias("had")
        )
        joined = rows.join(renamed, on=self.hash_columns, how="left", nulls_equal=True)
        return joined.with_columns_seq(pl.col("had").fill_null(False))

    def _none(self) -> pl.DataFrame:
        types = {each.name: each.type.polars for each in self.inputs}
        fixed = {"hash": pl.Int64(), "seq": pl.Int64(), INPUT_KIND: pl.Int8()}
        return pl.DataFrame(schema={**types, **fixed})

    def _to_page(self, rows: pl.DataFrame, now_ms: int) -> pl.DataFrame:
        named = [pl.col(name).alias(known) for name, known in self._page_names.items()]
        touched = [pl.lit(now_ms, dtype=pl.Int64).alias(_TOUCHED)] if self._node.ttl_ms else []
        return rows.select_seq(pl.col("hash").alias("h"), *named, *touched)

    def _from_page(self, page: pl.DataFrame) -> pl.DataFrame:
        return page.select_seq(page_columns(page, self._page_names, self._none().schema))
