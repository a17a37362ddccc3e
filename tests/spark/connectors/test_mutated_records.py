"""Damaged records in files of every format: Spark reads the rows of the memory engine, and counts what
is not readable in full.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from unit.connectors import mutations
from unit.connectors.tables import table
from unit.connectors.test_record_decoder import Records, plain

from everfold.connectors.contract import Role, Source, SourceContext
from everfold.connectors.validate import check_table
from everfold.plan.nodes import Table
from everfold.spark.batch_metrics import count_skipped_rows
from everfold.spark.session import create_session
from everfold.storage import local
from everfold.types import STRING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = 1
COUNT = 500
SETTINGS = {"csv": {"csv.null-literal": "n/a", "csv.allow-comments": "true"}}
Rows = list[list[Any]]
IN_LINES = ("json", "csv", "debezium-json", "canal-json")


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return create_session(spark, 2)


def open_source(of: Table) -> Source:
    return check_table(of, Role.SOURCE).source()


def read_on_spark(session: SparkSession, of: Table, folder: Path) -> list[dict[str, Any]]:
    context = SourceContext(spark=session, name="t_1", base_folder=folder, table=of, job_folder=local(folder / "job"))
    rows = open_source(of).batch(context).drop("__split", "__place", "__file").toArrow().to_pylist()
    return list(map(dict, rows))


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_LINES)
def test_records_of_files(session: SparkSession, name: str, tmp_path: Path) -> None:
    records = [record for record in mutations.records(name, COUNT, SEED) if b"\n" not in record]
    fields = mutations.fields_of(name)
    strict = Records(fields, name, **SETTINGS.get(name, {}))
    refused = {at for at, record in enumerate(records) if len(strict.one_by_one([record.rstrip(b"\r")])) == 2}
    for folder, ignore in (("all", "true"), ("sound", "false")):
        (tmp_path / folder).mkdir()
        for at, record in enumerate(records):
            if ignore == "true" or at not in refused:
                (tmp_path / folder / f"{at}").write_bytes(record)
        options = {"connector": "filesystem", "path": folder, "format": name, f"{name}.ignore-parse-errors": ignore}
        made = table("t", (), {"file": (STRING, "file.name")}, **dict(fields))
        of = made.with_options({**options, **SETTINGS.get(name, {})})
        with count_skipped_rows(session) as counts:
            found = group_by_file(read_on_spark(session, of, tmp_path))
        direct = group_by_file(row for piece in open_source(of).read_local(tmp_path) for row in piece.to_pylist())
        assert plain(found) == plain(direct)
        assert counts == ({"not readable in full": len(refused)} if ignore == "true" else {})


def group_by_file(rows: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for row in rows:
        name = row.pop(f"c{len([key for key in row if key.startswith('c')]) - 1}")
        found.setdefault(name, []).append(list(row.values()))
    return found


@pytest.mark.slow
def test_values_of_parquet(session: SparkSession, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = Random(SEED)
    fields = mutations.fields_of("json")
    columns = [
        pa.array([None if random.random() < 0.2 else mutations.value_for(of, random) for _ in range(COUNT)], of.arrow)
        for _, of in fields
    ]
    pq.write_table(pa.table(columns, names=[name for name, _ in fields]), tmp_path / "f.parquet")
    of = table("t", **dict(fields)).with_options({"connector": "filesystem", "path": "f.parquet", "format": "parquet"})
    direct = [row for piece in open_source(of).read_local(tmp_path) for row in piece.to_pylist()]
    assert plain(read_on_spark(session, of, tmp_path)) == plain(direct)
