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

from everfold.connectors.formats.format import Block, DecodeBlock, Format, NoteFlaw, RecordColumn
from everfold.connectors.formats.text_decode import BadValue
from everfold.connectors.options import Option, OptionSet, OptionValues, wrong_option_error
from everfold.errors import UnsupportedFeature
from everfold.far_times import to_values
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
"""Character sets: Python's name to Java's."""


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

    @property
    def names_fields(self) -> bool:
        """Always False: the value is the record."""
        return False

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
        return pa.array((self._write(value, column.type) for value in to_values(values)), pa.binary())

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

    def block_decoder(self, columns: Sequence[RecordColumn], needed: Sequence[RecordColumn]) -> DecodeBlock | None:
        """Return a function for bytes and for UTF-8, None for other values."""
        of = columns[0].type
        if not needed or not isinstance(of, BytesType | StringType):
            return None
        if isinstance(of, StringType) and self.charset != "utf-8":
            return None

        def decode(records: pa.BinaryArray) -> Block | None:
            import pyarrow as pa

            try:
                return Block(pa.table([records.cast(of.arrow)], self.row_schema(needed)))
            except pa.ArrowInvalid:  # some bytes are not UTF-8
                return None

        return decode

    def decoder(
        self, columns: Sequence[RecordColumn], note: NoteFlaw | None = None
    ) -> Callable[[bytes], Iterator[list[object]]]:
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
