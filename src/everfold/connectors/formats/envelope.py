"""Formats of changes: each record is a JSON object that says what became of rows, as capture tools write them.

What is shared by Debezium and Canal: the object is parsed as JSON is, a subclass says which rows it stands for. A record that stands
for none, although it should, is a bad record: it stops the job, or is left out and counted with `ignore-parse-errors`. Values are
converted in the rows that it stands for, not in the others that it has.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from everfold.connectors.formats.format import BAD, Format, Place, RecordColumn
from everfold.connectors.formats.json import OPTIONS as JSON_OPTIONS
from everfold.connectors.formats.json import JsonFormat, objects_of, refuse_deep_nesting, without_mark
from everfold.connectors.formats.text_decode import BadValue, identifier
from everfold.connectors.options import OptionSet, OptionValues
from everfold.plan.changelog import KIND, RowKind
from everfold.plan.nodes import Table
from everfold.types import DataType, RowField, RowType, StringType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NOT_OURS = ("fail-on-missing-field", "decode.json-parser.enabled")
COMMON = OptionSet(tuple(option for option in JSON_OPTIONS.options if option.name not in _NOT_OURS))
"""The options of JSON that hold for the values in an envelope too."""
VALUE = "value."
"""What the METADATA keys of a value's format begin with in a table of Kafka."""

TEXT = "__text"
"""Column of a frame that is being parsed: the object as text."""
Rows = Iterable[tuple[RowKind, str, dict[str, Any]]]
"""Kinds, where rows are (as `after.`), and rows as they are in JSON."""


def json_of(options: OptionValues, prefix: str) -> JsonFormat:
    """How the values in an envelope are written, as the table's options `<prefix>…` say."""
    return JsonFormat(
        ignore_errors=options.flag(f"{prefix}ignore-parse-errors"),
        ignore_option=f"{prefix}ignore-parse-errors",
        iso=options.text(f"{prefix}timestamp-format.standard") == "ISO-8601",
        null_key=options.text(f"{prefix}map-null-key.mode"),
        null_key_literal=options.text(f"{prefix}map-null-key.literal"),
        plain_decimals=options.flag(f"{prefix}encode.decimal-as-plain-number"),
        ignore_nulls=options.flag(f"{prefix}encode.ignore-null-fields"),
    )


def wanted_metadata(table: Table) -> tuple[str, ...]:
    """What the table wants to know of its records beside their rows."""
    keys = [column.metadata_key for column in table.columns if column.metadata_key is not None]
    return tuple(dict.fromkeys(key.removeprefix(VALUE) for key in keys if key.startswith(VALUE)))


