"""The interface between connectors and engines: sources emit rows, sinks accept them.

A source's columns are `c0, c1, …` in the order of the table's columns, physical and METADATA, in
the physical types of `everfold.types`. Streaming and batch frames have an additional column,
`__split`: the part of the source that has a separate watermark. A table whose rows are
changes (`Connector.changelog`) has a column `__kind` too, a `RowKind`; so have the rows of every
sink. Rows of files have a column `__file` (`file_order`).

`Connector.check` finds everything that can be wrong in a table declaration, without pyspark and
before anything starts.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from everfold.activity import Printing
from everfold.checkpoint.logs import Position
from everfold.connectors.applied import AppliedBatch, BatchId
from everfold.connectors.lost_input import LostInput
from everfold.connectors.options import Option, OptionSet, OptionValues, parse_memory, wrong_option_error
from everfold.connectors.replay import JobLineage, ReplayEffect
from everfold.connectors.worker_reader import WorkerInput
from everfold.errors import ConnectorError, SqlError, StateError, UnsupportedFeature, suggest_name
from everfold.plan.changelog import KIND, ChangelogMode
from everfold.plan.nodes import Plan, Table, TableColumn
from everfold.storage import Location

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from everfold.connectors.skipped_rows import SkippedRows
    from everfold.sql.settings import Settings

__all__ = [
    "KIND",
    "SPLIT",
    "USE_SPARK",
    "AppliedBatch",
    "BatchId",
    "ClusterSink",
    "Connector",
    "History",
    "JobLineage",
    "LocalSink",
    "LostInput",
    "Option",
    "OptionSet",
    "OptionValues",
    "PackedRows",
    "Position",
    "ReplayEffect",
    "Role",
    "RowWriter",
    "ShardedSink",
    "SinkContext",
    "Source",
    "SourceContext",
    "WorkerTask",
    "as_spark_function",
    "columns_of",
    "parse_memory",
    "refuse_metadata",
    "refuse_written_metadata",
    "wrong_option_error",
]

SPLIT = "__split"
"""Column of a source's frame: the split of a row, STRING."""


class Role(StrEnum):
    """How a query uses a table."""

    SOURCE = "source"
    SINK = "sink"


