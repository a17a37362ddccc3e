"""ChangelogNormalize: changes by key made whole. The last row of each key is kept, so that an update or a delete knows what was before.

State: the table `rows`, one row a key. Source: flink 2.3 through `tests/cases/group`.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from everfold.operators.changes import INPUT_KIND, changes
from everfold.operators.clock import Clock
from everfold.operators.contract import ClockSpec, InputColumn, Meta, Stats, Step
from everfold.operators.layout import column_names, normalised
from everfold.plan.changelog import RowKind
from everfold.plan.expressions import references
from everfold.plan.nodes import ChangelogNormalize
from everfold.state.heads import read_head, write_head
from everfold.state.keyed import KeyedTable
from everfold.state.store import Store
from everfold.types import Schema, physical

_OLD = "old_"
_TOUCHED = "touched"
SWEPT_PAGES = 4
"""Cold pages that a batch rewrites at most, so that expired state leaves the disk."""


class NormalizeOperator:
    """The operator of a ChangelogNormalize."""

    updating = True
    ordered = True

    def __init__(self, name: str, node: ChangelogNormalize, clock: ClockSpec, epoch: int = 0) -> None:
        self._name, self._node, self._clock, self._epoch = name, node, clock, epoch
        self._schema = node.schema
        below = node.input.schema
        self._keys = tuple(f"k{at}" for at in range(len(node.keys)))
        self._values = tuple(
            self._keys[node.keys.index(at)] if at in node.keys else f"r{at}" for at in range(len(below))
        )
        self._inputs = tuple(map(InputColumn.of, self._values, references(below)))
        known = dict(zip(self._values, column_names(below.names), strict=True))
        self._page_names = known | {key: known[key].replace("column ", "key ", 1) for key in self._keys}

    def __reduce__(self) -> tuple[type[NormalizeOperator], tuple[str, ChangelogNormalize, ClockSpec, int]]:
        return type(self), (self._name, self._node, self._clock, self._epoch)

    @property
    def name(self) -> str:
        return self._name

    @property
    def inputs(self) -> tuple[InputColumn, ...]:
        return self._inputs

    @property
    def hash_columns(self) -> tuple[str, ...]:
        return self._keys

    @property
    def schema(self) -> Schema:
        return self._schema

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The last row of each key: `hash`, `seq`, `kind`, columns."""
        return self._last(rows.with_columns(*normalised(self._inputs, self._keys)))

    def step(self, store: Store, prepared: Sequence[pl.DataFrame], metas: Sequence[Meta]) -> Step:
        """Compares the last row of each key with the one that is kept."""
        head = read_head(store, self._epoch)
        clock = Clock.decode(self._clock, head.get("clock"))
        table = KeyedTable.decode(
            store, self._epoch, "rows", [self._page_names[key] for key in self._keys], head.get("rows")
        )
        live = clock.advance(metas)
        expired = clock.now_ms - self._node.ttl_ms if self._node.ttl_ms else None
        rows = self._changed(table, [frame for frame in prepared if frame.height], clock.now_ms, expired)
        if expired is not None:
            table.sweep(expired, SWEPT_PAGES)
        write_head(store, self._epoch, {"clock": clock.encode(), "rows": table.encode()})
        return Step(rows, clock.forwarded(self._name, live, metas), Stats(self._name, clock.watermark, 0, table.rows))

    def _last(self, rows: pl.DataFrame) -> pl.DataFrame:
        others = [name for name in rows.columns if name not in self._keys]
        return rows.group_by(self._keys).agg(pl.col(others).last())

    def _changed(
        self, table: KeyedTable, frames: Sequence[pl.DataFrame], now_ms: int, expired: int | None
    ) -> pl.DataFrame:
        if frames:
            rows = self._last(pl.concat(frames).sort("seq"))
            named = {key: known for key, known in self._page_names.items() if key in self._keys}
            wanted = rows.select(pl.col("hash").alias("h"), *(pl.col(key).alias(name) for key, name in named.items()))
            rows = self._with_old(rows, self._from_page(table.find(wanted, expired_before=expired)))
        else:
            rows = self._with_old(self._none(), self._none())
        had = pl.col("had")
        has = pl.col(INPUT_KIND).is_in([RowKind.INSERT.value, RowKind.UPDATE_AFTER.value])
        alive, dead = rows.filter(has), rows.filter(had & ~has)
        added = int(alive.select((~had).sum()).item()) - dead.height
        alive_page, dead_page = self._to_page(alive, now_ms), self._to_page(dead, now_ms)
        table.write(alive_page, dead_page, added=added, expired_before=expired)
        found = changes(rows, self._values, [_OLD + name for name in self._values], had=had, has=has)
        return found.rename({name: physical(at) for at, name in enumerate(self._values)})

    def _with_old(self, rows: pl.DataFrame, old: pl.DataFrame) -> pl.DataFrame:
        """The rows with the ones before as `old_…`, and `had`: whether there was one."""
        renamed = old.select(
            *self._keys, *(pl.col(name).alias(_OLD + name) for name in self._values), pl.lit(True).alias("had")
        )
        joined = rows.join(renamed, on=self._keys, how="left", nulls_equal=True)
        return joined.with_columns(pl.col("had").fill_null(False))

    def _none(self) -> pl.DataFrame:
        types = {each.name: each.type.polars for each in self._inputs}
        fixed = {"hash": pl.Int64(), "seq": pl.Int64(), INPUT_KIND: pl.Int8()}
        return pl.DataFrame(schema={**types, **fixed})

    def _to_page(self, rows: pl.DataFrame, now_ms: int) -> pl.DataFrame:
        named = [pl.col(name).alias(known) for name, known in self._page_names.items()]
        touched = [pl.lit(now_ms, dtype=pl.Int64).alias(_TOUCHED)] if self._node.ttl_ms else []
        return rows.select(pl.col("hash").alias("h"), *named, *touched)

    def _from_page(self, page: pl.DataFrame) -> pl.DataFrame:
        types = {each.name: each.type.polars for each in self._inputs}
        return page.select(
            pl.col(known).alias(name) if known in page.columns else pl.lit(None, dtype=types[name]).alias(name)
            for name, known in self._page_names.items()
        )
