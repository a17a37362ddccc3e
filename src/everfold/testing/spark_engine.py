"""Case files on Spark: a job reads the rows from Parquet files, one per batch and table."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from everfold.connectors.contract import History
from everfold.connectors.null_rowtime import LOCATION
from everfold.connectors.worker_reader import HANDLE, Piece, WorkerInput, WorkerReader
from everfold.jobs.change import OnChange
from everfold.jobs.engine import Engine
from everfold.jobs.sources import External
from everfold.jobs.spec import JobSpec
from everfold.plan.changelog import KIND, ChangelogMode, RowKind
from everfold.plan.nodes import Collect, Table
from everfold.plan.walk import tables_of, walk_plan, walk_streamed
from everfold.testing.part import Part, StreamResult
from everfold.types import physical_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(slots=True)
class SparkEngine:
    """Runs bound queries on Spark, all in one session.

    session: default: the active session, or a new one. master: the Spark master of a new session.
    scan: `auto` or `catalyst`, as the option `everfold.scan`.
    """

    session: SparkSession | None = None
    name: Literal["spark"] = "spark"
    master: str = "local[2]"
    scan: str = "auto"
    _work: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="everfold-cases-")))
    _engine: Engine | None = None
    _jobs: int = 0

    def stream(self, parts: Sequence[Part]) -> StreamResult:
        """Run a stream; between its parts the job is suspended and restarted from its state."""
        job, feed = self._folders()
        tables: list[pa.Table] = []
        late_rows = 0
        number = 0
        _write_batch(feed, 0, parts[0].lookup_tables)
        for part in parts:
            done = number
            for batch in part.batches:
                _write_batch(feed, number, _fill_tables(batch, part.root))
                number += 1
            received: list[pa.Table] = []
            spec = JobSpec(
                roots=[part.root],
                settings=part.settings,
                base_folder=feed,
                state_dir=job,
                suspend=part is not parts[-1],
                receive=received.append,
                decide=lambda _, part=part: OnChange(part.on_change),  # type: ignore[misc]
            )
            finished = self._engine_for(part.root, feed, done=done).run(spec)
            late_rows = finished.late_rows
            tables.append(_concat(received, part.root))
        shutil.rmtree(job, ignore_errors=True)
        shutil.rmtree(feed, ignore_errors=True)
        return StreamResult(tuple(tables), late_rows)

    def batch(self, part: Part) -> pa.Table:
        """Run the query once over all rows of the part's batches."""
        job, feed = self._folders()
        for number, batch in enumerate(part.batches):
            _write_batch(feed, number, _fill_tables(batch, part.root))
        received: list[pa.Table] = []
        spec = JobSpec(
            roots=[part.root], settings=part.settings, base_folder=feed, state_dir=job, receive=received.append
        )
        self._engine_for(part.root, feed, streaming=False).run(spec)
        shutil.rmtree(job, ignore_errors=True)
        shutil.rmtree(feed, ignore_errors=True)
        return _concat(received, part.root)

    def close(self) -> None:
        """Stop the session."""
        if self._engine is not None:
            self._engine.close()
        shutil.rmtree(self._work, ignore_errors=True)

    def _folders(self) -> tuple[Path, Path]:
        self._jobs += 1
        job, feed = self._work / f"job{self._jobs}", self._work / f"feed{self._jobs}"
        feed.mkdir(parents=True)
        return job, feed

    def _engine_for(self, root: Collect, feed: Path, *, streaming: bool = True, done: int = 0) -> Engine:
        """Return the engine with the tables of a query as sources.

        done: the number of batches that the job has read.
        """
        if self._engine is None:
            conf = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
            from pyspark.sql import SparkSession

            active = self.session or SparkSession.getActiveSession()
            self._engine = Engine(master=self.master, conf=conf, log_file=self._work / "spark.log", session=active)
        streams = {table.name for table in tables_of(walk_streamed(root.input))}
        tables = {table.name for table in tables_of(walk_plan(root.input))}
        readers = {name: _Reader(feed / name, streaming and name in streams, done) for name in tables}
        self._engine.externals = {
            name: External(each, True, each.past, each.open_in_worker if self.scan == "auto" else None)
            for name, each in readers.items()
        }
        return self._engine


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the folder with the batches of a table; `done` batches have been read before."""

    folder: Path
    streaming: bool
    done: int

    def __call__(self, spark: SparkSession, name: str, table: Table) -> DataFrame:
        self.folder.mkdir(parents=True, exist_ok=True)
        schema = self._schema(table)
        if self.streaming:
            reader = spark.readStream.name(name).schema(schema).option("maxFilesPerTrigger", 1)
            return self._with_kinds(reader.parquet(str(self.folder)), table)
        return self._with_kinds(spark.read.schema(schema).parquet(str(self.folder)), table)

    def open_in_worker(self, spark: SparkSession, name: str, table: Table) -> WorkerInput:
        """Return the paths of the batches, whose rows workers read."""
        self.folder.mkdir(parents=True, exist_ok=True)
        reader = spark.readStream.name(name).format("binaryFile").option("maxFilesPerTrigger", 1)
        schema = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
        frame = reader.schema(schema).load(str(self.folder))
        frame = frame.selectExpr(f"CAST(_metadata.file_name AS BINARY) AS {HANDLE}")
        return WorkerInput(frame, _BatchReader(self.folder, table))

    def past(self, spark: SparkSession, table: Table) -> History:
        """Return the batches that have been read before."""
        files = [str(path) for number in range(self.done) if (path := _file(self.folder, number)).exists()]
        frame = spark.read.schema(self._schema(table)).parquet(*files)
        frame = self._with_kinds(frame.selectExpr("*", f"_metadata.file_name AS {LOCATION}"), table)
        return History(frame, {Path(path).name: at for at, path in enumerate(files)})

    @staticmethod
    def _schema(table: Table) -> str:
        columns = [f"{physical_name(at)} {column.type.spark}" for at, column in enumerate(table.columns)]
        return ", ".join([*columns, f"{KIND} TINYINT"] if _is_changing(table) else columns)

    @staticmethod
    def _with_kinds(frame: DataFrame, table: Table) -> DataFrame:
        """Set the row kind of rows without one to +I."""
        from pyspark.sql.functions import expr

        inserts = f"CAST({RowKind.INSERT.value} AS TINYINT)"
        return frame.withColumn(KIND, expr(f"coalesce({KIND}, {inserts})")) if _is_changing(table) else frame


@dataclass(frozen=True, slots=True)
class _BatchReader(WorkerReader):
    """Reads batches of a table in a worker."""

    folder: Path
    table: Table

    def read(self, handles: pa.BinaryArray) -> Iterator[Piece]:
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        schema = self.table.schema.arrow
        for name in map(bytes.decode, handles.to_pylist()):
            stored = pq.ParquetFile(self.folder / name).read()
            rows = stored.select(schema.names).cast(schema)
            if KIND in stored.column_names:
                rows = rows.append_column(KIND, pc.fill_null(stored.column(KIND), RowKind.INSERT.value))
            yield Piece(rows)


def _is_changing(table: Table) -> bool:
    return table.changelog is not ChangelogMode.INSERT_ONLY


def _file(folder: Path, number: int) -> Path:
    """Return the file of a batch of a table."""
    return folder / f"{number:05}.parquet"


def _fill_tables(batch: Mapping[str, pa.Table], root: Collect) -> dict[str, pa.Table]:
    """Return the rows of a batch, with empty tables for those that it omits."""
    empty = {table.name: table.schema.arrow.empty_table() for table in tables_of(walk_streamed(root.input))}
    return empty | dict(batch)


def _write_batch(feed: Path, number: int, batch: Mapping[str, pa.Table]) -> None:
    """Write a batch: one file for each table."""
    import os
    import time

    import pyarrow.parquet as pq

    for name, rows in batch.items():
        folder = feed / name
        folder.mkdir(parents=True, exist_ok=True)
        target, hidden = _file(folder, number), folder / f".{number:05}"
        pq.write_table(rows, hidden)
        # Spark reads files in the order of their modification times.
        at = time.time() - 86_400 + number
        os.utime(hidden, (at, at))
        os.rename(hidden, target)


def _concat(received: Sequence[pa.Table], root: Collect) -> pa.Table:
    import pyarrow as pa

    none = root.schema.arrow.append(pa.field(KIND, pa.int8())).empty_table()
    return pa.concat_tables(list(received) or [none])
