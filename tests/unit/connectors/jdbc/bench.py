"""A JDBC sink of one job on a real PostgreSQL, driven step by step without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from postgres import Database
from unit.connectors.tables import TableMaker

from everfold.connectors.contract import KIND, BatchId, Role, SinkContext
from everfold.connectors.jdbc.client import Link
from everfold.connectors.jdbc.merge import Merge
from everfold.connectors.jdbc.sink import JdbcSink
from everfold.connectors.jdbc.staging import Report, StageRows
from everfold.connectors.validate import check_table
from everfold.plan.changelog import RowKind
from everfold.plan.nodes import Table
from everfold.types import physical_name

KINDS = {kind.short: kind for kind in RowKind}


def sink_of(of: TableMaker, database: Database, *key: str, name: str = "t", **options: str) -> JdbcSink:
    """Create the sink of a declared table."""
    table = replace(of.with_options(database.options(name, **options)), primary_key=key)
    made = check_table(table, Role.SINK).sink(SinkContext(name="s", base_folder=Path(), table=table))
    assert isinstance(made, JdbcSink)
    return made


def rows_of(table: Table, *rows: Sequence[object]) -> pa.Table:
    """Return rows of a sink: the kind, then the columns."""
    types = {physical_name(at): column.type.arrow for at, column in enumerate(table.columns)}
    columns = {name: pa.array([row[at + 1] for row in rows], of) for at, (name, of) in enumerate(types.items())}
    return pa.table({**columns, KIND: pa.array([KINDS[str(row[0])] for row in rows], pa.int8())})


class Run:
    """A run of a job: the steps of its driver and its tasks, one by one.

    Another run of the same job is another `Run`.
    """

    def __init__(self, sink: JdbcSink, *, job: str = "job", name: str = "s", epoch: int = 0, read: str = "") -> None:
        self.sink, self.job, self.name, self.epoch, self.read = sink, job, name, epoch, read
        sink.prepare()
        self.link = Link(sink.address, retries=3, patience_ms=60_000)
        self.merge: Merge = sink._open_merge(self.id(0))

    def close(self) -> None:
        """Close the connections, as the end of a process does."""
        self.link.close()
        self.sink._link.close()

    def id(self, batch: int) -> BatchId:
        return BatchId(self.job, self.name, self.epoch, batch, f"{self.read} {batch}" if self.read else "")

    def stage(self, batch: int, *parts: pa.Table | Sequence[Sequence[object]]) -> list[Report]:
        """Stage a batch as the tasks do, one task per part."""
        tables = [part if isinstance(part, pa.Table) else rows_of(self.sink.table, *part) for part in parts]
        stage = self.task(batch)
        return [stage.stage(iter(table.to_batches()), at) for at, table in enumerate(tables)]

    def task(self, batch: int) -> StageRows:
        return self.sink._stager(self.merge, self.id(batch))

    def take(self, batch: int, reports: Sequence[Report]) -> None:
        """Apply a staged batch as the driver does."""
        self.link.run(lambda connection: self.merge.apply(connection, self.id(batch), reports))

    def write(self, batch: int, *parts: pa.Table | Sequence[Sequence[object]]) -> None:
        """Stage and apply a batch."""
        self.take(batch, self.stage(batch, *parts))

    def is_applied(self, batch: int) -> bool:
        """Return whether the batch is recorded as applied."""
        return self.link.run(lambda connection: self.merge.has_applied(connection, self.id(batch)))
