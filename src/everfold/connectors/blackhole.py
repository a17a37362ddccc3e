"""Connector `blackhole`: takes rows and forgets them. For measuring a query without a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everfold.connectors.contract import (
    Again,
    BatchId,
    ClusterSink,
    Connector,
    LocalSink,
    OptionSet,
    OptionValues,
    Role,
    SinkContext,
    refuse_metadata,
)
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class BlackholeSink(ClusterSink):
    """Runs the rows and drops them."""

    def write(self, frame: DataFrame, batch: BatchId) -> int | None:
        """Runs the frame."""
        frame.write.format("noop").mode("overwrite").save()
        return None


class BlackholeConnector(Connector):
    """Nothing to configure."""

    def options(self, table: Table) -> OptionSet:
        """None."""
        return OptionSet(())

    def check(self, table: Table, role: Role) -> OptionValues:
        """No options, no metadata."""
        refuse_metadata(table, (), role)
        return self.options(table).read(table, role.value)

    def takes(self, table: Table) -> ChangelogMode:
        """All changes."""
        return ChangelogMode.ALL

    def again(self, table: Table) -> Again:
        """They are forgotten as the first ones were."""
        return Again.FORGOTTEN

    def sink(self, context: SinkContext) -> LocalSink | ClusterSink:
        """Drops the rows."""
        return BlackholeSink(context, self.check(context.table, Role.SINK))


CONNECTOR = BlackholeConnector(name="blackhole", meaning="drops all rows")
