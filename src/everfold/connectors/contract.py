"""What a connector is to the engines: sources that give rows, sinks that take them.

A source's columns are `c0, c1, …` in the order of the table's columns, physical and METADATA, in the physical forms of
`everfold.types`. Streaming and batch frames have one more column, `__split`: the part of the source that the watermark is kept by.
A table whose rows are changes (`Connector.changelog`) has `__kind` beside them, a `RowKind`; so have the rows of every sink.

Everything that can be wrong in a table is found by `Connector.check`, without pyspark and before anything starts.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from everfold.connectors.applied import Applied, BatchId
from everfold.connectors.options import Option, OptionSet, OptionValues, parse_memory, wrong_option
from everfold.connectors.replay import Again, Past
from everfold.errors import ConnectorError, EverfoldError, SqlError, StateError, UnsupportedFeature
from everfold.plan.changelog import KIND, ChangelogMode
from everfold.plan.nodes import Table, TableColumn

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from everfold.sql.settings import Settings

__all__ = [
    "KIND",
    "SPLIT",
    "Again",
    "Applied",
    "BatchId",
    "ClusterSink",
    "Connector",
    "History",
    "LocalSink",
    "Option",
    "OptionSet",
    "OptionValues",
    "Past",
    "Position",
    "Role",
    "SinkContext",
    "Source",
    "SourceContext",
    "columns_of",
    "parse_memory",
    "physical_columns",
    "refuse_metadata",
    "wrong_option",
]

SPLIT = "__split"
"""Column of a source's frame: the split that a row comes from, STRING."""


class Role(StrEnum):
    """What a table is used as."""

    SOURCE = "source"
    SINK = "sink"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """Where a source runs.

    `name` is the source's name in Spark's checkpoint ([A-Za-z0-9_]+), `job_folder` the folder of the job (None without one), and
    `base_folder` the folder that relative paths are relative to. `origin` is the epoch in which the job last began at the beginning of its input,
    `before` the source's folder in the checkpoint that the job had before that.
    """

    spark: SparkSession
    name: str
    base_folder: Path
    table: Table
    settings: Settings | None = None
    job_folder: Path | None = None
    origin: int = 0
    before: Path | None = None

    @property
    def kept(self) -> Path | None:
        """The folder for what is fixed when the job begins at the beginning of its input, None without a job folder."""
        if self.job_folder is None:
            return None
        return self.job_folder / "sources" / str(self.origin) if self.origin else self.job_folder / "sources"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """Where a sink runs.

    `name` is the sink's name within the job. Without a job folder nothing is remembered from one run to the next. query: a hash of what is written
    into the table, empty if nobody needs to know.
    """

    name: str
    base_folder: Path
    table: Table
    settings: Settings | None = None
    job_folder: Path | None = None
    spark: SparkSession | None = None
    query: str = ""

    @property
    def records(self) -> Path | None:
        """The folder for what the sink has applied, None without a job folder."""
        return None if self.job_folder is None else self.job_folder / "sinks" / self.name


@dataclass(frozen=True, slots=True)
class Position:
    """Where a job stands in a source: the source's line of the offset log, and its folder in Spark's checkpoint."""

    line: str
    log: Path


@dataclass(frozen=True, slots=True)
class History:
    """What a job has read of a source. frame: its rows, as `Source.batch` gives them. order: in which order the places (`__place`) were read, where that
    is known."""

    frame: DataFrame
    order: Mapping[str, int] = field(default_factory=dict)