USE_SPARK = "leave out --engine memory, or SET 'everfold.engine' = 'spark'"
"""What to do about a job that the memory engine cannot run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """The environment of a source.

    name: the source's name in Spark's checkpoint ([A-Za-z0-9_]+). job_folder: the job directory,
    None without one. base_folder: the folder that relative paths are resolved against. origin: the
    epoch in which the job last started from the beginning of its input. previous_log: the source's
    folder in the checkpoint that the job had before that epoch. identity: of the data that the job
    reads (`Source.identify`), empty if it is not known.
    """

    spark: SparkSession
    name: str
    base_folder: Path
    table: Table
    settings: Settings | None = None
    job_folder: Location | None = None
    origin: int = 0
    previous_log: Location | None = None
    identity: str = ""

    @property
    def zone(self) -> str:
        """The time zone of the session."""
        return "UTC" if self.settings is None else self.settings.local_time_zone

    @property
    def start_folder(self) -> Location | None:
        """The folder for data fixed when the job starts from the beginning of its input.

        None without a job folder.
        """
        if self.job_folder is None:
            return None
        return self.job_folder / "sources" / str(self.origin) if self.origin else self.job_folder / "sources"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """The environment of a sink.

    name: the sink's name within the job. job_folder: without one, nothing is remembered between
    runs. query: a hash of the query that is written into the table, empty if it is not needed.
    plan: the query of a stream, None for other rows. printing: returns a context in which the sink
    may print rows.
    """

    name: str
    base_folder: Path
    table: Table
    settings: Settings | None = None
    job_folder: Location | None = None
    spark: SparkSession | None = None
    query: str = ""
    plan: Plan | None = None
    printing: Printing = nullcontext

    @property
    def records(self) -> Location | None:
        """The folder for records of applied batches, None without a job folder."""
        return None if self.job_folder is None else self.job_folder / "sinks" / self.name


@dataclass(frozen=True, slots=True)
class History:
    """The rows that a job has read from a source.

    frame: the rows, in the format of `Source.batch`. order: the order in which the locations
    (`__place`) were read, where it is known.
    """

    frame: DataFrame
    order: Mapping[str, int] = field(default_factory=dict)


class ReadSize(NamedTuple):
    """How much a job has read of a table, of what is still there. None for what is unknown."""

    rows: int | None = None
    size_bytes: int | None = None
    files: int | None = None


def no_past_error(table: Table, reason: str = "") -> StateError:
    """Return the error for rows that cannot be read again."""
    origin = "a DataFrame" if table.connector is None else f"`{table.connector}`"
    message = f"table `{table.name}`: the rows read from {origin} cannot be read again"
    help_ = "--on-change accept starts new aggregates now"
    return StateError.of("no-past", f"{message}{reason and f': {reason}'}", table.span, help=help_)


class Source(ABC):
    """A reader of one table.

    options: the values of the table's options. notes: warnings about them for the table's author.
    """

    table: Table
    options: OptionValues
    reads_files: ClassVar[bool] = False
    """Whether `location` is a path and the log in the checkpoint lists the files below it."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the author of the table, as sentences."""
        return self.options.notes

    @abstractmethod
    def is_bounded(self) -> bool:
        """Return whether the table has a finite number of rows."""

    @abstractmethod
    def stream(self, context: SourceContext) -> DataFrame:
        """Return the rows as a streaming frame: `c0…`, `__split`, and `__kind` for changes.

        Changes are in order. Raises ConnectorError if the external system is not usable.
        """

    def reason_not_in_worker(self, columns: Sequence[int]) -> str | None:
        """Return why tasks cannot decode rows themselves, without Catalyst; None if they can.

        columns: positions of the columns that are needed.
        """
        return f"connector `{self.table.connector}`"

    def stream_in_worker(self, context: SourceContext, columns: Sequence[int]) -> WorkerInput:
        """Return a stream whose rows tasks decode themselves.

        It has the same positions in the checkpoint as `stream`. Called only if
        `reason_not_in_worker` returns None.
        """
        raise NotImplementedError

    @property
    def has_checked_batches(self) -> bool:
        """Whether `check_batch` is called before each batch of the stream."""
        return False

    def check_batch(self, since: Position | None, until: Position) -> None:
        """Check the rows of a batch before it runs: those between two positions.

        since: None for the first batch. Raises ConnectorError for rows that Spark would not read
        right.
        """
        raise NotImplementedError

    @abstractmethod
    def batch(self, context: SourceContext) -> DataFrame:
        """Return the current rows as a batch frame with the same columns."""

    def history(self, context: SourceContext, position: Position | None) -> History:
        """Return the rows that a job has read up to a position, those that still exist.

        position: None if the job has read nothing yet. `describe_lost` returns what no longer
        exists. Raises StateError `no-past` if the source cannot read them again.
        """
        raise no_past_error(self.table)

    def check_history(self, job_folder: Location, name: str) -> None:
        """Check that `history` can read again what a job has read, as far as the job knows.

        Asks no external system. name: the source's name in Spark's checkpoint. Raises StateError
        `no-past`.
        """
        if type(self).history is Source.history:
            raise no_past_error(self.table)

    def measure_read(self, base_folder: Path, position: Position) -> ReadSize:
        """Return how much a job has read up to a position. Asks no external system."""
        return ReadSize()

    def location(self, base_folder: Path) -> str:
        """Return the normalized location of the rows, without secrets.

        Different spellings of a location return the same string. Empty for rows without a location.
        May ask the external system: raises ConnectorError if it does not answer.
        """
        return ""

    def identify(self) -> str:
        """Return what tells the data from other data that is later created at the same location.

        Empty if nothing does. May ask the external system: raises ConnectorError.
        """
        return ""

    def is_recreated(self, old: str, new: str) -> bool:
        """Return whether two identities of this location (`identify`) are of different data."""
        return False

    def find_lost(self, position: Position, planned: Position | None, identity: str) -> LostInput | None:
        """Return what no longer exists of the data that a job reads next, None if all of it does.

        position: where the job continues. planned: the end of a batch that is not finished.
        identity: of the data that the job has read, empty if it is not to be compared. May ask the
        external system: raises ConnectorError.
        """
        return None

    def move(self, checkpoint: Location, name: str, old: str, new: str) -> None:  # noqa: B027
        """Rewrite the locations of this source's rows in a checkpoint that is not in use.

        name: the source's name. old, new: its locations. Raises StateError `changed-source` if
        positions in the old data are meaningless in the new data.
        """

    def find_changes(self, context: SourceContext, log: Location) -> list[str]:
        """Return how data that was already read has changed since, as sentences, each once.

        The result still counts the data as it was. log: the source's folder in the checkpoint.
        """
        return []

    def check_arrivals(self, base_folder: Path) -> None:  # noqa: B027
        """Check data that has arrived while a job runs.

        Called after each batch, and from time to time without one. Raises ConnectorError for data
        that the engine does not see.
        """

    def check_use(self, *, as_stream: bool) -> None:  # noqa: B027
        """Check that the rows can be read as a stream, or else as a batch. Raises SqlError."""

    def is_read_per_batch(self) -> bool:
        """Return whether a lookup join reads the table again in every batch.

        If not, the table is read once, when the job starts.
        """
        return False

    def size(self, base_folder: Path, enough: int) -> int | None:
        """Return the number of bytes to read; counting stops at `enough`.

        None if the source is unbounded or the size is not known in advance.
        """
        return None

    def read_local(self, base_folder: Path, skipped: SkippedRows | None = None) -> Iterator[pa.Table]:
        """Yield the rows for the memory engine, in pieces and in stored order.

        The columns are `c0…`, and `__kind` for changes, in Arrow's physical types. skipped: counts
        the rows that options allow to skip.
        """
        raise UnsupportedFeature.of(
            "not-in-memory",
            f"table `{self.table.name}`: the memory engine does not read from `{self.table.connector}`",
            self.table.span,
            USE_SPARK,
        )

    def splits(self, context: SourceContext) -> tuple[str, ...]:
        """Return the splits known at the start; more may appear later."""
        return (self.table.identity,)

    def parse_failure(self, error_text: str) -> ConnectorError | None:
        """Return the source's error that the text of an engine failure contains.

        None if the failure is not from this source.
        """
        return None

    def after_batch(self, context: SourceContext, offsets_json: str) -> None:  # noqa: B027
        """Handle the commit of a batch. offsets_json: the source's line of the offset log."""

    def find_lag(self, latest: Any, end: Any) -> Mapping[str, int] | None:
        """Return how many records each split has after a position, None if that is not known.

        latest, end: the last position in the source, and that at the end of a batch, as in Spark's
        report of the batch. Must not ask the external system.
        """
        return None

    def has_passed(self, now: Position, then: Position) -> bool:
        """Return whether a job that was rewound has again read everything up to a position."""
        return _at_least(json.loads(now.line), json.loads(then.line))

    def describe_lost(self, then: Position) -> str | None:
        """Return which part of the data read up to a position no longer exists.

        The string is the end of a sentence. None if nothing is lost, or it is costly to find out.
        """
        return None

    def has_reached_end(self, context: SourceContext, offsets_json: str) -> bool:
        """Return whether a bounded source has emitted all its rows, by its line of the offset log.

        File sources leave this to the engine.
        """
        return False


