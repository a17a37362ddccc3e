"""A measured query: its SQL, which everfold and Flink share, and the other parts of its script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

UNIFORM = (
    "CREATE TABLE src (a BIGINT, b BIGINT, c BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)"
)
"""The stream of `make_stream.py`. Its watermark allows for a second of disorder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query over a stream, with the columns of its result.

    checksum: the column whose sum shows whether the result is correct; an expression if `updating`.
    updating: the rows of the result change, so only a sink that drops everything can take them.
    table: the declaration of the stream, without its connector.
    views: statements after it.
    determined: whether the number of result rows is determined by the input.
    """

    name: str
    columns: str
    checksum: str
    select: str
    updating: bool = False
    table: str = UNIFORM
    views: tuple[str, ...] = ()
    determined: bool = True

    @property
    def check(self) -> str:
        """Return a query with one row about the current result: the number of its rows, and the sum
        of `checksum`.

        For results that change.
        """
        return f"SELECT COUNT(*) AS n, SUM({self.checksum}) AS s FROM ({self.select})"

    def source_statements(self, connector: Mapping[str, str]) -> list[str]:
        """Return the declaration of the stream with its connector, and the views over it."""
        return [f"{self.table} WITH ({_render_options(connector)})", *self.views]

    def sink_statement(self, connector: Mapping[str, str]) -> str:
        """Return the declaration of a sink."""
        return f"CREATE TABLE snk ({self.columns}) WITH ({_render_options(connector)})"


def _render_options(connector: Mapping[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in connector.items())


BLACKHOLE = {"connector": "blackhole"}
"""The options of a sink that drops every row."""


def parquet_connector(folder: Path) -> dict[str, str]:
    """Return the options of a table of Parquet files."""
    return {"connector": "filesystem", "path": folder.resolve().as_uri(), "format": "parquet"}


def kafka_connector(servers: str, topic: str, *, bounded: bool = True) -> dict[str, str]:
    """Return the options of a table that reads the records of a topic.

    bounded: whether it ends with the records that the topic has at the start.
    """
    return {
        "connector": "kafka",
        "properties.bootstrap.servers": servers,
        "topic": topic,
        "format": "json",
        "scan.startup.mode": "earliest-offset",
        **({"scan.bounded.mode": "latest-offset"} if bounded else {}),
    }


def upsert_connector(servers: str, topic: str) -> dict[str, str]:
    """Return the options of a sink that writes the newest row of each key to a topic."""
    return {
        "connector": "upsert-kafka",
        "properties.bootstrap.servers": servers,
        "topic": topic,
        "key.format": "json",
        "value.format": "json",
        "sink.delivery-guarantee": "at-least-once",
    }
