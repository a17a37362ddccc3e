"""Connector `print`: prints one line per row, in the format of Flink's print connector.

Example: `+I[2020-04-15T08:00, 4.00, null]`, prefixed by `identifier> ` if the table has a
`print-identifier`.
"""

from __future__ import annotations

import json
import sys
from datetime import date, datetime
from typing import TYPE_CHECKING, TextIO

from everfold.connectors.contract import (
    KIND,
    BatchId,
    ClusterSink,
    Connector,
    LocalSink,
    Option,
    OptionSet,
    OptionValues,
    Role,
    SinkContext,
    columns_of,
)
from everfold.far_times import to_values
from everfold.plan.changelog import ChangelogMode, RowKind
from everfold.types import (
    ArrayType,
    BooleanType,
    BytesType,
    DataType,
    DateType,
    FloatingType,
    IntervalType,
    MapType,
    RowType,
    TimestampType,
    TimeType,
)
from everfold.value_text import format_float

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS = OptionSet(
    (
        Option("print-identifier", meaning="prefix of each line", role="sink"),
        Option("standard-error", "bool", "false", meaning="print to standard error instead of standard output", role="sink"),
        Option("sink.parallelism", "int", role="sink", note="has no meaning here: one process prints"),
    )
)  # fmt: skip


class PrintSink(LocalSink):
    """Print the rows of each batch.

    With a job folder the last printed batch is remembered, and a replayed batch prints nothing.
    """

    @property
    def stream(self) -> TextIO:
        """The output stream."""
        return sys.stderr if self.options.flag("standard-error") else sys.stdout

    def write(self, rows: pa.Table, batch: BatchId) -> None:
        """Print `c0…` with their row kind."""
        if self._is_printed(batch):
            return
        identifier = self.options.string_or_none("print-identifier")
        prefix = f"{identifier}> " if identifier else ""
        types = [column.type for column in columns_of(self.table, Role.SINK)]
        columns = [to_values(rows.column(position)) for position in range(len(types))]
        lines = [
            f"{prefix}{RowKind(kind).short}"
            f"[{', '.join(java_string(value, of) for value, of in zip(values, types, strict=True))}]\n"
            for kind, *values in zip(rows.column(KIND).to_pylist(), *columns, strict=True)
        ]
        if lines:
            with self.context.printing():
                self.stream.write("".join(lines))
                self.stream.flush()
        self._remember(batch)

    def _is_printed(self, batch: BatchId) -> bool:
        records = self.context.records
        if records is None or not (records / "printed.json").exists():
            return False
        last = json.loads((records / "printed.json").read_text())
        return last["job"] == batch.job and (batch.epoch, batch.batch) <= (last["epoch"], last["batch"])

    def _remember(self, batch: BatchId) -> None:
        records = self.context.records
        if records is not None:
            printed = {"job": batch.job, "epoch": batch.epoch, "batch": batch.batch}
            (records / "printed.json").write(json.dumps(printed))


class PrintConnector(Connector):
    """The `print` connector."""

    def sink(self, context: SinkContext, options: OptionValues) -> LocalSink | ClusterSink:
        """Return a sink that prints the rows."""
        return PrintSink(context, options)


CONNECTOR = PrintConnector(
    name="print",
    meaning="prints rows",
    own_options=OPTIONS,
    accepts=ChangelogMode.ALL,
    writes_in_process=True,
)


# --- values as Java prints them -------------------------------------------------------------------


def java_string(value: object, of: DataType) -> str:
    """Format a value as in Flink's `Row.toString`."""
    if value is None:
        return "null"
    match of:
        case BooleanType():
            return "true" if value else "false"
        case FloatingType():
            assert isinstance(value, float)
            return format_float(value, single=of.sql == "FLOAT")
        case BytesType():
            assert isinstance(value, bytes)
            return "[" + ", ".join(str(byte - 256 if byte > 127 else byte) for byte in value) + "]"
        case DateType():
            assert isinstance(value, date)
            return value.isoformat()
        case TimeType():
            assert isinstance(value, int)
            return java_time(value // 1000, value % 1000 * 1000)
        case TimestampType():
            assert isinstance(value, datetime)
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            clock = java_time(seconds, value.microsecond, always_seconds=of.local_zone)
            return f"{value.date().isoformat()}T{clock}" + ("Z" if of.local_zone else "")
        case IntervalType():
            return str(value)
        case ArrayType():
            assert isinstance(value, list)
            return "[" + ", ".join(java_string(each, of.element) for each in value) + "]"
        case MapType():
            assert isinstance(value, list)
            return (
                "{"
                + ", ".join(f"{java_string(key, of.key)}={java_string(each, of.value)}" for key, each in value)
                + "}"
            )
        case RowType():
            assert isinstance(value, dict)
            return "+I[" + ", ".join(java_string(value[part.name], part.type) for part in of.fields) + "]"
        case _:
            return f"{value:f}" if hasattr(value, "as_tuple") else str(value)


def java_time(seconds: int, micros: int, *, always_seconds: bool = False) -> str:
    """Format a time of day as java.time does.

    Seconds only if there are any, the fraction in groups of three digits.
    """
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    if not (seconds % 60 or micros or always_seconds):
        return text
    text += f":{seconds % 60:02d}"
    if micros:
        text += f".{micros // 1000:03d}" if micros % 1000 == 0 else f".{micros:06d}"
    return text
