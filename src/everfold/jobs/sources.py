"""Open the tables that a job reads, each under its name in Spark's checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.checkpoint.logs import Position, read_positions
from everfold.connectors.contract import SPLIT, History, LostInput, Source, SourceContext, no_past_error
from everfold.connectors.validate import CheckedTables
from everfold.connectors.worker_reader import WorkerInput
from everfold.errors import ConnectorError
from everfold.jobs.lost_sources import find_lost_source
from everfold.plan.nodes import Scan, Table
from everfold.spark.stream import SourceStream, WorkerSource
from everfold.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from everfold.sql.settings import Settings

_IDENTITY = (
    "connector",
    "path",
    "table-path",
    "topic",
    "topic-pattern",
    "properties.bootstrap.servers",
    "format",
    "url",
    "table-name",
)


@dataclass(frozen=True, slots=True)
class External:
    """A table whose rows the caller provides.

    open: returns a DataFrame of the table's columns as `c0…`, called with the source's name.
    open_in_worker: the same for tasks that decode the rows.
    history: returns the rows that were read so far; None if they cannot be read again.
    """

    open: Callable[[SparkSession, str, Table], DataFrame]
    is_bounded: bool
    history: Callable[[SparkSession, Table], History] | None = None
    open_in_worker: Callable[[SparkSession, str, Table], WorkerInput] | None = None


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """A source that a running job reads.

    table: the name of its table. is_stream: whether it is read as a stream. source: None for a
    table whose rows the caller provides. context: None for such a table, and for a source that is
    read as a batch; it has no offsets then.
    """

    name: str
    table: str
    is_bounded: bool
    is_stream: bool
    source: Source | None = None
    context: SourceContext | None = None

    def failure(self, error_text: str) -> ConnectorError | None:
        """Return the source's error, None if the failure has another cause."""
        return None if self.source is None else self.source.parse_failure(error_text)

    def check_batch(self, checkpoint: Location, batch: int) -> None:
        """Raise ConnectorError if Spark would not read the rows of a planned batch right."""
        if self.source is None or self.context is None or not self.source.has_checked_batches:
            return
        log = checkpoint / "sources" / self.name
        since, until = (read_positions(checkpoint, each).get(self.name) for each in (batch - 1, batch))
        if until is not None and until != since:
            self.source.check_batch(None if since is None else Position(since, log), Position(until, log))

    def find_lost(self, checkpoint: Location) -> LostInput | None:
        """Return what no longer exists of what the job reads next. Raises ConnectorError."""
        if self.source is None or self.context is None:
            return None
        note = {"spark_name": self.name, "identity": self.context.identity}
        lost = find_lost_source(checkpoint, note, self.source, "")
        return None if lost is None else lost.lost

    def after_batch(self, offsets: Mapping[str, str]) -> None:
        """Notify the source of a committed batch. offsets: lines of the offset log by source."""
        if self.source is not None and self.context is not None and self.name in offsets:
            self.source.after_batch(self.context, offsets[self.name])

    def find_changes(self, checkpoint: Location) -> list[str]:
        """Return sentences about changes to data that was already read, each once.

        Such data counts as it was when it was read.
        """
        if self.source is None or self.context is None:
            return []
        return self.source.find_changes(self.context, checkpoint / "sources" / self.name)

    def check_arrivals(self) -> None:
        """Raise ConnectorError if data has arrived that the engine does not see."""
        if self.source is not None and self.context is not None:
            self.source.check_arrivals(self.context.base_folder)

    def reached_end(self, offsets: Mapping[str, str]) -> bool:
        """Whether a bounded source is at its end. Call it when all available data was read."""
        if self.source is None or self.context is None or type(self.source).has_reached_end is Source.has_reached_end:
            return True
        return self.name in offsets and self.source.has_reached_end(self.context, offsets[self.name])


def read_position(checkpoint: Location, source: str) -> Position | None:
    """Return the position in a source after the last finished batch, None if there is none."""
    line = read_positions(checkpoint).get(source)
    return None if line is None else Position(line, checkpoint / "sources" / source)


