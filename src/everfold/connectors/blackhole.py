"""Connector `blackhole`: discards all rows. Use it to measure a query without a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everfold.connectors.contract import (
    BatchId,
    ClusterSink,
    Connector,
    LocalSink,
    OptionSet,
    OptionValues,
    ReplayEffect,
    Role,
    SinkContext,
    refuse_metadata,
)
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table

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

    def options(self, table: Table) -> OptionSet:
        """Return an empty set."""
        return OptionSet(())

    def check(self, table: Table, role: Role) -> OptionValues:
        """Check that the table has no options and no metadata columns."""
        refuse_metadata(table, (), role)
        return self.options(table).read(table, role.value)

    def accepted_changelog(self, table: Table) -> ChangelogMode:
        """Accept all changes."""
        return ChangelogMode.ALL

    def replay_effect(self, table: Table) -> ReplayEffect:
        """Replayed rows are discarded like all others."""
        return ReplayEffect.KEEPS_NOTHING

    def sink(self, context: SinkContext) -> LocalSink | ClusterSink:
        """Return a sink that discards the rows."""
        return BlackholeSink(context, self.check(context.table, Role.SINK))


CONNECTOR = BlackholeConnector(name="blackhole", meaning="drops all rows")
