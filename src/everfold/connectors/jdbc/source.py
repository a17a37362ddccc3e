"""Read a table of PostgreSQL: its rows at the moment of reading.

There is no change data capture: a stream of the table has the rows that existed when the job was
first started. Each task reads its share (`scan.partition.*`) in its own transaction; without
shares one task reads all rows as of one moment.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from everfold.connectors.connector_errors import find_reported_error
from everfold.connectors.contract import SPLIT, OptionValues, Role, Source, SourceContext, as_spark_function
from everfold.connectors.jdbc.address import address_of, locate_table
from everfold.connectors.jdbc.client import Connection, Link, explain_error
from everfold.connectors.jdbc.reading import ReadRows
from everfold.connectors.jdbc.shape import Target, check_fits, find_table
from everfold.connectors.jdbc.values import expression
from everfold.engine_literals import spark_string
from everfold.errors import ConnectorError
from everfold.plan.nodes import Table
from everfold.storage import local
from everfold.types import physical_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from everfold.connectors.skipped_rows import SkippedRows

_NEVER = "36500d"
"""Spark ignores files that are older than the newest one by more than this."""


class JdbcSource(Source):
    """A source that reads one table."""

    def __init__(self, table: Table, options: OptionValues) -> None:
        self.table = table
        self.options = options
        self.address = address_of(options)

    def is_bounded(self) -> bool:
        """Return True: a table is always bounded."""
        return True

    def is_read_per_batch(self) -> bool:
        """Return True unless `lookup.cache` is FULL."""
        return self.options.string("lookup.cache") != "FULL"

    def location(self, base_folder: Path) -> str:
        """Return the servers, the database and the table in a normalized spelling."""
        return locate_table(self.table, self.options)

    def batch(self, context: SourceContext) -> DataFrame:
        """Return the rows as a batch frame; they are read whenever the frame is run."""
        task = self._task()
        shares = len(task.queries)
        fields = ", ".join(f"{physical_name(at)} {column.type.spark}" for at, column in enumerate(self.table.columns))
        frame = context.spark.range(0, shares, 1, shares).mapInArrow(as_spark_function(task), fields)
        return frame.selectExpr("*", f"{spark_string(self.table.identity)} AS {SPLIT}")

    def stream(self, context: SourceContext) -> DataFrame:
        """Return the rows that existed when the job began; they are kept in the job directory."""
        kept = (context.start_folder or local(tempfile.mkdtemp(prefix="everfold-"))) / f"{context.name}.rows"
        frame = self.batch(context)
        if not kept.is_complete():
            kept.delete()
            frame.write.parquet(kept.uri)
        reader = context.spark.readStream.name(context.name).option("maxFileAge", _NEVER)
        return reader.schema(frame.schema).parquet(kept.uri)

    def read_local(self, base_folder: Path, skipped: SkippedRows | None = None) -> Iterator[pa.Table]:
        """Yield the rows, share by share."""
        task = self._task()
        try:
            for share in range(len(task.queries)):
                yield from task.rows(share)
        except ConnectorError as error:
            raise error.at(self.table.span) from None

    def parse_failure(self, error_text: str) -> ConnectorError | None:
        """Return the error of a task, found in an error message of the engine."""
        return find_reported_error(error_text, self.table.span)

    # -- the queries -------------------------------------------------------------------------------

    def _task(self) -> ReadRows:
        """Return the function that reads the rows.

        Checks that the table exists and its columns can be read as declared.
        """
        retries, patience_ms = (
            self.options.number("lookup.max-retries"),
            self.options.number("connection.max-retry-timeout"),
        )
        link = Link(self.address, retries=retries, patience_ms=patience_ms)
        try:
            queries = link.run(self._queries)
        except psycopg.Error as error:
            raise self._explain(error) from None
        finally:
            link.close()
        types = tuple(column.type for column in self.table.columns)
        columns = tuple(column.name for column in self.table.columns)
        return ReadRows(self.address, self.table.name, queries, types, columns, retries, patience_ms)

    def _queries(self, connection: Connection) -> tuple[str, ...]:
        target = find_table(connection, self.table, self.options.string("table-name"))
        columns = check_fits(self.table, target, Role.SOURCE)
        values = [
            sql.SQL(expression(declared.type, sql.Identifier(there.name).as_string()))
            for declared, there in zip(self.table.columns, columns, strict=True)
        ]
        name = sql.Identifier(target.schema, target.name)
        return tuple(
            sql.SQL("COPY (SELECT {} FROM {} WHERE {}) TO STDOUT (FORMAT csv)")
            .format(sql.SQL(", ").join(values), name, share)
            .as_string()
            for share in self._shares(target)
        )

    def _shares(self, target: Target) -> list[sql.Composable]:
        """Return the conditions of the shares.

        The range from lower to upper bound is divided as in Flink; rows outside of it are not read.
        """
        by = self.options.string_or_none("scan.partition.column")
        if by is None:
            return [sql.SQL("true")]
        column = target.column(by)
        assert column is not None, "the columns have been checked"
        low, high = (self.options.number(f"scan.partition.{side}-bound") for side in ("lower", "upper"))
        count = min(self.options.number("scan.partition.num"), high - low + 1)
        cuts = [low + (high - low + 1) * at // count for at in range(count + 1)]
        between = sql.SQL("{} BETWEEN {} AND {}")
        return [
            between.format(sql.Identifier(column.name), sql.Literal(first), sql.Literal(last - 1))
            for first, last in pairwise(cuts)
        ]

    def _explain(self, error: psycopg.Error) -> ConnectorError:
        return explain_error(error, self.table.name, self.address, self.table.span)
