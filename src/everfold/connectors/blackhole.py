"""Connector `blackhole`: discards all rows. Use it to measure a query without a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from everfold.connectors.contract import (
    BatchId,
    ClusterSink,
    Connector,
    LocalSink,
    OptionValues,
    PackedRows,
    ReplayEffect,
    RowWriter,
    SinkContext,
    WorkerTask,
)
from everfold.plan.changelog import ChangelogMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class CountRows:
    """The task of a sink that discards packed rows: it counts them, and computes no values."""

    def open(self, shard: int, target: object) -> RowWriter:
        """Begin the work of one Spark task."""
        return _RowCounter()


class _RowCounter:
    def __init__(self) -> None:
        self._rows = 0

    def write(self, rows: PackedRows) -> None:
        self._rows += rows.count()

    def close(self) -> bytes:
        return str(self._rows).encode()

    def abort(self) -> None:
        pass


class BlackholeSink(ClusterSink):
    """Compute the rows and discard them."""

    @property
    def takes_packed_rows(self) -> bool:
        """Whether workers count the rows: they always do."""
        return True

    def begin_batch(self, batch: BatchId) -> WorkerTask:
        """Return a task that counts the rows."""
        return CountRows()

    def finish_batch(self, reports: Sequence[bytes], batch: BatchId) -> int | None:
        """Return the number of rows."""
        return sum(map(int, reports))

    def write(self, frame: DataFrame, batch: BatchId) -> int | None:
        """Run the frame, discard its rows, and return their number."""
        from pyspark.sql import Observation
        from pyspark.sql.functions import count, lit

        counted = Observation()
        frame.observe(counted, count(lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
        return int(counted.get["rows"])


class BlackholeConnector(Connector):
    """The `blackhole` connector. It has no options."""

    def sink(self, context: SinkContext, options: OptionValues) -> LocalSink | ClusterSink:
        """Return a sink that discards the rows."""
        return BlackholeSink(context, options)


CONNECTOR = BlackholeConnector(
    name="blackhole",
    meaning="drops all rows",
    accepts=ChangelogMode.ALL,
    on_replay=ReplayEffect.KEEPS_NOTHING,
)
