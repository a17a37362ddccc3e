"""Connector `blackhole`: discards all rows. Use it to measure a query without a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everfold.connectors.contract import (
    BatchId,
    ClusterSink,
    Connector,
    LocalSink,
    OptionValues,
    ReplayEffect,
    SinkContext,
)
from everfold.plan.changelog import ChangelogMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class BlackholeSink(ClusterSink):
    """Compute the rows and discard them."""

    def write(self, frame: DataFrame, batch: BatchId) -> int | None:
        """Run the frame and discard its rows."""
        frame.write.format("noop").mode("overwrite").save()
        return None


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
