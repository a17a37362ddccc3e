"""Jobs whose directory and tables are in S3 or HDFS: on a cluster without a shared folder, and
through changes, rollbacks and other numbers of partitions.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import flights
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from standalone import CLUSTER_CONF, StandaloneCluster
from totals import COUNTS, ORDERS, SUMS, Folder, compute_totals, read_lines
from warm_process import WarmProcess

pytestmark = [pytest.mark.slow, pytest.mark.spark]
DAYS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[StandaloneCluster]:
    with StandaloneCluster() as running:
        yield running


DELTA = """
CREATE TABLE raw (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '{root}/orders', 'format' = 'json');
CREATE TABLE orders (k STRING, v INT) WITH ('connector' = 'delta', 'table-path' = '{root}/delta/orders');
CREATE TABLE totals (k STRING, n BIGINT, s INT, PRIMARY KEY (k) NOT ENFORCED)
WITH ('connector' = 'delta', 'table-path' = '{root}/delta/totals');
"""


def test_delta_tables_on_a_cluster(folder: Folder, cluster: StandaloneCluster) -> None:
    """Executors load Delta, and write and read its tables in the store."""
    for number in (0, 1):
        folder.add_orders(number)
    tables = DELTA.format(root=folder.uri)
    master = ["--master", cluster.url]
    append = f"{tables}INSERT INTO orders SELECT k, v FROM raw;"
    folder.run("run", "-e", append, "--state", f"{folder.job}/1", *master, conf=CLUSTER_CONF)
    merge = f"{tables}INSERT INTO totals SELECT k, COUNT(*), SUM(v) FROM orders GROUP BY k;"
    folder.run("run", "-e", merge, "--state", f"{folder.job}/2", *master, conf=CLUSTER_CONF)
    read = folder.run("run", "-e", f"{tables}SELECT * FROM totals;", "--batch", "--format", "json")
    found = sorted(map(json.loads, read.stdout.splitlines()), key=lambda row: json.dumps(row, sort_keys=True))
    assert found == compute_totals(0, 1, sums=True)


def test_flights_on_a_cluster(folder: Folder, cluster: StandaloneCluster, tmp_path: Path) -> None:
    """Source, sink and job directory are in the store; the workers share nothing else."""
    flights.module("make_data").main(["--out", str(tmp_path / "data"), "--days", str(DAYS), "--files", "4"])
    for file in (tmp_path / "data").iterdir():
        (folder.location / "data" / file.name).write(file.read_bytes())
    script = flights.script("cumulate_day_insert")
    script = script.replace("'data'", f"'{folder.uri}/data'").replace("'out/", f"'{folder.uri}/out/")
    (tmp_path / "job.sql").write_text(script)
    started = ["run", str(tmp_path / "job.sql"), "--state", folder.job, "--master", cluster.url]
    folder.run(*started, conf=CLUSTER_CONF)
    rows = [json.loads(line) for line in read_lines(folder.location / "out" / "cumulate_day")]
    times = [(datetime.fromisoformat(row["window_start"]), datetime.fromisoformat(row["window_end"])) for row in rows]
    found = sorted(((*at, *list(row.values())[2:]) for at, row in zip(times, rows, strict=True)), key=repr)
    assert found == flights.answers("cumulate_day", DAYS)


def test_parquet_files_of_different_types(folder: Folder, warm_process: WarmProcess) -> None:
    folder.process = warm_process
    moment = datetime(2026, 1, 1, 12)
    for number, (unit, of) in enumerate((("ns", pa.int16()), ("us", pa.int32()))):
        file = io.BytesIO()
        rows = {"n": pa.array([10**4 * 10**number], of), "at": pa.array([moment], pa.timestamp(unit))}
        pq.write_table(pa.table(rows), file)
        (folder.location / "in" / f"{number}.parquet").write(file.getvalue())
    script = f"""CREATE TABLE t (n BIGINT, `at` TIMESTAMP(3))
    WITH ('connector' = 'filesystem', 'path' = '{folder.uri}/in', 'format' = 'parquet');
    SELECT SUM(n) AS s, MIN(`at`) AS low, MAX(`at`) AS high FROM t;"""
    command = ["run", "-e", script, "--master", "local[2]", "--format", "json"]
    (line,) = folder.run(*command, "--batch").stdout.splitlines()
    assert json.loads(line)["s"] == 110_000
    assert {datetime.fromisoformat(json.loads(line)[name]) for name in ("low", "high")} == {moment}
    streamed = folder.try_to_run(*command)
    assert streamed.returncode == 1
    assert "column `at` of `1.parquet` is not in nanoseconds" in streamed.stderr


def test_a_change_and_a_rollback(folder: Folder, warm_process: WarmProcess) -> None:
    folder.process = warm_process
    folder.add_orders(0)
    folder.run_totals(COUNTS)
    assert folder.read_totals() == compute_totals(0, sums=False)
    folder.add_orders(1)
    folder.run_totals(SUMS, "--on-change", "backfill")
    rows = folder.read_totals()
    expected = {row["k"]: row for row in compute_totals(0, 1, sums=True)}
    touched = {k for k, _ in ORDERS[1]}
    assert [row for row in rows if row["k"] in touched] == [expected[k] for k in sorted(touched)]
    state = folder.run("state", folder.job, "--format", "json").stdout
    assert json.loads(state)["version"] == 1
    history = folder.run("history", folder.job, "--format", "json").stdout
    assert [each["version"] for each in json.loads(history)] == [0, 1]
    folder.run("rollback", folder.job, "0")
    folder.run_totals(COUNTS)
    assert folder.read_totals() == compute_totals(0, 1, sums=False)
    folder.add_orders(2)
    folder.run_totals(COUNTS)
    assert folder.read_totals() == compute_totals(0, 1, 2, sums=False)


def test_a_rescaled_job_continues(folder: Folder, warm_process: WarmProcess) -> None:
    folder.process = warm_process
    folder.add_orders(0)
    folder.run_totals(COUNTS)
    assert "version 1 has 8 partitions" in folder.run("rescale", folder.job, "8", "--master", "local[2]").stdout
    folder.add_orders(1)
    folder.run_totals(COUNTS)
    assert folder.read_totals() == compute_totals(0, 1, sums=False)
    folder.run("rollback", folder.job, "0")
    folder.run_totals(COUNTS)
    assert folder.read_totals() == compute_totals(0, 1, sums=False)