def _at_least(now: Any, then: Any) -> bool:
    """Return whether `now` has reached every number of the offset `then`, compared by name."""
    if isinstance(then, dict):
        return isinstance(now, dict) and all(name in now and _at_least(now[name], at) for name, at in then.items())
    return isinstance(then, int) and isinstance(now, int) and now >= then


@dataclass(slots=True)
class _Sink:
    """Fields and methods common to all sinks.

    applied: epoch and number of the last batch that the table records as applied. None before the
    first one, and for a table that records none. is_record_lasting: whether the table keeps that
    record as long as its rows.
    """

    is_record_lasting: ClassVar[bool] = True
    context: SinkContext
    options: OptionValues
    applied: tuple[int, int] | None = field(default=None, init=False)

    @property
    def table(self) -> Table:
        """The table that is written to."""
        return self.context.table

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the author of the table, as sentences."""
        return self.options.notes

    @property
    def target_folder(self) -> Location | None:
        """The folder that tasks write to, None if they write to none."""
        return None

    def prepare(self) -> None:
        """Finish or remove what a crash left, and check that the target exists.

        Called once before the first batch.
        """

    def close(self) -> None:
        """Release resources. Called once at the end, also after a failure."""

    def last_applied(self, job: str, sink: str) -> AppliedBatch | None:
        """Return the last batch of a job that the table holds; None if it records none.

        sink: the name that the job's sink had. Called after `prepare`; changes nothing.
        """
        return None

    def find_other_job(self, job: str) -> str | None:
        """Return the folder of another job that has written the same query into the table.

        Only for tables in which the rows of both jobs add up. None without such a job, or if the
        table keeps no record. Called after `prepare`; changes nothing.
        """
        return None

    def undo_discarded_batches(self, past: JobLineage) -> None:
        """Undo what batches outside the job's lineage have written, where that is possible.

        Called after `prepare` at every start of a job that has had other epochs. Idempotent.
        """

    def report_leftovers(self, *, prune: bool) -> str | None:
        """Report the rows of discarded epochs that did not reappear, as a sentence.

        Called when a job that was rewound has caught up; a batch may be written at the same time.
        prune: delete the rows. None if there are none, or if the sink does not look for them.
        """
        return None


class LocalSink(_Sink, ABC):
    """A sink that this process writes.

    After a crash a batch may be replayed; it is not applied a second time.
    """

    @abstractmethod
    def write(self, rows: pa.Table, batch: BatchId) -> None:
        """Apply a batch: `c0…` and `__kind`. The changes of one key are in order."""


class PackedRows(Protocol):
    """Rows of an operator that are still packed, in one of Spark's workers."""

    def count(self) -> int:
        """Return the number of rows."""

    def read(self, *, ordered: bool = False) -> pa.Table:
        """Return the rows: `c0…` and `__kind`.

        ordered: with `__order` too, unless the rows are in their order.
        """


