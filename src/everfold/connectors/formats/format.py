"""The interface between formats and connectors.

A format decodes records in two ways, with the same result (`record_decoder` combines them): many at
once, those whose meaning is beyond doubt (`block_decoder`), and any single one (`decoder`), which
also says what is wrong with a bad record. All engines use both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from everfold.connectors.contract import Role, columns_of
from everfold.connectors.formats.bad_value_hints import find_hints
from everfold.connectors.formats.text_decode import BadValue, excerpt
from everfold.connectors.options import OptionValues
from everfold.engine_literals import spark_string
from everfold.error_transport import find_reports, raise_report_in_spark
from everfold.errors import ConnectorError
from everfold.plan.nodes import Table
from everfold.types import DataType, physical_name

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_EXCERPT = 300


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """A column stored in a record: its name there, its position in the table, its type."""

    name: str
    position: int
    type: DataType


def record_columns(table: Table, role: Role) -> tuple[RecordColumn, ...]:
    """Return the columns stored in the records of a table.

    METADATA columns and partition keys, which are stored in folder names, are left out.
    """
    return tuple(
        RecordColumn(column.name, at, column.type)
        for at, column in enumerate(columns_of(table, role))
        if column.metadata_key is None and column.name not in table.partition_keys
    )


@dataclass(frozen=True, slots=True)
class RecordLocation:
    """The location of a record.

    parts: names and Spark SQL of the values that the error contains, for example
    `("path", "__path")`.
    """

    table: str
    parts: tuple[tuple[str, str], ...]


def raise_bad_record(location: RecordLocation, column: str | None, text: str) -> str:
    """Return Spark SQL that fails the job at a bad record.

    The error contains the location, the column (None for the whole record) and the string that
    could not be read.
    """
    values = {
        "table": spark_string(location.table),
        "column": "CAST(NULL AS STRING)" if column is None else spark_string(column),
        **dict(location.parts),
        "text": f"left(CAST({text} AS STRING), {_MAX_EXCERPT})",
    }
    return raise_report_in_spark("bad-record", values)


def find_bad_record(error_text: str, table: str) -> dict[str, object] | None:
    """Find the report of `raise_bad_record` in the text of Spark's error.

    None if the text has no report about this table.
    """
    return next((each for each in find_reports(error_text, "bad-record") if each.get("table") == table), None)


@dataclass(frozen=True, slots=True)
class Block:
    """Rows decoded from a block of records.

    rows: the needed columns `c<position>`, and those that the format adds. records: the index in
        the block of the record of each row, ascending; None if it is that of the row.
    """

    rows: pa.Table
    records: Sequence[int] | None = None


DecodeBlock = Callable[["pa.BinaryArray"], Block | None]
"""Decodes a block of records; None if it needs to be decoded in parts."""
NoteFlaw = Callable[[BadValue], None]
"""Receives a value that is not readable, and is NULL for that."""


@dataclass(frozen=True, slots=True)
class Format(ABC):
    """A format with a table's options.

    ignore_option: the option that lets a job continue after bad records.
    """

    ignore_errors: bool = False
    ignore_option: str | None = None

    @classmethod
    def of(cls, table: Table, options: OptionValues, prefix: str) -> Self:
        """Return the format configured by the table's options `<prefix>…`. Raises SqlError."""
        return cls()

    @property
    def is_changelog(self) -> bool:
        """Whether a record describes changes of rows instead of being a row."""
        return False

    @abstractmethod
    def check(self, table: Table, columns: Sequence[RecordColumn]) -> None:
        """Check that the format supports the types of all columns. Raises SqlError."""

    @property
    def names_fields(self) -> bool:
        """Whether a record names its fields, so that some can be decoded without the others."""
        return True

    @property
    def has_long_records(self) -> bool:
        """Whether a record in a file may have several lines."""
        return False

    def skips_empty(self, columns: Sequence[RecordColumn]) -> bool:
        """Return whether an empty record has no row. columns: all of a record."""
        return False

    @property
    def added_fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Names and types of the columns that follow those of the table: the row kind of changes,
        and metadata.
        """
        return ()

    def row_schema(self, columns: Sequence[RecordColumn]) -> pa.Schema:
        """Return the names and types of decoded columns, with the added ones."""
        import pyarrow as pa

        fields = [(physical_name(column.position), column.type.arrow) for column in columns]
        return pa.schema([*fields, *self.added_fields])

    @abstractmethod
    def decoder(
        self, columns: Sequence[RecordColumn], note: NoteFlaw | None = None
    ) -> Callable[[bytes], Iterator[list[object]]]:
        """Return a function from a record to its rows, which raises BadValue.

        A row has the values of the columns and of the added fields. If the format ignores errors,
        an unreadable value is NULL, and `note` is called with it.
        """

    def refuse(self, note: NoteFlaw | None) -> NoteFlaw:
        """Return what is called with an unreadable value: it raises it, or notes it if the format
        ignores errors.
        """
        return (note or _ignore) if self.ignore_errors else _raise

    def block_decoder(self, columns: Sequence[RecordColumn], needed: Sequence[RecordColumn]) -> DecodeBlock | None:
        """Return a function that decodes many records at once, None if the format has none.

        columns: all that a record has, of which only some are needed.
        """
        return None

    def metadata(self, key: str) -> str | None:
        """Return the added column with the metadata of a key, None for an unknown key."""
        return None

    @abstractmethod
    def encode(self, rows: pa.Table, columns: Sequence[RecordColumn]) -> pa.Array:
        """Return the records of rows (`c0…`) as STRING or BINARY; NULL for a row without one.

        Raises ConnectorError for a value that the format cannot represent.
        """

    def bad_record_error(self, where: str, reason: str, record: str, *, lasting: bool = False) -> ConnectorError:
        """Return the error for a record that cannot be read.

        where: the location of the record. lasting: the stored record cannot be fixed.
        """
        message = f"{where}: {reason}" + (f"\n  | {excerpt(record, 160)}" if record else "")
        options = [] if lasting else ["fix the record"]
        options += find_hints(reason, self.ignore_option)
        if self.ignore_option:
            options.append(f"set '{self.ignore_option}' = 'true' to skip and count such records")
        return ConnectorError.of("bad-record", message, help=", or ".join(options) or None)


def _raise(wrong: BadValue) -> None:
    raise wrong


def _ignore(_: BadValue) -> None:
    pass
