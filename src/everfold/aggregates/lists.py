"""Slots that are lists: what functions keep whose state cannot be folded into one value.

A *sequence* is a list of elements in the order in which they came, and beside it a list of those that were taken back. The k-th time that an
element is taken back undoes the k-th time that it came, whichever of the two is first: as Flink removes the first of the equal
elements. So parts of a group are concatenated, and netted when the group is whole.

A *bag* is a list of elements with counts; an element's count is the sum of its counts. Its order matters only where a function says so.
"""

from __future__ import annotations

from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Slot
from everfold.types import BIGINT, ArrayType, DataType, RowField, RowType

VALUE, COUNT = "value", "count"


def sequence_slots(element: DataType, retracting: bool) -> tuple[Slot, ...]:
    """`values`, and `retracted` where rows may be taken back."""
    of = ArrayType(element=element.as_nullable())
    return (Slot("values", of), Slot("retracted", of)) if retracting else (Slot("values", of),)


def bag_slot(element: DataType) -> Slot:
    """`bag`."""
    fields = (RowField(name=VALUE, type=element.as_nullable()), RowField(name=COUNT, type=BIGINT))
    return Slot("bag", ArrayType(element=RowType(fields=fields)))


def sequence(elements: pl.Expr, present: pl.Expr | None, sign: pl.Expr | None) -> list[pl.Expr]:
    """The sequence of a group of rows. present: which of them count; None: all."""
    if sign is None:
        return [(elements if present is None else elements.filter(present)).implode()]
    came, back = sign > 0, sign < 0
    if present is not None:
        came, back = came & present, back & present
    return [elements.filter(came).implode(), elements.filter(back).implode()]


def bag(elements: pl.Expr, present: pl.Expr, counts: pl.Expr) -> pl.Expr:
    """The bag of a group of rows, each of which counts so often."""
    return pl.struct(elements.alias(VALUE), counts.alias(COUNT)).filter(present).implode()


def joined(lists: pl.Expr) -> pl.Expr:
    """The lists of a group as one."""
    return elements_of(lists).implode()


def elements_of(lists: pl.Expr) -> pl.Expr:
    """The elements of all lists; a NULL list has none."""
    return lists.explode(empty_as_null=False, keep_nulls=False)


def netted_sequence(values: pl.Expr, retracted: pl.Expr) -> list[pl.Expr]:
    """A whole sequence without what was taken back. What was taken back and never came stays a debt."""
    some = retracted.list.len() > 0
    element, none = pl.element(), values.list.head(0)
    came = pl.when(some).then(values.fill_null(retracted.list.head(0))).otherwise(none)
    both = pl.concat_list(
        came.list.eval(pl.struct(element.alias(VALUE), pl.lit(1, dtype=pl.Int64).alias(COUNT))),
        retracted.list.eval(pl.struct(element.alias(VALUE), pl.lit(-1, dtype=pl.Int64).alias(COUNT))),
    )
    value, count = element.struct.field(VALUE), element.struct.field(COUNT)
    arrivals, returns = count.clip(0, 1), (-count).clip(0, 1)
    left = value.filter((count > 0) & (arrivals.cum_sum().over(value) > returns.sum().over(value)))
    owed = value.filter((count < 0) & (returns.cum_sum().over(value) > arrivals.sum().over(value)))
    return [
        pl.when(some).then(both.list.eval(left)).otherwise(values),
        pl.when(some).then(both.list.eval(owed)).otherwise(retracted),
    ]


def netted_bag(entries: pl.Expr) -> pl.Expr:
    """A bag with each element once, in the order of their first coming; without those that count zero times."""
    element = pl.element()
    value, count = element.struct.field(VALUE), element.struct.field(COUNT)
    total = count.sum().over(value)
    return entries.list.eval(
        pl.struct(value.alias(VALUE), total.alias(COUNT)).filter(value.is_first_distinct() & (total != 0))
    )


def netted_in_order(entries: pl.Expr) -> pl.Expr:
    """A whole bag with each element once, in the order of when it last began to be there."""
    element = pl.element()
    value, count = element.struct.field(VALUE), element.struct.field(COUNT)
    total, sofar = count.sum().over(value), count.cum_sum().over(value)
    begins = (sofar > 0) & (sofar - count <= 0)
    later = begins.cast(pl.Int64).cum_sum(reverse=True).over(value)
    last = pl.when(total > 0).then(begins & (later == 1)).otherwise(value.is_first_distinct())
    return entries.list.eval(pl.struct(value.alias(VALUE), total.alias(COUNT)).filter(last & (total != 0)))


def present_values(entries: pl.Expr) -> pl.Expr:
    """The elements of a netted bag that are there."""
    element = pl.element()
    return entries.list.eval(element.struct.field(VALUE).filter(element.struct.field(COUNT) > 0))
