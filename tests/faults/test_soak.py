"""Ten minutes of SIGKILLs: a changelog written to PostgreSQL ends as if the job had never been
killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from killing import commits, seed_random, start
from postgres import Database

MINUTES = float(os.environ.get("EVERFOLD_SOAK_MINUTES", "10"))
KILLS, WITHIN_S = 12, 10.0
FILES_A_RUN, ROWS_A_FILE = 6, 500
SCRIPT = """
CREATE TABLE sales (who STRING, item STRING, n INT)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'scan.max-files-per-batch' = '1');
CREATE TABLE items (item STRING, sales BIGINT, n BIGINT, people BIGINT, most INT, PRIMARY KEY (item) NOT ENFORCED) WITH ({items});
CREATE TABLE buyers (sales BIGINT, people BIGINT, PRIMARY KEY (sales) NOT ENFORCED) WITH ({buyers});
EXECUTE STATEMENT SET BEGIN
INSERT INTO items SELECT item, COUNT(*), SUM(CAST(n AS BIGINT)), COUNT(DISTINCT who), MAX(n) FROM sales GROUP BY item;
INSERT INTO buyers SELECT sales, COUNT(*) FROM (SELECT who, COUNT(*) AS sales FROM sales GROUP BY who) GROUP BY sales;
END;
"""
ITEMS = "SELECT item, COUNT(*), SUM(n)::BIGINT, COUNT(DISTINCT who), MAX(n) FROM sales GROUP BY item"
BUYERS = "SELECT sales, COUNT(*) FROM (SELECT who, COUNT(*) AS sales FROM sales GROUP BY who) GROUP BY sales"


def lay_out(folder: Path, database: Database) -> None:
    database.run("CREATE TABLE items (item text PRIMARY KEY, sales bigint, n bigint, people bigint, most integer)")
    database.run("CREATE TABLE buyers (sales bigint PRIMARY KEY, people bigint)")
    options = {
        name: ", ".join(f"'{key}' = '{value}'" for key, value in database.options(name).items())
        for name in ("items", "buyers")
    }
    (folder / "in").mkdir()
    (folder / "job.sql").write_text(SCRIPT.format(**options))


def add_files(folder: Path, chance: random.Random) -> None:
    """Add input; the job reads one file per batch."""
    there = len(list((folder / "in").iterdir()))
    for number in range(there, there + FILES_A_RUN):
        rows = (
            {"who": f"p{chance.randrange(400)}", "item": f"i{chance.randrange(60)}", "n": chance.randrange(1_000_000)}
            for _ in range(ROWS_A_FILE)
        )
        hidden = folder / "in" / f".{number:05}.json"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        stamp = 1_000_000_000 + number
        os.utime(hidden, (stamp, stamp))
        hidden.rename(folder / "in" / f"{number:05}.json")


def kill_driver(job: subprocess.Popen[bytes]) -> None:
    """Kill Python alone: its JVM survives for a moment and overlaps with the next start."""
    os.kill(job.pid, signal.SIGKILL)


def kill_group(job: subprocess.Popen[bytes]) -> None:
    """Kill all processes at once."""
    os.killpg(job.pid, signal.SIGKILL)


def kill_worker(job: subprocess.Popen[bytes]) -> None:
    """Kill a Python worker of Spark.

    A busy worker takes the job with it; an idle one is replaced.
    """
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    known = {
        int(pid): (int(parent), args) for pid, parent, args in (line.split(None, 2) for line in listed.splitlines())
    }

    def is_daemon(pid: int) -> bool:
        return "everfold.spark.daemon" in known.get(pid, (0, ""))[1]

    def is_ours(pid: int) -> bool:
        return pid == job.pid or (pid in known and is_ours(known[pid][0]))

    workers = [pid for pid, (parent, _) in known.items() if is_daemon(pid) and is_daemon(parent) and is_ours(pid)]
    assert workers, "no worker runs"
    os.kill(workers[-1], signal.SIGKILL)


WAYS: tuple[Callable[[subprocess.Popen[bytes]], None], ...] = (kill_driver, kill_group, kill_worker)


@pytest.mark.slow
@pytest.mark.spark
def test_a_killed_job_leaves_the_rows_of_a_batch_run(tmp_path: Path, database: Database) -> None:
    lay_out(tmp_path, database)
    chance, log = seed_random(), tmp_path / "log.txt"
    ends_at = time.monotonic() + MINUTES * 60
    killed, runs = 0, 0
    while killed < KILLS or time.monotonic() < ends_at:
        add_files(tmp_path, chance)
        before, runs = commits(tmp_path), runs + 1
        job = start(tmp_path, "job.sql", log)
        while job.poll() is None and commits(tmp_path) == before:
            time.sleep(0.02)
        deadline = time.monotonic() + chance.uniform(0, WITHIN_S)
        while job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if job.poll() is None:
            reached = commits(tmp_path)
            WAYS[killed % len(WAYS)](job)
            killed += 1
            while job.poll() is None and commits(tmp_path) == reached:
                time.sleep(0.02)
            if job.poll() is None:
                kill_group(job)
            job.wait(timeout=60)
        else:
            assert job.returncode == 0, log.read_text()
        assert commits(tmp_path) > before, log.read_text()
    last = start(tmp_path, "job.sql", log)
    assert last.wait(timeout=1800) == 0, log.read_text()
    print(f"{killed} kills in {runs} runs, {commits(tmp_path) + 1} batches")
    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW sales AS FROM read_json('{tmp_path}/in/*.json')")
    for name, query in (("items", ITEMS), ("buyers", BUYERS)):
        assert sorted(database.run(f"SELECT * FROM {name}")) == sorted(connection.execute(query).fetchall()), name
