"""Change data capture formats: each record is a JSON object that describes changes of rows.

The common part of Debezium and Canal. The object is parsed like JSON; a subclass maps it to rows. A
record that should have rows but has none is a bad record: it fails the job, or is skipped and
counted with `ignore-parse-errors`. Values are converted only in the rows that the record maps to,
not in others that it contains.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from everfold.connectors.formats.format import BAD, Format, RecordColumn, RecordLocation
from everfold.connectors.formats.json import OPTIONS as JSON_OPTIONS
from everfold.connectors.formats.json import JsonFormat, objects_of, refuse_deep_nesting, strip_byte_order_mark
from everfold.connectors.formats.text_decode import BadValue
from everfold.connectors.options import OptionSet
from everfold.engine_literals import spark_identifier
from everfold.plan.changelog import KIND, RETRACTIONS, RowKind
from everfold.plan.nodes import Table
from everfold.types import DataType, RowField, RowType, StringType

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame

_EXCLUDED = ("fail-on-missing-field", "decode.json-parser.enabled")
COMMON = OptionSet(tuple(option for option in JSON_OPTIONS.options if option.name not in _EXCLUDED))
"""The options of JSON that apply to the values in an envelope too."""
VALUE = "value."
"""Prefix of the METADATA keys of a value's format in a Kafka table."""

TEXT = "__text"
"""Column of a frame during parsing: the object as a string."""
Rows = Iterable[tuple[RowKind, str, dict[str, Any]]]
"""Row kinds, paths of rows (such as `after.`), and rows as in JSON."""


def declared_metadata(table: Table) -> tuple[str, ...]:
    """Return the metadata keys of the value's format that the table declares."""
    keys = [column.metadata_key for column in table.columns if column.metadata_key is not None]
    return tuple(dict.fromkeys(key.removeprefix(VALUE) for key in keys if key.startswith(VALUE)))


