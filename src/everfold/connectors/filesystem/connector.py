"""Connector `filesystem`: its options and checks."""

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
    refuse_metadata,
    refuse_written_metadata,
    wrong_option_error,
)
from everfold.connectors.filesystem.paths import check_path, escape, normalize_path
from everfold.connectors.formats.format import record_columns
from everfold.connectors.formats.registry import (
    CHANGES,
    changelog_of,
    format_of,
    is_positional,
    options_of,
    positions_in,
    require_format,
)
from everfold.errors import SqlError, UnsupportedFeature, suggest_name
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table
from everfold.types import ArrayType, BytesType, DataType, MapType, RowType

FORMATS = ("json", "csv", "parquet", "raw", *CHANGES)
METADATA = ("file.path", "file.name", "file.size", "file.modification-time")
_DONE_WITH_BATCH = "has no meaning here: a batch's files are finished with the batch"
_NO_COMMIT_POLICY = "has no meaning here: files are visible in whole, and all at once, when their batch is done"

OPTIONS = OptionSet(
    (
        Option("path", required=True, meaning="the folder or file of the table; a relative path is relative to the script"),
        Option("format", required=True, meaning="the format of the records: json, csv, parquet, raw, debezium-json or canal-json"),
        Option("source.monitor-interval", "duration", role="source", meaning="how often to look for new files; the table is bounded if not set"),
        Option("source.path.regex-pattern", "regex", role="source", meaning="regular expression that the full path of a file must match"),
        Option("source.report-statistics", ("NONE", "ALL"), "ALL", role="source", note="has no meaning here"),
        Option("scan.max-bytes-per-batch", "memory", "256 mb", role="source", least=1, meaning="maximum size of the files in one batch of a stream (whole files)"),
        Option("scan.max-files-per-batch", "int", role="source", least=1, meaning="maximum number of files in one batch of a stream; replaces `scan.max-bytes-per-batch`"),
        Option("partition.default-name", default="__DEFAULT_PARTITION__", meaning="folder name for rows whose partition key is NULL"),
        Option("partition.time-extractor.kind", note=_NO_COMMIT_POLICY),
        Option("partition.time-extractor.class", note=_NO_COMMIT_POLICY),
        Option("partition.time-extractor.timestamp-pattern", note=_NO_COMMIT_POLICY),
        Option("partition.time-extractor.timestamp-formatter", note=_NO_COMMIT_POLICY),
        Option("sink.rolling-policy.file-size", "memory", role="sink", note=_DONE_WITH_BATCH),
        Option("sink.rolling-policy.rollover-interval", "duration", role="sink", note=_DONE_WITH_BATCH),
        Option("sink.rolling-policy.inactivity-interval", "duration", role="sink", note=_DONE_WITH_BATCH),
        Option("sink.rolling-policy.check-interval", "duration", role="sink", note=_DONE_WITH_BATCH),
        Option("sink.shuffle-by-partition.enable", "bool", "false", role="sink", meaning="write each partition by a single task"),
        Option("sink.partition-commit.trigger", role="sink", note=_NO_COMMIT_POLICY),
        Option("sink.partition-commit.delay", "duration", role="sink", note=_NO_COMMIT_POLICY),
        Option("sink.partition-commit.watermark-time-zone", role="sink", note=_NO_COMMIT_POLICY),
        Option("sink.partition-commit.policy.kind", role="sink", note=_NO_COMMIT_POLICY),
        Option("sink.partition-commit.policy.class", role="sink", note=_NO_COMMIT_POLICY),
        Option("sink.partition-commit.policy.class.parameters", role="sink", note=_NO_COMMIT_POLICY),
        Option("sink.partition-commit.success-file.name", role="sink", note=_NO_COMMIT_POLICY),
        Option("auto-compaction", "bool", "false", role="sink", note=_DONE_WITH_BATCH),
        Option("compaction.file-size", "memory", role="sink", note=_DONE_WITH_BATCH),
        Option("compaction.parallelism", "int", role="sink", note="has no meaning here: the job's parallelism counts"),
        Option("sink.parallelism", "int", role="sink", note="has no meaning here: the job's parallelism counts"),
    )
)  # fmt: skip


