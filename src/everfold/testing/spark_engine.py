"""Case files on Spark: the rows of a case become small Parquet files, one a batch and table, that a real job reads."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from everfold.connectors.contract import History
from everfold.connectors.null_rowtime import PLACE
from everfold.jobs.change import OnChange
from everfold.jobs.engine import Engine
from everfold.jobs.sources import External
from everfold.plan.changelog import KIND, ChangelogMode, RowKind
from everfold.plan.nodes import Collect, Table, streamed, tables_of, walk_plan
from everfold.testing.part import Part, Ran
from everfold.types import physical

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(slots=True)
class SparkEngine:
    """Runs bound queries on Spark, all in one session: the caller's or the active one, else one of its own.

    master: as Spark takes it, for a session of its own.
    """

    session: SparkSession | None = None
    name: Literal["spark"] = "spark"
    master: str = "local[2]"
    _work: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="everfold-cases-")))
    _engine: Engine | None = None
    _jobs: int = 0

    def stream(self, parts: Sequence[Part]) -> Ran:
        """Runs a stream; after each part but the last the job is suspended and started again from its state."""
        job, feed = self._folders()
        tables: list[pa.Table] = []
        late_rows = 0
        number = 0
        _drop(feed, 0, parts[0].beside)
        for part in parts:
            done = number
            for batch in part.batches:
                _drop(feed, number, _whole(batch, part.root))
                number += 1
            received: list[pa.Table] = []
            finished = self._engine_for(part.root, feed, done=done).run(
                [part.root],
                settings=part.settings,
                base_folder=feed,
                state_dir=job,
                suspend=part is not parts[-1],
                receive=received.append,
                decide=lambda _, part=part: OnChange(part.on_change),  # type: ignore[misc]
            )
            late_rows = finished.late_rows
            tables.append(_joined(received, part.root))
        shutil.rmtree(job, ignore_errors=True)
        shutil.rmtree(feed, ignore_errors=True)
        return Ran(tuple(tables), late_rows)

    def batch(self, part: Part) -> pa.Table:
        """Runs the query once over all rows of the part's batches."""
        job, feed = self._folders()
        for number, batch in enumerate(part.batches):
            _drop(feed, number, _whole(batch, part.root))
        received: list[pa.Table] = []
        self._engine_for(part.root, feed, streaming=False).run(
            [part.root], settings=part.settings, base_folder=feed, state_dir=job, receive=received.append
        )
        shutil.rmtree(job, ignore_errors=True)
        shutil.rmtree(feed, ignore_errors=True)
        return _joined(received, part.root)

    def close(self) -> None:
        """Ends the session."""
        if self._engine is not None:
            self._engine.close()
        shutil.rmtree(self._work, ignore_errors=True)

    def _folders(self) -> tuple[Path, Path]:
        self._jobs += 1
        job, feed = self._work / f"job{self._jobs}", self._work / f"feed{self._jobs}"
        feed.mkdir(parents=True)
        return job, feed

    def _engine_for(self, root: Collect, feed: Path, *, streaming: bool = True, done: int = 0) -> Engine:
        """done: how many batches the job has read."""
        if self._engine is None:
            conf = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
            from pyspark.sql import SparkSession

            active = self.session or SparkSession.getActiveSession()
            self._engine = Engine(master=self.master, conf=conf, log_file=self._work / "spark.log", session=active)
        flowing = {table.name for table in tables_of(streamed(root.input))}
        tables = {table.name for table in tables_of(walk_plan(root.input))}
        readers = {name: _Reader(feed / name, streaming and name in flowing, done) for name in tables}
        self._engine.externals = {name: External(each, True, each.past) for name, each in readers.items()}
        return self._engine


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the folder that a table is fed from, of which so many batches are done."""

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

    def past(self, spark: SparkSession, table: Table) -> History:
        """The batches that are done."""
        files = [str(path) for number in range(self.done) if (path := _file(self.folder, number)).exists()]
        frame = spark.read.schema(self._schema(table)).parquet(*files)
        frame = self._with_kinds(frame.selectExpr("*", f"_metadata.file_name AS {PLACE}"), table)
        return History(frame, {Path(path).name: at for at, path in enumerate(files)})

    @staticmethod
    def _schema(table: Table) -> str:
        columns = [f"{physical(at)} {column.type.spark}" for at, column in enumerate(table.columns)]
        return ", ".join([*columns, f"{KIND} TINYINT"] if _is_changing(table) else columns)

    @staticmethod
    def _with_kinds(frame: DataFrame, table: Table) -> DataFrame:
        """Rows that do not say what they are are new ones."""
        from pyspark.sql.functions import expr

        inserts = f"CAST({RowKind.INSERT.value} AS TINYINT)"
        return frame.withColumn(KIND, expr(f"coalesce({KIND}, {inserts})")) if _is_changing(table) else frame


def _is_changing(table: Table) -> bool:
    return table.changelog is not ChangelogMode.INSERT_ONLY


def _file(folder: Path, number: int) -> Path:
    """Where a batch of a table lies."""
    return folder / f"{number:05}.parquet"


def _whole(batch: Mapping[str, pa.Table], root: Collect) -> dict[str, pa.Table]:
    """The rows of a batch, with no rows for the tables that it leaves out."""
    empty = {table.name: table.schema.arrow.empty_table() for table in tables_of(streamed(root.input))}
    return empty | dict(batch)


def _drop(feed: Path, number: int, batch: Mapping[str, pa.Table]) -> None:
    """Writes a batch: one file for each table."""
    import os
    import time

    import pyarrow.parquet as pq

    for name, rows in batch.items():
        folder = feed / name
        folder.mkdir(parents=True, exist_ok=True)
        place, hidden = _file(folder, number), folder / f".{number:05}"
        pq.write_table(rows, hidden)
        # Spark reads files in the order of their times.
        at = time.time() - 86_400 + number
        os.utime(hidden, (at, at))
        os.rename(hidden, place)


def _joined(received: Sequence[pa.Table], root: Collect) -> pa.Table:
    import pyarrow as pa

    none = root.schema.arrow.append(pa.field(KIND, pa.int8())).empty_table()
    return pa.concat_tables(list(received) or [none])
