"""List slots: the state of functions that cannot be folded into one value.

A *sequence* is a list of elements in arrival order, with a list of the retracted ones. The k-th
retraction of an element cancels its k-th arrival, whichever is first, as Flink removes the first of
equal elements. So parts of a group are concatenated, and netted when the group is complete.

A *bag* is a list of elements with counts; an element's count is the sum of its counts. Its order
matters only where a function's description says so.
"""

from __future__ import annotations

from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Slot
from everfold.types import BIGINT, ArrayType, DataType, RowField, RowType

VALUE, COUNT = "value", "count"


def sequence_slots(element: DataType, retracting: bool) -> tuple[Slot, ...]:
    """Return the slot `values`, and also `retracted` where rows may be retracted."""
    of = ArrayType(element=element.as_nullable())
    return (Slot("values", of), Slot("retracted", of)) if retracting else (Slot("values", of),)


def bag_slot(element: DataType) -> Slot:
    """Return the slot `bag`."""
    fields = (RowField(name=VALUE, type=element.as_nullable()), RowField(name=COUNT, type=BIGINT))
    return Slot("bag", ArrayType(element=RowType(fields=fields)))


def collect_sequence(elements: pl.Expr, present: pl.Expr | None, sign: pl.Expr | None) -> list[pl.Expr]:
    """Return the sequence of a group of rows. present: which rows count, None for all."""
    if sign is None:
        return [(elements if present is None else elements.filter(present)).implode()]
    inserted, removed = sign > 0, sign < 0
    if present is not None:
        inserted, removed = inserted & present, removed & present
    return [elements.filter(inserted).implode(), elements.filter(removed).implode()]


def collect_bag(elements: pl.Expr, present: pl.Expr, counts: pl.Expr) -> pl.Expr:
    """Return the bag of a group of rows, each of which counts as often as `counts` says."""
    return pl.struct(elements.alias(VALUE), counts.alias(COUNT)).filter(present).implode()


def concat_lists(lists: pl.Expr) -> pl.Expr:
    """Concatenate the lists of a group."""
    return explode_lists(lists).implode()


def explode_lists(lists: pl.Expr) -> pl.Expr:
    """Return the elements of all lists. A NULL list has none."""
    return lists.explode(empty_as_null=False, keep_nulls=False)


def net_sequence(values: pl.Expr, retracted: pl.Expr) -> list[pl.Expr]:
    """Remove retracted elements from a whole sequence.

    A retraction without an arrival stays in `retracted`.
    """
    some = retracted.list.len() > 0
    element, none = pl.element(), values.list.head(0)
    inserted = pl.when(some).then(values.fill_null(retracted.list.head(0))).otherwise(none)
    both = pl.concat_list(
        inserted.list.eval(pl.struct(element.alias(VALUE), pl.lit(1, dtype=pl.Int64).alias(COUNT))),
        retracted.list.eval(pl.struct(element.alias(VALUE), pl.lit(-1, dtype=pl.Int64).alias(COUNT))),
    )
    value, count = element.struct.field(VALUE), element.struct.field(COUNT)
    inserts, removals = count.clip(0, 1), (-count).clip(0, 1)
    remaining = value.filter((count > 0) & (inserts.cum_sum().over(value) > removals.sum().over(value)))
    debt = value.filter((count < 0) & (removals.cum_sum().over(value) > inserts.sum().over(value)))
    return [
        pl.when(some).then(both.list.eval(remaining)).otherwise(values),
        pl.when(some).then(both.list.eval(debt)).otherwise(retracted),
    ]


def net_bag(entries: pl.Expr) -> pl.Expr:
    """Return a bag with each element once, in the order of first arrival, without zero counts."""
    element = pl.element()
    value, count = element.struct.field(VALUE), element.struct.field(COUNT)
    total = count.sum().over(value)
    return entries.list.eval(
        pl.struct(value.alias(VALUE), total.alias(COUNT)).filter(value.is_first_distinct() & (total != 0))
    )


def net_bag_in_order(entries: pl.Expr) -> pl.Expr:
    """Return a whole bag with each element once, in the order in which they last became present."""
    element = pl.element()
    value, count = element.struct.field(VALUE), element.struct.field(COUNT)
    total, sofar = count.sum().over(value), count.cum_sum().over(value)
    begins = (sofar > 0) & (sofar - count <= 0)
    later = begins.cast(pl.Int64).cum_sum(reverse=True).over(value)
    last = pl.when(total > 0).then(begins & (later == 1)).otherwise(value.is_first_distinct())
    return entries.list.eval(pl.struct(value.alias(VALUE), total.alias(COUNT)).filter(last & (total != 0)))


def present_values(entries: pl.Expr) -> pl.Expr:
    """Return the elements of a netted bag with a positive count."""
    element = pl.element()
    return entries.list.eval(element.struct.field(VALUE).filter(element.struct.field(COUNT) > 0))
