"""The interface between formats and connectors.

Decoding follows the same steps in every format: Spark's reader, or `from_text`, returns every field
as a string, and the record itself in `__bad` if it cannot be parsed; `value` converts a field's
string to the column's value. Both raise, with the location of the record in the error message,
unless the format ignores errors. `decoder` does the same in Python: for the memory engine, and to
report after a failure which line was bad and why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from everfold.connectors.contract import Role, columns_of
from everfold.connectors.formats.text_decode import TextRules, convert_sql, excerpt
from everfold.connectors.options import OptionValues
from everfold.connectors.skipped_rows import count_bad_records
from everfold.engine_literals import spark_string
from everfold.error_transport import find_reports, raise_report_in_spark
from everfold.errors import ConnectorError
from everfold.plan.nodes import Table
from everfold.types import DataType, StringType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

BAD = "__bad"
"""Column with the record itself if it cannot be parsed, otherwise NULL."""
_MAX_EXCERPT = 300
_LOCATION_PARTS = ("path", "topic", "partition", "offset")
"""Those of a RecordLocation that examples of skipped records have."""


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
class SparkReader:
    """A data source of Spark that reads files of a format: all fields as strings, and `__bad`."""

    source: str
    options: Mapping[str, str]
    schema: str


@dataclass(frozen=True, slots=True)
class Format(ABC):
    """A format with a table's options.

    ignore_option: the option that lets a job continue after bad records. If records are changes,
    `from_text` adds the column `__kind`, `encode` reads it, and it is the last value of the rows
    that `decoder` returns.
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

    def reader(self, columns: Sequence[RecordColumn]) -> SparkReader | None:
        """Return Spark's reader of files, None if they are read as lines for `from_text`."""
        return None

    @abstractmethod
    def from_text(
        self, frame: DataFrame, columns: Sequence[RecordColumn], raw: str, *, keep_empty: bool = False
    ) -> DataFrame:
        """Parse the column `raw` (STRING or BINARY) and add a column per field, and `__bad`.

        An empty record yields no row, or with `keep_empty` a row of NULLs (a missing key).
        """

    def is_empty(self, columns: Sequence[RecordColumn], raw: str) -> str:
        """Return Spark SQL: whether the non-NULL record `raw` has no row, as an empty line."""
        return "false"

    @abstractmethod
    def value(self, column: RecordColumn, field: str, location: RecordLocation) -> str:
        """Return Spark SQL for a column's value from its field."""

    def convert_or_raise(self, text: str, of: DataType, rules: TextRules, path: str, location: RecordLocation) -> str:
        """Return Spark SQL: the value of a string, which fails the job if it is not valid.

        An invalid string is NULL if errors are ignored. path: of the field, for the error.
        """
        value = convert_sql(text, of, rules)
        if self.ignore_errors or isinstance(of, StringType):
            return value
        return f"coalesce({value}, IF({text} IS NULL, NULL, {raise_bad_record(location, path, text)}))"

    def is_bad(self, column: RecordColumn, field: str) -> str | None:
        """Return Spark SQL: whether a field is invalid for its type, None if none can be."""
        return None

    def is_unreadable(self, columns: Sequence[RecordColumn]) -> str:
        """Return Spark SQL over a parsed frame: whether no part of a record can be read."""
        return f"{BAD} IS NOT NULL"

    def keep_readable(
        self,
        frame: DataFrame,
        columns: Sequence[RecordColumn],
        fields: Mapping[int, str],
        location: RecordLocation,
        metric: str,
        text: str = BAD,
    ) -> DataFrame:
        """Return the readable records of a parsed frame.

        Others fail the job, or are skipped if errors are ignored; then all records that are not
        readable in full are counted. fields: the fields by position of the column. metric: see
        `count_bad_records`. text: Spark SQL of the record for the error.
        """
        if not self.ignore_errors:
            return frame.where(f"CASE WHEN {BAD} IS NULL THEN true ELSE {raise_bad_record(location, None, text)} END")
        from pyspark.sql.functions import expr

        partly = [sql for column in columns if (sql := self.is_bad(column, fields[column.position]))]
        frame = frame.withColumn("__lost", expr(self.is_unreadable(columns)))
        flawed = " OR ".join(["__lost", f"{BAD} IS NOT NULL", *partly])
        frame = frame.withColumn("__flawed", expr(f"coalesce({flawed}, false)"))
        facts = {name: sql for name, sql in location.parts if name in _LOCATION_PARTS}
        facts["record"] = f"IF({BAD} IS NULL, NULL, {text})"
        frame = count_bad_records(frame, "__flawed", metric, location.table, facts)
        return frame.where("NOT __lost").drop("__lost", "__flawed")

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
        if self.ignore_option:
            options.append(f"set '{self.ignore_option}' = 'true' to skip and count such records")
        return ConnectorError.of("bad-record", message, help=", or ".join(options) or None)
