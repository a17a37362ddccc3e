"""DISTINCT: any function over distinct values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from everfold.aggregates import lists
from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Aggregate, Fault, Signature, Slot, SqlArguments, Types
from everfold.types import ArrayType, BytesType, DataType, RowField, RowType


class OverDistinct(Aggregate):
    """A function over distinct values, which a list slot holds in the order of their first arrival.

    With retractions the slot is a bag: a value is present from when its count rises above zero
    until it falls back. Several arguments are one combined value.
    """

    def __init__(self, entry: Aggregate) -> None:
        self._entry = entry

        self.is_ordered = entry.is_ordered  # type: ignore[misc]
        self.newest_slice_first = entry.newest_slice_first  # type: ignore[misc]

    def result_type(self, of: Signature) -> DataType | None:
        return None if any(isinstance(arg, BytesType) for arg in of.args) else self._entry.result_type(of)

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        element = _element_type(of.args)
        return (lists.bag_slot(element) if of.retracting else Slot("values", ArrayType(element=element)),)

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        element, present = columns[0], columns[0].is_not_null()
        if len(columns) > 1:
            element = pl.struct(column.alias(f"f{at}") for at, column in enumerate(columns))
            for column in columns[1:]:
                present = present & column.is_not_null()
        if not self._entry.skips_nulls:
            present = present | True
        if sign is not None:
            return (lists.collect_bag(element, present, sign),)
        return (element.filter(present).unique(maintain_order=True).implode(),)

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        if of.retracting:
            return (lists.concat_lists(slots[0]),)
        return (lists.explode_lists(slots[0]).unique(maintain_order=True).implode(),)

    def settle(self, of: Signature, slots: Sequence[pl.Expr], whole: bool) -> Sequence[pl.Expr] | None:
        if not of.retracting or (self.is_ordered and not whole):
            return None
        return (lists.net_bag_in_order(slots[0]) if self.is_ordered else lists.net_bag(slots[0]),)

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        return self._entry.result(*self._inner(of, slots))

    def faults(self, of: Signature, slots: Sequence[pl.Expr]) -> tuple[Fault, ...]:
        return self._entry.faults(*self._inner(of, slots))

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        return self._entry.spark_sql(of, replace(over, distinct=True))

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        return self._entry.duckdb_sql(of, replace(over, distinct=True))

    def _inner(self, of: Signature, slots: Sequence[pl.Expr]) -> tuple[Signature, list[pl.Expr]]:
        """Return the function's own signature over the present values, and its settled slots."""
        inner, element = replace(of, retracting=False), pl.element()
        columns = [element]
        if len(of.args) > 1:
            columns = [element.struct.field(f"f{at}") for at in range(len(of.args))]
        values = lists.present_values(slots[0]) if of.retracting else slots[0]
        folded = [values.list.agg(each) for each in self._entry.update(inner, columns, None)]
        settled = self._entry.settle(inner, folded, True)
        return inner, folded if settled is None else list(settled)


def _element_type(args: Types) -> DataType:
    if len(args) == 1:
        return args[0].as_nullable()
    return RowType(fields=tuple(RowField(name=f"f{at}", type=arg.as_nullable()) for at, arg in enumerate(args)))