class Source(ABC):
    """The rows of one table.

    `options` is what the table says, `notes` what its author should know of them.
    """

    table: Table
    options: OptionValues
    reads_files: ClassVar[bool] = False
    """Whether `location` is a path, and the log in the checkpoint lists the files below it."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the author of the table."""
        return self.options.notes

    @abstractmethod
    def bounded(self) -> bool:
        """Whether the rows come to an end by themselves."""

    @abstractmethod
    def stream(self, context: SourceContext) -> DataFrame:
        """The rows as a streaming frame: `c0…`, `__split`, and `__kind` if they are changes, which come in order.

        Raises ConnectorError when the outside is not as it must be.
        """

    @abstractmethod
    def batch(self, context: SourceContext) -> DataFrame:
        """The rows that there are now, as a batch frame: the same columns."""

    def history(self, context: SourceContext, position: Position | None) -> History:
        """What a job has read that stands there (None: nowhere yet), as far as it is still there; `lost` says what is not.

        Raises StateError `no-past` when the source cannot say that again.
        """
        what = f"table `{self.table.name}`: what was read of `{self.table.connector}` cannot be read again"
        raise StateError.of("no-past", what, self.table.span, help="--on-change accept starts new aggregates now")

    def location(self, base_folder: Path) -> str:
        """Return where the rows lie, the same for every spelling of it and without secrets; empty for rows that lie nowhere.

        Raises ConnectorError when the outside, which may be asked, does not answer.
        """
        return ""

    def move(self, checkpoint: Path, name: str, old: str, new: str) -> None:  # noqa: B027
        """Rewrite what a checkpoint, which nobody uses, says of the locations of this source's rows. name: of the source. old, new: its locations.

        StateError `changed-source` when positions in the old data mean nothing in the new.
        """

    def find_changes(self, context: SourceContext, log: Path) -> list[str]:
        """Return what has become of data that was read and counts as it was, as sentences; each once. log: the source's folder in the checkpoint."""
        return []

    def check_arrivals(self, base_folder: Path) -> None:  # noqa: B027
        """Check what has arrived while a job runs; called after each batch, and now and then without one. Raises ConnectorError for data that the engine does not see."""

    def read_anew(self) -> bool:
        """Whether a join with the table reads it in every batch anew; if not, once, when the job starts."""
        return False

    def size(self, base_folder: Path, enough: int) -> int | None:
        """How many bytes there are to read, counted no further than `enough`; None when they have no end or cannot be told beforehand."""
        return None

    def local(self, base_folder: Path) -> Iterator[pa.Table]:
        """The rows for the memory engine, in pieces, in the order they lie in: `c0…` and `__kind` if they are changes, Arrow's physical types."""
        raise UnsupportedFeature.of(
            "not-in-memory",
            f"table `{self.table.name}`: the memory engine does not read from `{self.table.connector}`",
            self.table.span,
            "leave out --engine memory",
        )

    def splits(self, context: SourceContext) -> tuple[str, ...]:
        """The splits known at the start; more may come."""
        return (self.table.name,)

    def failure(self, error_text: str) -> ConnectorError | None:
        """The error that a failure of the engine really is, found in its text; None if it is not this source's."""
        return None

    def after_batch(self, context: SourceContext, offsets_json: str) -> None:  # noqa: B027
        """Called when a batch is committed, with the source's line of the offset log."""

    def has_passed(self, now: Position, then: Position) -> bool:
        """Whether a job that began anew has read all that it had read when it stood there."""
        return _at_least(json.loads(now.line), json.loads(then.line))

    def lost(self, then: Position) -> str | None:
        """What is gone of all that a job has read when it stands there, as the end of a sentence; None if nothing is, or nobody can tell cheaply."""
        return None

    def reached_end(self, context: SourceContext, offsets_json: str) -> bool:
        """Whether a bounded source has given all its rows, by its line of the offset log. File sources leave that to the engine."""
        return False


def _at_least(now: Any, then: Any) -> bool:
    """Whether all numbers of an offset, by their names, have been reached by another."""
    if isinstance(then, dict):
        return isinstance(now, dict) and all(name in now and _at_least(now[name], at) for name, at in then.items())
    return isinstance(then, int) and isinstance(now, int) and now >= then


