"""Kill a job with SIGKILL before and after each durable step of a batch and run it again.

The result is that of a job that never stopped.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import duckdb
import pytest
from faults.injection import Fault, Plan, start_job
from postgres import Database

pytestmark = [pytest.mark.slow, pytest.mark.spark]

FILES, ROWS_PER_FILE = 4, 60
BUCKETS = 8
SOURCE = """
CREATE TABLE click (clicked TIMESTAMP(3), page STRING, n INT, WATERMARK FOR clicked AS clicked)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'scan.max-files-per-batch' = '1');
"""
TO_FILES = f"""{SOURCE}
CREATE TABLE per_minute (window_end TIMESTAMP(3), page STRING, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'per_minute', 'format' = 'json');
CREATE TABLE per_half (window_end TIMESTAMP(3), clicks BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'per_half', 'format' = 'json');
EXECUTE STATEMENT SET BEGIN
INSERT INTO per_minute SELECT window_end, page, SUM(CAST(n AS BIGINT))
FROM TUMBLE(TABLE click, DESCRIPTOR(clicked), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, page;
INSERT INTO per_half SELECT window_end, COUNT(*)
FROM TUMBLE(TABLE click, DESCRIPTOR(clicked), INTERVAL '30' SECOND) GROUP BY window_start, window_end;
END;
"""
ROUTER = "everfold.jobs.foreach_batch:Router.__call__"
BUCKET = "everfold.spark.processor:BucketProcessor.handleInputRows"
PAGE = "everfold.spark.processor:MapStateStore.put"
PARTS = "everfold.connectors.filesystem.parts:_Part.write"
RECORD = "everfold.connectors.filesystem.sink:FileSink._create_record"
PUBLISH = "everfold.connectors.filesystem.sink:FileSink._publish"
MARK = "everfold.connectors.filesystem.sink:FileSink._write_mark"
MOVE = "everfold.connectors.filesystem.sink:FileSink._move"
COPY = "everfold.connectors.filesystem.sink:FileSink._copy_file"
SINK = "everfold.connectors.filesystem.sink:FileSink.finish_batch"
COMMITTED = "everfold.jobs.sources:OpenedSource.after_batch"
CONTROL = "everfold.jobs.control:Control._write"
MANIFEST = "everfold.storage.location:Location.create"
"""The first file that a new job creates is its manifest."""
STEPS = {
    "before the manifest is written": Fault(MANIFEST, "before"),
    "after the manifest is written": Fault(MANIFEST, "after"),
    "after the first offset log": Fault(ROUTER, "before", 1),
    "after the offset log": Fault(ROUTER, "before", 3),
    "in the first bucket of a task": Fault(BUCKET, "before", 4 * BUCKETS + 1),
    "after the state commit of one of two partitions": Fault(BUCKET, "before", 4 * BUCKETS + BUCKETS // 2 + 1),
    "between two pages of a bucket": Fault(PAGE, "after", 12),
    "while a task writes its part": Fault(PARTS, "before", 3),
    "before a sink records its files": Fault(RECORD, "before", 2),
    "after a sink has recorded its files": Fault(RECORD, "after", 2),
    "before the folder is marked": Fault(PUBLISH, "before", 2),
    "before the files get their names": Fault(MARK, "after", 2),
    "while a file has both of its names": Fault(COPY, "after", 3),
    "after the files got their names": Fault(MOVE, "after", 2),
    "after the record is marked done": Fault(PUBLISH, "after", 2),
    "after one of two sinks": Fault(SINK, "after", 5),
    "before the commit log": Fault(ROUTER, "after", 3),
    "after the commit log": Fault(COMMITTED, "before", 2),
    "before the end of input is recorded": Fault(CONTROL, "before", 1),
    "after the end of input is recorded": Fault(CONTROL, "after", 1),
    "after the offset log of the last batch": Fault(ROUTER, "before", FILES + 1),
    "before the commit log of the last batch": Fault(ROUTER, "after", FILES + 1),
}


def lay_out(folder: Path, script: str) -> None:
    (folder / "in").mkdir()
    for number in range(FILES):
        rows = (
            {"clicked": f"2020-01-01 10:{number:02}:{second:02}", "page": f"p{second % 3}", "n": second * number}
            for second in range(ROWS_PER_FILE)
        )
        file = folder / "in" / f"{number}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))
    (folder / "job.sql").write_text(script)


def kill_and_run_again(folder: Path, fault: Fault) -> None:
    """Run the job until it is killed at the fault, and then to its end.

    One task runs at a time, so that a partition has done the same work in each run.
    """
    plan = Plan(folder, fault.function)
    plan.set(fault)
    first = start_job(folder, plan, "--master", "local[1]")
    first.wait(timeout=300)
    assert plan.is_done, (folder / "log.txt").read_text()
    assert first.returncode == -9, (folder / "log.txt").read_text()
    plan.clear()
    assert start_job(folder, plan, "--master", "local[1]").wait(timeout=300) == 0, (folder / "log.txt").read_text()


def visible_rows(folder: Path, table: str) -> list[tuple[object, ...]]:
    """Return the rows of the files that are not hidden."""
    files = [file for file in (folder / table).rglob("*") if file.is_file() and not file.name.startswith((".", "_"))]
    rows = (json.loads(line) for file in files for line in file.read_text().splitlines())
    return sorted(tuple(str(value).replace("T", " ")[:19] for value in row.values()) for row in rows)


def count_clicks(folder: Path, query: str) -> list[tuple[object, ...]]:
    """Return DuckDB's answer to a query over the same files."""
    connection = duckdb.connect()
    connection.execute(
        f"CREATE VIEW click AS SELECT CAST(clicked AS TIMESTAMP) AS clicked, page, n FROM read_json('{folder}/in/*.json')"
    )
    return sorted(tuple(map(str, row)) for row in connection.execute(query).fetchall())


@pytest.mark.parametrize("step", STEPS)
def test_a_job_killed_at_each_step_recovers(step: str, tmp_path: Path) -> None:
    lay_out(tmp_path, TO_FILES)
    kill_and_run_again(tmp_path, STEPS[step])
    end = "strftime(time_bucket(INTERVAL {0}, clicked) + INTERVAL {0}, '%Y-%m-%d %H:%M:%S')"
    minutes = f"SELECT {end.format('1 MINUTE')}, page, SUM(n)::BIGINT FROM click GROUP BY ALL"
    halves = f"SELECT {end.format('30 SECOND')}, COUNT(*) FROM click GROUP BY ALL"
    assert visible_rows(tmp_path, "per_minute") == count_clicks(tmp_path, minutes)
    assert visible_rows(tmp_path, "per_half") == count_clicks(tmp_path, halves)


TO_DATABASE = """
CREATE TABLE totals (page STRING, clicks BIGINT, n BIGINT, PRIMARY KEY (page) NOT ENFORCED) WITH ({totals});
CREATE TABLE windows (window_end TIMESTAMP(3), clicks BIGINT) WITH ({windows});
EXECUTE STATEMENT SET BEGIN
INSERT INTO totals SELECT page, COUNT(*), SUM(CAST(n AS BIGINT)) FROM click GROUP BY page;
INSERT INTO windows SELECT window_end, COUNT(*)
FROM TUMBLE(TABLE click, DESCRIPTOR(clicked), INTERVAL '30' SECOND) GROUP BY window_start, window_end;
END;
"""
STAGE = "everfold.connectors.jdbc.staging:StageRows.__call__"
TAKE = "everfold.connectors.jdbc.merge:Merge.apply"
DATABASE_STEPS = {
    "before rows are staged": Fault(STAGE, "before", 5),
    "after rows are staged": Fault(TAKE, "before", 3),
    "after the transaction": Fault(TAKE, "after", 3),
}


@pytest.mark.parametrize("step", DATABASE_STEPS)
def test_a_database_job_killed_at_each_step_recovers(step: str, tmp_path: Path, database: Database) -> None:
    database.run("CREATE TABLE totals (page text PRIMARY KEY, clicks bigint, n bigint)")
    database.run("CREATE TABLE windows (window_end timestamp, clicks bigint)")
    options = {
        name: ", ".join(f"'{key}' = '{value}'" for key, value in database.options(name).items())
        for name in ("totals", "windows")
    }
    lay_out(tmp_path, SOURCE + TO_DATABASE.format(**options))
    kill_and_run_again(tmp_path, DATABASE_STEPS[step])
    found = [tuple(map(str, row)) for row in database.run("SELECT * FROM totals")]
    assert sorted(found) == count_clicks(tmp_path, "SELECT page, COUNT(*), SUM(n)::BIGINT FROM click GROUP BY page")
    end = "time_bucket(INTERVAL 30 SECOND, clicked) + INTERVAL 30 SECOND"
    found = [tuple(map(str, row)) for row in database.run("SELECT * FROM windows")]
    assert sorted(found) == count_clicks(tmp_path, f"SELECT {end}, COUNT(*) FROM click GROUP BY ALL")
