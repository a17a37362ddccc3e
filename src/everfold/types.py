"""Flink's data types and the corresponding types in Spark, Arrow, Polars and DuckDB.

The physical types hold the same values in every engine, so that no engine's own interpretation of a
type affects results:

| Flink | Spark | Arrow | Polars | DuckDB |
| --- | --- | --- | --- | --- |
| TIMESTAMP(p) | TIMESTAMP_NTZ | timestamp[us] | Datetime(us) | TIMESTAMP |
| TIMESTAMP_LTZ(p) | TIMESTAMP | timestamp[us, UTC] | Datetime(us, UTC) | TIMESTAMP |
| TIME(p) | INT, milliseconds of the day | int32 | Int32 | INTEGER |
| INTERVAL DAY TO SECOND | BIGINT, milliseconds | int64 | Int64 | BIGINT |
| INTERVAL YEAR TO MONTH | INT, months | int32 | Int32 | INTEGER |
| MULTISET<t> | MAP<t, INT> | map | List(Struct) | MAP |

For TIMESTAMP_LTZ, the zone of the Spark session is UTC, and DuckDB's timestamps are in UTC.

Sources: Flink's "Data Types" page for the type names and their defaults; Flink 2.3, through the
case files, for the sizes of results.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

MAX_DECIMAL_PRECISION = 38
MAX_VARCHAR = 2147483647


@dataclass(frozen=True, kw_only=True)
class DataType:
    """A type of Flink SQL.

    In Flink `nullable` is part of the type, but two types that differ only in it are `same_as` each
    other.
    """

    nullable: bool = True

    @property
    def sql(self) -> str:
        """The type in Flink SQL, without NOT NULL."""
        raise NotImplementedError

    @property
    def spark(self) -> str:
        """The type in Spark DDL."""
        raise NotImplementedError

    @property
    def duckdb(self) -> str:
        """The type in DuckDB SQL."""
        raise NotImplementedError

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of a column."""
        raise NotImplementedError

    @cached_property
    def polars(self) -> pl.DataType:
        """The Polars type of a column."""
        import polars as pl

        return pl.from_arrow(self.arrow_empty()).dtype  # type: ignore[union-attr]

    def arrow_empty(self) -> pa.Array:
        """Return an empty column of this type."""
        import pyarrow as pa

        return pa.array([], self.arrow)

    def as_nullable(self, nullable: bool = True) -> DataType:
        """Return the same type, nullable or not."""
        return self if self.nullable == nullable else replace(self, nullable=nullable)

    def same_as(self, other: DataType) -> bool:
        """Return whether both types are equal, ignoring nullability, also of nested types."""
        return self.sql == other.sql

    def __str__(self) -> str:
        return self.sql if self.nullable else f"{self.sql} NOT NULL"


@dataclass(frozen=True, kw_only=True)
class _Simple(DataType):
    """A type without parameters in the engines.

    `names` are its names in Flink, Spark, DuckDB and pyarrow.
    """

    names = ("", "", "", "")

    @property
    def sql(self) -> str:
        return self.names[0]

    @property
    def spark(self) -> str:
        return self.names[1]

    @property
    def duckdb(self) -> str:
        return self.names[2]

    @property
    def arrow(self) -> pa.DataType:
        import pyarrow as pa

        arrow_type: pa.DataType = getattr(pa, self.names[3])()
        return arrow_type


class NumericType(DataType):
    """A type that can be summed and averaged."""


class IntegerType(NumericType):
    """TINYINT to BIGINT.

    `bits` is the width; `digits` is the precision of the DECIMAL that can hold every value.
    """

    bits: int
    digits: int


class FloatingType(NumericType):
    """FLOAT or DOUBLE."""


class TemporalType(DataType):
    """DATE, TIME, TIMESTAMP, TIMESTAMP_LTZ."""


@dataclass(frozen=True, kw_only=True)
class NullType(_Simple):
    """The type of an untyped NULL literal."""

    names = ("NULL", "VOID", "INTEGER", "null")


@dataclass(frozen=True, kw_only=True)
class AnyType(DataType):
    """The type of a column of unknown type, in a query that is checked but never run.

    Every function accepts it and then returns it.
    """

    @property
    def sql(self) -> str:
        return "ANY"


@dataclass(frozen=True, kw_only=True)
class BooleanType(_Simple):
    """TRUE, FALSE."""

    names = ("BOOLEAN", "BOOLEAN", "BOOLEAN", "bool_")


@dataclass(frozen=True, kw_only=True)
class TinyIntType(_Simple, IntegerType):
    """8 bits."""

    names = ("TINYINT", "TINYINT", "TINYINT", "int8")
    bits, digits = 8, 3


