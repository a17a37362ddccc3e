"""Connector `delta`: its options and checks. Options are named as in Flink's connector of Delta."""

from __future__ import annotations

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
from everfold.connectors.filesystem.paths import check_path, normalize_path
from everfold.errors import SqlError, UnsupportedFeature, suggest_name
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table
from everfold.types import ArrayType, DataType, IntervalType, MapType, RowType, TimeType

_INVALID = " ,;{}()\n\t="
"""Characters that Delta does not allow in the name of a column."""
_STREAMING = ("startingVersion", "startingTimestamp")
_BATCH = ("versionAsOf", "timestampAsOf")

OPTIONS = OptionSet(
    (
        Option("table-path", required=True, meaning="the folder of the table; a relative path is relative to the script"),
        Option("mode", ("batch", "streaming"), "batch", role="source", meaning="batch: the table is bounded, and read up to its newest version; streaming: later versions are read too"),
        Option("startingVersion", role="source", meaning="`mode` streaming: the version whose rows are the first to be read, or `latest` for rows added from now on; by default, the rows of the table come first"),
        Option("startingTimestamp", role="source", meaning="`mode` streaming: the time (UTC) of the first version to read, as `2026-01-31 12:00:00`"),
        Option("versionAsOf", "int", role="source", least=0, meaning="`mode` batch: the version to read, by queries in batch mode and joins"),
        Option("timestampAsOf", role="source", meaning="`mode` batch: the time (UTC) of the version to read, by queries in batch mode and joins"),
        Option("ignoreDeletes", "bool", "false", role="source", meaning="skip commits that only delete rows, in whole files"),
        Option("skipChangeCommits", "bool", "false", role="source", meaning="skip commits that update or delete rows, also the rows that they add"),
        Option("updateCheckIntervalMillis", "int", role="source", note="has no meaning here: every batch looks for new versions"),
        Option("updateCheckDelayMillis", "int", role="source", note="has no meaning here: every batch looks for new versions"),
        Option("parquetBatchSize", "int", role="source", note="has no meaning here"),
        Option("scan.max-bytes-per-batch", "memory", "256 mb", role="source", least=1, meaning="maximum size of the files in one batch of a stream (whole files)"),
        Option("scan.max-files-per-batch", "int", role="source", least=1, meaning="maximum number of files in one batch of a stream"),
    )
)  # fmt: skip


class DeltaConnector(Connector):
    """Tables of Delta Lake."""

    def check(self, table: Table, role: Role) -> OptionValues:
        """Check path, column names and types, partition keys, and where reading starts."""
        options = OPTIONS.read(table, role.value)
        check_path(table, options.string("table-path"), "table-path")
        refuse_metadata(table, (), role)
        _check_columns(table, role)
        _check_partitions(table)
        _check_start(table, options)
        return options

    def accepted_changelog(self, table: Table) -> ChangelogMode:
        """Return upserts by the PRIMARY KEY, or inserts only if there is none."""
        return ChangelogMode.UPSERT if table.primary_key else ChangelogMode.INSERT_ONLY

    def replay_effect(self, table: Table) -> ReplayEffect:
        """Replayed rows overwrite rows by PRIMARY KEY; without one they are duplicates."""
        return ReplayEffect.OVERWRITES if table.primary_key else ReplayEffect.DUPLICATES

    def locations(self, table: Table, options: OptionValues, base_folder: Path) -> frozenset[str]:
        """Return the real path of the folder, or its URI in another store."""
        return frozenset((normalize_path(options.string("table-path"), base_folder),))

    def source(self, table: Table, options: OptionValues) -> Source:
        """Return a source that reads the table."""
        from everfold.connectors.delta.source import DeltaSource

        return DeltaSource(table, options)

    def sink(self, context: SinkContext, options: OptionValues) -> LocalSink | ClusterSink:
        """Return a sink that writes to the table exactly once."""
        from everfold.connectors.delta.sink import DeltaSink

        return DeltaSink(context, options)


CONNECTOR = DeltaConnector(
    name="delta",
    meaning="tables of Delta Lake",
    own_options=OPTIONS,
    is_folder=True,
    updates_help="declare the PRIMARY KEY of the table: rows are then changed and deleted by it",
)


def _check_columns(table: Table, role: Role) -> None:
    seen: dict[str, str] = {}
    for column in columns_of(table, role):
        if _has_no_type(column.type):
            raise UnsupportedFeature.of(
                "delta-type",
                f"table `{table.name}`: Delta has no type for column `{column.name}`, which is {column.type.sql}",
                table.span_of(column.name),
                "write it as a STRING, or as a number of milliseconds or months",
            )
        if role is Role.SINK and any(each in column.name for each in _INVALID):
            raise UnsupportedFeature.of(
                "delta-name",
                f"table `{table.name}`: Delta does not allow a column to be named `{column.name}`",
                table.span_of(column.name),
                "leave out spaces and any of the characters , ; { } ( ) =",
            )
        other = seen.setdefault(column.name.lower(), column.name)
        if other != column.name:
            raise UnsupportedFeature.of(
                "delta-name",
                f"table `{table.name}`: Delta does not distinguish the columns `{other}` and `{column.name}`",
                table.span_of(column.name),
                "rename one of them",
            )


def _has_no_type(of: DataType) -> bool:
    match of:
        case ArrayType():
            return _has_no_type(of.element)
        case MapType():
            return _has_no_type(of.key) or _has_no_type(of.value)
        case RowType():
            return any(_has_no_type(field.type) for field in of.fields)
        case _:
            return isinstance(of, TimeType | IntervalType)


def _check_partitions(table: Table) -> None:
    names = {column.name: column for column in table.columns}
    for key in table.partition_keys:
        if key not in names:
            raise SqlError.of(
                "unknown-column",
                f"table `{table.name}`: PARTITIONED BY names `{key}`, which is not a column",
                table.span_of(key),
                suggest_name(key, names),
            )
        if isinstance(names[key].type, ArrayType | MapType | RowType):
            raise UnsupportedFeature.of(
                "partition-type",
                f"table `{table.name}`: Delta cannot partition by `{key}`, which is {names[key].type.sql}",
                table.span_of(key),
            )
    if len(table.partition_keys) == len(table.columns) > 0:
        raise SqlError.of(
            "no-column-left",
            f"table `{table.name}`: all columns are in PARTITIONED BY, so the files would have no columns",
            table.span,
        )


def _check_start(table: Table, options: OptionValues) -> None:
    mode = options.string("mode")
    for name in _STREAMING if mode == "batch" else _BATCH:
        if name in options.explicit:
            other = "streaming" if mode == "batch" else "batch"
            raise wrong_option_error(table, name, f"option `{name}` applies to tables with 'mode' = '{other}' only")
    for one, two in (_STREAMING, _BATCH):
        if one in options.explicit and two in options.explicit:
            raise wrong_option_error(table, two, f"set `{one}` or `{two}`, not both")
    version = options.string_or_none("startingVersion")
    if version is not None and version != "latest" and not (version.isascii() and version.isdigit()):
        raise wrong_option_error(table, "startingVersion", "option `startingVersion` takes a number or `latest`")
