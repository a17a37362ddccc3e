"""What a job on Spark reports of its batches: in the history of its directory, and as metrics."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from broker import KafkaBroker
from spark.running import Run
from spark.test_running_jobs import wait_until
from unit.metrics.test_server import names_in_deploy, scrape

from everfold import TableEnvironment
from everfold.jobs.progress import Progress
from everfold.jobs.status import read_status
from everfold.metrics.server import MetricsServer
from everfold.storage import local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = """
CREATE TABLE a (k INT, v INT, at TIMESTAMP(3), WATERMARK FOR at AS at)
WITH ('connector' = 'filesystem', 'path' = 'a', 'format' = 'json'{watched});
CREATE TABLE b (k INT, v INT, at TIMESTAMP(3), WATERMARK FOR at AS at)
WITH ('connector' = 'filesystem', 'path' = 'b', 'format' = 'json'{watched});
"""
WATCHED = ", 'source.monitor-interval' = '100 ms'"


def put(folder: Path, name: str, *rows: tuple[int, int, str | None]) -> None:
    folder.mkdir(exist_ok=True)
    lines = (json.dumps({"k": k, "v": v, "at": at and f"2026-01-01 00:00:{at}"}) + "\n" for k, v, at in rows)
    (folder / f".{name}").write_text("".join(lines))
    (folder / f".{name}").rename(folder / name)


def last_progress(folder: Path) -> Progress:
    progress = read_status(local(folder)).progress
    assert progress is not None
    return progress


def test_a_job_with_two_tables(run: Run, tmp_path: Path) -> None:
    put(tmp_path / "a", "1.json", (1, 10, "01"), (1, 20, "02"), (2, 5, "02"))
    put(tmp_path / "b", "1.json", (1, 1, "31"), (3, 1, None))
    (tmp_path / "job.sql").write_text(
        TABLES.format(watched="")
        + """SET 'everfold.null-rowtime' = 'drop';
        CREATE TABLE o (k INT, total INT) WITH ('connector' = 'blackhole');
        INSERT INTO o SELECT k, SUM(v) FROM (SELECT * FROM a UNION ALL SELECT * FROM b) GROUP BY k;"""
    )
    done = run("--state", "job")
    assert done.code == 0, done.err
    status = read_status(local(tmp_path / "job"))
    assert (status.state, status.name, status.version, status.epoch) == ("finished", "o", 0, 0)
    assert status.run is not None
    assert status.run.operators == {"w1": "GROUP BY k"}
    assert set(status.run.column_since_ms) == {"o.k", "o.total"}
    progress = last_progress(tmp_path / "job")
    assert {each.table: each.rows for each in progress.sources} == {"a": 3, "b": 2}
    assert progress.skipped == {"no time, the time attribute is NULL": 1}
    (operator,) = progress.operators
    (sink,) = progress.sinks
    assert operator.state_rows == 2
    assert operator.state_bytes is not None
    assert operator.state_bytes > operator.aggregate_bytes["SUM(v)"] > 0
    assert sink.rows == operator.rows_out
    assert progress.phases_ms["addBatch"] <= progress.phases_ms["triggerExecution"]
    assert progress.started_ms < progress.ended_ms


def test_retractions_and_late_rows(run: Run, tmp_path: Path) -> None:
    put(tmp_path / "a", "1.json", (1, 10, "01"), (1, 20, "12"))
    put(tmp_path / "a", "2.json", (1, 30, "02"), (1, 5, "13"))
    (tmp_path / "job.sql").write_text(
        TABLES.format(watched=", 'scan.max-files-per-batch' = '1'")
        + """CREATE TABLE w (n BIGINT) WITH ('connector' = 'blackhole');
        CREATE TABLE g (k INT, total INT) WITH ('connector' = 'blackhole');
        EXECUTE STATEMENT SET BEGIN
        INSERT INTO w SELECT COUNT(*) FROM TUMBLE(TABLE a, DESCRIPTOR(at), INTERVAL '10' SECOND)
        GROUP BY window_start, window_end;
        INSERT INTO g SELECT k, SUM(v) FROM a GROUP BY k; END;"""
    )
    done = run("--state", "job")
    assert done.code == 0, done.err
    progress = last_progress(tmp_path / "job")
    by_name = {each.name: each for each in progress.operators}
    windows, groups = by_name["w1"], by_name["w2"]
    assert (windows.late_rows, windows.rows_out, windows.retractions) == (1, 2, 0)
    assert windows.splits.keys() == {"a"}
    assert (groups.rows_out, groups.retractions) == (3, 1)  # +I, then -U and +U
    assert {each.table: each.rows for each in progress.sinks} == {"w": 2, "g": 3}


@pytest.mark.parametrize("mode", ["streaming", pytest.param("batch", marks=pytest.mark.slow)])
def test_a_blackhole_counts_rows_that_spark_computes(run: Run, tmp_path: Path, mode: str) -> None:
    put(tmp_path / "a", "1.json", (1, 10, "01"), (2, 20, "02"), (3, 5, "02"))
    (tmp_path / "job.sql").write_text(
        f"SET 'execution.runtime-mode' = '{mode}';"
        + TABLES.format(watched="")
        + """CREATE TABLE o (k INT) WITH ('connector' = 'blackhole');
        INSERT INTO o SELECT k FROM a WHERE v > 5;"""
    )
    done = run("--state", "job")
    assert done.code == 0, done.err
    assert re.search(r"^o: finished; .*, 2 rows out$", done.err, re.M), done.err


def test_metrics_of_a_running_job(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "a", "1.json", (1, 10, "01"), (1, 20, "02"))
    environment = TableEnvironment(spark, base_folder=tmp_path, metrics_port=0)
    for statement in filter(str.strip, TABLES.format(watched=WATCHED).split(";")):
        environment.execute_sql(statement)
    environment.execute_sql("CREATE TABLE o (k INT, total INT) WITH ('connector' = 'blackhole')")
    job = environment.execute_sql("INSERT INTO o SELECT k, SUM(v) FROM a GROUP BY k", wait=False)
    server = environment._metrics
    assert server is not None
    wait_until(lambda: job.status().progress is not None)
    status = read_status(local(tmp_path / ".everfold" / "o"))
    assert (status.state, status.is_running) == ("running", True)
    assert read_url(server, "/readyz") == "ok\n"
    found = scrape(server)
    # There is no topic, and no cluster.
    missing = {"everfold_source_lag_rows", "everfold_executor_peak_memory_bytes"}
    assert names_in_deploy() - found.keys() == missing
    assert found["everfold_rows_in_total"] == [('job_name="o",source="a"', 2)]
    assert found["everfold_rows_out_total"] == [('job_name="o",sink="o"', 1)]
    assert found["everfold_jvm_heap_limit_bytes"][0][1] > found["everfold_jvm_heap_bytes"][0][1] > 0
    memory = dict(found["everfold_memory_bytes"])
    assert set(memory) == {'process="driver"', 'process="jvm"', 'process="workers"'}
    assert min(memory.values()) > 1 << 20
    environment.close()
    assert read_status(local(tmp_path / ".everfold" / "o")).state == "stopped"


def read_url(server: MetricsServer, path: str) -> str:
    with urllib.request.urlopen(server.url + path, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.slow
def test_a_failure_is_recorded(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.json").write_text("nothing\n")
    (tmp_path / "job.sql").write_text(
        TABLES.format(watched="")
        + "CREATE TABLE o (k INT) WITH ('connector' = 'blackhole'); INSERT INTO o SELECT k FROM a;"
    )
    done = run("--state", "job")
    assert done.code == 1
    status = read_status(local(tmp_path / "job"))
    assert status.state == "failed"
    assert status.end is not None
    assert status.end.error is not None
    assert f"error[{status.end.error}]: {status.end.message}" in done.err


@pytest.mark.slow
def test_the_lag_of_a_topic(run: Run, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    kafka_broker.create_topic("lagging", partitions=2)
    kafka_broker.produce("lagging", [(None, json.dumps({"k": each}), each % 2) for each in range(50)])
    (tmp_path / "job.sql").write_text(
        f"""CREATE TABLE t (k INT) WITH ('connector' = 'kafka', 'topic' = 'lagging',
        'properties.bootstrap.servers' = '{kafka_broker.bootstrap_servers}', 'scan.startup.mode' = 'earliest-offset',
        'scan.bounded.mode' = 'latest-offset', 'scan.max-records-per-batch' = '20', 'format' = 'json');
        CREATE TABLE o (n BIGINT) WITH ('connector' = 'blackhole');
        INSERT INTO o SELECT COUNT(*) FROM t;"""
    )
    done = run("--state", "job")
    assert done.code == 0, done.err
    batches = read_status(local(tmp_path / "job")).batches
    lags = [each.sources[0].lag or {} for each in batches]
    assert all(each.keys() == {"t/0", "t/1"} for each in lags)
    assert [sum(each.values()) for each in lags] == [30, 10, 0]
    assert batches[-1].sources[0].rows == 50
