"""What a format is to a connector.

Decoding goes the same way in every format: Spark's reader, or `from_text`, gives every field as its text, and the record itself in
`__bad` when it cannot be parsed; `value` turns a field's text into the column's value. Both raise, with the place of the record in the
text of the error, unless the format ignores errors. `decoder` is the same in Python: for the memory engine, and to say after a failure
which line it was and what is wrong with it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.connectors.formats.text_decode import quoted
from everfold.plan.nodes import Table
from everfold.types import DataType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BAD = "__bad"
"""Column with the record itself where it cannot be parsed, else NULL."""
MARK = "everfold[bad-record]: "
"""What the text of an error about a record begins with; JSON follows."""
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """A column that lies in a record: its name there, its position in the table, its type."""

    name: str
    position: int
    type: DataType


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies: Spark SQL for named values that go into an error, as `("path", "__path")`."""

    table: str
    parts: tuple[tuple[str, str], ...]


def raise_bad(place: Place, column: str | None, text: str) -> str:
    """Spark SQL that stops the job: what is wrong is said with the place, the column (None: the whole record) and the text."""
    parts = [("table", quoted(place.table)), ("column", "CAST(NULL AS STRING)" if column is None else quoted(column))]
    parts += [*place.parts, ("text", f"left(CAST({text} AS STRING), {_SHOWN})")]
    struct = ", ".join(f"{quoted(name)}, {sql}" for name, sql in parts)
    return f"raise_error(concat({quoted(MARK)}, to_json(named_struct({struct}))))"


def find_bad(error_text: str, table: str) -> dict[str, object] | None:
    """What `raise_bad` has said, found in the text of Spark's error; None if there is nothing of this table."""
    at = 0
    while (at := error_text.find(MARK, at)) >= 0:
        at += len(MARK)
        try:
            said, _ = json.JSONDecoder(strict=False).raw_decode(error_text, at)
        except ValueError:
            continue
        if isinstance(said, dict) and said.get("table") == table:
            return said
    return None


@dataclass(frozen=True, slots=True)
class Format(ABC):
    """A format with a table's options. `ignore_option` is the option that lets a job go on over bad records.

    Where records are `changes`, `from_text` adds the column `__kind`, `line` reads it, and it is the last value of the rows that
    `decoder` gives and `encoder` takes.
    """

    ignore_errors: bool = False
    ignore_option: str | None = None

    @property
    def changes(self) -> bool:
        """Whether a record says what became of rows, and is not a row itself."""
        return False

    @abstractmethod
    def check(self, table: Table, columns: Sequence[RecordColumn]) -> None:
        """Whether the format has all the columns' types; raises SqlError."""

    @property
    @abstractmethod
    def reader(self) -> str | None:
        """Spark's source that reads files of this format; None: lines of text, parsed by `from_text`."""

    @abstractmethod
    def reader_options(self) -> dict[str, str]:
        """Options for Spark's reader."""

    @abstractmethod
    def reader_schema(self, columns: Sequence[RecordColumn]) -> str:
        """Schema for Spark's reader: the fields as texts, and `__bad`."""

    @abstractmethod
    def from_text(
        self, frame: DataFrame, columns: Sequence[RecordColumn], raw: str, *, keep_empty: bool = False
    ) -> DataFrame:
        """Parses the column `raw` (STRING or BINARY): afterwards the frame has the columns of `reader_schema` beside its own.

        An empty record gives no row, or with `keep_empty` one of NULLs (a key that is not there).
        """

    def is_empty(self, columns: Sequence[RecordColumn], raw: str) -> str:
        """Spark SQL: whether the record `raw`, which is there, holds no row, as a line that is empty."""
        return "false"

    @abstractmethod
    def value(self, column: RecordColumn, field: str, place: Place) -> str:
        """Spark SQL for a column's value from its field."""

    @abstractmethod
    def is_bad(self, column: RecordColumn, field: str) -> str | None:
        """Spark SQL: whether a field holds no value of its type; None where that cannot be."""

    @abstractmethod
    def lost(self, columns: Sequence[RecordColumn]) -> str:
        """Spark SQL over a parsed frame: whether a record cannot be read at all, not even in part."""

    @abstractmethod
    def decoder(self, columns: Sequence[RecordColumn]) -> Callable[[bytes], Iterator[list[object]]]:
        """From one record to its rows. Raises BadValue."""

    @property
    def beside(self) -> tuple[str, ...]:
        """The columns that `from_text` adds beside the fields and `__bad`."""
        return ()

    def metadata(self, key: str) -> str | None:
        """Spark SQL over a parsed frame: what a record says beside its rows, None if it says no such thing."""
        return None

    @abstractmethod
    def line(self, columns: Sequence[RecordColumn]) -> str:
        """Spark SQL: a row (`c0…`) as a record of text."""

    @abstractmethod
    def encoder(self, columns: Sequence[RecordColumn]) -> Callable[[Sequence[object]], bytes | None]:
        """From the values of a row, as Arrow gives them to Python, to a record."""
