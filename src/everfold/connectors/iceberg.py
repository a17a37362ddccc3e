"""Connector `iceberg`: a refusal, as Iceberg has no release for this version of Spark."""

from __future__ import annotations

from everfold.connectors.contract import Connector, OptionValues, Role
from everfold.errors import UnsupportedFeature
from everfold.plan.nodes import Table


class IcebergConnector(Connector):
    """The `iceberg` connector, which cannot be used yet."""

    def check(self, table: Table, role: Role) -> OptionValues:
        """Raise UnsupportedFeature `no-iceberg`."""
        raise UnsupportedFeature.of(
            "no-iceberg",
            f"table `{table.name}`: Apache Iceberg has no release for Spark 4.2 yet",
            table.span_of_option("connector"),
            "write to a table of the connector `delta`, or Parquet files with the connector `filesystem`",
        )


CONNECTOR = IcebergConnector(
    name="iceberg",
    meaning="tables of Apache Iceberg: not available yet, as Iceberg has no release for Spark 4.2",
)
