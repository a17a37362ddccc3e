"""Time that passes without rows: processing-time windows fire, and a silent source does not
hold back the others.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from everfold.jobs.engine import Engine
from everfold.jobs.progress import Progress
from everfold.jobs.spec import JobSpec
from everfold.sql.planner import Session, Submit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 120


def put(folder: Path, name: str, *rows: dict[str, object]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f".{name}").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / f".{name}").rename(folder / name)


def last(script: str, **options: str) -> Submit:
    (*_, action) = Session(options=options).run(script)
    assert isinstance(action, Submit)
    return action


def run_until(
    spark: SparkSession,
    action: Submit,
    folder: Path,
    enough: Callable[[list[tuple[object, ...]]], bool],
    progress: Callable[[Progress], None] | None = None,
) -> list[tuple[object, ...]]:
    """Run an unbounded query in a thread until it has enough rows.

    Fail when that takes too long.
    """
    rows: list[tuple[object, ...]] = []
    deadline = time.monotonic() + PATIENCE_S

    def receive(table: pa.Table) -> None:
        rows.extend(zip(*(column.to_pylist() for column in table.columns[:-1]), strict=True))

    def stopping() -> bool:
        return enough(rows) or time.monotonic() > deadline

    failure: list[BaseException] = []

    def run() -> None:
        try:
            Engine(session=spark).run(
                JobSpec(
                    roots=action.roots,
                    settings=action.settings,
                    base_folder=folder,
                    receive=receive,
                    progress=progress,
                    stopping=stopping,
                )
            )
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failure, failure
    assert enough(rows), rows
    return rows


def test_a_processing_time_window_fires_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", {"n": 1}, {"n": 2})
    action = last(
        """
        CREATE TABLE t (n INT, proc AS PROCTIME())
        WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'source.monitor-interval' = '1 s');
        SELECT SUM(n), COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(proc), INTERVAL '2' SECOND) GROUP BY window_start, window_end
        """
    )
    assert run_until(spark, action, tmp_path, lambda rows: len(rows) > 0) == [(3, 2)]


def test_processing_time_sessions_grouped_by_another_key_fire_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", {"k": "a", "n": 1}, {"k": "b", "n": 1}, {"k": "b", "n": 2})
    action = last(
        """
        CREATE TABLE t (k STRING, n INT, proc AS PROCTIME())
        WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'source.monitor-interval' = '1 s');
        SELECT n, COUNT(*), COUNT(DISTINCT k)
        FROM SESSION(TABLE t PARTITION BY k, DESCRIPTOR(proc), INTERVAL '4' SECOND) GROUP BY window_start, window_end, n
        """
    )
    batches: list[int] = []
    rows = run_until(spark, action, tmp_path, lambda rows: len(rows) > 1, progress=lambda it: batches.append(it.batch))
    assert sorted(rows) == [(1, 2, 2), (2, 1, 1)]
    assert len(batches) <= 3, batches  # operators without rows need no ticks


def test_results_of_windows_count_in_windows_by_their_processing_time(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", *({"ts": f"2020-01-01 00:00:{second}", "n": 1} for second in ("01", "02", "15")))
    action = last(
        """
        CREATE TABLE t (ts TIMESTAMP(3), n INT, WATERMARK FOR ts AS ts)
        WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'source.monitor-interval' = '1 s');
        CREATE VIEW tens AS
        SELECT TUMBLE_END(ts, INTERVAL '10' SECOND) AS e, TUMBLE_PROCTIME(ts, INTERVAL '10' SECOND) AS p, SUM(n) AS n
        FROM t GROUP BY TUMBLE(ts, INTERVAL '10' SECOND);
        SELECT MAX(e), SUM(n), TUMBLE_END(p, INTERVAL '2' SECOND) <= LOCALTIMESTAMP
        FROM tens GROUP BY TUMBLE(p, INTERVAL '2' SECOND)
        """
    )
    assert run_until(spark, action, tmp_path, lambda rows: len(rows) > 0) == [(datetime(2020, 1, 1, 0, 0, 10), 2, True)]


def test_a_silent_source_is_ignored_after_the_idle_timeout(spark: SparkSession, tmp_path: Path) -> None:
    at = ["2020-01-01 00:00:10", "2020-01-01 00:03:00"]
    put(tmp_path / "loud", "1.json", *({"at": each, "n": 1} for each in at))
    (tmp_path / "silent").mkdir()
    tables = "".join(
        f"""CREATE TABLE {name} (`at` TIMESTAMP(3), n INT, WATERMARK FOR `at` AS `at`)
        WITH ('connector' = 'filesystem', 'path' = '{name}', 'format' = 'json', 'source.monitor-interval' = '1 s');"""
        for name in ("loud", "silent")
    )
    action = last(
        f"""{tables}
        CREATE VIEW both_tables AS SELECT * FROM loud UNION ALL SELECT * FROM silent;
        SELECT COUNT(*) FROM TUMBLE(TABLE both_tables, DESCRIPTOR(`at`), INTERVAL '1' MINUTE) GROUP BY window_start, window_end
        """,
        **{"table.exec.source.idle-timeout": "2 s"},
    )
    assert run_until(spark, action, tmp_path, lambda rows: len(rows) > 0) == [(1,)]
