"""The tables of an operator's state for users: columns with SQL names and SQL types, times as
timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from everfold.compat.shape import OperatorShape
from everfold.compat.state_schema import NamedShape
from everfold.inspection.reader import AT, COLUMN, END, KEY, ORDER, START, VALUE, StoredTable, has_update_time
from everfold.inspection.slots import known_slots, type_of
from everfold.operators.changelog import INPUT_KIND
from everfold.operators.state_names import number_repeats
from everfold.plan.changelog import RowKind
from everfold.state.partition_rows import NUMBER
from everfold.state.segments import TOUCHED
from everfold.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    NULL,
    SMALLINT,
    STRING,
    TIMESTAMP3,
    TIMESTAMP_LTZ3,
    TINYINT,
    ArrayType,
    DataType,
    DecimalType,
    Field,
    MapType,
    RowField,
    RowType,
    Schema,
    TimestampType,
)

_TIME, _ROWS, _COUNT = "time", "n", "count"
_SIMPLE: dict[type[pl.DataType], DataType] = {
    pl.Boolean: BOOLEAN,
    pl.Int8: TINYINT,
    pl.Int16: SMALLINT,
    pl.Int32: INT,
    pl.Int64: BIGINT,
    pl.Float32: FLOAT,
    pl.Float64: DOUBLE,
    pl.String: STRING,
    pl.Binary: BYTES,
    pl.Date: DATE,
    pl.Null: NULL,
}


@dataclass(frozen=True, slots=True)
class StateTable:
    """A table of an operator's state.

    name: groups, slices, rows, … rows: Arrow columns with the types and names of the schema, sorted
    by time and keys; without columns if there are no rows. Names are unique, ignoring case.
    internal: the columns with slots that only help to compute a result.
    """

    name: str
    schema: Schema
    rows: pa.Table
    internal: frozenset[str] = frozenset()

    def without_internal(self) -> StateTable:
        """Return the table without its internal columns."""
        if not self.internal:
            return self
        schema = Schema(tuple(of for of in self.schema if of.name not in self.internal))
        return StateTable(self.name, schema, self.rows.select(list(schema.names)))


@dataclass(frozen=True, slots=True)
class _Column:
    """A displayed column, computed from stored ones."""

    name: str
    type: DataType
    value: pl.Expr
    internal: bool = False


def to_state_table(shape: OperatorShape, table: StoredTable) -> StateTable:
    """Return a table of an operator for users."""
    if not table.rows.width:
        return StateTable(table.name, Schema(()), pa.table({}))
    rows = table.rows.sort(order, maintain_order=True) if (order := _order(shape, table)) else table.rows
    columns = [*_columns(shape, table)]
    schema = Schema(
        tuple(
            Field(name=name, type=of.type) for name, of in zip(_unique(of.name for of in columns), columns, strict=True)
        )
    )
    found = rows.select(of.value.alias(name) for name, of in zip(schema.names, columns, strict=True))
    types = pa.schema([pa.field(of.name, of.type.arrow) for of in schema])
    internal = frozenset(name for name, of in zip(schema.names, columns, strict=True) if of.internal)
    return StateTable(table.name, schema, found.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(types), internal)


def _columns(shape: OperatorShape, table: StoredTable) -> Iterator[_Column]:
    """Yield the displayed columns of a table: time bounds, columns of rows, keys, values, slots,
    counts, the last update.
    """
    stored = table.rows.schema
    whole_rows = any(name.startswith(COLUMN) for name in stored)
    yield from _bounds(shape, table)
    if INPUT_KIND in stored:
        kinds = {kind.value: kind.short for kind in RowKind}
        yield _Column("op", STRING, pl.col(INPUT_KIND).replace_strict(kinds, return_dtype=pl.String))
    yield from _texts(shape, stored)
    if whole_rows:
        return
    if _TIME in stored:
        of = _expressions(shape).get("".join(shape.order[:1]))
        yield _ms(_TIME if of is None else of.name, TIMESTAMP3 if of is None else type_of(of.type), pl.col(_TIME))
    yield from _slots(shape, stored)
    if _ROWS in stored:
        yield _Column("rows", BIGINT, pl.col(_ROWS))
    yield from (_Column(name, BIGINT, pl.col(name)) for name in stored if name.partition(" ")[0] == _COUNT)
    if TOUCHED in stored and has_update_time(shape):
        yield _ms("last update", TIMESTAMP_LTZ3, pl.col(TOUCHED))


def _bounds(shape: OperatorShape, table: StoredTable) -> Iterator[_Column]:
    """Yield the bounds of a slice, of a CUMULATE's window, or of a session."""
    at, kept = pl.col(AT), shape.kept
    match table.name:
        case "slices":
            what = "window" if kept.slice_ms == kept.size_ms else "slice"
            yield _ms(f"{what}_start", TIMESTAMP3, at - kept.slice_ms)
            yield _ms(f"{what}_end", TIMESTAMP3, at)
        case "totals" if AT in table.rows.columns:
            yield _ms("window_start", TIMESTAMP3, at)
            yield _ms("window_end", TIMESTAMP3, at + kept.size_ms)
        case "sessions" if START in table.rows.columns:
            yield _ms("window_start", TIMESTAMP3, pl.col(START))
            yield _ms("window_end", TIMESTAMP3, pl.col(END))