@dataclass(frozen=True, kw_only=True)
class SmallIntType(_Simple, IntegerType):
    """16 bits."""

    names = ("SMALLINT", "SMALLINT", "SMALLINT", "int16")
    bits, digits = 16, 5


@dataclass(frozen=True, kw_only=True)
class IntType(_Simple, IntegerType):
    """32 bits."""

    names = ("INT", "INT", "INTEGER", "int32")
    bits, digits = 32, 10


@dataclass(frozen=True, kw_only=True)
class BigIntType(_Simple, IntegerType):
    """64 bits."""

    names = ("BIGINT", "BIGINT", "BIGINT", "int64")
    bits, digits = 64, 19


@dataclass(frozen=True, kw_only=True)
class FloatType(_Simple, FloatingType):
    """32-bit floating point."""

    names = ("FLOAT", "FLOAT", "FLOAT", "float32")


@dataclass(frozen=True, kw_only=True)
class DoubleType(_Simple, FloatingType):
    """64-bit floating point."""

    names = ("DOUBLE", "DOUBLE", "DOUBLE", "float64")


@dataclass(frozen=True, kw_only=True)
class DecimalType(NumericType):
    """Exact numeric with `precision` digits, `scale` of them after the decimal point."""

    precision: int = 10
    scale: int = 0

    def __post_init__(self) -> None:
        assert 1 <= self.precision <= MAX_DECIMAL_PRECISION, self.precision
        assert 0 <= self.scale <= self.precision, self.scale

    @property
    def sql(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"

    @property
    def spark(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})"

    duckdb = spark

    @property
    def arrow(self) -> pa.DataType:
        import pyarrow as pa

        return pa.decimal128(self.precision, self.scale)


@dataclass(frozen=True, kw_only=True)
class StringType(_Simple):
    """CHAR(n) (`fixed`) and VARCHAR(n); STRING is VARCHAR(2147483647)."""

    names = ("STRING", "STRING", "VARCHAR", "string")

    length: int = MAX_VARCHAR
    fixed: bool = False

    @property
    def sql(self) -> str:
        if self.fixed:
            return f"CHAR({self.length})"
        return "STRING" if self.length == MAX_VARCHAR else f"VARCHAR({self.length})"


@dataclass(frozen=True, kw_only=True)
class BytesType(_Simple):
    """BINARY(n) (`fixed`) and VARBINARY(n); BYTES is VARBINARY(2147483647)."""

    names = ("BYTES", "BINARY", "BLOB", "binary")

    length: int = MAX_VARCHAR
    fixed: bool = False

    @property
    def sql(self) -> str:
        if self.fixed:
            return f"BINARY({self.length})"
        return "BYTES" if self.length == MAX_VARCHAR else f"VARBINARY({self.length})"


@dataclass(frozen=True, kw_only=True)
class DateType(_Simple, TemporalType):
    """A day."""

    names = ("DATE", "DATE", "DATE", "date32")


@dataclass(frozen=True, kw_only=True)
class TimeType(_Simple, TemporalType):
    """A time of day. Flink computes with milliseconds for every precision."""

    names = ("TIME", "INT", "INTEGER", "int32")

    precision: int = 0

    @property
    def sql(self) -> str:
        return f"TIME({self.precision})"


@dataclass(frozen=True, kw_only=True)
class TimestampType(TemporalType):
    """TIMESTAMP(p), or TIMESTAMP_LTZ(p) if `local_zone`.

    TIMESTAMP is a wall-clock time without a zone. TIMESTAMP_LTZ is an instant, shown in the
    session's zone.
    """

    precision: int = 6
    local_zone: bool = False

    @property
    def sql(self) -> str:
        return f"TIMESTAMP_LTZ({self.precision})" if self.local_zone else f"TIMESTAMP({self.precision})"

    @property
    def spark(self) -> str:
        return "TIMESTAMP" if self.local_zone else "TIMESTAMP_NTZ"

    @property
    def duckdb(self) -> str:
        return "TIMESTAMP"

    @property
    def arrow(self) -> pa.DataType:
        import pyarrow as pa

        return pa.timestamp("us", tz="UTC") if self.local_zone else pa.timestamp("us")


@dataclass(frozen=True, kw_only=True)
class IntervalType(DataType):
    """INTERVAL: milliseconds (DAY TO SECOND), or months (YEAR TO MONTH)."""

    months: bool = False

    @property
    def sql(self) -> str:
        return "INTERVAL YEAR TO MONTH" if self.months else "INTERVAL DAY TO SECOND(3)"

    @property
    def spark(self) -> str:
        return "INT" if self.months else "BIGINT"

    @property
    def duckdb(self) -> str:
        return "INTEGER" if self.months else "BIGINT"

    @property
    def arrow(self) -> pa.DataType:
        import pyarrow as pa

        return pa.int32() if self.months else pa.int64()


