"""The greatest and least values of a group: MAXK, MINK, MAXK_UNIQUE, MINK_UNIQUE of Lenses SQL.

Over inserts the state is the result. With retractions it is a bag of all values, since the value
that replaces a retracted one must be known.
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold.aggregates import lists
from everfold.aggregates.first_n import FirstN, without_negative_zero
from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Signature, Slot, aggregate


class _Extremes(FirstN):
    greatest: bool
    unique: bool = False

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        (arg,) = of.args
        return (lists.bag_slot(arg) if of.retracting else lists.sequence_slots(arg, False)[0],)

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        values = without_negative_zero(of.args[0], columns[0])
        if sign is None:
            return (self._first(of, values.drop_nulls()).implode(),)
        return (lists.collect_bag(values, values.is_not_null(), sign),)

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        (slot,) = slots
        return (lists.concat_lists(slot) if of.retracting else self._first(of, lists.explode_lists(slot)).implode(),)

    def settle(self, of: Signature, slots: Sequence[pl.Expr], whole: bool) -> Sequence[pl.Expr] | None:
        return (lists.net_bag(slots[0]),) if of.retracting else None

    def choose_values(self, of: Signature, slot: pl.Expr) -> pl.Expr:
        if not of.retracting:
            return slot
        value, count = pl.element().struct.field(lists.VALUE), pl.element().struct.field(lists.COUNT)
        times = count.clip(0, 1 if self.unique else self.limit(of))
        values = value.repeat_by(times).explode(empty_as_null=False, keep_nulls=False)
        return slot.list.eval(self._first(of, values))

    def _first(self, of: Signature, values: pl.Expr) -> pl.Expr:
        if self.unique:
            values = values.unique()
        return values.sort(descending=self.greatest).head(self.limit(of))

    def spark_list(self, of: Signature, text: str) -> str:
        values = f"collect_list({text})"
        return f"sort_array({f'array_distinct({values})' if self.unique else values}, {str(not self.greatest).lower()})"

    def duckdb_list(self, of: Signature, text: str) -> str:
        order = "DESC" if self.greatest else "ASC"
        distinct = "DISTINCT " if self.unique else ""
        return f"list({distinct}{text} ORDER BY {text} {order}) FILTER (WHERE {text} IS NOT NULL)"


@aggregate("MAXK")
class MaxK(_Extremes):
    """The n greatest non-null values, the greatest first, with duplicates: `MAXK(x, n)`."""

    greatest = True


@aggregate("MINK")
class MinK(_Extremes):
    """The n least non-null values, the least first, with duplicates: `MINK(x, n)`."""

    greatest = False


@aggregate("MAXK_UNIQUE")
class MaxKUnique(_Extremes):
    """The n greatest distinct non-null values, the greatest first: `MAXK_UNIQUE(x, n)`."""

    greatest = True
    unique = True


@aggregate("MINK_UNIQUE")
class MinKUnique(_Extremes):
    """The n least distinct non-null values, the least first: `MINK_UNIQUE(x, n)`."""

    greatest = False
    unique = True
