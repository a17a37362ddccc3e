"""Kill a job with SIGKILL while its query changes.

The job resumes with the old version or with the new one. No row is lost or counted twice, and
backfilled columns are correct.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from manifests import newest_manifest

FILES, ROWS_A_FILE = 12, 100
SCRIPT = """
CREATE TABLE click (clicked TIMESTAMP(3), page STRING, n INT, WATERMARK FOR clicked AS clicked - INTERVAL '30' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'scan.max-files-per-batch' = '2');
CREATE TABLE per_minute (window_start TIMESTAMP(3), page STRING, n BIGINT{columns})
WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO per_minute
SELECT window_start, page, SUM(CAST(n AS BIGINT)){calls}
FROM HOP(TABLE click, DESCRIPTOR(clicked), INTERVAL '1' MINUTE, INTERVAL '9' MINUTE)
GROUP BY window_start, window_end, page;
"""
OLD = SCRIPT.format(columns="", calls="")
WITH_NEW_OPERATOR = (
    "CREATE TABLE fresh (window_start TIMESTAMP(3), page STRING, clicks BIGINT) "
    "WITH ('connector' = 'filesystem', 'path' = 'fresh', 'format' = 'json');\n"
    + OLD.replace(
        "INSERT INTO per_minute",
        "SET 'everfold.compat.rules' = 'extended';\nEXECUTE STATEMENT SET BEGIN\nINSERT INTO fresh SELECT window_start, page, COUNT(*) "
        "FROM TUMBLE(TABLE click, DESCRIPTOR(clicked), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, page;\nINSERT INTO per_minute",
    )
    + "END;\n"
)
NEW = SCRIPT.format(columns=", clicks BIGINT, least INT", calls=", COUNT(*), MIN(n)")


def put(folder: Path, number: int) -> None:
    """Write a file with one minute of event time; the disorder stays within the watermark delay."""
    (folder / "in").mkdir(exist_ok=True)
    made = random.Random(number)
    seconds = [max(0, number * 60 + made.randrange(60) - made.randrange(15)) for _ in range(ROWS_A_FILE)]
    rows = [
        {"clicked": f"2020-01-01 10:{at // 60:02}:{at % 60:02}.000", "page": f"p{made.randrange(5)}", "n": made.randrange(1000)}
        for at in seconds
    ]  # fmt: skip
    file = folder / "in" / f"{number:03}.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    stamp = time.time() - 1000 + number  # the order in which they are read
    os.utime(file, (stamp, stamp))


def start(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "everfold", "run", "job.sql", "--state", "state", "--suspend", *options]
    with (folder / "log.txt").open("ab") as out:
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, start_new_session=True)


def wait_for_end(job: subprocess.Popen[bytes], folder: Path) -> None:
    assert job.wait(timeout=300) == 0, (folder / "log.txt").read_text()


def count_versions(folder: Path) -> int:
    return len(json.loads(newest_manifest(folder / "state").read_text())["versions"])


STAGES: dict[str, Callable[[Path], bool]] = {
    "the past is being written": lambda folder: (folder / "state/backfill/1").exists(),
    "the past is written": lambda folder: (folder / "state/backfill/1/_SUCCESS").exists(),
    "the checkpoint is being copied": lambda folder: any((folder / "state/checkpoints").glob("*1*")),
    "the change is settled": lambda folder: count_versions(folder) == 2,
    "the first batch is planned": lambda folder: len(list((folder / "state/checkpoints/1/offsets").glob("[0-9]*"))) > 3,
}


def kill_and_run_again(stage: str, how: str, folder: Path) -> bool:
    """Run the changed job up to a stage, kill it, and run it again to its end.

    Return whether it could be killed.
    """
    job = start(folder, "--on-change", how)
    while job.poll() is None and not STAGES[stage](folder):
        time.sleep(0.002)
    killed = job.poll() is None
    os.killpg(job.pid, signal.SIGKILL) if killed else None
    job.wait()
    wait_for_end(start(folder, "--on-change", how), folder)
    assert count_versions(folder) == 2
    return killed


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_backfill_killed_at_each_stage(stage: str, tmp_path: Path) -> None:
    (tmp_path / "job.sql").write_text(OLD)
    for number in range(FILES // 2):
        put(tmp_path, number)
    wait_for_end(start(tmp_path), tmp_path)
    early = {row["window_start"] for row in read_rows(tmp_path)}
    assert early
    for number in range(FILES // 2, FILES):
        put(tmp_path, number)
    (tmp_path / "job.sql").write_text(NEW)
    killed = kill_and_run_again(stage, "backfill", tmp_path)
    # Killed or not, the output is what DuckDB computes from the raw files. Rows emitted before the
    # change lack the new columns.
    expected = reference(tmp_path)
    found = read_rows(tmp_path)
    assert len(found) == len({(row["window_start"], row["page"]) for row in found})
    assert {row["window_start"] for row in found} > early
    for row in found:
        n, clicks, least = expected[row["window_start"], row["page"]]
        assert row["n"] == n
        assert (row.get("clicks"), row.get("least")) == (
            (None, None) if row["window_start"] in early else (clicks, least)
        )
    assert killed, "the job ended before it could be killed"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("stage", list(STAGES)[2:])
def test_a_new_operator_killed_at_each_stage(stage: str, tmp_path: Path) -> None:
    (tmp_path / "job.sql").write_text(OLD)
    for number in range(FILES // 2):
        put(tmp_path, number)
    wait_for_end(start(tmp_path), tmp_path)
    for number in range(FILES // 2, FILES):
        put(tmp_path, number)
    (tmp_path / "job.sql").write_text(WITH_NEW_OPERATOR)
    killed = kill_and_run_again(stage, "accept", tmp_path)
    expected, found = reference(tmp_path), read_rows(tmp_path)
    assert len(found) == len({(row["window_start"], row["page"]) for row in found})
    assert all(row["n"] == expected[row["window_start"], row["page"]][0] for row in found)
    # The new operator has counted the files that came after the change, each once.
    fresh = read_rows(tmp_path, "fresh")
    counts: dict[tuple[Any, Any], Any] = {(row["window_start"], row["page"]): row["clicks"] for row in fresh}
    assert len(fresh) == len(counts) > 0
    later = count_clicks_since_the_change(tmp_path)
    assert counts == {key: later[key] for key in counts}
    assert {at for at, _ in counts} == {at for at, _ in later if at <= max(at for at, _ in counts)}
    assert killed, "the job ended before it could be killed"


def count_clicks_since_the_change(folder: Path) -> dict[tuple[Any, Any], int]:
    """Return the clicks by minute and page in the files that the old query has not read."""
    rows = duckdb.execute(
        f"""
        SELECT strftime(date_trunc('minute', CAST(clicked AS TIMESTAMP)), '%Y-%m-%d %H:%M:%S'), page, COUNT(*)
        FROM read_json('{folder}/in/*.json', filename = true)
        WHERE CAST(parse_filename(filename, true) AS INT) >= {FILES // 2} GROUP BY ALL
        """
    ).fetchall()
    return {(at, page): clicks for at, page, clicks in rows}


def read_rows(folder: Path, table: str = "out") -> list[dict[str, object]]:
    files = [file for file in (folder / table).rglob("*") if file.is_file() and not file.name.startswith((".", "_"))]
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [row | {"window_start": str(row["window_start"]).replace("T", " ")[:19]} for row in rows]


def reference(folder: Path) -> dict[tuple[object, object], tuple[int, int, int]]:
    rows = duckdb.execute(
        f"""
        WITH click AS (SELECT CAST(clicked AS TIMESTAMP) AS clicked, page, n FROM read_json('{folder}/in/*.json')),
        hopped AS (
          SELECT time_bucket(INTERVAL 1 MINUTE, clicked) - back * INTERVAL 1 MINUTE AS window_start, page, n
          FROM click, range(9) AS hops(back))
        SELECT strftime(window_start, '%Y-%m-%d %H:%M:%S'), page, SUM(n)::BIGINT, COUNT(*), MIN(n) FROM hopped GROUP BY ALL
        """
    ).fetchall()
    return {(at, page): (n, clicks, least) for at, page, n, clicks, least in rows}