@dataclass(frozen=True, kw_only=True)
class ArrayType(DataType):
    """ARRAY<element>."""

    element: DataType

    @property
    def sql(self) -> str:
        return f"ARRAY<{self.element}>"

    @property
    def spark(self) -> str:
        return f"ARRAY<{self.element.spark}>"

    @property
    def duckdb(self) -> str:
        return f"{self.element.duckdb}[]"

    @property
    def arrow(self) -> pa.DataType:
        import pyarrow as pa

        return pa.list_(self.element.arrow)


@dataclass(frozen=True, kw_only=True)
class MapType(DataType):
    """MAP<key, value>."""

    key: DataType
    value: DataType

    @property
    def sql(self) -> str:
        return f"MAP<{self.key}, {self.value}>"

    @property
    def spark(self) -> str:
        return f"MAP<{self.key.spark}, {self.value.spark}>"

    @property
    def duckdb(self) -> str:
        return f"MAP({self.key.duckdb}, {self.value.duckdb})"

    @property
    def arrow(self) -> pa.DataType:
        import pyarrow as pa

        return pa.map_(self.key.arrow, self.value.arrow)


@dataclass(frozen=True, kw_only=True)
class MultisetType(MapType):
    """MULTISET<element>: the number of occurrences of each element."""

    value: DataType = IntType(nullable=False)

    @property
    def sql(self) -> str:
        return f"MULTISET<{self.key}>"


@dataclass(frozen=True, kw_only=True)
class RowField:
    """A field of a ROW type."""

    name: str
    type: DataType


@dataclass(frozen=True, kw_only=True)
class RowType(DataType):
    """ROW<name type, …>."""

    fields: tuple[RowField, ...]

    @property
    def sql(self) -> str:
        return "ROW<" + ", ".join(f"`{field.name}` {field.type}" for field in self.fields) + ">"

    @property
    def spark(self) -> str:
        return "STRUCT<" + ", ".join(f"`{field.name}`: {field.type.spark}" for field in self.fields) + ">"

    @property
    def duckdb(self) -> str:
        return "STRUCT(" + ", ".join(f'"{field.name}" {field.type.duckdb}' for field in self.fields) + ")"

    @property
    def arrow(self) -> pa.DataType:
        import pyarrow as pa

        return pa.struct([pa.field(field.name, field.type.arrow) for field in self.fields])


ANY = AnyType()
BOOLEAN = BooleanType()
TINYINT = TinyIntType()
SMALLINT = SmallIntType()
INT = IntType()
BIGINT = BigIntType()
FLOAT = FloatType()
DOUBLE = DoubleType()
STRING = StringType()
BYTES = BytesType()
DATE = DateType()
TIME = TimeType()
TIMESTAMP3 = TimestampType(precision=3)
TIMESTAMP_LTZ3 = TimestampType(precision=3, local_zone=True)
NULL = NullType()


@dataclass(frozen=True, kw_only=True)
class Field:
    """A column: its name and type, and whether it is a time attribute.

    `time` is "rowtime" for a column with a watermark, "proctime" for processing time, None for
    every other column.
    """

    name: str
    type: DataType
    time: str | None = None

    def __post_init__(self) -> None:
        assert self.time in (None, "rowtime", "proctime"), self.time

    def with_name(self, name: str) -> Field:
        """Return the same column with another name."""
        return replace(self, name=name)


@dataclass(frozen=True)
class Schema:
    """The columns of a relation, in order.

    Names may repeat (SELECT a, a): operators refer to columns by position.
    """

    fields: tuple[Field, ...]

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, position: int) -> Field:
        return self.fields[position]

    def __iter__(self) -> Any:
        return iter(self.fields)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(field.name for field in self.fields)

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema, with physical column names."""
        import pyarrow as pa

        return pa.schema([pa.field(physical_name(at), field.type.arrow) for at, field in enumerate(self.fields)])

    def position(self, name: str) -> int | None:
        """Return the position of the first column with that name, None if there is none."""
        return next((at for at, field in enumerate(self.fields) if field.name == name), None)


def with_article(of: DataType) -> str:
    """Return the type with its article: `a DECIMAL(10, 2)`, `an INT`."""
    sql = of.sql
    return f"{'an' if sql[0] in 'AEIO' else 'a'} {sql}"


def physical_name(position: int) -> str:
    """Return the physical name of the column at a position, the same in every engine.

    It is independent of the user's names, so it needs no quotes and no case folding.
    """
    return f"c{position}"
