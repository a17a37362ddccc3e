"""Read a Delta table with Spark: the rows of a version, or those that versions add.

A stream reads the files that commits add to the table. It has inserts only: a commit that updates
or deletes rows fails the job, unless an option says to skip it. The version that a stream starts
from is stored when the job is first started, so a rebuilt job starts from it again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from everfold.checkpoint.logs import Position
from everfold.connectors.contract import SPLIT, History, OptionValues, ReadSize, Source, SourceContext, no_past_error
from everfold.connectors.delta.log_size import measure_version
from everfold.connectors.delta.table import DeltaTable, name_of
from everfold.connectors.file_order import FILE, file_order_sql
from everfold.connectors.filesystem.paths import locate, normalize_path
from everfold.connectors.null_rowtime import LOCATION, find_null_rowtime
from everfold.engine_literals import spark_identifier, spark_string
from everfold.errors import ConnectorError, StateError, UnsupportedFeature
from everfold.plan.nodes import Table
from everfold.storage import Location
from everfold.types import physical_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CHANGED = re.compile(
    r"\[DELTA_SOURCE_(?:TABLE_IGNORE_CHANGES|IGNORE_DELETE)\] Detected (?P<what>a data update|deleted data)"
    r"[^\n]*?at version (?P<version>\d+)"
)
_LOST = re.compile(
    r"\[DELTA_(?:LOG_FILE_NOT_FOUND\w*|VERSIONS_NOT_CONTIGUOUS|TRUNCATED_TRANSACTION_LOG|FILE_NOT_FOUND\w*"
    r"|CANNOT_RECREATE_HISTORICAL_STATE|TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION|VERSION_NOT_FOUND"
    r"|CANNOT_TIME_TRAVEL_BEYOND\w*)[\w.]*\] ?(?P<reason>[^\n]*)"
)
_REPLACED = re.compile(r"\[DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE|\[DELTA_SCHEMA_CHANGED[\w.]*\]")
_SNAPSHOT = "snapshot"
_SKIPS_CHANGES = "`skipChangeCommits` is set, so the table has rows that the job has not read"
_FILE = "input_file_name()"


class _Offset(NamedTuple):
    """A position in a Delta table, in the order of reading.

    version: the commit; all earlier ones have been read. is_read: whether the rows of the first
    snapshot have been read. file: the last file that was read of the commit or of the snapshot.
    """

    version: int
    is_read: bool
    file: int

    @classmethod
    def parse(cls, line: str) -> _Offset:
        """Return the offset of a line of Spark's log."""
        found = json.loads(line)
        return cls(int(found["reservoirVersion"]), not found["isStartingVersion"], int(found["index"]))


