"""Staging tables: tasks of a batch write to them, then one transaction of the driver merges them.

A row has its epoch, batch, partition and attempt, so rows of a failed attempt or a killed driver
are never merged. Spark workers import this module: it imports little.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from everfold.connectors.connector_errors import report_errors
from everfold.connectors.jdbc.address import Address
from everfold.connectors.jdbc.values import NulInString, to_csv
from everfold.errors import ConnectorError
from everfold.plan.changelog import KIND, RETRACTIONS
from everfold.types import DataType, physical_name

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.connectors.jdbc.client import Connection

COLUMNS = (
    ("epoch", "bigint"), ("batch", "bigint"), ("part", "integer"), ("attempt", "bigint"), ("seq", "bigint"), ("kind", "smallint"),
)  # fmt: skip
"""The columns before those of the rows, `c0…`. `seq` numbers the rows of an attempt in order."""


class Report(NamedTuple):
    """The result of a task.

    came: number of rows received. staged: number of rows staged. back: how many of them retract.
    """

    part: int
    attempt: int
    came: int
    staged: int
    back: int


REPORT = "part INT, attempt BIGINT, came BIGINT, staged BIGINT, back BIGINT"
"""`Report` as a Spark schema."""


@dataclass(frozen=True, slots=True)
class StageRows:
    """Stages the rows of one task: `c0…` and `__kind`.

    into: the staging table, as an SQL identifier. names: the columns, for errors. keys: the
    physical names of the PRIMARY KEY columns: only the last row of each key in an Arrow batch is
    staged. retries, patience_ms: see `client`.
    """

    address: Address
    into: str
    table: str
    epoch: int
    batch: int
    types: tuple[DataType, ...]
    names: tuple[str, ...]
    keys: tuple[str, ...]
    retries: int
    patience_ms: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage the rows of a task; yield its `Report`."""
        import pyarrow as pa
        from pyspark import TaskContext

        task = TaskContext.get()
        report = self.stage(batches, 0 if task is None else task.partitionId())
        types = (pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.int64())
        columns = [pa.array([value], of) for value, of in zip(report, types, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=list(Report._fields))

    @report_errors()
    def stage(self, batches: Iterator[pa.RecordBatch], part: int) -> Report:
        """Stage rows, each Arrow batch in its own transaction.

        So no more than one batch is kept in memory for a retry.
        """
        import psycopg
        import pyarrow as pa

        from everfold.connectors.jdbc.client import Link, explain_error
        from everfold.connectors.sink_changelog import last_by_key

        attempt = uuid.uuid4().int >> 65
        came = staged = back = 0
        link = Link(self.address, retries=self.retries, patience_ms=self.patience_ms)
        try:
            for batch in batches:
                rows = pa.Table.from_batches([batch])
                came += rows.num_rows
                if self.keys:
                    rows = last_by_key(rows, self.keys)
                if rows.num_rows:
                    back += _count_retracted(rows)
                    link.run(_Copy(self.into, attempt, staged, self._text(rows, part, attempt, staged)))
                    staged += rows.num_rows
        except psycopg.Error as error:
            raise explain_error(error, self.table, self.address, names=self.names) from None
        finally:
            link.close()
        return Report(part, attempt, came, staged, back)

    def _text(self, rows: pa.Table, part: int, attempt: int, first: int) -> bytes:
        import pyarrow as pa

        count = rows.num_rows
        own = [
            *(pa.repeat(pa.scalar(value, pa.int64()), count) for value in (self.epoch, self.batch, part, attempt)),
            pa.array(range(first, first + count), pa.int64()),
            rows.column(KIND),
        ]
        values = [rows.column(physical_name(at)) for at in range(len(self.types))]
        try:
            return to_csv([*own, *values], [*[None] * len(own), *self.types], [*[""] * len(own), *self.names])
        except NulInString as column:
            message = (
                f"table `{self.table}`: a string in column `{column}` contains U+0000, which PostgreSQL cannot store"
            )
            raise ConnectorError.of("refused-row", message) from None


class _Copy:
    """A COPY that can be retried: a retry first removes what a lost connection may have written."""

    def __init__(self, into: str, attempt: int, first: int, text: bytes) -> None:
        self.into, self.attempt, self.first, self.text = into, attempt, first, text
        self.tried = False

    def __call__(self, connection: Connection) -> None:
        with connection.transaction(), connection.cursor() as cursor:
            if self.tried:
                remove = f"DELETE FROM {self.into.replace('%', '%%')} WHERE attempt = %s AND seq >= %s"
                cursor.execute(remove.encode(), (self.attempt, self.first))
            self.tried = True
            with cursor.copy(f"COPY {self.into} FROM STDIN (FORMAT csv)".encode()) as copy:
                copy.write(self.text)


def _count_retracted(rows: pa.Table) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds: Any = pc.is_in(rows.column(KIND), pa.array(RETRACTIONS, pa.int8()))
    return int(pc.sum(kinds).as_py() or 0)