def _texts(shape: OperatorShape, stored: pl.Schema) -> Iterator[_Column]:
    """Yield the columns that are named by their expressions: those of rows and keys, each in their
    order, values, orders.
    """
    of_rows = number_repeats([of.text for of in shape.kept.columns])
    names = {**_expressions(shape), **dict(zip(of_rows, shape.kept.columns, strict=True))}
    positions = {text: at for at, text in enumerate(dict.fromkeys([*of_rows, *number_repeats(list(shape.keys))]))}
    found: list[tuple[tuple[int, int], _Column]] = []
    for column, dtype in stored.items():
        kind = next((each for each in (COLUMN, KEY, VALUE, ORDER) if column.startswith(each)), "")
        text = column.removeprefix(kind)
        if not kind or (kind == KEY and COLUMN + text in stored):
            continue
        of = names.get(text)
        type_ = flink_type(dtype) if of is None or type_of(of.type).polars != dtype else type_of(of.type)
        rank = (int(kind in (VALUE, ORDER)), positions.get(text, len(positions)))
        found.append((rank, _Column(text if of is None else of.name, type_, pl.col(column))))
    yield from (column for _, column in sorted(found, key=lambda each: each[0]))


def _slots(shape: OperatorShape, stored: pl.Schema) -> Iterator[_Column]:
    """Yield the slots of the aggregates; one that no page has yet is NULL, under the aggregate's
    label.
    """
    for call in () if any(name.startswith(VALUE) for name in stored) else shape.calls:
        slots, known = call.find_slots(stored), known_slots(call)
        for slot, column in slots.items():
            of, dtype = known.get(slot), stored[column]
            type_ = flink_type(dtype) if of is None or of.type.polars != dtype else of.type
            name = call.label if len(slots) == 1 else f"{call.label} {slot}"
            yield _Column(name, type_, pl.col(column), internal=of is not None and of.internal)
        if not slots:
            yield _Column(call.label, NULL, pl.lit(None))


def _order(shape: OperatorShape, table: StoredTable) -> list[str]:
    """Return the columns that rows are sorted by."""
    stored = table.rows.schema
    keys = [f"{kind}{text}" for text in number_repeats(list(shape.keys)) for kind in (KEY, COLUMN)]
    names = [AT, START, *keys, _TIME, NUMBER, *(name for name in stored if name.startswith(VALUE))]
    return [name for name in names if name in stored and not stored[name].is_nested()]


def _expressions(shape: OperatorShape) -> dict[str, NamedShape]:
    return {of.text: of for of in shape.kept.expressions}


def _ms(name: str, type_: DataType, ms: pl.Expr) -> _Column:
    """Convert milliseconds to a timestamp."""
    zone = "UTC" if isinstance(type_, TimestampType) and type_.local_zone else None
    return _Column(name, type_, (ms * 1000).cast(pl.Datetime("us", zone)))


def _unique(names: Iterable[str]) -> list[str]:
    """Number the names that repeat an earlier one, ignoring case."""
    found: dict[str, str] = {}
    for name in names:
        fresh, number = name, 1
        while fresh.casefold() in found:
            number += 1
            fresh = f"{name} #{number}"
        found[fresh.casefold()] = fresh
    return [*found.values()]


def flink_type(of: pl.DataType) -> DataType:
    """Return the SQL type of a column whose SQL type is not stored."""
    match of:
        case pl.Decimal():
            return DecimalType(precision=of.precision or 38, scale=of.scale)
        case pl.Datetime():
            return TimestampType(precision=6, local_zone=of.time_zone is not None)
        case pl.List():
            return ArrayType(element=flink_type(_instance(of.inner)))
        case pl.Map():
            return MapType(key=flink_type(_instance(of.key)), value=flink_type(_instance(of.value)))
        case pl.Struct():
            return RowType(
                fields=tuple(RowField(name=each.name, type=flink_type(_instance(each.dtype))) for each in of.fields)
            )
        case _:
            return _SIMPLE[type(of)]


def _instance(of: pl.DataType | pl.datatypes.DataTypeClass) -> pl.DataType:
    return of if isinstance(of, pl.DataType) else of()
