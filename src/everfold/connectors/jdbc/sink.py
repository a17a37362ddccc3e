"""Write to a table of PostgreSQL, each batch exactly once.

1. Tasks copy their rows into a staging table (`staging`).
2. One transaction of the driver merges them into the table and records the batch (`merge`).

A replayed batch finds its record: it is computed, but not written. A lost connection is retried; if
the server stays away, the job stops. Its next start runs the batch again and ignores the rows that
were staged before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import psycopg

from everfold.connectors.connector_errors import find_reported_error
from everfold.connectors.contract import (
    AppliedBatch,
    BatchId,
    ClusterSink,
    JobLineage,
    OptionValues,
    Role,
    SinkContext,
    as_spark_function,
    columns_of,
)
from everfold.connectors.jdbc.address import address_of
from everfold.connectors.jdbc.client import Connection, Link, explain_error
from everfold.connectors.jdbc.key_snapshot import KeySnapshot
from everfold.connectors.jdbc.merge import Merge
from everfold.connectors.jdbc.shape import Target, TargetColumn, check_fits, find_table
from everfold.connectors.jdbc.staging import REPORT, Report, StageRows
from everfold.errors import ConnectorError
from everfold.types import physical_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")

_OLDEST = 120000
"""PostgreSQL 12, as a version number of libpq."""


class JdbcSink(ClusterSink):
    """A sink that writes one table."""

    def __init__(self, context: SinkContext, options: OptionValues) -> None:
        super().__init__(context, options)
        self.address = address_of(options)
        self.patience_ms = options.number("connection.max-retry-timeout")
        self._columns = columns_of(context.table, Role.SINK)
        names = [column.name for column in self._columns]
        self._keys = tuple(names.index(name) for name in context.table.primary_key)
        self._link = Link(self.address, retries=options.number("sink.max-retries"), patience_ms=self.patience_ms)
        self._target: tuple[Target, tuple[TargetColumn, ...]] | None = None
        self._merge: Merge | None = None
        self._past: JobLineage | None = None

    def prepare(self) -> None:
        """Check that the table exists, fits the declaration, and may be written."""
        with self._connect() as link:
            self._target = link.run(self._inspect)

    def last_applied(self, job: str, sink: str) -> AppliedBatch | None:
        """Return the last batch of the job in `everfold_commits`."""
        return self._query(job, sink, lambda merge, connection: merge.last_applied(connection))

    def find_other_job(self, job: str) -> str | None:
        """Return the folder of another job in `everfold_commits` that wrote the same query.

        None for a table with a PRIMARY KEY: its rows replace each other.
        """
        if self._keys:
            return None
        return self._query(job, self.context.name, lambda merge, connection: merge.written_by_others(connection))

    @contextlib.contextmanager
    def _connect(self) -> Iterator[Link]:
        """Return a context with a connection without retries, which converts its errors."""
        link = Link(self.address, retries=0, patience_ms=self.patience_ms)
        try:
            yield link
        except psycopg.Error as error:
            raise self._explain(error) from None
        finally:
            link.close()

    def _query(self, job: str, sink: str, query: Callable[[Merge, Connection], T]) -> T:
        """Run a query against the database before the sink is opened."""
        with self._connect() as link:
            merge = self._create_merge(job, sink)
            return link.run(lambda connection: query(merge, connection))

    def undo_discarded_batches(self, past: JobLineage) -> None:
        """Remember the past. Replayed rows overwrite rows by key, so nothing is retracted here.

        The key snapshot is stored before the first batch.
        """
        self._past = past

    def report_leftovers(self, *, prune: bool) -> str | None:
        """Return a message about the pending keys, which the job did not write again."""
        if self._past is None or self._past.rewind_epoch is None or not self._keys:
            return None
        with self._connect() as link:
            before = self._open_merge(BatchId(self._past.job, self.context.name, self._past.epoch, 0)).key_snapshot
            if before is None:
                return None
            if prune:
                return self._past.report_leftovers(self.table.name, link.run(before.prune), (), pruned=True)
            count, first = link.run(before.find_pending)
        return self._past.report_leftovers(self.table.name, count, first, pruned=False)

    def write(self, frame: DataFrame, batch: BatchId) -> int | None:
        """Write the batch, unless the table has it."""
        try:
            merge = self._open_merge(batch)
            if self._link.run(lambda connection: merge.has_applied(connection, batch)):
                self.applied = (batch.epoch, batch.batch)
                frame.write.format("noop").mode("overwrite").save()
                return None
            reports = self._stage(frame, merge, batch)
            if any(report.staged for report in reports):
                self._link.run(lambda connection: merge.apply(connection, batch, reports))
                self.applied = (batch.epoch, batch.batch)
        except psycopg.Error as error:
            raise self._explain(error) from None
        return sum(report.came for report in reports)

    def close(self) -> None:
        """Drop the staging table and close the connection."""
        if self._merge is not None:
            with contextlib.suppress(psycopg.Error):
                link = Link(self.address, retries=0, patience_ms=self.patience_ms)
                link.run(self._merge.finish)
                link.close()
            self._merge = None
        self._link.close()

    # -- the parts of a batch ----------------------------------------------------------------------

    def _inspect(self, connection: Connection) -> tuple[Target, tuple[TargetColumn, ...]]:
        version = connection.info.server_version
        if version < _OLDEST:
            raise ConnectorError.of(
                "old-server",
                f"table `{self.table.name}`: PostgreSQL {version // 10000} is too old: it must be 12 or newer",
            )
        target = find_table(connection, self.table, self.options.string("table-name"))
        found = check_fits(self.table, target, Role.SINK)
        privileges = ("INSERT", "SELECT", "UPDATE", "DELETE") if self._keys else ("INSERT",)
        for privilege in privileges:
            allowed = connection.execute("SELECT has_table_privilege(%s, %s)", (target.oid, privilege)).fetchone()
            if allowed != (True,):
                raise self._permission_error(f"{privilege} on `{target.name}`")
        schema = self._schema(target)
        allowed = connection.execute(
            "SELECT has_schema_privilege(oid, 'CREATE') FROM pg_catalog.pg_namespace WHERE nspname = %s", (schema,)
        ).fetchone()
        if allowed is None:
            raise ConnectorError.of(
                "no-such-schema",
                f"table `{self.table.name}`: PostgreSQL has no schema `{schema}`",
                self.table.span_of_option("sink.bookkeeping-schema"),
            )
        if allowed != (True,):
            raise self._permission_error(
                f"CREATE in schema `{schema}`, where it records what it has written",
                "grant it, or name another schema: 'sink.bookkeeping-schema' = '…'",
            )
        return target, found

    def _schema(self, target: Target) -> str:
        return self.options.string_or_none("sink.bookkeeping-schema") or target.schema

    def _permission_error(self, what: str, help: str | None = None) -> ConnectorError:
        return ConnectorError.of(
            "jdbc-permission", f"table `{self.table.name}`: everfold may not {what}", self.table.span, help
        )

    def _open_merge(self, batch: BatchId) -> Merge:
        if self._merge is None:
            merge = self._create_merge(batch.job, batch.sink)
            self._link.run(merge.prepare)
            self._merge = self._add_key_snapshot(merge)
        return self._merge

    def _create_merge(self, job: str, sink: str) -> Merge:
        if self._target is None:
            self._target = self._link.run(self._inspect)
        target, columns = self._target
        folder = "" if self.context.job_folder is None else str(self.context.job_folder)
        return Merge(
            target, columns, self._keys, self._schema(target), job, sink, query=self.context.query, folder=folder
        )

    def _add_key_snapshot(self, merge: Merge) -> Merge:
        """Return the merge, with the key snapshot if the job has rewound."""
        if self._past is None or not self._keys:
            return merge
        names = tuple(merge.columns[at].name for at in self._keys)
        before = KeySnapshot(merge.target, names, merge.schema, self._past)
        self._link.run(lambda connection: before.begin(connection, merge.commits, merge.sink))
        return replace(merge, key_snapshot=before) if self._link.run(before.has_pending) else merge

    def _stager(self, merge: Merge, batch: BatchId) -> StageRows:
        """Return the function that each task runs."""
        return StageRows(
            address=self.address,
            into=merge.staging.as_string(),
            table=self.table.name,
            epoch=batch.epoch,
            batch=batch.batch,
            types=tuple(column.type for column in self._columns),
            names=tuple(column.name for column in self._columns),
            keys=tuple(physical_name(at) for at in self._keys),
            retries=self.options.number("sink.max-retries"),
            patience_ms=self.patience_ms,
        )

    def _stage(self, frame: DataFrame, merge: Merge, batch: BatchId) -> list[Report]:
        """Run the tasks; return what they have staged."""
        stage = self._stager(merge, batch)
        try:
            return [Report(*row) for row in frame.mapInArrow(as_spark_function(stage), REPORT).collect()]
        except Exception as error:
            found = find_reported_error(str(error), self.table.span)
            if found is None:
                raise
            raise found from None

    def _explain(self, error: psycopg.Error) -> ConnectorError:
        return explain_error(error, self.table.name, self.address, self.table.span, names=())