@dataclass(slots=True)
class Sources:
    """Opens tables for a job.

    tables: the checked tables of the job.
    externals: tables whose rows the caller provides, by name.
    origin: the epoch in which the job last started at the beginning of its input.
    earlier: the checkpoints before that epoch, oldest first.
    spark_names: names of sources in Spark's checkpoint by their names in the job (`locations`).
        Without a job, they are derived from the options.
    identities: of the data that sources read, by their names in Spark's checkpoint.
    opened: the sources that were opened.
    """

    spark: SparkSession
    base_folder: Path
    settings: Settings
    tables: CheckedTables
    job_folder: Location | None = None
    externals: Mapping[str, External] = field(default_factory=dict)
    origin: int = 0
    earlier: Sequence[Location] = ()
    spark_names: Mapping[str, str] = field(default_factory=dict)
    identities: Mapping[str, str] = field(default_factory=dict)
    opened: list[OpenedSource] = field(default_factory=list)

    def stream(self, table: Table, name: str) -> SourceStream:
        """Open a table as a stream. The source's name identifies what it reads."""
        external = self.externals.get(table.name)
        if external is not None:
            self.opened.append(OpenedSource(name, table.name, external.is_bounded, True))
            frame = external.open(self.spark, name, table)
            return SourceStream(frame.selectExpr("*", f"CAST(NULL AS STRING) AS {SPLIT}"), (table.identity,))
        context = self._context(table, self._spark_name(table, name))
        source = self._source(table)
        frame = source.stream(context)
        self.opened.append(OpenedSource(context.name, table.name, source.is_bounded(), True, source, context))
        return SourceStream(frame, source.splits(context))

    def can_stream_in_worker(self, table: Table, columns: Sequence[int]) -> bool:
        """Return whether tasks can decode some columns of a table."""
        external = self.externals.get(table.name)
        if external is not None:
            return external.open_in_worker is not None
        return self._source(table).reason_not_in_worker(columns) is None

    def stream_in_worker(self, table: Table, name: str, columns: Sequence[int]) -> WorkerSource:
        """Open some columns of a table as a stream that tasks decode."""
        external = self.externals.get(table.name)
        if external is not None:
            assert external.open_in_worker is not None
            self.opened.append(OpenedSource(name, table.name, external.is_bounded, True))
            return WorkerSource(external.open_in_worker(self.spark, name, table), (table.identity,))
        context = self._context(table, self._spark_name(table, name))
        source = self._source(table)
        found = source.stream_in_worker(context, columns)
        self.opened.append(OpenedSource(context.name, table.name, source.is_bounded(), True, source, context))
        return WorkerSource(found, source.splits(context))

    def batch(self, table: Table) -> DataFrame:
        """Open the current rows of a table."""
        external = self.externals.get(table.name)
        if external is not None:
            self.opened.append(OpenedSource(table.name, table.name, True, False))
            return external.open(self.spark, table.name, table)
        context = self._context(table, table.name)
        source = self._source(table)
        self.opened.append(OpenedSource(table.name, table.name, True, False, source))
        return source.batch(context)

    def history(self, table: Table, name: str, checkpoint: Location) -> tuple[History, str | None]:
        """Return what a job has read of a source up to its last finished batch, and what was lost.

        name: the source's name in the job. The second part describes data that no longer exists,
        None if all of it does. Raises StateError `no-past`.
        """
        external = self.externals.get(table.name)
        if external is not None and external.history is not None:
            return external.history(self.spark, table), None
        if external is not None:
            raise no_past_error(table)
        context = self._context(table, self._spark_name(table, name))
        source = self._source(table)
        self.opened.append(OpenedSource(context.name, table.name, True, False, source))
        position = read_position(checkpoint, context.name)
        return source.history(context, position), None if position is None else source.describe_lost(position)

    def read_scan(self, node: Scan) -> DataFrame:
        """Open the current rows of a scan's table."""
        return self.batch(node.table)

    def rereads_table(self, table: Table) -> bool:
        """Whether a join reads the table again in every batch.

        An option of its connector decides this. DataFrames of the caller are left to Spark.
        """
        return table.name in self.externals or self._source(table).is_read_per_batch()

    def _source(self, table: Table) -> Source:
        return self.tables.sources[table].source()

    def _context(self, table: Table, name: str) -> SourceContext:
        return SourceContext(
            spark=self.spark,
            name=name,
            base_folder=self.base_folder,
            table=table,
            settings=self.settings,
            job_folder=self.job_folder,
            origin=self.origin,
            previous_log=self._before(name),
            identity=self.identities.get(name, ""),
        )

    def _spark_name(self, table: Table, name: str) -> str:
        return self.spark_names.get(name) or name_by_options(table, name, self.base_folder)

    def _before(self, name: str) -> Location | None:
        """Return the source's folder in the newest earlier checkpoint that has one."""
        found = (checkpoint / "sources" / name for checkpoint in reversed(self.earlier))
        return next((each for each in found if each.is_dir()), None)


def name_by_options(table: Table, name: str, base_folder: Path) -> str:
    """Return the name in Spark's checkpoint that is derived from a table's options as written.

    It is used without a job, and by jobs that do not record locations yet.
    """
    options = dict(table.options)
    parts = [f"{key}={options[key]}" for key in _IDENTITY if key in options]
    if "path" in options or "table-path" in options:
        parts.append(str(base_folder.resolve()))
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"{name}_{digest[:8]}"
