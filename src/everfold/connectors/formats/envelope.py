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
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from everfold.connectors.formats.format import Format, NoteFlaw, RecordColumn
from everfold.connectors.formats.json import OPTIONS as JSON_OPTIONS
from everfold.connectors.formats.json import JsonFormat, objects_of, refuse_deep_nesting, text_of
from everfold.connectors.formats.text_decode import BadValue
from everfold.connectors.options import OptionSet
from everfold.plan.changelog import KIND, RETRACTIONS, RowKind
from everfold.plan.nodes import Table
from everfold.types import TINYINT, DataType, RowField, RowType, StringType

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXCLUDED = ("fail-on-missing-field", "decode.json-parser.enabled")
COMMON = OptionSet(tuple(option for option in JSON_OPTIONS.options if option.name not in _EXCLUDED))
"""The options of JSON that apply to the values in an envelope too."""
VALUE = "value."
"""Prefix of the METADATA keys of a value's format in a Kafka table."""

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
    def added_fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The declared metadata, and the row kind."""
        metadata = ((_metadata_column(at), self.metadata_types[key].arrow) for at, key in enumerate(self.metadata_keys))
        return (*metadata, (KIND, TINYINT.arrow))

    def skips_empty(self, columns: Sequence[RecordColumn]) -> bool:
        """Return True, as in JSON."""
        return True

    def check(self, table: Table, columns: Sequence[RecordColumn]) -> None:
        """Check the columns as JSON does."""
        self.json.check(table, columns)

    # -- defined by subclasses ---------------------------------------------------------------------

    @abstractmethod
    def members(self, row: RowType) -> Sequence[tuple[str, DataType]]:
        """Return the members of the object to parse. row: the type of a row."""

    @property
    @abstractmethod
    def metadata_types(self) -> Mapping[str, DataType]:
        """The types of metadata by key."""

    @abstractmethod
    def metadata_of(self, members: Mapping[str, Any], key: str) -> object:
        """Return the metadata with a key, from members as in `rows_of`."""

    def is_skipped(self, texts: Mapping[str, str | None]) -> bool:
        """Return whether an object has no rows, by its STRING members. Raises BadValue."""
        return False

    @abstractmethod
    def rows_of(self, members: Mapping[str, Any]) -> Rows:
        """Return the rows in Python, from the members as in JSON. Raises BadValue.

        A member that should be an ARRAY, MAP or ROW and is not is None.
        """

    # -- decoding ----------------------------------------------------------------------------------

    def envelope(self, columns: Sequence[RecordColumn]) -> tuple[RecordColumn, ...]:
        """Return the members of the object to parse as columns."""
        row = RowType(fields=tuple(RowField(name=column.name, type=column.type) for column in columns))
        return tuple(RecordColumn(name, at, of) for at, (name, of) in enumerate(self.members(row)))

    def metadata(self, key: str) -> str | None:
        """Return the added column of a declared key."""
        name = key.removeprefix(VALUE)
        is_declared = key.startswith(VALUE) and name in self.metadata_keys
        return _metadata_column(self.metadata_keys.index(name)) if is_declared else None

    def decoder(
        self, columns: Sequence[RecordColumn], note: NoteFlaw | None = None
    ) -> Callable[[bytes], Iterator[list[object]]]:
        """Return a function from a record to its rows, each with its metadata and its kind."""
        envelope = self.envelope(columns)
        plain = [column for column in envelope if isinstance(column.type, StringType)]
        texts_of = self.json.object_reader(plain, note=note)
        shapes_of = self.json.object_reader(envelope, shape=True, note=note)
        values_of = cache(lambda path: self.json.reader_of_row(columns, path, note))

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
                rows = list(self.rows_of(members))
                metadata = [self.metadata_of(members, key) for key in self.metadata_keys]
                for kind, path, row in rows:
                    yield [*values_of(path)(row), *metadata, kind.value]

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


def text_or_none(value: object) -> str | None:
    """Return a member as a STRING, as JSON does."""
    return None if value is None else text_of(value)


def milliseconds_or_none(value: object) -> datetime | None:
    """Return a member with the milliseconds since 1970 as an instant; None if it has none."""
    try:
        return None if value is None else _EPOCH + timedelta(milliseconds=int(text_of(value)))
    except (ValueError, OverflowError):
        return None


def _metadata_column(at: int) -> str:
    return f"__metadata_{at}"
