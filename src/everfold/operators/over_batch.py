"""OVER in a batch: all rows of a partition are there at once, so every order and every frame of SQL is possible."""

from __future__ import annotations

import polars as pl

from everfold.aggregates.folding import results, settle
from everfold.operators.contract import InputColumn
from everfold.operators.frames import PART, frames_of, in_partitions, over_frames, with_slots
from everfold.operators.layout import folds_of, normalised
from everfold.plan.expressions import references
from everfold.plan.nodes import OverAggregate
from everfold.types import BIGINT, TemporalType, physical

ARRIVAL = "arrival"
"""Column of the input, BIGINT: rows that nothing else orders are in this order."""
_AT = "at"


class OverBatch:
    """Computes an OverAggregate over whole partitions."""

    def __init__(self, node: OverAggregate) -> None:
        self._node = node
        below = node.input.schema
        self.keys = tuple(f"k{at}" for at in range(len(node.partition)))
        self._order = tuple(f"o{at}" for at in range(len(node.order)))
        self._columns = tuple(f"r{at}" for at in range(len(below)))
        inputs = [*map(InputColumn.of, self.keys, node.partition)]
        for name, key in zip(self._order, node.order, strict=True):
            timed = isinstance(key.expression.type, TemporalType) and self._by_distance
            inputs.append(
                InputColumn(name=name, expression=key.expression, type=BIGINT, as_ms=True)
                if timed
                else InputColumn.of(name, key.expression)
            )
        inputs += map(InputColumn.of, self._columns, references(below))
        made = folds_of(node.calls, node.input, inputs)
        self._folds, self._calls = made.folds, made.calls
        self.inputs: tuple[InputColumn, ...] = tuple(inputs)

    def __reduce__(self) -> tuple[type[OverBatch], tuple[OverAggregate]]:
        return type(self), (self._node,)

    @property
    def _by_distance(self) -> bool:
        frame = self._node.frame
        return not frame.rows and bool({frame.first, frame.last} - {None, 0})

    def rows(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The columns of the node, `c0, …`. `rows`: all rows of some partitions, with `hash`, `arrival` and the columns of `inputs`."""
        rows = rows.with_columns(*normalised(self.inputs, self.keys)).sort(ARRIVAL)
        for name, key in reversed([*zip(self._order, self._node.order, strict=True)]):
            rows = rows.sort(name, descending=key.descending, nulls_last=not key.nulls_first, maintain_order=True)
        rows = in_partitions(with_slots(rows, self._folds), self.keys).with_columns(self._at())
        first, last = frames_of(rows[PART].to_numpy(), rows[_AT].to_numpy(), self._node.frame, peers=True)
        merged = settle(over_frames(rows, self._folds, first, last), self._folds, whole=True)
        names = [physical(len(self._columns) + at) for at in range(len(self._calls))]
        columns = [pl.col(name).alias(physical(at)) for at, name in enumerate(self._columns)]
        return rows.select(*columns, *results(merged, [self._folds[at] for at in self._calls], names))

    def _at(self) -> pl.Expr:
        """Where a row stands in its order: by distance, or as the number of its peers."""
        if not self._by_distance:
            columns = [PART, *self._order]
            differs = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in columns)
            return differs.fill_null(True).cum_sum().cast(pl.Int64).alias(_AT)
        (name,), (key,), frame = self._order, self._node.order, self._node.frame
        value = pl.col(name).cast(pl.Int64) * (-1 if key.descending else 1)
        # Rows without a place in the order stand where no frame of another row reaches.
        far = max(abs(frame.first or 0), abs(frame.last or 0)) + 1
        away = value.min() - far if key.nulls_first else value.max() + far
        return value.fill_null(away.fill_null(0)).alias(_AT)