class RowWriter(Protocol):
    """The work of one Spark task for a sink."""

    def write(self, rows: PackedRows) -> None:
        """Write rows of the task."""

    def close(self) -> bytes:
        """Complete the work, and return a report for the sink."""

    def abort(self) -> None:
        """Remove what was written."""


class WorkerTask(Protocol):
    """A sink's share of the work on a batch in Spark's workers. It must pickle.

    Spark may log it, so it has no secrets.
    """

    def open(self, shard: int, target: object) -> RowWriter:
        """Begin the work of one Spark task, before its first rows.

        shard: the number of the task, the same when the batch is replayed. target: see
        `ShardedSink.worker_target`.
        """


class ShardedSink(LocalSink, ABC):
    """A sink that this process writes, and for large batches of a stream also Spark's tasks.

    Each task writes its rows, a shard, as a whole. A replayed batch leaves out the shards that were
    written before.
    """

    @property
    @abstractmethod
    def worker_target(self) -> object:
        """What every task needs, in all batches: it must pickle, and can contain secrets."""

    @abstractmethod
    def begin_batch(self, batch: BatchId) -> WorkerTask:
        """Return the work on a batch. `finish_batch` or `abandon_batch` follows."""

    @abstractmethod
    def finish_batch(self, reports: Sequence[bytes], batch: BatchId) -> int:
        """Apply a batch whose tasks have ended, and return the number of its rows.

        reports: of the tasks that had rows.
        """

    @abstractmethod
    def abandon_batch(self) -> None:
        """End a batch that failed after `begin_batch`."""


