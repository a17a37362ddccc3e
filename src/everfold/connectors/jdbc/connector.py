"""Connector `jdbc`: its options and checks. Options are named as in Flink's JDBC SQL connector."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from everfold.connectors.contract import (
    ClusterSink,
    Connector,
    LocalSink,
    Option,
    OptionSet,
    OptionValues,
    ReplayEffect,
    Role,
    SinkContext,
    Source,
    columns_of,
    refuse_metadata,
    wrong_option_error,
)
from everfold.connectors.jdbc.address import locate_table, name_parts, parse_url
from everfold.connectors.options import missing_option_error
from everfold.errors import UnsupportedFeature
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table
from everfold.types import BooleanType, BytesType, IntegerType, NumericType, StringType, TemporalType

_WHOLE = "has no meaning here: a batch is written as a whole"
_PER_BATCH = "has no meaning here: a join reads the table once per batch"
_BOUNDS = ("scan.partition.column", "scan.partition.num", "scan.partition.lower-bound", "scan.partition.upper-bound")

OPTIONS = OptionSet(
    (
        Option("url", required=True, secret=True, meaning="the database, as `jdbc:postgresql://host:5432/database`"),
        Option("table-name", required=True, meaning="the table: `name` or `schema.name`; a part in `\"…\"` is matched exactly"),
        Option("username", meaning="user name"),
        Option("password", secret=True, meaning="password, preferably as `${env:NAME}`"),
        Option("driver", note="has no meaning here: PostgreSQL's own client library is used"),
        Option("compatible-mode", note="has no meaning here"),
        Option("connection.max-retry-timeout", "duration", "60 s", meaning="maximum wait before a failed step is retried, and for an answer of the server"),
        Option(_BOUNDS[0], role="source", meaning="an integer column by which the table is divided among tasks"),
        Option(_BOUNDS[1], "int", role="source", least=1, meaning="number of tasks that read"),
        Option(_BOUNDS[2], "int", role="source", meaning="smallest value of that column; rows below it are not read"),
        Option(_BOUNDS[3], "int", role="source", meaning="largest value of that column; rows above it are not read"),
        Option("scan.fetch-size", "int", "0", role="source", note="has no meaning here: rows are emitted as they are read"),
        Option("scan.auto-commit", "bool", "true", role="source", note="has no meaning here"),
        Option("filter.handling.policy", ("always", "never"), "always", role="source", note="has no meaning here: everfold filters"),
        Option("lookup.cache", ("NONE", "PARTIAL", "FULL"), "NONE", role="source", meaning="FULL: a join reads the table once, when the job starts; otherwise once per batch"),
        Option("lookup.cache.max-rows", "int", role="source", note=_PER_BATCH),
        Option("lookup.cache.ttl", "duration", role="source", note=_PER_BATCH),
        Option("lookup.partial-cache.max-rows", "int", role="source", note=_PER_BATCH),
        Option("lookup.partial-cache.expire-after-write", "duration", role="source", note=_PER_BATCH),
        Option("lookup.partial-cache.expire-after-access", "duration", role="source", note=_PER_BATCH),
        Option("lookup.partial-cache.cache-missing-key", "bool", "true", role="source", note=_PER_BATCH),
        Option("lookup.max-retries", "int", "3", role="source", least=0, meaning="how often reading is retried when the connection is lost"),
        Option("sink.buffer-flush.max-rows", "int", "100", role="sink", note=_WHOLE),
        Option("sink.buffer-flush.interval", "duration", "1 s", role="sink", note=_WHOLE),
        Option("sink.max-retries", "int", "3", role="sink", least=0, meaning="how often a step is retried when the connection is lost, after 1, 2, 4, … seconds"),
        Option("sink.parallelism", "int", role="sink", note="has no meaning here: the parallelism of the job is used"),
        Option("sink.bookkeeping-schema", role="sink", meaning="schema of `everfold_commits`, the staging tables and the key snapshots; the schema of the table if not set"),
    )
)  # fmt: skip


class JdbcConnector(Connector):
    """Tables of PostgreSQL."""

    def check(self, table: Table, role: Role) -> OptionValues:
        """Check the URL, the table name, the column types and the partitions of a scan."""
        options = OPTIONS.read(table, role.value)
        notes = list(options.notes)
        try:
            address = parse_url(options.string("url"))
        except ValueError as wrong:
            raise wrong_option_error(table, "url", f"option `url`: {wrong}") from None
        notes += [f"table `{table.name}`: `{name}` of the `url` has no meaning here" for name in address.unused]
        if "password" in options.explicit and "username" not in options.explicit:
            raise missing_option_error(table, "username", "password")
        name_parts(table, options.string("table-name"))
        refuse_metadata(table, (), role)
        for column in columns_of(table, role):
            if not isinstance(column.type, BooleanType | NumericType | StringType | BytesType | TemporalType):
                raise UnsupportedFeature.of(
                    "jdbc-type",
                    f"table `{table.name}`: the connector `jdbc` has no type for column `{column.name}`, "
                    f"which is {column.type.sql}",
                    table.span_of(column.name),
                )
        _check_bounds(table, options)
        if find_spec("psycopg") is None:
            message = f"table `{table.name}`: the connector `jdbc` needs the package psycopg"
            raise UnsupportedFeature.of("missing-package", message, table.span, "pip install 'everfold[postgres]'")
        return replace(options, notes=tuple(notes))

    def accepted_changelog(self, table: Table) -> ChangelogMode:
        """Return upserts by the PRIMARY KEY, or inserts only if there is none."""
        return ChangelogMode.UPSERT if table.primary_key else ChangelogMode.INSERT_ONLY

    def replay_effect(self, table: Table) -> ReplayEffect:
        """Replayed rows overwrite rows by PRIMARY KEY; without one they are duplicates."""
        return ReplayEffect.OVERWRITES_AND_COMPARES if table.primary_key else ReplayEffect.DUPLICATES

    def locations(self, table: Table, options: OptionValues, base_folder: Path) -> frozenset[str]:
        """Return the servers, the database and the table."""
        return frozenset((locate_table(table, options),))

    def source(self, table: Table, options: OptionValues) -> Source:
        """Return a source that reads the table."""
        from everfold.connectors.jdbc.source import JdbcSource

        return JdbcSource(table, options)

    def sink(self, context: SinkContext, options: OptionValues) -> LocalSink | ClusterSink:
        """Return a sink that writes to the table exactly once."""
        from everfold.connectors.jdbc.sink import JdbcSink

        return JdbcSink(context, options)


CONNECTOR = JdbcConnector(
    name="jdbc",
    meaning="tables of PostgreSQL",
    own_options=OPTIONS,
    updates_help="declare the PRIMARY KEY of the table: rows are then changed and deleted by it",
)


def _check_bounds(table: Table, options: OptionValues) -> None:
    given = [name for name in _BOUNDS if name in options.explicit]
    if not given:
        return
    for name in _BOUNDS:
        if name not in options.explicit:
            raise missing_option_error(table, name, given[0])
    by = options.string(_BOUNDS[0])
    column = next((each for each in table.columns if each.name == by), None)
    if column is None or not isinstance(column.type, IntegerType):
        raise wrong_option_error(table, _BOUNDS[0], f"`{_BOUNDS[0]}` names `{by}`, which is not an integer column")
    if options.number(_BOUNDS[2]) > options.number(_BOUNDS[3]):
        raise wrong_option_error(table, _BOUNDS[2], f"`{_BOUNDS[2]}` is above `{_BOUNDS[3]}`")
