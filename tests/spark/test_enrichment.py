"""Streams joined with lookup tables: files that are kept as they were, and DataFrames of the
caller.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from broker import KafkaBroker
from postgres import Database
from spark.running import Run, runner

from everfold import TableEnvironment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRIPT = """
CREATE TABLE sales (item STRING, amount INT) WITH ('connector' = 'filesystem', 'path' = 'sales', 'format' = 'json');
CREATE TABLE prices (item STRING, price INT) WITH ('connector' = 'filesystem', 'path' = 'prices', 'format' = 'csv');
CREATE TABLE paid (item STRING, paid INT) WITH ('connector' = 'filesystem', 'path' = 'paid', 'format' = 'json');
INSERT INTO paid SELECT s.item, amount * price FROM sales AS s LEFT JOIN prices AS p ON s.item = p.item;
"""


@pytest.fixture
def run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run `everfold run job.sql` in the test's folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sql").write_text(SCRIPT)
    for name in ("sales", "prices"):
        (tmp_path / name).mkdir()
    return runner(spark, monkeypatch, capsys)


def sell(folder: Path, name: str, *sales: tuple[str, int]) -> None:
    (folder / "sales" / name).write_text("".join(json.dumps({"item": item, "amount": n}) + "\n" for item, n in sales))


def read_paid(folder: Path) -> list[tuple[str, int | None]]:
    files = [file for file in (folder / "paid").rglob("*.json") if not file.name.startswith((".", "_"))]
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted(((row["item"], row.get("paid")) for row in rows), key=repr)


def test_a_bounded_table_is_read_when_the_job_starts(run: Run, tmp_path: Path) -> None:
    (tmp_path / "prices" / "1").write_text("apple,3\n")
    sell(tmp_path, "1", ("apple", 2), ("pear", 1))
    assert run().code == 0
    (tmp_path / "prices" / "1").unlink()
    (tmp_path / "prices" / "2").write_text("apple,4\npear,5\n")
    sell(tmp_path, "2", ("apple", 1), ("pear", 1))
    assert run().code == 0
    assert read_paid(tmp_path) == [("apple", 4), ("apple", 6), ("pear", 5), ("pear", None)]


def test_an_interrupted_batch_rereads_the_same_lookup_table(run: Run, tmp_path: Path) -> None:
    (tmp_path / "prices" / "1").write_text("apple,3\n")
    sell(tmp_path, "1", ("apple", 2))
    assert run().code == 0
    job = tmp_path / ".everfold" / "job"
    # As after a crash: the batch has begun, and is neither committed nor written.
    commits = job / "checkpoints" / "0" / "commits"
    for file in [*commits.glob("0"), *commits.glob(".0.crc")]:
        file.unlink()
    shutil.rmtree(tmp_path / "paid")
    shutil.rmtree(job / "sinks")
    (tmp_path / "prices" / "1").write_text("apple,4\n")
    os.utime(tmp_path / "prices" / "1", (1_000_000_000, 1_000_000_000))
    assert run().code == 0
    assert read_paid(tmp_path) == [("apple", 6)]


def test_a_bad_record_in_a_lookup_table_is_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "prices" / "1").write_text("apple,3\npear,much\n")
    sell(tmp_path, "1", ("apple", 2))
    failed = run()
    assert failed.code == 1
    assert failed.first == "error[bad-record]: `prices/1` line 2: field `price` is not an INT: `much`"
    assert read_paid(tmp_path) == []


def test_skipped_rows_of_a_lookup_table_are_counted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "prices" / "1").write_text("apple,3\npear,much\n")
    sell(tmp_path, "1", ("apple", 2))
    script = SCRIPT.replace("'format' = 'csv'", "'format' = 'csv', 'csv.ignore-parse-errors' = 'true'")
    (tmp_path / "job.sql").write_text(script)
    done = run()
    assert done.code == 0, done.err
    assert "1 row dropped: not readable in full" in done.err
    assert read_paid(tmp_path) == [("apple", 6)]


def test_a_streaming_frame_of_the_caller_is_joined_with_a_batch_frame(spark: SparkSession, tmp_path: Path) -> None:
    environment = TableEnvironment(spark=spark)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"item": "apple", "n": 2}\n{"item": "fig", "n": 1}\n')
    sales = spark.readStream.schema("item STRING, n INT").json(str(tmp_path / "in"))
    environment.create_temporary_view("sales", sales)
    environment.create_temporary_view("prices", spark.createDataFrame([("apple", 3)], "item STRING, price INT"))
    joined = environment.sql_query(
        "SELECT s.item, n * price AS paid FROM sales AS s LEFT JOIN prices AS p ON s.item = p.item"
    ).to_spark()
    assert joined.isStreaming
    writer = joined.writeStream.format("memory").queryName("joined").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.start()
    try:
        query.processAllAvailable()
        rows = joined.sparkSession.table("joined").collect()
    finally:
        query.stop()
    assert sorted(tuple(row) for row in rows) == [("apple", 6), ("fig", None)]


@pytest.mark.parametrize(("cache", "is_reread"), [("NONE", True), ("FULL", False)])
def test_a_table_of_postgres_is_read_in_every_batch_or_once(
    run: Run, tmp_path: Path, database: Database, cache: str, *, is_reread: bool
) -> None:
    database.run("CREATE SEQUENCE reads")
    database.run("CREATE VIEW prices AS SELECT 'apple'::text AS item, nextval('reads')::int AS price")
    options = ", ".join(f"'{key}' = '{value}'" for key, value in database.options("prices").items())
    script = SCRIPT.replace("'path' = 'sales'", "'path' = 'sales', 'scan.max-files-per-batch' = '1'")
    script = script.replace(
        "'connector' = 'filesystem', 'path' = 'prices', 'format' = 'csv'", f"{options}, 'lookup.cache' = '{cache}'"
    )
    (tmp_path / "job.sql").write_text(script)
    for at in range(2):
        sell(tmp_path, str(at), ("apple", 1))
        os.utime(tmp_path / "sales" / str(at), (1_000_000_000 + at, 1_000_000_000 + at))
    done = run()
    assert done.code == 0, done.err
    (_, one), (_, other) = read_paid(tmp_path)
    assert (one != other) is is_reread


def test_changes_are_not_joined_with_a_table_that_is_reread(run: Run, tmp_path: Path, database: Database) -> None:
    options = ", ".join(f"'{key}' = '{value}'" for key, value in database.options("prices").items())
    script = SCRIPT.replace("'connector' = 'filesystem', 'path' = 'prices', 'format' = 'csv'", options)
    script = script.replace("FROM sales", "FROM (SELECT item, SUM(amount) AS amount FROM sales GROUP BY item)")
    (tmp_path / "job.sql").write_text(script)
    refused = run()
    assert refused.code == 2
    assert refused.err.startswith("error[changes-beside-changes]: updating rows are joined with `prices`")
    assert "set 'lookup.cache' = 'FULL'" in refused.err


def test_a_topic_that_is_read_to_its_end_is_a_bounded_table(
    run: Run, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    kafka_broker.create_topic("prices-to-the-end", 1)
    kafka_broker.produce("prices-to-the-end", [(None, '{"item": "apple", "price": 3}')])
    options = {
        "connector": "kafka", "topic": "prices-to-the-end", "properties.bootstrap.servers": kafka_broker.bootstrap_servers,
        "format": "json", "scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset",
    }  # fmt: skip
    with_options = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    (tmp_path / "job.sql").write_text(
        SCRIPT.replace("'connector' = 'filesystem', 'path' = 'prices', 'format' = 'csv'", with_options)
    )
    sell(tmp_path, "1", ("apple", 2))
    done = run()
    assert done.code == 0, done.err
    assert read_paid(tmp_path) == [("apple", 6)]