@dataclass(slots=True)
class _Sink:
    """What all sinks have."""

    context: SinkContext
    options: OptionValues

    @property
    def table(self) -> Table:
        """The table that is written to."""
        return self.context.table

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the author of the table."""
        return self.options.notes

    def last_applied(self, job: str, sink: str) -> Applied | None:
        """Return the last batch of a job that the table holds, under the name that the sink had; None for none, or if the table keeps no record. Called
        after `prepare`; changes nothing."""
        return None

    def written_by_others(self, job: str) -> str | None:
        """Return the folder of another job that has written the rows of the same query into the table, where they add up; None for none, or if the table
        keeps no record. Called after `prepare`; changes nothing."""
        return None

    def look_back(self, past: Past) -> None:
        """Called after `prepare`, at every start of a job that has been another one: what batches have written that do not count any more
        is taken back, where that can be. To do it again changes nothing."""

    def left_over(self, *, prune: bool) -> str | None:
        """Called when a job that went back has caught up: the rows of what it left that did not come again, as a sentence; `prune` deletes them. A batch may be written meanwhile.
        None if there are none, or if the sink does not look."""
        return None


class LocalSink(_Sink, ABC):
    """A sink that this process writes. What was applied is not applied again: a batch may come twice after a crash."""

    def prepare(self) -> None:
        """Called once before the first batch: finishes or removes what a crash left, and looks whether the target is there."""

    @abstractmethod
    def write(self, rows: pa.Table, batch: BatchId) -> None:
        """Applies a batch: `c0…` and `__kind`. The changes of one key are in order."""

    def close(self) -> None:
        """Called once at the end, also after a failure."""


class ClusterSink(_Sink, ABC):
    """A sink that Spark's tasks write. A batch that was applied before is run all the same, and changes nothing."""

    def prepare(self) -> None:
        """Called once before the first batch: finishes or removes what a crash left, and looks whether the target is there."""

    @abstractmethod
    def write(self, frame: DataFrame, batch: BatchId) -> int | None:
        """Applies a batch: `c0…` and `__kind`. Runs the frame exactly once; answers the number of rows written, if it knows.

        The changes of one key are in order within a partition of the frame. Between partitions there is no order: a row that
        comes there counts for more than one that is taken back.
        """

    def close(self) -> None:
        """Called once at the end, also after a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector(ABC):
    """A kind of table. `for_changes` says what to do where a query's result changes and the table takes new rows only."""

    name: str
    meaning: str = field(default="", compare=False)
    for_changes: str = field(
        default="write to an `upsert-kafka` or `jdbc` table with a PRIMARY KEY, or aggregate by windows, whose rows are final",
        compare=False,
    )

    @abstractmethod
    def options(self, table: Table) -> OptionSet:
        """The options that such a table knows; its format's are among them."""

    @abstractmethod
    def check(self, table: Table, role: Role) -> OptionValues:
        """Whether the table can be read or written as it is declared. Raises SqlError; nothing outside is touched."""

    def changelog(self, table: Table) -> ChangelogMode:
        """Which changes the table's rows are when it is read. Never raises: what is wrong in the table is for `check`."""
        return ChangelogMode.INSERT_ONLY

    def bounded(self, table: Table) -> bool:
        """Whether the rows of the table come to an end by themselves. Never raises: what is wrong in the table is for `check`."""
        try:
            return self.source(table).bounded()
        except EverfoldError:
            return False

    def read_whole(self, table: Table) -> bool:
        """Whether a record can be read only with all physical columns in mind, those that no query asks for too. Never raises."""
        return False

    def positions(self, table: Table) -> dict[str, str]:
        """Return the positions of columns in a record, without those that the record names. Never raises."""
        return {}

    def takes(self, table: Table) -> ChangelogMode:
        """Which changes can be written to the table, `upsert` ones by its PRIMARY KEY. Never raises."""
        return ChangelogMode.INSERT_ONLY

    def again(self, table: Table) -> Again:
        """What becomes of rows that come again, as the job has gone back in its input."""
        return Again.TWICE

    def source(self, table: Table) -> Source:
        """The table as a source."""
        raise UnsupportedFeature.of(
            "not-a-source",
            f"table `{table.name}`: the connector `{self.name}` only writes: nothing can be selected from it",
            table.span,
        )

    def sink(self, context: SinkContext) -> LocalSink | ClusterSink:
        """The table as a sink."""
        raise UnsupportedFeature.of(
            "not-a-sink",
            f"table `{context.table.name}`: the connector `{self.name}` only reads: nothing can be inserted into it",
            context.table.span,
        )


def columns_of(table: Table, role: Role) -> tuple[TableColumn, ...]:
    """The columns of the rows: a source gives all, a sink takes those that are not VIRTUAL. `c0…` counts these."""
    return table.columns if role is Role.SOURCE else tuple(column for column in table.columns if not column.virtual)


def physical_columns(table: Table, role: Role) -> tuple[tuple[int, TableColumn], ...]:
    """The columns that lie in the records, with their positions: not METADATA, nor a folder's name."""
    return tuple(
        (at, column)
        for at, column in enumerate(columns_of(table, role))
        if column.metadata_key is None and column.name not in table.partition_keys
    )


def refuse_metadata(table: Table, known: tuple[str, ...], role: Role) -> None:
    """Raises SqlError `unknown-metadata` for a METADATA column that the connector does not have."""
    from everfold.errors import nearest

    for column in table.columns:
        if column.metadata_key is not None and column.metadata_key not in known:
            said = "it has " + ", ".join(f"`{key}`" for key in known) if known else "it has none"
            raise SqlError.of(
                "unknown-metadata",
                f"table `{table.name}`: the connector `{table.connector}` has no metadata `{column.metadata_key}`"
                f" for column `{column.name}`; {said}",
                table.place_of(column.name),
                nearest(column.metadata_key, known),
            )
