"""Window functions: ROW_NUMBER, RANK, DENSE_RANK, LAG, LEAD.

They need OVER with an order, and take no frame. Each is an aggregate over all rows up to the
current one; LEAD is one over all rows from it on. The binder passes the order key to RANK and
DENSE_RANK as their argument. They rank a NULL key like any other value.
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Aggregate, Distinct, NotInBatchEngine, Signature, Slot, SqlArguments, aggregate
from everfold.types import BIGINT, ArrayType, DataType, IntegerType, NullType


class _OfWindows(Aggregate):
    arity = (0, 0)
    is_window_function = True
    is_ordered = True
    skips_nulls = False
    is_retractable = False
    distinct = Distinct.REFUSED

    def result_type(self, of: Signature) -> DataType | None:
        return BIGINT.as_nullable(False)

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        raise NotInBatchEngine("it is a window function")


@aggregate("ROW_NUMBER")
class RowNumber(_OfWindows):
    """Number of the row in its partition, starting at 1; peers get different numbers."""

    ignores_peers = True
    is_additive = True

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        return (Slot("count", BIGINT),)

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        return (pl.len().cast(pl.Int64),)

    def lift(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        return (pl.lit(1, dtype=pl.Int64),)

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return (slots[0].sum(),)

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        return slots[0]

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        return "COUNT(*)"


@aggregate("RANK")
class Rank(_OfWindows):
    """One plus the number of rows before this one in its partition that are not its peers."""

    takes_order_key = True

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        return (Slot("count", BIGINT), Slot("last", of.args[0].as_nullable()), Slot("peers", BIGINT))

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        (key,) = columns
        return pl.len().cast(pl.Int64), key.last(), key.eq_missing(key.last()).sum().cast(pl.Int64)

    def lift(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        one = pl.lit(1, dtype=pl.Int64)
        return one, columns[0], one

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        count, last, peers = slots
        return count.sum(), last.last(), peers.filter(last.eq_missing(last.last())).sum()

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        return slots[0] - slots[2] + 1

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        keys = f"list({over.texts[0]})"
        return f"len({keys}) - len(list_filter({keys}, lambda x: x IS NOT DISTINCT FROM {keys}[-1])) + 1"


@aggregate("DENSE_RANK")
class DenseRank(_OfWindows):
    """Rank of the row in its partition without gaps: the number of distinct keys up to its own."""

    takes_order_key = True

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        (key,) = of.args
        return (Slot("count", BIGINT), Slot("first", key.as_nullable()), Slot("last", key.as_nullable()))

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        (key,) = columns
        return key.n_unique().cast(pl.Int64), key.first(), key.last()

    def lift(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        return pl.lit(1, dtype=pl.Int64), columns[0], columns[0]

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        count, first, last = slots
        # A part that starts with the key that the previous part ends with shares its first rank.
        common = first.slice(1).eq_missing(last.slice(0, pl.len() - 1)).sum()
        return count.sum() - common.cast(pl.Int64), first.first(), last.last()

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        return slots[0]

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        key = over.texts[0]
        return f"COUNT(DISTINCT {key}) + CASE WHEN COUNT(*) > COUNT({key}) THEN 1 ELSE 0 END"


@aggregate("LAG")
class Lag(_OfWindows):
    """Value `n` rows before the current one (1 by default); else the given default value, or NULL.

    A number of rows that is not a constant is an argument (batch only): engines then look up the
    row, and there are no slots. In a stream, rows with the same time are computed together, as in
    Flink: they all get the value of the last of them.
    """

    arity = (1, 3)
    constant = 1
    default = "1"
    ignores_peers_in_batch = True

    def constant_value(self, value: object) -> object | None:
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None

    def result_type(self, of: Signature) -> DataType | None:
        if any(isinstance(arg, NullType) for arg in of.args[:1]):
            return None
        offsets, defaults = ((), of.args[1:]) if of.constants else (of.args[1:2], of.args[2:])
        if not all(isinstance(each, IntegerType) for each in offsets):
            return None
        if not all(isinstance(each, NullType) or each.spark == of.args[0].spark for each in defaults):
            return None
        return of.args[0].as_nullable()

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        value = of.args[0].as_nullable()
        default = (Slot("default", value),) if len(of.args) > 1 else ()
        return (Slot("values", ArrayType(element=value)), *default)

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        return columns[0].tail(_offset(of) + 1).implode(), *(column.last() for column in columns[1:])

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        kept = slots[0].explode(empty_as_null=False, keep_nulls=False).tail(_offset(of) + 1)
        return kept.implode(), *(slot.last() for slot in slots[1:])

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        values, back = slots[0], _offset(of) + 1
        default = slots[1] if len(slots) > 1 else pl.lit(None, dtype=of.args[0].polars)
        return pl.when(values.list.len() >= back).then(values.list.get(-back, null_on_oob=True)).otherwise(default)

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        values, back = f"list({over.texts[0]})", _offset(of) + 1
        default = f"list({over.texts[1]})[-1]" if len(over.texts) > 1 else "NULL"
        return f"CASE WHEN COUNT(*) >= {back} THEN {values}[{-back}] ELSE {default} END"


@aggregate("LEAD")
class Lead(Lag):
    """Value `n` rows after the current one (1 by default); else the default or NULL. Batch only."""

    looks_ahead = True

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        return columns[0].head(_offset(of) + 1).implode(), *(column.first() for column in columns[1:])

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        kept = slots[0].explode(empty_as_null=False, keep_nulls=False).head(_offset(of) + 1)
        return kept.implode(), *(slot.first() for slot in slots[1:])

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        values, on = slots[0], _offset(of)
        default = slots[1] if len(slots) > 1 else pl.lit(None, dtype=of.args[0].polars)
        return pl.when(values.list.len() > on).then(values.list.get(on, null_on_oob=True)).otherwise(default)

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        values, position = f"list({over.texts[0]})", _offset(of) + 1
        default = f"list({over.texts[1]})[1]" if len(over.texts) > 1 else "NULL"
        return f"CASE WHEN COUNT(*) >= {position} THEN {values}[{position}] ELSE {default} END"


def _offset(of: Signature) -> int:
    (given,) = of.constants
    assert isinstance(given, int | str)
    return int(given)
