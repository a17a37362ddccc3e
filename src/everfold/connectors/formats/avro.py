"""Format `avro`: one bare record of Avro's binary encoding, without a schema beside it: the table's columns are the schema.

The schema is Flink's: a column that may be NULL is a union of `null` and its type, in that order; DATE, TIME, TIMESTAMP and DECIMAL have the bytes of Avro's
logical types, a ROW is a record, a MAP has STRING keys. TIMESTAMP of up to three digits counts milliseconds, of up to six microseconds; both since 1970.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from everfold.connectors.formats.format import BAD, Format, Place, RecordColumn
from everfold.connectors.formats.text_decode import BadValue, identifier
from everfold.connectors.options import OptionSet
from everfold.errors import UnsupportedFeature
from everfold.plan.nodes import Table
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
    article,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

OPTIONS = OptionSet(())
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RECORD = "record"
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_DAY_MICROS = 86_400_000_000
_FIRST_DAY, _LAST_DAY = ((each - _EPOCH.date()).days for each in (date.min, date.max))

Conversion = Callable[[Any], Any]
"""From a value as Avro has it to one that Arrow takes, or back; never called for NULL."""


@dataclass(frozen=True, slots=True)
class AvroFormat(Format):
    """Avro by the columns of a table."""

    def check(self, table: Table, columns: Sequence[RecordColumn]) -> None:
        """Names that Avro has, and types."""
        for column in columns:
            what = _unsupported(column.name, column.type)
            if what is not None:
                raise UnsupportedFeature.of(
                    "avro-type",
                    f"table `{table.name}`: format avro does not read or write {what} (column `{column.name}`)",
                    table.place_of(column.name),
                )

    @property
    def reader(self) -> str | None:
        """None: there are no files of bare records."""
        return None

    def reader_options(self) -> dict[str, str]:
        """None: there is no reader."""
        raise AssertionError("bare records are no files")

    def reader_schema(self, columns: Sequence[RecordColumn]) -> str:
        """None: there is no reader."""
        raise AssertionError("bare records are no files")

    def from_text(
        self, frame: DataFrame, columns: Sequence[RecordColumn], raw: str, *, keep_empty: bool = False
    ) -> DataFrame:
        """The fields with their types."""
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.pandas.functions import arrow_udf

        fields = [f"{identifier(column.name)}: {column.type.spark}" for column in columns]
        make: Any = arrow_udf
        made = make(_iterating(_Records(tuple(columns))), f"STRUCT<{', '.join([*fields, f'{BAD}: STRING'])}>")
        kept = [identifier(name) for name in frame.columns]
        names = [*(identifier(column.name) for column in columns), BAD]
        if not keep_empty:
            frame = frame.where(f"{raw} IS NOT NULL")
        # What is not deterministic is computed once, and not in every filter above.
        frame = frame.withColumn("__record", made.asNondeterministic()(F.col(raw)))
        return frame.selectExpr(*kept, *(f"__record.{name} AS {name}" for name in names))

    def value(self, column: RecordColumn, field: str, place: Place) -> str:
        """The field is the value."""
        return field

    def is_bad(self, column: RecordColumn, field: str) -> str | None:
        """Never: only a record as a whole can be wrong."""
        return None

    def lost(self, columns: Sequence[RecordColumn]) -> str:
        """Other bytes than those of a record."""
        return f"{BAD} IS NOT NULL"

    def line(self, columns: Sequence[RecordColumn]) -> str:
        """Spark SQL: there are no lines."""
        raise AssertionError("bare records are no lines")

    def encoder(self, columns: Sequence[RecordColumn]) -> Callable[[Sequence[object]], bytes | None]:
        """From the values of a row to its record."""
        from fastavro import parse_schema, schemaless_writer

        of = _whole(columns)
        schema = parse_schema(_schema(of, _RECORD))
        names = [column.name for column in columns]
        convert = _writing(of)

        def encode(values: Sequence[object]) -> bytes:
            record = io.BytesIO()
            schemaless_writer(record, schema, convert(dict(zip(names, values, strict=True))))
            return record.getvalue()

        return encode

    def decoder(self, columns: Sequence[RecordColumn]) -> Callable[[bytes], Iterator[list[object]]]:
        """From a record to its row."""
        read = _reader(columns)

        def decode(record: bytes) -> Iterator[list[object]]:
            row = read(record)
            yield [row[column.name] for column in columns]

        return decode


# --- records in Spark -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Records:
    """Reads batches of records into structures of the columns, with what is wrong in the last field."""

    columns: tuple[RecordColumn, ...]

    def __call__(self, batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        import pyarrow as pa

        of = pa.struct([*_whole(self.columns).arrow, pa.field(BAD, pa.string())])
        read = _reader(self.columns)
        for records in batches:
            yield pa.array([_row(read, record) for record in records.to_pylist()], of)


def _row(read: Callable[[bytes], dict[str, Any]], record: bytes | None) -> dict[str, Any]:
    if record is None:
        return {}
    try:
        return read(record)
    except BadValue as wrong:
        return {BAD: wrong.reason}


def _iterating(records: _Records) -> Any:
    """The function as PySpark wants it: a plain one, whose annotations say what it takes."""
    import pyarrow as pa

    def evaluate(batches):  # type: ignore[no-untyped-def]
        return records(batches)

    evaluate.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
    return evaluate


def _reader(columns: Sequence[RecordColumn]) -> Callable[[bytes], dict[str, Any]]:
    """From a record to its fields, as Arrow takes them. Raises BadValue."""
    from fastavro import parse_schema, schemaless_reader

    of = _whole(columns)
    schema = parse_schema(_schema(of, _RECORD))
    convert = _reading(of)

    def read(record: bytes) -> dict[str, Any]:
        rest = io.BytesIO(record)
        try:
            found = convert(schemaless_reader(rest, schema, None))
        except (EOFError, ValueError, IndexError, TypeError, OverflowError) as wrong:
            raise BadValue(f"it is no Avro record of these columns: {wrong or type(wrong).__name__}") from None
        if rest.tell() < len(record):
            raise BadValue(f"it is no Avro record of these columns: {len(record) - rest.tell()} bytes are left over")
        assert isinstance(found, dict)
        return found

    return read


# --- types ----------------------------------------------------------------------------------------


def _whole(columns: Sequence[RecordColumn]) -> RowType:
    """The record as a type."""
    from everfold.types import RowField

    return RowType(fields=tuple(RowField(name=each.name, type=each.type) for each in columns), nullable=False)


def _unsupported(name: str, of: DataType) -> str | None:
    """What Avro has not of a field, as the end of a sentence; None if it has all."""
    if _NAME.fullmatch(name) is None:
        return f"a field named `{name}`, as its names are letters, digits and `_`"
    match of:
        case RowType():
            return next(filter(None, (_unsupported(field.name, field.type) for field in of.fields)), None)
        case ArrayType():
            return _unsupported("element", of.element)
        case MapType():
            return _unsupported("value", of.value) if isinstance(of.key, StringType) else article(of)
        case TimestampType() if of.precision > 6:
            return article(of)
        case (
            BooleanType() | IntegerType() | FloatType() | DoubleType() | DecimalType() | StringType() | BytesType()
            | DateType() | TimeType() | TimestampType()
        ):  # fmt: skip
            return None
        case _:
            return article(of)


def _schema(of: DataType, name: str) -> Any:
    """The schema of a type in Avro's words. name: of a record."""
    plain = _plain_schema(of, name)
    return ["null", plain] if of.nullable else plain


