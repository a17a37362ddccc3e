"""Format `raw`: the bytes of a record are the value of the table's single column.

A STRING is decoded by `raw.charset` (invalid bytes become U+FFFD, as in Flink), BYTES are
unchanged, a BOOLEAN is one byte, integers and floating point numbers have the width of their type
and the order `raw.endianness`. A record of another width is an error.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from everfold.connectors.formats.format import BAD, Format, RecordColumn, RecordLocation
from everfold.connectors.formats.text_decode import BadValue
from everfold.connectors.options import Option, OptionSet, OptionValues, wrong_option_error
from everfold.engine_literals import spark_identifier, spark_string
from everfold.errors import UnsupportedFeature
from everfold.plan.nodes import Table
from everfold.types import (
    BooleanType,
    BytesType,
    DataType,
    FloatingType,
    FloatType,
    IntegerType,
    StringType,
    physical_name,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

OPTIONS = OptionSet(
    (
        Option("charset", "string", "UTF-8", meaning="character encoding of a STRING"),
        Option("endianness", ("big-endian", "little-endian"), "big-endian", meaning="byte order of numbers"),
    )
)
_CHARSETS = {
    "utf-8": "UTF-8",
    "ascii": "US-ASCII",
    "iso8859-1": "ISO-8859-1",
    "utf-16": "UTF-16",
    "utf-16-be": "UTF-16BE",
    "utf-16-le": "UTF-16LE",
}
"""Character sets that Spark decodes: Python's name to Spark's."""


@dataclass(frozen=True, slots=True)
class RawFormat(Format):
    """Bytes without structure."""

    charset: str = "utf-8"
    little: bool = False

    @classmethod
    def of(cls, table: Table, options: OptionValues, prefix: str) -> Self:
        try:
            charset = codecs.lookup(options.string(f"{prefix}charset")).name
        except LookupError:
            charset = ""
        if charset not in _CHARSETS:
            known = ", ".join(_CHARSETS.values())
            raise wrong_option_error(table, f"{prefix}charset", f"option `{prefix}charset` takes {known}")
        return cls(charset=charset, little=options.string(f"{prefix}endianness") == "little-endian")

    def check(self, table: Table, columns: Sequence[RecordColumn]) -> None:
        """Check that there is one column, of a type with a byte representation."""
        if len(columns) != 1:
            raise UnsupportedFeature.of(
                "raw-columns",
                f"table `{table.name}`: format raw takes exactly one column, not {len(columns)}",
                table.span,
            )
        of = columns[0].type
        if not isinstance(of, StringType | BytesType | BooleanType | IntegerType | FloatingType):
            raise UnsupportedFeature.of(
                "raw-type",
                f"table `{table.name}`: format raw does not read or write {of} (column `{columns[0].name}`)",
                table.span_of(columns[0].name), "it takes STRING, BYTES, BOOLEAN, integers, FLOAT and DOUBLE",
            )  # fmt: skip

    def from_text(
        self, frame: DataFrame, columns: Sequence[RecordColumn], raw: str, *, keep_empty: bool = False
    ) -> DataFrame:
        """Return the bytes as the field, and as a bad record if their number is wrong."""
        own = [spark_identifier(name) for name in frame.columns]
        width = self._width(columns[0])
        bad = (
            "CAST(NULL AS STRING)"
            if width is None
            else f"IF({raw} IS NULL OR length(CAST({raw} AS BINARY)) = {width}, NULL, hex(CAST({raw} AS BINARY)))"
        )
        return frame.selectExpr(
            *own, f"CAST({raw} AS BINARY) AS {spark_identifier(columns[0].name)}", f"{bad} AS {BAD}"
        )

    def value(self, column: RecordColumn, field: str, location: RecordLocation) -> str:
        """Return Spark SQL for the value of the bytes."""
        match column.type:
            case BytesType():
                return field
            case StringType():
                if self.charset == "utf-8":
                    return f"make_valid_utf8(CAST({field} AS STRING))"
                return f"decode({field}, {spark_string(_CHARSETS[self.charset])})"
            case BooleanType():
                return f"(hex({field}) <> '00')"
            case FloatingType():
                return _floating(self._number(field, _bytes_of(column.type)), column.type)
            case of:
                return f"CAST({self._number(field, _bytes_of(of))} AS {of.spark})"

    def _number(self, field: str, count: int) -> str:
        """Return Spark SQL: `count` bytes as a signed BIGINT.

        The hexadecimal digits are sign-extended to 64 bits.
        """
        digits = f"hex({field})"
        if self.little:
            digits = (
                "concat("
                + ", ".join(f"substring(hex({field}), {2 * at + 1}, 2)" for at in reversed(range(count)))
                + ")"
            )
        sign = f"IF({digits} >= '8', 'F', '0')"
        return f"CAST(conv(lpad({digits}, 16, {sign}), 16, -10) AS BIGINT)"

    @staticmethod
    def _width(column: RecordColumn) -> int | None:
        return None if isinstance(column.type, StringType | BytesType) else _bytes_of(column.type)

    def encode(self, rows: pa.Table, columns: Sequence[RecordColumn]) -> pa.Array:
        """Return the value of each row as bytes; NULL has none."""
        import pyarrow as pa

        (column,) = columns
        values = rows.column(physical_name(column.position)).combine_chunks()
        if isinstance(column.type, BytesType) or (isinstance(column.type, StringType) and self.charset == "utf-8"):
            return values
        return pa.array((self._write(value, column.type) for value in values.to_pylist()), pa.binary())

    def _write(self, value: object, of: DataType) -> bytes | None:
        match value:
            case None:
                return None
            case str():
                return value.encode(self.charset, "replace")
            case bool():
                return b"\1" if value else b"\0"
            case float():
                return struct.pack(self._struct_format(of), value)
            case _:
                assert isinstance(value, int)
                return value.to_bytes(_bytes_of(of), "little" if self.little else "big", signed=True)

    def decoder(self, columns: Sequence[RecordColumn]) -> Callable[[bytes], Iterator[list[object]]]:
        """Return a function from bytes to the row."""
        of, width = columns[0].type, self._width(columns[0])

        def decode(record: bytes) -> Iterator[list[object]]:
            if width is not None and len(record) != width:
                raise BadValue(f"it has {len(record)} bytes, {of} has {width}")
            match of:
                case BytesType():
                    yield [record]
                case StringType():
                    yield [record.decode(self.charset, "replace")]
                case BooleanType():
                    yield [record != b"\0"]
                case FloatingType():
                    yield list(struct.unpack(self._struct_format(of), record))
                case _:
                    yield [int.from_bytes(record, "little" if self.little else "big", signed=True)]

        return decode

    def _struct_format(self, of: DataType) -> str:
        return ("<" if self.little else ">") + ("f" if isinstance(of, FloatType) else "d")


FORMAT = RawFormat


def _bytes_of(of: DataType) -> int:
    """Return the number of bytes of a type with a fixed width."""
    match of:
        case BooleanType():
            return 1
        case FloatingType():
            return 4 if isinstance(of, FloatType) else 8
        case _:
            assert isinstance(of, IntegerType), of
            return of.bits // 8


def _floating(bits: str, of: FloatingType) -> str:
    """Return Spark SQL: the number whose bits (IEEE 754) are in a BIGINT.

    Every step of the arithmetic is exact.
    """
    digits, bias, top = (23, 127, 0xFF) if isinstance(of, FloatType) else (52, 1023, 0x7FF)
    exponent = f"(shiftrightunsigned({bits}, {digits}) & {top})"
    fraction = f"({bits} & {(1 << digits) - 1}L)"
    sign = f"IF(shiftrightunsigned({bits}, {digits + top.bit_length()}) & 1 = 1, -1D, 1D)"
    whole = f"IF({exponent} = 0, {fraction}, {fraction} + {1 << digits}L)"
    value = f"CAST({whole} AS DOUBLE) * power(2D, greatest({exponent}, 1) - {bias + digits})"
    special = f"IF({fraction} = 0, double('Infinity'), double('NaN'))"
    return f"CAST({sign} * IF({exponent} = {top}, {special}, {value}) AS {of.spark})"