class ClusterSink(_Sink, ABC):
    """A sink that Spark's tasks write.

    A batch that was applied before is run again, but changes nothing.
    """

    @property
    def takes_packed_rows(self) -> bool:
        """Whether the sink writes rows in the worker that unpacks them."""
        return False

    def begin_batch(self, batch: BatchId) -> WorkerTask:
        """Return the work on a batch of packed rows. Only if `takes_packed_rows`."""
        raise NotImplementedError

    def finish_batch(self, reports: Sequence[bytes], batch: BatchId) -> int | None:
        """Apply a batch whose rows the workers wrote, and return their number.

        reports: of the tasks that had rows. Called after `begin_batch`.
        """
        raise NotImplementedError

    def parse_failure(self, error_text: str) -> ConnectorError | None:
        """Return this sink's error from the text of Spark's error, None without one."""
        return None

    @abstractmethod
    def write(self, frame: DataFrame, batch: BatchId) -> int | None:
        """Apply a batch: `c0…` and `__kind`. Return the number of rows written, None if unknown.

        Runs the frame exactly once. The changes of one key are in order within a partition of the
        frame. Partitions are not ordered: across them an added row takes precedence over a
        retracted one.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """A kind of table.

    own_options: its options, without those of formats. accepts: the changes that its tables accept
    as sinks. on_replay: the effect of replayed rows. writes_in_process: whether its sinks are
    `LocalSink`, which the memory engine writes too. is_folder: whether its tables are folders of
    files. updates_help: the help text where a query updates its result and the table accepts only
    inserts.
    """

    name: str
    meaning: str = field(default="", compare=False)
    own_options: OptionSet = field(default_factory=OptionSet)
    accepts: ChangelogMode = ChangelogMode.INSERT_ONLY
    on_replay: ReplayEffect = ReplayEffect.DUPLICATES
    writes_in_process: bool = False
    is_folder: bool = False
    updates_help: str = field(
        default="write to an `upsert-kafka` or `jdbc` table with a PRIMARY KEY,"
        " or aggregate by windows, whose rows are final",
        compare=False,
    )

    def options(self, table: Table) -> OptionSet:
        """Return the options of such a table, those of its format included."""
        return self.own_options

    def check(self, table: Table, role: Role) -> OptionValues:
        """Check that the table can be read or written as declared, and return its options.

        Raises SqlError. Does not touch the external system.
        """
        refuse_metadata(table, (), role)
        return self.options(table).read(table, role.value)

    def changelog(self, table: Table) -> ChangelogMode:
        """Return the changelog mode of the table when it is read.

        Never raises: `check` reports errors of the table.
        """
        return ChangelogMode.INSERT_ONLY

    def is_bounded(self, table: Table) -> bool:
        """Return whether the table has a finite number of rows.

        Raises the errors of `check` and `source`: the table cannot be read as declared.
        """
        return self.source(table, self.check(table, Role.SOURCE)).is_bounded()

    def needs_whole_record(self, table: Table) -> bool:
        """Return whether decoding a record needs all physical columns, even unused ones.

        Never raises.
        """
        return False

    def positions(self, table: Table) -> dict[str, str]:
        """Return where in a record the columns are that are found by position, not by name.

        Never raises.
        """
        return {}

    def accepted_changelog(self, table: Table) -> ChangelogMode:
        """Return the changelog mode that the table accepts as a sink.

        Upsert changes are written by its PRIMARY KEY. Never raises.
        """
        return self.accepts

    def replay_effect(self, table: Table) -> ReplayEffect:
        """Return the effect of replayed rows on the table after a rewind of the job."""
        return self.on_replay

    def withdrawal_folder(self, table: Table, base_folder: Path) -> str | None:
        """Return the path or URI of the folder where withdrawn files of a table lie.

        None if the sink withdraws no files.
        """
        return None

    def locations(self, table: Table, options: OptionValues, base_folder: Path) -> frozenset[str]:
        """Return the locations of a table's rows, as its options declare them, without secrets.

        Two tables of the same connector hold the same rows if they share a location; a topic is at
        each of its brokers. Empty if the rows have no location. Touches no external system, unlike
        `Source.location`. options: as returned by `check`.
        """
        return frozenset()

    def source(self, table: Table, options: OptionValues) -> Source:
        """Return the source of a table. Raises UnsupportedFeature `not-a-source`.

        options: as returned by `check`.
        """
        raise UnsupportedFeature.of(
            "not-a-source",
            f"table `{table.name}`: the connector `{self.name}` only writes: nothing can be selected from it",
            table.span,
        )

    def sink(self, context: SinkContext, options: OptionValues) -> LocalSink | ClusterSink:
        """Return the sink of a table. Raises UnsupportedFeature `not-a-sink`.

        options: as returned by `check`.
        """
        raise UnsupportedFeature.of(
            "not-a-sink",
            f"table `{context.table.name}`: the connector `{self.name}` only reads: nothing can be inserted into it",
            context.table.span,
        )

    def require_sink(self, table: Table) -> None:
        """Raise UnsupportedFeature `not-a-sink` if the connector only reads."""
        if type(self).sink is Connector.sink:
            self.sink(SinkContext(name=table.name, base_folder=Path(), table=table), OptionValues({}, frozenset()))


def columns_of(table: Table, role: Role) -> tuple[TableColumn, ...]:
    """Return the columns of the rows, in the order of `c0…`.

    A source emits all columns, a sink accepts those that are not VIRTUAL.
    """
    return table.columns if role is Role.SOURCE else tuple(column for column in table.columns if not column.virtual)


def refuse_metadata(table: Table, known: tuple[str, ...], role: Role) -> None:
    """Raise SqlError `unknown-metadata` for a METADATA column that the connector lacks."""
    for column in table.columns:
        if column.metadata_key is not None and column.metadata_key not in known:
            available = "it has " + ", ".join(f"`{key}`" for key in known) if known else "it has none"
            raise SqlError.of(
                "unknown-metadata",
                f"table `{table.name}`: the connector `{table.connector}` has no metadata `{column.metadata_key}`"
                f" for column `{column.name}`; {available}",
                table.span_of(column.name),
                suggest_name(column.metadata_key, known),
            )


def refuse_written_metadata(table: Table, writable: tuple[str, ...], of: str) -> None:
    """Raise UnsupportedFeature `read-only-metadata` for a METADATA column that is not VIRTUAL.

    writable: the keys that can be written. of: what has the metadata, for the message.
    """
    for column in table.columns:
        if column.metadata_key is not None and not column.virtual and column.metadata_key not in writable:
            raise UnsupportedFeature.of(
                "read-only-metadata",
                f"table `{table.name}`: the metadata `{column.metadata_key}` of a {of} cannot be written",
                table.span_of(column.name),
                f"declare `{column.name}` as METADATA VIRTUAL",
            )


def as_spark_function(task: Callable[[Any], Any]) -> Any:
    """Return a task as a plain function for Spark, which inspects its name and signature."""

    def run_task(batches: Any) -> Any:
        return task(batches)

    return run_task
