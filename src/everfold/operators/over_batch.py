"""OVER in a batch: all rows of a partition are available at once, so every order and frame of SQL
is supported.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from everfold.aggregates.calls import looks_up_row
from everfold.aggregates.folding import compute_results, settle
from everfold.operators.frame_pieces import Positions
from everfold.operators.frames import PART, add_slots, aggregate_frames, frame_bounds, sort_by_partition
from everfold.operators.layout import folds_of, normalize_keys
from everfold.operators.protocol import InputColumn
from everfold.plan.expressions import column_references
from everfold.plan.nodes import OverAggregate
from everfold.types import BIGINT, DateType, DecimalType, FloatingType, TimestampType, physical_name

ARRIVAL = "arrival"
"""Column of the input, BIGINT: the order of rows that ORDER BY does not determine."""
_AT = "at"
_DAY_MS = 86_400_000


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
            timed = isinstance(key.expression.type, TimestampType) and node.frame.is_by_distance
            inputs.append(
                InputColumn(name=name, expression=key.expression, type=BIGINT, as_ms=True)
                if timed
                else InputColumn.of(name, key.expression)
            )
        inputs += map(InputColumn.of, self._columns, column_references(below))
        self._folded = [at for at, call in enumerate(node.calls) if not looks_up_row(call)]
        self._lookups = [at for at, call in enumerate(node.calls) if looks_up_row(call)]
        for at in self._lookups:
            arguments = enumerate(node.calls[at].args)
            inputs += (InputColumn.of(f"n{at}_{nth}", each) for nth, each in arguments)
        folds = folds_of(node, [node.calls[at] for at in self._folded], inputs)
        self._folds, self._calls = folds.folds, folds.calls
        self.inputs: tuple[InputColumn, ...] = tuple(inputs)

    def __reduce__(self) -> tuple[type[OverBatch], tuple[OverAggregate]]:
        return type(self), (self._node,)

    def rows(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the columns of the node, `c0, …`.

        rows: all rows of some partitions, with `hash`, `arrival` and the columns of `inputs`.
        """
        rows = rows.with_columns_seq(*normalize_keys(self.inputs, self.keys)).sort(ARRIVAL)
        for name, key in reversed([*zip(self._order, self._node.order, strict=True)]):
            rows = rows.sort(name, descending=key.descending, nulls_last=not key.nulls_first, maintain_order=True)
        rows = sort_by_partition(add_slots(rows, self._folds), self.keys).with_columns_seq(self._at())
        width = len(self._columns)
        columns = [pl.col(name).alias(physical_name(at)) for at, name in enumerate(self._columns)]
        found = rows.select_seq(
            *columns, *(self._neighbor(rows, at).alias(physical_name(width + at)) for at in self._lookups)
        )
        if self._folds:
            first, last = self._frames(rows)
            merged = settle(aggregate_frames(rows, self._folds, first, last), self._folds, whole=True)
            names = [physical_name(width + at) for at in self._folded]
            found = found.with_columns_seq(*compute_results(merged, [self._folds[at] for at in self._calls], names))
        return found.select_seq(physical_name(at) for at in range(len(self._node.schema)))

    def _neighbor(self, rows: pl.DataFrame, at: int) -> pl.Series:
        """Return the value of the row at an offset before (LAG) or after each row in its partition,
        or the default.
        """
        value, offset, *default = (rows[f"n{at}_{nth}"] for nth in range(len(self._node.calls[at].args)))
        part, position = rows[PART].to_numpy(), np.arange(rows.height)
        # Clip distances beyond all rows, so that nothing overflows.
        distance = offset.cast(pl.Int64).fill_null(0).clip(-rows.height, rows.height).to_numpy()
        wanted = position + (-distance if self._node.calls[at].function == "LAG" else distance)
        inside = (wanted >= np.searchsorted(part, part)) & (wanted < np.searchsorted(part, part, "right"))
        found = value.gather(np.where(inside, wanted, 0))
        other = default[0] if default else pl.Series([None], dtype=value.dtype).new_from_index(0, rows.height)
        return found.zip_with(pl.Series(inside), other.cast(value.dtype))

    def _frames(self, rows: pl.DataFrame) -> tuple[Positions, Positions]:
        """Return the positions of the first and last row of each row's frame."""
        part, at, frame = rows[PART].to_numpy(), rows[_AT].to_numpy(), self._node.frame
        if not frame.is_by_distance:
            return frame_bounds(part, at, frame, peers=True)
        (name,), (key,) = self._order, self._node.order
        known = rows[name].is_not_null().to_numpy()
        # NULLs are at distance 0 from each other, and outside any frame of other values.
        return frame_bounds(part, at, frame, peers=True, block=part * 2 + (known == key.nulls_first))

    def _at(self) -> pl.Expr:
        """Return the position of a row in its order: a distance, or the number of its peer
        group.
        """
        if not self._node.frame.is_by_distance:
            columns = [PART, *self._order]
            differs = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in columns)
            return differs.fill_null(True).cum_sum().cast(pl.Int64).alias(_AT)
        (name,), (key,) = self._order, self._node.order
        value = pl.col(name)
        match key.expression.type:
            case FloatingType():
                value = value.cast(pl.Float64)
            case DecimalType():
                value = value.to_physical().cast(pl.Int64)
            case DateType():
                value = value.cast(pl.Int64) * _DAY_MS
            case _:
                value = value.cast(pl.Int64)
        return (value * (-1 if key.descending else 1)).fill_null(0).alias(_AT)
