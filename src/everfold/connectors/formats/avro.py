"""Format `avro`: one record in Avro's binary encoding, without a schema.

The table's columns are the schema, as in Flink: a nullable column is a union of `null` and its
type, in this order; DATE, TIME, TIMESTAMP and DECIMAL have the encoding of Avro's logical types; a
ROW is a record; a MAP has STRING keys. A TIMESTAMP of up to three digits is in milliseconds, of up
to six digits in microseconds, both since 1970.

Values are converted here and not by fastavro's logical types, whose results differ: they round a
DECIMAL with more digits than its type instead of refusing it, read a TIME as a datetime.time, and a
TIMESTAMP without a zone as an instant.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from everfold.connectors.formats.avro_limits import find_check
from everfold.connectors.formats.format import Format, NoteFlaw, RecordColumn
from everfold.connectors.formats.text_decode import BadValue
from everfold.connectors.options import OptionSet
from everfold.plan.nodes import Table
from everfold.plan.record_types import check_avro_field
from everfold.types import (
    ArrayType,
    BigIntType,
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    RowType,
    StringType,
    TimestampType,
    TimeType,
    physical_name,
)

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS = OptionSet()
_RECORD = "record"
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_DAY_MICROS = 86_400_000_000
_FIRST_DAY, _LAST_DAY = ((each - _EPOCH.date()).days for each in (date.min, date.max))

Conversion = Callable[[Any], Any]
"""Converts an Avro value to one that Arrow accepts, or back. Never called for NULL."""
RowReader = Callable[[bytes], dict[str, Any]]
RowWriter = Callable[[Mapping[str, object]], bytes]


@dataclass(frozen=True, slots=True)
class AvroFormat(Format):
    """Avro with the columns of a table as the schema."""

    def check(self, table: Table, columns: Sequence[RecordColumn]) -> None:
        """Check that Avro supports the names and types of the columns."""
        for column in columns:
            check_avro_field(table, column.name, column.type)

    @property
    def names_fields(self) -> bool:
        """Whether fields have names: not without a schema."""
        return False

    def encode(self, rows: pa.Table, columns: Sequence[RecordColumn]) -> pa.Array:
        """Return a record for each row."""
        import pyarrow as pa

        if not rows.num_rows:
            return pa.array([], pa.binary())
        write = self.open_writer(columns)
        stored = rows.select([physical_name(column.position) for column in columns])
        named = stored.rename_columns([column.name for column in columns])
        return pa.array(map(write, named.to_pylist()), pa.binary())

    def decoder(
        self, columns: Sequence[RecordColumn], note: NoteFlaw | None = None
    ) -> Callable[[bytes], Iterator[list[object]]]:
        """Return a function from a record to its row."""
        read = self.open_reader(columns)

        def decode(record: bytes) -> Iterator[list[object]]:
            row = read(record)
            yield [row[column.name] for column in columns]

        return decode

    def open_reader(self, columns: Sequence[RecordColumn]) -> RowReader:
        """Return a function from a record to its fields for Arrow, which raises BadValue."""
        from fastavro import parse_schema

        of = record_type(columns)
        return read_with(parse_schema(avro_schema(of, _RECORD)), from_avro(of))

    def open_writer(self, columns: Sequence[RecordColumn]) -> RowWriter:
        """Return a function from a row to its record."""
        from fastavro import parse_schema, schemaless_writer

        of = record_type(columns)
        schema, convert = parse_schema(avro_schema(of, _RECORD)), to_avro(of)

        def write(row: Mapping[str, object]) -> bytes:
            record = io.BytesIO()
            schemaless_writer(record, schema, convert(row))
            return record.getvalue()

        return write


FORMAT = AvroFormat


# --- records ------------------------------------------------------------------------------------


def read_with(schema: Any, convert: Conversion, named: Mapping[str, Any] = MappingProxyType({})) -> RowReader:
    """Return a function from a record of a parsed schema to its fields, which raises BadValue.

    named: the types that the schema names.
    """
    from fastavro import schemaless_reader

    check = find_check(schema, named)

    def read(record: bytes) -> dict[str, Any]:
        check(record)
        rest = io.BytesIO(record)
        try:
            found = convert(schemaless_reader(rest, schema, None))
        except (EOFError, ValueError, IndexError, TypeError, OverflowError) as wrong:
            reason = str(wrong).partition(" from <")[0] or type(wrong).__name__
            raise BadValue(f"it is not an Avro record of these columns: {reason}") from None
        if rest.tell() < len(record):
            left = len(record) - rest.tell()
            raise BadValue(f"it is not an Avro record of these columns: {left} bytes are left over")
        assert isinstance(found, dict)
        return found

    return read


# --- types ----------------------------------------------------------------------------------------


def record_type(columns: Sequence[RecordColumn]) -> RowType:
    """Return the type of the record."""
    from everfold.types import RowField

    return RowType(fields=tuple(RowField(name=each.name, type=each.type) for each in columns), nullable=False)


def avro_schema(of: DataType, name: str, *, logical: bool = False) -> Any:
    """Return the Avro schema of a type.

    name: the name of its record. logical: with logical types and the default NULL, as in Flink.
    """
    plain = _plain_schema(of, name, logical=logical)
    if logical and (more := _logical_type(of)) is not None:
        plain = {"type": plain, **more}
    return ["null", plain] if of.nullable else plain


def _plain_schema(of: DataType, name: str, *, logical: bool) -> Any:
    match of:
        case RowType():
            fields = []
            for each in of.fields:
                schema = avro_schema(each.type, f"{name}_{each.name}", logical=logical)
                default = {"default": None} if logical and each.type.nullable else {}
                fields.append({"name": each.name, "type": schema, **default})
            return {"type": "record", "name": name, "fields": fields}
        case ArrayType():
            return {"type": "array", "items": avro_schema(of.element, name, logical=logical)}
        case MapType():
            return {"type": "map", "values": avro_schema(of.value, name, logical=logical)}
        case BooleanType():
            return "boolean"
        case BigIntType() | TimestampType():
            return "long"
        case IntegerType() | DateType() | TimeType():
            return "int"
        case FloatType():
            return "float"
        case DoubleType():
            return "double"
        case StringType():
            return "string"
        case _:
            assert isinstance(of, BytesType | DecimalType), of
            return "bytes"


def _logical_type(of: DataType) -> dict[str, object] | None:
    """Return the logical type of a type, None if it has none."""
    match of:
        case TimestampType():
            return {"logicalType": "timestamp-millis" if of.precision <= 3 else "timestamp-micros"}
        case DateType():
            return {"logicalType": "date"}
        case TimeType():
            return {"logicalType": "time-millis"}
        case DecimalType():
            return {"logicalType": "decimal", "precision": of.precision, "scale": of.scale}
        case _:
            return None


def from_avro(of: DataType) -> Conversion:
    """Return the conversion from Avro values to those that Arrow accepts."""
    match of:
        case RowType():
            fields = [(each.name, skip_null(from_avro(each.type))) for each in of.fields]
            return lambda value: {name: read(value[name]) for name, read in fields}
        case ArrayType():
            element = skip_null(from_avro(of.element))
            return lambda value: [element(each) for each in value]
        case MapType():
            entry = skip_null(from_avro(of.value))
            return lambda value: [(key, entry(each)) for key, each in value.items()]
        case TimestampType():
            within = within_days(of)
            return lambda value: within(value * _micros(of))
        case DateType():
            return _within(of, _FIRST_DAY, _LAST_DAY + 1)
        case TimeType():
            return _within(of, 0, _DAY_MICROS // 1000)
        case IntegerType(bits=bits):
            return _within(of, -(1 << bits - 1), 1 << bits - 1)
        case DecimalType():
            within = _within(of, 1 - 10**of.precision, 10**of.precision)
            exact = Context(prec=of.precision)
            return lambda value: Decimal(within(int.from_bytes(value, "big", signed=True))).scaleb(-of.scale, exact)
        case _:
            return lambda value: value


def _within(of: DataType, first: int, end: int) -> Conversion:
    """Return a check that raises ValueError for a number outside the range of the type."""

    def check(value: int) -> int:
        if not first <= value < end:
            raise ValueError(f"{value} is outside of {of.sql}")
        return value

    return check


def within_days(of: TimestampType) -> Conversion:
    """Return a check that raises ValueError for microseconds outside the days of a timestamp."""
    return _within(of, _FIRST_DAY * _DAY_MICROS, (_LAST_DAY + 1) * _DAY_MICROS)


def to_avro(of: DataType) -> Conversion:
    """Return the conversion from Arrow's Python values to Avro values."""
    match of:
        case RowType():
            fields = [(each.name, skip_null(to_avro(each.type))) for each in of.fields]
            return lambda value: {name: write(value[name]) for name, write in fields}
        case ArrayType():
            element = skip_null(to_avro(of.element))
            return lambda value: [element(each) for each in value]
        case MapType():
            entry = skip_null(to_avro(of.value))
            return lambda value: {key: entry(each) for key, each in value}
        case TimestampType():
            return lambda value: _since_epoch(value) // _micros(of)
        case DateType():
            return lambda value: (value - date(1970, 1, 1)).days
        case DecimalType():
            exact = Context(prec=of.precision)
            return lambda value: _number_bytes(int(value.scaleb(of.scale, exact)))
        case _:
            return lambda value: value


def skip_null(convert: Conversion) -> Conversion:
    return lambda value: None if value is None else convert(value)


def _micros(of: TimestampType) -> int:
    """Return the number of microseconds in a unit of a timestamp."""
    return 1000 if of.precision <= 3 else 1


def _since_epoch(value: datetime) -> int:
    """Return the microseconds since 1970."""
    wall = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return (wall - _EPOCH) // _MICROSECOND


def _number_bytes(value: int) -> bytes:
    """Encode a signed number in as few bytes as possible."""
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)