@dataclass(frozen=True, slots=True)
class Envelope(Format):
    """JSON objects around rows. `json`: how values are written; `wanted`: the metadata that is asked for."""

    json: JsonFormat = field(default_factory=JsonFormat)
    wanted: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Yes."""
        return True

    @property
    def beside(self) -> tuple[str, ...]:
        """The kind, and what is wanted of the metadata."""
        return (KIND, *(_said(at) for at in range(len(self.wanted))))

    def check(self, table: Table, columns: Sequence[RecordColumn]) -> None:
        """As JSON."""
        self.json.check(table, columns)

    # -- what a subclass knows ---------------------------------------------------------------------

    @abstractmethod
    def members(self, row: RowType) -> Sequence[tuple[str, DataType]]:
        """The members of the object that are looked at, `row` being the type of a row."""

    @abstractmethod
    def member_metadata(self, key: str) -> str:
        """Spark SQL over the members for a metadata key."""

    @abstractmethod
    def rows_sql(self, columns: Sequence[RecordColumn]) -> str:
        """Spark SQL over the members and `TEXT`: an array of `change`s; NULL for an object that makes no sense."""

    def is_skipped(self, texts: Mapping[str, str | None]) -> bool:
        """Whether an object stands for no rows, by its members of type STRING. Raises BadValue."""
        return False

    @abstractmethod
    def rows_of(self, members: Mapping[str, Any]) -> Rows:
        """The same in Python, from the members as they are in JSON; None for what is no ARRAY, MAP or ROW and should be. Raises BadValue."""

    def struct(self, value: str, columns: Sequence[RecordColumn]) -> str:
        """Spark SQL: the fields of a row, by position, of the object `value`."""
        fields = (f"'f{at}', {value}.{identifier(column.name)}" for at, column in enumerate(columns))
        return f"named_struct({', '.join(fields)})"

    # -- decoding in Catalyst ----------------------------------------------------------------------

    @property
    def reader(self) -> str | None:
        """Lines of text."""
        return None

    def reader_options(self) -> dict[str, str]:
        """None: there is no reader."""
        raise AssertionError("changes are read as lines")

    def reader_schema(self, columns: Sequence[RecordColumn]) -> str:
        """None: there is no reader."""
        raise AssertionError("changes are read as lines")

    def from_text(
        self, frame: DataFrame, columns: Sequence[RecordColumn], raw: str, *, keep_empty: bool = False
    ) -> DataFrame:
        """Parses the objects: a row of the frame becomes as many as the object has; `__kind` is NULL where it makes no sense."""
        assert not keep_empty, "keys are no changes"
        own = [identifier(name) for name in frame.columns]
        frame = frame.selectExpr("*", f"{without_mark(f'CAST({raw} AS STRING)')} AS {TEXT}")
        frame = self.json.object_from_text(frame, self._envelope(columns), TEXT)
        said = [f"{self.member_metadata(key)} AS {_said(at)}" for at, key in enumerate(self.wanted)]
        rows = f"IF({self.json.lost(self._envelope(columns))}, NULL, {self.rows_sql(columns)})"
        frame = frame.selectExpr(*own, *said, TEXT, f"{rows} AS __rows", BAD)
        own += [_said(at) for at in range(len(self.wanted))]
        bad = f"IF(__rows IS NULL, {TEXT}, {BAD}) AS {BAD}"
        frame = frame.where("__rows IS NULL OR size(__rows) > 0")
        frame = frame.selectExpr(*own, bad, f"inline_outer(__rows) AS ({KIND}, __row)")
        fields = [f"__row.f{at} AS {identifier(column.name)}" for at, column in enumerate(columns)]
        return frame.selectExpr(*own, *fields, KIND, BAD)

    def _envelope(self, columns: Sequence[RecordColumn]) -> tuple[RecordColumn, ...]:
        row = RowType(fields=tuple(RowField(name=column.name, type=column.type) for column in columns))
        return tuple(RecordColumn(name, at, of) for at, (name, of) in enumerate(self.members(row)))

    def metadata(self, key: str) -> str | None:
        """The column that `from_text` made for it."""
        name = key.removeprefix(VALUE)
        return _said(self.wanted.index(name)) if key.startswith(VALUE) and name in self.wanted else None

    def value(self, column: RecordColumn, field: str, place: Place) -> str:
        """As JSON."""
        return self.json.value(column, field, place)

    def is_bad(self, column: RecordColumn, field: str) -> str | None:
        """As JSON."""
        return self.json.is_bad(column, field)

    def lost(self, columns: Sequence[RecordColumn]) -> str:
        """An object that makes no sense."""
        return f"{KIND} IS NULL"

    # -- decoding in Python ------------------------------------------------------------------------

    def decoder(self, columns: Sequence[RecordColumn]) -> Callable[[bytes], Iterator[list[object]]]:
        """From one record to its rows, each with its kind behind it."""
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
                    members.setdefault(column.name, _without_wrong_shapes(written.get(column.name), shape))
                for kind, path, row in self.rows_of(members):
                    yield [*values_of(path)(row), kind.value]

        return refuse_deep_nesting(decode)


def _without_wrong_shapes(written: Any, shape: object) -> Any:
    """A value of JSON with None for what is None in `shape`, as it should be an ARRAY, MAP or ROW and is not."""
    if isinstance(written, list) and isinstance(shape, list):
        return [_without_wrong_shapes(*pair) for pair in zip(written, shape, strict=True)]
    if isinstance(written, dict) and isinstance(shape, dict):
        return {name: _without_wrong_shapes(value, shape[name]) for name, value in written.items() if name in shape}
    return None if shape is None else written


def change(kind: RowKind, row: str) -> str:
    """Spark SQL: a change to a row, which is a struct of its fields."""
    return f"named_struct('kind', CAST({kind.value} AS TINYINT), 'row', {row})"


def _said(at: int) -> str:
    return f"__said_{at}"