@dataclass(frozen=True, slots=True)
class Envelope(Format):
    """JSON objects that contain rows.

    json: the format of values. metadata_keys: the metadata keys that the table declares.
    """

    json: JsonFormat = field(default_factory=JsonFormat)
    metadata_keys: tuple[str, ...] = ()

    @property
    def is_changelog(self) -> bool:
        """Always True."""
        return True

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The row kind, and the declared metadata."""
        return (KIND, *(_metadata_column(at) for at in range(len(self.metadata_keys))))

    def check(self, table: Table, columns: Sequence[RecordColumn]) -> None:
        """Check the columns as JSON does."""
        self.json.check(table, columns)

    # -- defined by subclasses ---------------------------------------------------------------------

    @abstractmethod
    def members(self, row: RowType) -> Sequence[tuple[str, DataType]]:
        """Return the members of the object to parse. row: the type of a row."""

    @abstractmethod
    def member_metadata(self, key: str) -> str:
        """Return Spark SQL over the members for a metadata key."""

    @abstractmethod
    def rows_sql(self, columns: Sequence[RecordColumn]) -> str:
        """Return Spark SQL over the members and `TEXT`: an array of changes (see `change`).

        NULL for an invalid object.
        """

    def is_skipped(self, texts: Mapping[str, str | None]) -> bool:
        """Return whether an object has no rows, by its STRING members. Raises BadValue."""
        return False

    @abstractmethod
    def rows_of(self, members: Mapping[str, Any]) -> Rows:
        """Return the rows in Python, from the members as in JSON. Raises BadValue.

        A member that should be an ARRAY, MAP or ROW and is not is None.
        """

    def struct(self, value: str, columns: Sequence[RecordColumn]) -> str:
        """Return Spark SQL: the fields of a row, by position, from the object `value`."""
        fields = (f"'f{at}', {value}.{spark_identifier(column.name)}" for at, column in enumerate(columns))
        return f"named_struct({', '.join(fields)})"

    # -- decoding in Catalyst ----------------------------------------------------------------------

    def from_text(
        self, frame: DataFrame, columns: Sequence[RecordColumn], raw: str, *, keep_empty: bool = False
    ) -> DataFrame:
        """Parse the objects: emit one row for each row of an object.

        `__kind` is NULL for an invalid object.
        """
        assert not keep_empty, "keys are not changes"
        own = [spark_identifier(name) for name in frame.columns]
        frame = frame.selectExpr("*", f"{strip_byte_order_mark(f'CAST({raw} AS STRING)')} AS {TEXT}")
        frame = self.json.object_from_text(frame, self._envelope(columns), TEXT)
        metadata = [
            f"{self.member_metadata(key)} AS {_metadata_column(at)}" for at, key in enumerate(self.metadata_keys)
        ]
        rows = f"IF({self.json.is_unreadable(self._envelope(columns))}, NULL, {self.rows_sql(columns)})"
        frame = frame.selectExpr(*own, *metadata, TEXT, f"{rows} AS __rows", BAD)
        own += [_metadata_column(at) for at in range(len(self.metadata_keys))]
        bad = f"IF(__rows IS NULL, {TEXT}, {BAD}) AS {BAD}"
        frame = frame.where("__rows IS NULL OR size(__rows) > 0")
        frame = frame.selectExpr(*own, bad, f"inline_outer(__rows) AS ({KIND}, __row)")
        fields = [f"__row.f{at} AS {spark_identifier(column.name)}" for at, column in enumerate(columns)]
        return frame.selectExpr(*own, *fields, KIND, BAD)

    def _envelope(self, columns: Sequence[RecordColumn]) -> tuple[RecordColumn, ...]:
        row = RowType(fields=tuple(RowField(name=column.name, type=column.type) for column in columns))
        return tuple(RecordColumn(name, at, of) for at, (name, of) in enumerate(self.members(row)))

    def metadata(self, key: str) -> str | None:
        """Return the column that `from_text` added for the key."""
        name = key.removeprefix(VALUE)
        return (
            _metadata_column(self.metadata_keys.index(name))
            if key.startswith(VALUE) and name in self.metadata_keys
            else None
        )

    def value(self, column: RecordColumn, field: str, location: RecordLocation) -> str:
        """Convert the field as JSON does."""
        return self.json.value(column, field, location)

    def is_bad(self, column: RecordColumn, field: str) -> str | None:
        """Check the field as JSON does."""
        return self.json.is_bad(column, field)

    def is_unreadable(self, columns: Sequence[RecordColumn]) -> str:
        """Return Spark SQL: whether the object is invalid."""
        return f"{KIND} IS NULL"

    # -- decoding in Python ------------------------------------------------------------------------

    def decoder(self, columns: Sequence[RecordColumn]) -> Callable[[bytes], Iterator[list[object]]]:
        """Return a function from a record to its rows, each followed by its kind."""
        envelope = self._envelope(columns)
        plain = [column for column in envelope if isinstance(column.type, StringType)]
        texts_of = self.json.object_reader(plain)
        shapes_of = self.json.object_reader(envelope, shape=True)
        values_of = cache(lambda path: self.json.reader_of_row(columns, path))

        def decode(record: bytes) -> Iterator[list[object]]:
            if record.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"[":
                raise BadValue("it is an array, not an object")
            for written, text in objects_of(record):
                texts = texts_of(written, text)
                members: dict[str, Any] = dict(zip((column.name for column in plain), texts, strict=True))
                if self.is_skipped(members):
                    return
                for column, shape in zip(envelope, shapes_of(written, text), strict=True):
                    members.setdefault(column.name, _drop_wrong_shapes(written.get(column.name), shape))
                for kind, path, row in self.rows_of(members):
                    yield [*values_of(path)(row), kind.value]

        return refuse_deep_nesting(decode)


def _drop_wrong_shapes(written: Any, shape: object) -> Any:
    """Replace parts of a JSON value by None where `shape` is None.

    Those parts should be an ARRAY, MAP or ROW and are not.
    """
    if isinstance(written, list) and isinstance(shape, list):
        return [_drop_wrong_shapes(*pair) for pair in zip(written, shape, strict=True)]
    if isinstance(written, dict) and isinstance(shape, dict):
        return {name: _drop_wrong_shapes(value, shape[name]) for name, value in written.items() if name in shape}
    return None if shape is None else written


def is_retraction(rows: pa.Table) -> pl.Series:
    """Return for each row (with `__kind`) whether it retracts another one."""
    import polars as pl

    return pl.Series(pl.from_arrow(rows.column(KIND))).is_in(RETRACTIONS)


def change_sql(kind: RowKind, row: str) -> str:
    """Return Spark SQL for a change of a row. row: a struct of its fields."""
    return f"named_struct('kind', CAST({kind.value} AS TINYINT), 'row', {row})"


def _metadata_column(at: int) -> str:
    return f"__metadata_{at}"
