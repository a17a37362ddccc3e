"""Parquet files through Spark: the rows and the errors of the memory engine, in streams, in batches,
and in the tasks of operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark.running import Run
from unit.connectors.parquet_files import BAD_FILES, OTHER_KINDS, PLAIN_KINDS, Kind, int96
from unit.connectors.tables import table

from everfold.connectors.contract import Role, SourceContext
from everfold.connectors.filesystem.file_rows import FileRows
from everfold.connectors.filesystem.source import FileSource
from everfold.connectors.validate import check_table
from everfold.errors import ConnectorError, EverfoldError
from everfold.jobs.failure import explain_failure
from everfold.plan.nodes import Table
from everfold.spark.session import create_session
from everfold.storage import local
from everfold.types import BIGINT, DataType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUICK = ("year-10000 in microseconds", "not UTF-8", "a decimal with too many digits", "overwritten")
"""Files that are tried in `make test`."""
SEED, MUTATIONS = 20261130, 60
HIDDEN = ("__split", "__place", "__file")
checkpoints = count()


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return create_session(spark, 2)


class Paths:
    """The ways in which a table is read. A result is its rows, sorted, or the text of the error."""

    def __init__(self, session: SparkSession, of: Table, folder: Path) -> None:
        source = check_table(of, Role.SOURCE).source()
        assert isinstance(source, FileSource)
        self.source, self.folder = source, folder
        self.context = SourceContext(
            spark=session, name="t_1", base_folder=folder, table=of, job_folder=local(folder / "job")
        )

    def read_all(self) -> dict[str, list[str] | str]:
        ways = {"memory": self.memory, "task": self.task, "batch": self.batch, "stream": self.stream}
        return {name: self.result(way) for name, way in ways.items()}

    def result(self, way: Callable[[], Iterable[pa.Table]]) -> list[str] | str:
        try:
            return sorted(repr(list(row.values())) for piece in way() for row in piece.to_pylist())
        except EverfoldError as error:
            return str(error)
        except Exception as error:
            return str(explain_failure(error, [self], self.folder / "spark.log"))

    def failure(self, error_text: str) -> ConnectorError | None:
        return self.source.parse_failure(error_text)

    def memory(self) -> Iterator[pa.Table]:
        return self.source.read_local(self.folder)

    def task(self) -> Iterator[pa.Table]:
        """Yield the rows as the task of an operator reads them."""
        root = self.source.resolve_path(self.folder)
        columns = range(len(self.source.table.columns))
        rows = FileRows(self.source.table, self.source.options, self.folder, str(root), columns, as_views=True)
        for path in sorted(root.iterdir()) if root.is_dir() else [root]:
            for piece in rows.read(path):
                yield piece.rows.cast(self.source.table.schema.arrow)

    def batch(self) -> list[pa.Table]:
        return [self.source.batch(self.context).drop(*HIDDEN).toArrow()]

    def stream(self) -> list[pa.Table]:
        pieces: list[pa.Table] = []

        def take(frame: DataFrame, _: int) -> None:
            pieces.append(frame.drop(*HIDDEN).toArrow())

        checkpoint = self.folder / f"checkpoint{next(checkpoints)}"
        query = (
            self.source.stream(self.context)
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return pieces


def paths_of(session: SparkSession, folder: Path, columns: Mapping[str, DataType]) -> Paths:
    return Paths(session, table("t", **columns).with_("filesystem", path="in", format="parquet"), folder)


def put(folder: Path, kinds: Mapping[str, Kind], **options: Any) -> dict[str, DataType]:
    """Write a file with a column of each kind, and return the columns of a table."""
    (folder / "in").mkdir(exist_ok=True)
    pq.write_table(
        pa.table({name: kind.values for name, kind in kinds.items()}), folder / "in" / "1.parquet", **options
    )
    return {name: kind.type for name, kind in kinds.items()}


def uses_catalyst(paths: Paths) -> bool:
    return "MapInArrow" not in paths.source.batch(paths.context)._jdf.queryExecution().toString()


def same_rows(paths: Paths, rows: int) -> bool:
    """Read a table in all ways, and return whether Catalyst decodes it in a batch."""
    results = paths.read_all()
    assert isinstance(results["memory"], list), results["memory"]
    assert len(results["memory"]) == rows
    assert {name: result for name, result in results.items() if result != results["memory"]} == {}
    return uses_catalyst(paths)


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False, "compression": "none", "data_page_version": "2.0"}])
def test_kinds_that_catalyst_decodes(session: SparkSession, tmp_path: Path, options: dict[str, Any]) -> None:
    columns = put(tmp_path, PLAIN_KINDS, row_group_size=3, **options)
    assert same_rows(paths_of(session, tmp_path, columns), 4)


def test_kinds_that_workers_decode(session: SparkSession, tmp_path: Path) -> None:
    columns = put(tmp_path, OTHER_KINDS, row_group_size=3)
    assert not same_rows(paths_of(session, tmp_path, columns), 4)


def test_each_other_kind_is_decoded_by_workers(session: SparkSession, tmp_path: Path) -> None:
    for name, kind in OTHER_KINDS.items():
        paths = paths_of(session, tmp_path, put(tmp_path, {name: kind}))
        assert not uses_catalyst(paths), name


def test_files_that_catalyst_would_read_otherwise(session: SparkSession, tmp_path: Path) -> None:
    """Old timestamps, files of Spark 2 and a codec, in one table with a plain file and empty ones."""
    folder = tmp_path / "in"
    folder.mkdir()
    times = PLAIN_KINDS["micros"].values
    plain = pa.table({"x": times})
    pq.write_table(plain, folder / "0.parquet")
    (folder / "1.parquet").write_bytes(int96((1_721_426, 1), (2_816_788, 999), (5_373_484, 86_399_999_999_999)))
    pq.write_table(plain.replace_schema_metadata({"org.apache.spark.version": "2.4.8"}), folder / "2.parquet")
    pq.write_table(plain.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}), folder / "3.parquet")
    pq.write_table(plain, folder / "4.parquet", compression="brotli")
    pq.write_table(pa.table({"x": pa.nulls(2)}), folder / "5.parquet")
    pq.ParquetWriter(folder / "6.parquet", plain.schema).close()
    assert not same_rows(paths_of(session, tmp_path, {"x": PLAIN_KINDS["micros"].type}), 4 * 4 + 3 + 2)


def test_folders_without_files_and_files_without_rows(session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    paths = paths_of(session, tmp_path, {"x": BIGINT})
    same_rows(paths, 0)
    pq.ParquetWriter(tmp_path / "in" / "1.parquet", pa.schema({"x": pa.int64()})).close()
    same_rows(paths, 0)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in BAD_FILES]
)
def test_errors_are_those_of_the_memory_engine(session: SparkSession, tmp_path: Path, name: str) -> None:
    bad = BAD_FILES[name]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a 1%.parquet").write_bytes(bad.content())
    results = paths_of(session, tmp_path, {"x": bad.type}).read_all()
    assert isinstance(results["memory"], str)
    assert bad.error in results["memory"]
    assert {way: result for way, result in results.items() if result != results["memory"]} == {}


def test_rows_of_a_stream_are_counted(run: Run, tmp_path: Path) -> None:
    """Spark itself counts the files."""
    put(tmp_path, {"x": PLAIN_KINDS["a_uint32"]})
    (tmp_path / "job.sql").write_text(
        "CREATE TABLE t (x BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet');\n"
        "CREATE TABLE o (x BIGINT) WITH ('connector' = 'blackhole');\n"
        "INSERT INTO o SELECT x FROM t;\n"
    )
    done = run("--state", "job")
    assert done.code == 0, done.err
    assert "4 rows" in done.err, done.err


@pytest.mark.slow
def test_mutated_files(session: SparkSession, tmp_path: Path) -> None:
    """No two ways return different rows; only Catalyst may refuse, or read, a file alone."""
    random = Random(SEED)
    kinds = {name: PLAIN_KINDS[name] for name in ("an_int32", "a_string", "micros", "a_decimal", "a_double")}
    columns = put(tmp_path, kinds, compression="none")
    path = tmp_path / "in" / "1.parquet"
    content = path.read_bytes()
    paths = paths_of(session, tmp_path, columns)
    for _ in range(MUTATIONS):
        mutated = bytearray(content)
        for _ in range(random.choice((1, 1, 1, 4))):
            mutated[random.randrange(4, len(content) - 8)] = random.choice((0, 1, 255, random.randrange(256)))
        path.write_bytes(mutated)
        results = paths.read_all()
        in_catalyst = results.pop("batch")
        assert all(result == results["memory"] for result in results.values()), results
        if isinstance(results["memory"], list) and isinstance(in_catalyst, list):
            assert in_catalyst == results["memory"]
