"""The tables that a job reads: each opened under the name that Spark's checkpoint knows it by."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.connectors.contract import SPLIT, History, Position, Role, Source, SourceContext
from everfold.connectors.registry import connector_of
from everfold.errors import ConnectorError, StateError
from everfold.jobs.spark_checkpoint import positions
from everfold.plan.nodes import Scan, Table
from everfold.spark.stream import SourceStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from everfold.sql.settings import Settings

_IDENTITY = (
    "connector",
    "path",
    "topic",
    "topic-pattern",
    "properties.bootstrap.servers",
    "format",
    "url",
    "table-name",
)


@dataclass(frozen=True, slots=True)
class External:
    """A table whose rows the caller provides: `open` makes a DataFrame of the table's columns as `c0…`, under the source's name; `past` what of it has been
    read, where that can be read again."""

    open: Callable[[SparkSession, str, Table], DataFrame]
    bounded: bool
    past: Callable[[SparkSession, Table], History] | None = None


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """A source that a running job reads; without a context it is read as a batch, and no offset log speaks of it."""

    name: str
    bounded: bool
    source: Source | None = None
    context: SourceContext | None = None

    def failure(self, error_text: str) -> ConnectorError | None:
        """The error in the source's terms, None when it is not the source's."""
        return None if self.source is None else self.source.failure(error_text)

    def after_batch(self, offsets: Mapping[str, str]) -> None:
        """Tells the source that a batch is committed; `offsets` are the lines of the offset log by source."""
        if self.source is not None and self.context is not None and self.name in offsets:
            self.source.after_batch(self.context, offsets[self.name])

    def find_changes(self, checkpoint: Path) -> list[str]:
        """What has become of data that was read and counts as it was, as sentences; each once."""
        if self.source is None or self.context is None:
            return []
        return self.source.find_changes(self.context, checkpoint / "sources" / self.name)

    def check_arrivals(self) -> None:
        """Raise ConnectorError for data that has arrived and that the engine does not see."""
        if self.source is not None and self.context is not None:
            self.source.check_arrivals(self.context.base_folder)

    def reached_end(self, offsets: Mapping[str, str]) -> bool:
        """Whether all that a bounded source will ever give has been read, when all that is there has been."""
        if self.source is None or self.context is None or type(self.source).reached_end is Source.reached_end:
            return True
        return self.name in offsets and self.source.reached_end(self.context, offsets[self.name])


def position_of(checkpoint: Path, source: str) -> Position | None:
    """Where a job stands in a source after the last batch that is done, by its checkpoint; None if that does not know it."""
    line = positions(checkpoint).get(source)
    return None if line is None else Position(line, checkpoint / "sources" / source)


@dataclass(slots=True)
class Sources:
    """Opens tables for a job. `externals` are the tables without a connector, by name.

    origin: the epoch in which the job last began at the beginning of its input. earlier: the checkpoints that it had before that, oldest first.
    spark_names: the names of sources in Spark's checkpoint by their names in the job (`locations`); without a job they are made of the options.
    """

    spark: SparkSession
    base_folder: Path
    settings: Settings
    job_folder: Path | None = None
    externals: Mapping[str, External] = field(default_factory=dict)
    origin: int = 0
    earlier: Sequence[Path] = ()
    spark_names: Mapping[str, str] = field(default_factory=dict)
    opened: list[OpenedSource] = field(default_factory=list)

    def stream(self, table: Table, name: str) -> SourceStream:
        """Opens a table as a stream under a name that carries its identity."""
        external = self.externals.get(table.name)
        if external is not None:
            self.opened.append(OpenedSource(name, external.bounded))
            frame = external.open(self.spark, name, table)
            return SourceStream(frame.selectExpr("*", f"CAST(NULL AS STRING) AS {SPLIT}"), (table.name,))
        context = self._context(table, self._spark_name(table, name))
        source = self._source(table)
        frame = source.stream(context)
        self.opened.append(OpenedSource(context.name, source.bounded(), source, context))
        return SourceStream(frame, source.splits(context))

    def batch(self, table: Table) -> DataFrame:
        """Opens what a table holds now."""
        external = self.externals.get(table.name)
        if external is not None:
            self.opened.append(OpenedSource(table.name, True))
            return external.open(self.spark, table.name, table)
        context = self._context(table, table.name)
        source = self._source(table)
        self.opened.append(OpenedSource(table.name, True, source))
        return source.batch(context)

    def history(self, table: Table, name: str, checkpoint: Path) -> tuple[History, str | None]:
        """What a job has read of a table that it opened under a name, up to the last batch that is done, and what of that is gone. StateError `no-past`."""
        external = self.externals.get(table.name)
        if external is not None and external.past is not None:
            return external.past(self.spark, table), None
        if external is not None:
            what = f"table `{table.name}`: what was read of a DataFrame cannot be read again"
            raise StateError.of("no-past", what, help="--on-change accept starts new aggregates now")
        context = self._context(table, self._spark_name(table, name))
        source = self._source(table)
        self.opened.append(OpenedSource(context.name, True, source))
        position = position_of(checkpoint, context.name)
        return source.history(context, position), None if position is None else source.lost(position)

    def scanned(self, node: Scan) -> DataFrame:
        """Opens what the table of a scan holds now."""
        return self.batch(node.table)

    def reads_anew(self, table: Table) -> bool:
        """Whether a join with the table reads it in every batch anew: an option of its connector says so. The caller's DataFrames are read as Spark reads them."""
        return table.name in self.externals or self._source(table).read_anew()

    @staticmethod
    def _source(table: Table) -> Source:
        found = connector_of(table)
        found.check(table, Role.SOURCE)
        return found.source(table)

    def _context(self, table: Table, name: str) -> SourceContext:
        return SourceContext(
            spark=self.spark,
            name=name,
            base_folder=self.base_folder,
            table=table,
            settings=self.settings,
            job_folder=self.job_folder,
            origin=self.origin,
            before=self._before(name),
        )

    def _spark_name(self, table: Table, name: str) -> str:
        return self.spark_names.get(name) or name_by_options(table, name, self.base_folder)

    def _before(self, name: str) -> Path | None:
        """The source's folder in the newest checkpoint of those that has one."""
        found = (checkpoint / "sources" / name for checkpoint in reversed(self.earlier))
        return next((each for each in found if each.is_dir()), None)


def name_by_options(table: Table, name: str, base_folder: Path) -> str:
    """Return the name in Spark's checkpoint that is made of a table's options as they are spelled: without a job, and in jobs of before locations were noted."""
    options = dict(table.options)
    parts = [f"{key}={options[key]}" for key in _IDENTITY if key in options]
    if "path" in options:
        parts.append(str(base_folder.resolve()))
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"{name}_{digest[:8]}"
