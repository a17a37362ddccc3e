"""The interface between formats and connectors.

Decoding follows the same steps in every format: Spark's reader, or `from_text`, returns every field
as a string, and the record itself in `__bad` if it cannot be parsed; `value` converts a field's
string to the column's value. Both raise, with the location of the record in the error message,
unless the format ignores errors. `decoder` does the same in Python: for the memory engine, and to
report after a failure which line was bad and why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.connectors.contract import Role, columns_of
from everfold.engine_literals import spark_string
from everfold.error_transport import find_reports, raise_report_in_spark
from everfold.plan.nodes import Table
from everfold.types import DataType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BAD = "__bad"
"""Column with the record itself if it cannot be parsed, otherwise NULL."""
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
class Format(ABC):
    """A format with a table's options.

    ignore_option: the option that lets a job continue after bad records. If records are changes,
    `from_text` adds the column `__kind`, `line` reads it, and it is the last value of the rows that
    `decoder` returns and `encoder` accepts.
    """

    ignore_errors: bool = False
    ignore_option: str | None = None

    @property
    def is_changelog(self) -> bool:
        """Whether a record describes changes of rows instead of being a row."""
        return False

    @abstractmethod
    def check(self, table: Table, columns: Sequence[RecordColumn]) -> None:
        """Check that the format supports the types of all columns. Raises SqlError."""

    @property
    @abstractmethod
    def reader(self) -> str | None:
        """The Spark data source that reads files of this format.

        None if files are read as lines of text, which `from_text` parses.
        """

    @abstractmethod
    def reader_options(self) -> dict[str, str]:
        """Return the options for Spark's reader."""

    @abstractmethod
    def reader_schema(self, columns: Sequence[RecordColumn]) -> str:
        """Return the schema for Spark's reader: the fields as strings, and `__bad`."""

    @abstractmethod
    def from_text(
        self, frame: DataFrame, columns: Sequence[RecordColumn], raw: str, *, keep_empty: bool = False
    ) -> DataFrame:
        """Parse the column `raw` (STRING or BINARY) and add the columns of `reader_schema`.

        An empty record yields no row, or with `keep_empty` a row of NULLs (a missing key).
        """

    def is_empty(self, columns: Sequence[RecordColumn], raw: str) -> str:
        """Return Spark SQL: whether the non-NULL record `raw` has no row, as an empty line."""
        return "false"

    @abstractmethod
    def value(self, column: RecordColumn, field: str, location: RecordLocation) -> str:
        """Return Spark SQL for a column's value from its field."""

    @abstractmethod
    def is_bad(self, column: RecordColumn, field: str) -> str | None:
        """Return Spark SQL: whether a field is invalid for its type, None if none can be."""

    @abstractmethod
    def is_unreadable(self, columns: Sequence[RecordColumn]) -> str:
        """Return Spark SQL over a parsed frame: whether no part of a record can be read."""

    @abstractmethod
    def decoder(self, columns: Sequence[RecordColumn]) -> Callable[[bytes], Iterator[list[object]]]:
        """Return a function from a record to its rows, which raises BadValue."""

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The columns that `from_text` adds besides the fields and `__bad`."""
        return ()

    def metadata(self, key: str) -> str | None:
        """Return Spark SQL over a parsed frame for a metadata key, None for an unknown key."""
        return None

    @abstractmethod
    def line(self, columns: Sequence[RecordColumn]) -> str:
        """Return Spark SQL: a row (`c0…`) as a text record."""

    @abstractmethod
    def encoder(self, columns: Sequence[RecordColumn]) -> Callable[[Sequence[object]], bytes | None]:
        """Return a function from the values of a row to a record.

        The values are those to which Arrow converts its own in Python.
        """