class DeltaSource(Source):
    """A source that reads one Delta table."""

    def __init__(self, table: Table, options: OptionValues) -> None:
        self.table = table
        self.options = options

    def is_bounded(self) -> bool:
        """Return whether `mode` is batch."""
        return self.options.string("mode") == "batch"

    def location(self, base_folder: Path) -> str:
        """Return the real path of the folder, or its URI in another store."""
        return normalize_path(self.options.string("table-path"), base_folder)

    def check_use(self, *, as_stream: bool) -> None:
        """Refuse a stream of an old version. Raises UnsupportedFeature `delta-time-travel`."""
        for name in ("versionAsOf", "timestampAsOf"):
            if as_stream and name in self.options.explicit:
                raise UnsupportedFeature.of(
                    "delta-time-travel",
                    f"table `{self.table.name}`: option `{name}` applies to queries in batch mode and to joins only",
                    self.table.span_of_option(name),
                    "run the query with --batch",
                )

    def batch(self, context: SourceContext) -> DataFrame:
        """Return the rows of the newest version, or of that of `versionAsOf` or `timestampAsOf`."""
        table = self._open(context)
        reader = context.spark.read.format("delta")
        for name in ("versionAsOf", "timestampAsOf"):
            if name in self.options.explicit:
                reader = reader.option(name, str(self.options.values[name]))
        try:
            # A stream of Delta does not know when a file was written.
            changed, path = "_metadata.file_modification_time", "_metadata.file_path"
            return self._frame(reader.load(table.root.uri), order=f"{file_order_sql(changed, path)} AS {FILE}")
        except Exception as error:
            raise self.parse_failure(str(error)) or table.explain(error) or error from None

    def stream(self, context: SourceContext) -> DataFrame:
        """Return the rows of the table and those that later commits add, as a stream."""
        self.check_use(as_stream=True)
        table = self._open(context)
        reader = context.spark.readStream.name(context.name).format("delta")
        reader = reader.option("maxBytesPerTrigger", str(self.options.number("scan.max-bytes-per-batch")))
        files = self.options.number_or_none("scan.max-files-per-batch")
        if files is not None:
            reader = reader.option("maxFilesPerTrigger", str(files))
        for name in ("ignoreDeletes", "skipChangeCommits"):
            reader = reader.option(name, "true" if self.options.flag(name) else "false")
        start = self._fix_start(context, table)
        if start != _SNAPSHOT:
            is_next = int(start) > table.version()
            reader = reader.option("startingVersion", "latest" if is_next else start)
        return self._frame(reader.load(table.root.uri))

    def history(self, context: SourceContext, position: Position | None) -> History:
        """Return the rows that the job has read up to a position.

        Raises StateError `no-past` if Delta no longer has what is needed for that.
        """
        table = self._open(context)
        if position is None:
            return History(self._frame(table.read()).where("false"))
        offset = _Offset.parse(position.line)
        start = self._read_start(context) or _SNAPSHOT
        try:
            return self._read_history(table, offset, start)
        except StateError:
            raise
        except Exception as error:
            lost = self.parse_failure(str(error))
            reason = lost.diagnostics[0].message if lost is not None else str(error).splitlines()[0][:300]
            raise no_past_error(self.table, reason) from None

    def check_history(self, job_folder: Location, name: str) -> None:
        """Refuse the past of a snapshot without the rows that the job skips."""
        file = _start_file(job_folder, name)
        start = file.read_text() if file.exists() else _SNAPSHOT
        if start == _SNAPSHOT and self.options.flag("skipChangeCommits"):
            raise no_past_error(self.table, _SKIPS_CHANGES)

    def measure_read(self, base_folder: Path, position: Position) -> ReadSize:
        """Return the files of the version that the job has read, by the log of a local table."""
        return measure_version(self.location(base_folder), _Offset.parse(position.line).version)

    def _read_history(self, table: DeltaTable, offset: _Offset, start: str) -> History:
        if not offset.is_read:
            return self._history_of(table, table.files(offset.version)[: offset.file + 1])
        skip = self.options.flag("skipChangeCommits")
        part = list(_added_files(table, offset.version, skip=skip))[: offset.file + 1] if offset.file >= 0 else []
        if start != _SNAPSHOT:
            added = [each for at in range(int(start), offset.version) for each in _added_files(table, at, skip=skip)]
            return self._history_of(table, [*added, *part])
        if skip:
            raise no_past_error(self.table, _SKIPS_CHANGES)
        files = table.files(offset.version - 1) if offset.version > 0 else []
        return self._history_of(table, [*files, *part])

    def _history_of(self, table: DeltaTable, files: Sequence[str]) -> History:
        """Return the rows of files, which are in the order of reading."""
        frame = self._frame(table.read_files(files), f"substring_index({_FILE}, '/', -1)")
        return History(frame, {name_of(file): at for at, file in enumerate(files)})

    def describe_lost(self, then: Position) -> str | None:
        """Return that deleted rows no longer exist, if the job skips their deletion."""
        return "rows that were deleted from the table" if self.options.flag("ignoreDeletes") else None

    def has_passed(self, now: Position, then: Position) -> bool:
        """Return whether a job that was rewound has again read everything up to a position."""
        return _has_passed(_Offset.parse(now.line), _Offset.parse(then.line))

    def _open(self, context: SourceContext) -> DeltaTable:
        """Return the table. Raises ConnectorError `not-delta`, `delta-schema`, `delta-jars`."""
        path = self.options.string("table-path")
        table = DeltaTable.open(context.spark, self.table, locate(path, context.base_folder, context.spark))
        if not table.exists():
            raise ConnectorError.of(
                "not-delta",
                f"table `{self.table.name}`: there is no Delta table in `{table.root}`",
                self.table.span_of_option("table-path"),
            )
        table.check_schema(self.table.columns, whole=False)
        return table

    def _frame(self, frame: DataFrame, location: str = _FILE, order: str = "") -> DataFrame:
        """Return the columns of the table, with the location of each row."""
        columns = (
            f"{spark_identifier(column.name)} AS {physical_name(at)}" for at, column in enumerate(self.table.columns)
        )
        split = f"{spark_string(self.table.identity)} AS {SPLIT}"
        return frame.selectExpr(*columns, split, f"{location} AS {LOCATION}", *filter(None, [order]))

    # -- where it starts ---------------------------------------------------------------------------

    @staticmethod
    def _read_start(context: SourceContext) -> str | None:
        if context.job_folder is None:
            return None
        file = _start_file(context.job_folder, context.name)
        return file.read_text() if file.exists() else None

    def _fix_start(self, context: SourceContext, table: DeltaTable) -> str:
        """Return the first version to read, fixed when the job was first started, or `snapshot`."""
        known = self._read_start(context)
        if known is not None:
            return known
        start = self._find_start(table)
        if context.job_folder is not None:
            _start_file(context.job_folder, context.name).write(start)
        return start

    def _find_start(self, table: DeltaTable) -> str:
        version = self.options.string_or_none("startingVersion")
        if version == "latest":
            return str(table.version() + 1)
        if version is not None:
            if int(version) > table.version():
                raise self._no_version(f"there is no version {version}, the newest one is {table.version()}")
            return str(int(version))
        time = self.options.string_or_none("startingTimestamp")
        return _SNAPSHOT if time is None else self._find_version(table, time)

    def _find_version(self, table: DeltaTable, time: str) -> str:
        from pyspark.sql import DataFrame

        since = f"CAST({spark_string(time)} AS TIMESTAMP)"
        history = DataFrame(table.java_table().history(), table.spark)
        first = f"min(version) FILTER (WHERE timestamp >= {since})"
        [found] = history.selectExpr(f"{since} IS NOT NULL", first).collect()
        if not found[0]:
            raise self._no_version("option `startingTimestamp` is not a time such as `2026-01-31 12:00:00`")
        if found[1] is None:
            raise self._no_version(f"there is no version since {time}")
        return str(found[1])

    def _no_version(self, message: str) -> ConnectorError:
        span = self.table.span_of_option("startingVersion") or self.table.span_of_option("startingTimestamp")
        return ConnectorError.of("delta-version", f"table `{self.table.name}`: {message}", span)

    # -- failures ----------------------------------------------------------------------------------

    def parse_failure(self, error_text: str) -> ConnectorError | None:
        """Return the error for a commit that is not an insert, or for versions that are gone."""
        timeless = find_null_rowtime(error_text)
        if timeless is not None and timeless.table == self.table.name:
            return timeless.error()
        changed = _CHANGED.search(error_text)
        where = f"table `{self.table.name}`: "
        if changed is not None:
            verb = "deletes" if changed["what"] == "deleted data" else "updates or deletes"
            option = "ignoreDeletes" if verb == "deletes" else "skipChangeCommits"
            return ConnectorError.of(
                "delta-changed",
                f"{where}version {changed['version']} of the Delta table {verb} rows, and a stream reads inserts only",
                self.table.span,
                f"set '{option}' = 'true' to skip such commits, or compute the result from the beginning"
                " (another --state)",
            )
        lost = _LOST.search(error_text)
        if lost is not None:
            return ConnectorError.of(
                "delta-lost", f"{where}a version that is needed is no longer in the Delta table: {lost['reason'][:300]}"
            )
        if _REPLACED.search(error_text):
            return ConnectorError.of(
                "delta-replaced",
                f"{where}the Delta table was created again or its columns have changed since it was read",
                self.table.span,
            )
        return None


def _added_files(table: DeltaTable, version: int, *, skip: bool) -> Iterator[str]:
    """Yield the files whose rows a commit has added, as actions of Delta in JSON.

    skip: none for a commit that also removes rows.
    """
    actions = table.commit(version)
    if skip and any(each.get("remove", {}).get("dataChange") for each in actions):
        return
    for each in actions:
        if each.get("add", {}).get("dataChange"):
            yield json.dumps(each)


def _has_passed(now: _Offset, then: _Offset) -> bool:
    if not now.is_read:
        return not then.is_read and now.version == then.version and now.file >= then.file
    return (now.version, now.file) >= (then.version, then.file if then.is_read else -1)


def _start_file(job_folder: Location, name: str) -> Location:
    """Return the file with the first version to read, the same for all epochs of a job."""
    return job_folder / "sources" / f"{name}.start"