class FilesystemConnector(Connector):
    """The `filesystem` connector: files in a folder that all workers see under the same path."""

    def options(self, table: Table) -> OptionSet:
        """Return the connector's options and those of the table's format."""
        name = dict(table.options).get("format", "")
        return OPTIONS + options_of(name).add_prefix(f"{name}.") if name in FORMATS else OPTIONS

    def check(self, table: Table, role: Role) -> OptionValues:
        """Check path, format, types, partition keys and METADATA columns."""
        options = self.options(table).read(table, role.value)
        name = require_format(table, "format", FORMATS)
        check_path(table, options.string("path"))
        if name != "parquet":  # which supports all types
            format_of(name, table, options, f"{name}.").check(table, record_columns(table, role))
        _check_partitions(table, options)
        refuse_metadata(table, METADATA, role)
        if role is Role.SINK:
            refuse_written_metadata(table, (), "file")
        return options

    def changelog(self, table: Table) -> ChangelogMode:
        """Return the changelog mode of the format."""
        return changelog_of(table.option("format"))

    def needs_whole_record(self, table: Table) -> bool:
        """Return whether the fields of a record have no names."""
        return is_positional(table.option("format"))

    def withdrawal_folder(self, table: Table, base_folder: Path) -> str:
        """Return the table's folder."""
        path = table.option("path")
        assert path is not None, "checked"
        return normalize_path(path, base_folder)

    def locations(self, table: Table, options: OptionValues, base_folder: Path) -> frozenset[str]:
        """Return the real path of the folder or file, or its URI in another store."""
        return frozenset((normalize_path(options.string("path"), base_folder),))

    def positions(self, table: Table) -> dict[str, str]:
        """Return the positions in a line, which does not contain the PARTITIONED BY columns."""
        columns = (each.name for each in table.columns if each.metadata_key is None)
        in_lines = (each for each in columns if each not in table.partition_keys)
        return positions_in(table.option("format"), "line", in_lines)

    def accepted_changelog(self, table: Table) -> ChangelogMode:
        """Return the changelog mode of the format: a written line cannot be changed."""
        return self.changelog(table)

    def source(self, table: Table, options: OptionValues) -> Source:
        """Return a source that reads the files."""
        from everfold.connectors.filesystem.source import FileSource

        return FileSource(table, options)

    def sink(self, context: SinkContext, options: OptionValues) -> LocalSink | ClusterSink:
        """Return a sink that writes files exactly once."""
        from everfold.connectors.filesystem.sink import FileSink

        return FileSink(context, options)


CONNECTOR = FilesystemConnector(
    name="filesystem",
    meaning="files in a folder, read oldest first, those of one age by name; decompressed by their extension:"
    " .gz, .gzip, .deflate, .bz2, .xz, .zst, .zstd",
    is_folder=True,
    on_replay=ReplayEffect.WITHDRAWS,
    updates_help="rows of a file cannot be changed: write to an `upsert-kafka` or `jdbc` table with a PRIMARY KEY,"
    " write the changes themselves with 'format' = 'debezium-json', or aggregate by windows, whose rows are final",
)


def _check_partitions(table: Table, options: OptionValues) -> None:
    names = {column.name: column for column in table.columns}
    for key in table.partition_keys:
        column = names.get(key)
        if column is None or column.metadata_key is not None:
            raise SqlError.of(
                "unknown-column",
                f"table `{table.name}`: PARTITIONED BY names `{key}`, which is not a column",
                table.span_of(key),
                suggest_name(key, names),
            )
        if isinstance(column.type, ArrayType | MapType | RowType | BytesType):
            raise UnsupportedFeature.of(
                "partition-type",
                f"table `{table.name}`: a folder cannot be named after the {_kind(column.type)} `{key}`",
                table.span_of(key),
            )
    null_name = options.string("partition.default-name")
    if escape(null_name) != null_name:
        message = "option `partition.default-name` contains a character that is not allowed in a folder name"
        raise wrong_option_error(table, "partition.default-name", message)
    if len(table.partition_keys) == len([column for column in table.columns if column.metadata_key is None]) > 0:
        raise SqlError.of(
            "no-column-left",
            f"table `{table.name}`: all columns are in PARTITIONED BY, so the files would have no columns",
            table.span,
        )


def _kind(of: DataType) -> str:
    return of.sql.split("<")[0].split("(")[0]
