"""Connector `datagen`: generates `rows-per-second` rows.

A value depends only on the row's number and the column (and for times on the time of the batch,
which Spark stores), so a replayed batch is identical. The table ends after `number-of-rows` rows,
or at the end of its shortest sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from everfold.connectors.contract import (
    SPLIT,
    Connector,
    Option,
    OptionSet,
    OptionValues,
    Role,
    Source,
    SourceContext,
    wrong_option_error,
)
from everfold.engine_literals import spark_string
from everfold.errors import SqlError, UnsupportedFeature, suggest_name
from everfold.plan.nodes import Table, TableColumn
from everfold.sql.settings import parse_duration
from everfold.types import (
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    FloatingType,
    IntegerType,
    NumericType,
    StringType,
    TemporalType,
    TimestampType,
    TimeType,
    physical_name,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPTIONS = OptionSet(
    (
        Option("rows-per-second", "int", "10000", role="source", least=1, meaning="rows generated per second"),
        Option("number-of-rows", "int", role="source", least=0, meaning="total number of rows; unbounded if not set"),
        Option("fields.*", role="source", meaning="how a column is generated: kind, min, max, length, start, end, max-past, null-rate, var-len"),
        Option("scan.parallelism", "int", role="source", note="has no meaning here"),
    )
)  # fmt: skip
_SETTINGS = ("kind", "min", "max", "length", "start", "end", "max-past", "null-rate", "var-len")
_LENGTH = 100
_BITS53 = 1 << 53
_HEX_DIGITS = 64


@dataclass(frozen=True, slots=True)
class _Field:
    """How one column is generated."""

    sequence: bool = False
    low: Decimal | None = None
    high: Decimal | None = None
    length: int = _LENGTH
    start: int = 0
    end: int = 0
    max_past_ms: int = 0
    null_rate: float = 0.0
    var_len: bool = False


class DatagenSource(Source):
    """A source of generated rows."""

    def __init__(self, table: Table, options: OptionValues) -> None:
        self.table = table
        self.options = options
        self.fields = _fields(table, options)

    @property
    def row_count(self) -> int | None:
        """The number of rows, None if unbounded."""
        limits = [field.end - field.start + 1 for field in self.fields if field.sequence]
        total = self.options.number_or_none("number-of-rows")
        limits += [] if total is None else [total]
        return min(limits, default=None)

    def is_bounded(self) -> bool:
        """Return whether the table has a number of rows or a sequence."""
        return self.row_count is not None

    def stream(self, context: SourceContext) -> DataFrame:
        """Return the rows as a stream, at the configured rate."""
        reader = context.spark.readStream.name(context.name).format("rate")
        frame = (
            reader.option("rowsPerSecond", str(self.options.number("rows-per-second")))
            .load()
            .selectExpr("value AS __row")
        )
        return self._columns(frame if self.row_count is None else frame.where(f"__row < {self.row_count}"))

    def check_use(self, *, as_stream: bool) -> None:
        """Check that a batch is bounded. Raises SqlError `unbounded-source`."""
        if not as_stream and self.row_count is None:
            raise SqlError.of(
                "unbounded-source",
                f"table `{self.table.name}` is unbounded",
                self.table.span,
                "set 'number-of-rows' to read it in batch",
            )

    def batch(self, context: SourceContext) -> DataFrame:
        """Return all rows. Raises SqlError `unbounded-source` if the table is unbounded."""
        self.check_use(as_stream=False)
        assert self.row_count is not None, "checked"
        return self._columns(context.spark.range(self.row_count).selectExpr("id AS __row"))

    def _columns(self, frame: DataFrame) -> DataFrame:
        out = [
            f"{_value(column.type, field, at)} AS {physical_name(at)}"
            for at, (column, field) in enumerate(zip(self.table.columns, self.fields, strict=True))
        ]
        return frame.selectExpr(*out, f"{spark_string(self.table.identity)} AS {SPLIT}")

    def has_reached_end(self, context: SourceContext, offsets_json: str) -> bool:
        """Return whether all rows are emitted. The offset of Spark's rate source is in seconds."""
        return (
            self.row_count is not None and int(offsets_json) * self.options.number("rows-per-second") >= self.row_count
        )