def _plain_schema(of: DataType, name: str) -> Any:
    match of:
        case RowType():
            fields = [{"name": each.name, "type": _schema(each.type, f"{name}_{each.name}")} for each in of.fields]
            return {"type": "record", "name": name, "fields": fields}
        case ArrayType():
            return {"type": "array", "items": _schema(of.element, name)}
        case MapType():
            return {"type": "map", "values": _schema(of.value, name)}
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


def _reading(of: DataType) -> Conversion:
    """From what Avro holds to what Arrow takes."""
    match of:
        case RowType():
            fields = [(each.name, _if_any(_reading(each.type))) for each in of.fields]
            return lambda value: {name: read(value[name]) for name, read in fields}
        case ArrayType():
            element = _if_any(_reading(of.element))
            return lambda value: [element(each) for each in value]
        case MapType():
            entry = _if_any(_reading(of.value))
            return lambda value: [(key, entry(each)) for key, each in value.items()]
        case TimestampType():
            within = _within(of, _FIRST_DAY * _DAY_MICROS, (_LAST_DAY + 1) * _DAY_MICROS)
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
    """Refuse a number that the type does not have."""

    def check(value: int) -> int:
        if not first <= value < end:
            raise ValueError(f"{value} is outside of {of.sql}")
        return value

    return check


def _writing(of: DataType) -> Conversion:
    """From what Arrow gives to Python to what Avro holds."""
    match of:
        case RowType():
            fields = [(each.name, _if_any(_writing(each.type))) for each in of.fields]
            return lambda value: {name: write(value[name]) for name, write in fields}
        case ArrayType():
            element = _if_any(_writing(of.element))
            return lambda value: [element(each) for each in value]
        case MapType():
            entry = _if_any(_writing(of.value))
            return lambda value: {key: entry(each) for key, each in value}
        case TimestampType():
            return lambda value: _since_epoch(value) // _micros(of)
        case DateType():
            return lambda value: (value - date(1970, 1, 1)).days
        case DecimalType():
            return lambda value: _number_bytes(int(value.scaleb(of.scale)))
        case _:
            return lambda value: value


def _if_any(convert: Conversion) -> Conversion:
    return lambda value: None if value is None else convert(value)


def _micros(of: TimestampType) -> int:
    """How many microseconds a unit of a timestamp has."""
    return 1000 if of.precision <= 3 else 1


def _since_epoch(value: datetime) -> int:
    """Microseconds."""
    wall = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return (wall - _EPOCH) // _MICROSECOND


def _number_bytes(value: int) -> bytes:
    """As few bytes as hold a number and its sign."""
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)
