"""Aggregates over all values of a group, in no particular order: COLLECT, PERCENTILE."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from everfold.aggregates import lists, sql_lists
from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Aggregate, Signature, Slot, SqlArguments, aggregate
from everfold.types import DOUBLE, ArrayType, DataType, IntegerType, MultisetType, NullType, NumericType


class OfBags(Aggregate):
    """A function whose state is a bag of all values."""

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        return (lists.bag_slot(of.args[0]),)

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return (lists.concat_lists(slots[0]),)

    def settle(self, of: Signature, slots: Sequence[pl.Expr], whole: bool) -> Sequence[pl.Expr] | None:
        return (lists.net_bag(slots[0]),)


@aggregate("COLLECT")
class Collect(OfBags):
    """Multiset of the non-null values, with the number of occurrences of each."""

    def result_type(self, of: Signature) -> DataType | None:
        (arg,) = of.args
        return None if isinstance(arg, NullType) else MultisetType(key=arg, nullable=False)

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        one = pl.lit(1, dtype=pl.Int64) if sign is None else sign
        return (lists.collect_bag(columns[0], columns[0].is_not_null(), one),)

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        value, count = pl.element().struct.field(lists.VALUE), pl.element().struct.field(lists.COUNT)
        entry = pl.struct(value.alias("key"), count.cast(pl.Int32).alias("value"))
        return slots[0].list.eval(entry.filter(count > 0)).fill_null([]).list.to_map()

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        values = f"collect_list({over.texts[0]})"
        count = "1" if over.distinct else f"size(filter({values}, __o -> __o <=> __e))"
        return f"map_from_entries(transform(array_distinct({values}), __e -> struct(__e, {count})))"

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        name = MultisetType(key=of.args[0]).duckdb
        return f"CAST(coalesce(histogram({over.first_argument}), MAP {{}}) AS {name})"


@aggregate("PERCENTILE")
class Percentile(OfBags):
    """Percentile at a fraction from 0 to 1, or an array of them for an array; NULL if no values.

    `PERCENTILE(x, share[, frequency])`: the share is a constant. The result is interpolated between
    two values. A row counts `frequency` times; it does not count if that is NULL or less than 1.
    NaN is greater than every number.
    """

    arity = (2, 3)
    constant = 1

    def constant_value(self, value: object) -> object | None:
        if isinstance(value, tuple):
            shares = tuple(self.constant_value(each) for each in value)
            return None if None in shares else shares
        fitting = isinstance(value, int | float | Decimal) and not isinstance(value, bool) and 0 <= value <= 1
        return float(value) if fitting else None  # type: ignore[arg-type]

    def result_type(self, of: Signature) -> DataType | None:
        value, *frequency = of.args
        if not isinstance(value, NumericType) or not all(isinstance(each, IntegerType) for each in frequency):
            return None
        return ArrayType(element=DOUBLE) if isinstance(of.constants[0], tuple) else DOUBLE

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        return (lists.bag_slot(DOUBLE) if _uses_bag(of) else lists.sequence_slots(DOUBLE, False)[0],)

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        value = columns[0].cast(pl.Float64)
        if not _uses_bag(of):
            return lists.collect_sequence(value, value.is_not_null(), None)
        present, count = value.is_not_null(), pl.lit(1, dtype=pl.Int64)
        if len(columns) > 1:
            count = columns[1].cast(pl.Int64)
            present = present & (count > 0)
        return (lists.collect_bag(value, present, count if sign is None else count * sign),)

    def settle(self, of: Signature, slots: Sequence[pl.Expr], whole: bool) -> Sequence[pl.Expr] | None:
        return (lists.net_bag(slots[0]),) if _uses_bag(of) else None

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        ordered = slots[0].list.sort()
        found = [
            _weighted_percentile(ordered, each) if _uses_bag(of) else _plain_percentile(ordered, each)
            for each in _shares(of)
        ]
        if not isinstance(of.constants[0], tuple):
            return found[0]
        some = slots[0].list.len() > 0
        return pl.when(some).then(pl.concat_list(found)) if found else pl.lit(None, dtype=pl.List(pl.Float64))

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        value, *frequency = over.texts
        entry = f"CAST({value} AS DOUBLE)"
        if frequency:
            known = f"{value} IS NOT NULL AND {frequency[0]} > 0"
            entry = f"CASE WHEN {known} THEN struct({entry} AS v, CAST({frequency[0]} AS BIGINT) AS n) END"
        found = [sql_lists.spark_percentile("__s", share, counted=bool(frequency)) for share in _shares(of)]
        result = f"array({', '.join(found)})" if isinstance(of.constants[0], tuple) else found[0]
        ordered = f"array_sort(collect_list({'DISTINCT ' if over.distinct else ''}{entry}))"
        return f"get(transform(array({ordered}), __s -> IF(size(__s) = 0, NULL, {result})), 0)"

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        value, *frequency = over.texts
        each, known = f"CAST({value} AS DOUBLE)", f"{value} IS NOT NULL"
        values = f"list({'DISTINCT ' if over.distinct else ''}{each}) FILTER (WHERE {known})"
        if frequency:
            repeated = f"list(list_transform(range(CAST({frequency[0]} AS BIGINT)), lambda i: {each}))"
            values = f"flatten({repeated} FILTER (WHERE {known} AND {frequency[0]} > 0))"
        found = [sql_lists.duckdb_percentile(values, share) for share in _shares(of)]
        if not isinstance(of.constants[0], tuple):
            return found[0]
        return f"CASE WHEN COUNT({value}) > 0 THEN [{', '.join(found)}] END"


def _shares(of: Signature) -> tuple[object, ...]:
    (constant,) = of.constants
    return constant if isinstance(constant, tuple) else (constant,)


def _uses_bag(of: Signature) -> bool:
    return of.retracting or len(of.args) > 1


def _interpolate(low: pl.Expr, high: pl.Expr, position: pl.Expr) -> pl.Expr:
    below, above = position.floor(), position.ceil()
    return pl.when(below == above).then(low).otherwise((above - position) * low + (position - below) * high)


def _position(count: pl.Expr, share: object) -> pl.Expr:
    """Return the position of a fraction among `count` values, counted from 1.

    Flink adds the 1 before it takes the fractional part, which rounds it.
    """
    return (count - 1) * pl.lit(share) + 1.0


def _plain_percentile(ordered: pl.Expr, share: object) -> pl.Expr:
    position = _position(ordered.list.len().cast(pl.Int64), share)
    low, high = (
        ordered.list.get(at.cast(pl.Int64) - 1, null_on_oob=True) for at in (position.floor(), position.ceil())
    )
    return _interpolate(low, high, position)


def _weighted_percentile(ordered: pl.Expr, share: object) -> pl.Expr:
    value, count = pl.element().struct.field(lists.VALUE), pl.element().struct.field(lists.COUNT).clip(0)
    position, sofar = _position(count.sum(), share), count.cum_sum()
    low, high = (value.filter(sofar >= at).first() for at in (position.floor(), position.ceil()))
    return ordered.list.agg(_interpolate(low, high, position))