class DatagenConnector(Connector):
    """The `datagen` connector."""

    def check(self, table: Table, role: Role) -> OptionValues:
        """Check the types and the settings of the columns."""
        options = super().check(table, role)
        _fields(table, options)
        return options

    def needs_whole_record(self, table: Table) -> bool:
        """Return True.

        A sequence ends the table even if the query does not use its column, and a value depends on
        the position of its column.
        """
        return True

    def source(self, table: Table, options: OptionValues) -> Source:
        """Return a source that generates the rows."""
        return DatagenSource(table, options)


CONNECTOR = DatagenConnector(name="datagen", meaning="generated rows", own_options=OPTIONS)


# --- options --------------------------------------------------------------------------------------


def _fields(table: Table, options: OptionValues) -> tuple[_Field, ...]:
    settings: dict[str, dict[str, str]] = {column.name: {} for column in table.columns}
    for name, text in options.with_prefix("fields.").items():
        column, _, setting = name.rpartition(".")
        if column not in settings:
            raise wrong_option_error(
                table,
                f"fields.{name}",
                f"option `fields.{name}` names no column of the table",
                suggest_name(column, settings),
            )
        if setting not in _SETTINGS:
            raise SqlError.of(
                "unknown-option", f"table `{table.name}`: the connector `datagen` has no option `fields.{name}`",
                table.span_of_option(f"fields.{name}"), suggest_name(setting, _SETTINGS),
            )  # fmt: skip
        settings[column][setting] = text
    return tuple(_field(table, column, settings[column.name]) for column in table.columns)


def _field(table: Table, column: TableColumn, settings: Mapping[str, str]) -> _Field:
    def wrong(setting: str, what: str) -> SqlError:
        return wrong_option_error(
            table, f"fields.{column.name}.{setting}", f"option `fields.{column.name}.{setting}`: {what}"
        )

    def whole(setting: str, default: int) -> int:
        try:
            return int(settings.get(setting, default))
        except ValueError:
            raise wrong(setting, "it takes a whole number") from None

    def number(setting: str) -> Decimal | None:
        try:
            return Decimal(settings[setting]) if setting in settings else None
        except InvalidOperation:
            raise wrong(setting, "it takes a number") from None

    of = column.type
    if not isinstance(of, BooleanType | NumericType | StringType | BytesType | TemporalType):
        raise UnsupportedFeature.of(
            "datagen-type",
            f"table `{table.name}`: datagen does not generate {of} (column `{column.name}`)",
            table.span_of(column.name),
        )
    kind = settings.get("kind", "random")
    if kind not in ("random", "sequence"):
        raise wrong("kind", "it takes `random` or `sequence`")
    if kind == "sequence":
        if not isinstance(of, NumericType | StringType):
            raise UnsupportedFeature.of(
                "datagen-type",
                f"table `{table.name}`: datagen does not generate a sequence of {of} (column `{column.name}`)",
                table.span_of(column.name),
            )
        for setting in ("start", "end"):
            if setting not in settings:
                raise SqlError.of(
                    "missing-option",
                    f"table `{table.name}` needs option `fields.{column.name}.{setting}`: it is a sequence",
                    dict(table.option_spans).get(f"fields.{column.name}.kind", table.span),
                )
    try:
        past = parse_duration(settings.get("max-past", "0 ms"))
        rate = float(settings.get("null-rate", "0"))
    except ValueError as error:
        raise wrong("max-past" if "max-past" in settings else "null-rate", str(error)) from None
    found = _Field(
        kind == "sequence", number("min"), number("max"), whole("length", _length(of)), whole("start", 0),
        whole("end", 0), past, rate,
        settings.get("var-len", "false").lower() == "true",
    )  # fmt: skip
    if found.sequence and found.end < found.start:
        raise wrong("end", f"it is below `start`, {found.start}")
    if found.low is not None and found.high is not None and found.high < found.low:
        raise wrong("max", f"it is below `min`, {found.low}")
    if not 0 <= rate <= 1:
        raise wrong("null-rate", "it must be between 0 and 1")
    if found.length < 1:
        raise wrong("length", "it must be at least 1")
    return found


def _length(of: DataType) -> int:
    return min(of.length, _LENGTH) if isinstance(of, StringType | BytesType) else _LENGTH


# --- values ---------------------------------------------------------------------------------------


def _value(of: DataType, field: _Field, at: int) -> str:
    """Return Spark SQL for the value of the column at position `at` in row `__row`."""
    value = f"CAST({field.start}L + __row AS {of.spark})" if field.sequence else _random(of, field, at)
    if field.null_rate:
        value = f"IF({_share(at, 'null')} < {field.null_rate}D, CAST(NULL AS {of.spark}), {value})"
    return value


def _hash(at: int, salt: str = "") -> str:
    return f"xxhash64(__row, {at}, {spark_string(salt)})"


def _share(at: int, salt: str = "") -> str:
    """Return Spark SQL for a number from 0 (inclusive) to 1 (exclusive)."""
    return f"((({_hash(at, salt)}) & {_BITS53 - 1}L) / {_BITS53}D)"


def _random(of: DataType, field: _Field, at: int) -> str:
    match of:
        case BooleanType():
            return f"({_hash(at)} & 1L) = 1"
        case IntegerType():
            bound = 1 << (of.bits - 1)
            low = -bound if field.low is None else max(int(field.low), -bound)
            high = bound - 1 if field.high is None else min(int(field.high), bound - 1)
            if high - low + 1 >= 1 << 63:
                return f"CAST({_hash(at)} AS {of.spark})"
            return f"CAST({_long(low)} + pmod({_hash(at)}, {_long(high - low + 1)}) AS {of.spark})"
        case FloatingType():
            low_float = float(field.low or 0)
            high_float = 1.0 if field.high is None else float(field.high)
            return f"CAST({low_float!r}D + {_share(at)} * {high_float - low_float!r}D AS {of.spark})"
        case DecimalType():
            most = Decimal(10) ** (of.precision - of.scale) - 1
            low_dec = field.low if field.low is not None else Decimal(0)
            high_dec = field.high if field.high is not None else most
            return f"CAST({float(low_dec)!r}D + {_share(at)} * {float(high_dec - low_dec)!r}D AS {of.spark})"
        case StringType():
            digits = ", ".join(
                f"sha2(concat(__row, ' {at} {part}'), 256)" for part in range(-(-field.length // _HEX_DIGITS))
            )
            return f"substring(concat({digits}), 1, {_some_length(field, at)})"
        case BytesType():
            digits = ", ".join(
                f"sha2(concat(__row, ' {at} {part}'), 256)" for part in range(-(-2 * field.length // _HEX_DIGITS))
            )
            return f"unhex(substring(concat({digits}), 1, 2 * {_some_length(field, at)}))"
        case DateType():
            return f"CAST({_moment(field, at)} AS DATE)"
        case TimeType():
            return f"CAST(pmod(unix_millis({_moment(field, at)}), 86400000L) AS INT)"
        case _:
            assert isinstance(of, TimestampType), of
            return f"CAST({_moment(field, at)} AS {of.spark})"


def _long(value: int) -> str:
    return f"CAST('{value}' AS BIGINT)"


def _some_length(field: _Field, at: int) -> str:
    return f"CAST(1 + floor({_share(at, 'length')} * {field.length}) AS INT)" if field.var_len else str(field.length)


def _moment(field: _Field, at: int) -> str:
    """Return Spark SQL for a time up to `max-past` before the time of the batch."""
    now = "unix_millis(current_timestamp())"
    return f"timestamp_millis({now} - CAST(floor({_share(at)} * {field.max_past_ms}) AS BIGINT))"
