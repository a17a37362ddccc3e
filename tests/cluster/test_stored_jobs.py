"""Jobs whose directory and tables are in S3 or HDFS: on a cluster without a shared folder, through
changes and rollbacks, taken over from a paused process, and started twice at once.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import flights
import pytest
from faults.injection import Fault, Plan
from faults.test_each_step import COPY, RECORD, ROUTER
from s3 import S3Server
from standalone import CLUSTER_CONF, StandaloneCluster
from totals import (
    COUNTS,
    ORDERS,
    SUMS,
    TIMEOUT_S,
    Folder,
    compute_totals,
    make_folder_in_s3,
    read_lines,
    start_endless,
    stop,
    wait_for_batch,
)
from warm_process import WarmProcess

pytestmark = [pytest.mark.slow, pytest.mark.spark]
DAYS = 3
PAUSES = {
    "before its tasks": Fault(ROUTER, "before", 1, "stop"),
    "before the record": Fault(RECORD, "before", 1, "stop"),
    "during publishing": Fault(COPY, "before", 1, "stop"),
}
"""Where a process is paused for longer than its lease."""


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


def test_a_paused_job_is_taken_over(folder: Folder) -> None:
    """The first process stands still, the second takes over; the first ends and writes nothing."""
    folder.add_orders(0)
    first = start_endless(folder)
    try:
        wait_for_batch(folder, first)
        os.killpg(first.pid, signal.SIGSTOP)
        folder.add_orders(1)
        second = folder.run_totals(COUNTS)
        assert "did not say that it had ended" in second.stderr
        assert folder.read_totals() == compute_totals(0, 1, sums=False)
        before = sorted(each.path for each in (folder.location / "totals").walk())
        folder.add_orders(2)
        os.killpg(first.pid, signal.SIGCONT)
        _, error = first.communicate(timeout=TIMEOUT_S)
        assert first.returncode != 0
        assert "error[job-taken-over]" in error
        assert "Traceback" not in error
        assert sorted(each.path for each in (folder.location / "totals").walk()) == before
    finally:
        stop([first])
    folder.run_totals(COUNTS)
    assert folder.read_totals() == compute_totals(0, 1, 2, sums=False)


@pytest.mark.parametrize("step", PAUSES)
def test_a_job_paused_within_a_batch_is_taken_over(
    step: str, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second process finishes the batch; the first one adds nothing to it, and ends."""
    folder, fault = make_folder_in_s3(s3_server, tmp_path.name), PAUSES[step]
    plan = Plan(tmp_path, fault.function)
    plan.set(fault)
    folder.add_orders(0)
    for name, value in plan.environment.items():
        monkeypatch.setenv(name, value)
    first = start_endless(folder)
    try:
        plan.wait(TIMEOUT_S, first)
        folder.add_orders(1)
        second = folder.run_totals(COUNTS)
        assert "did not say that it had ended" in second.stderr
        assert folder.read_totals() == compute_totals(0, 1, sums=False)
        before = sorted(each.path for each in (folder.location / "totals").walk())
        folder.add_orders(2)
        os.killpg(first.pid, signal.SIGCONT)
        _, error = first.communicate(timeout=TIMEOUT_S)
        assert first.returncode != 0
        assert "error[job-taken-over]" in error
        assert "Traceback" not in error
        assert sorted(each.path for each in (folder.location / "totals").walk()) == before
    finally:
        stop([first])
    folder.run_totals(COUNTS)
    assert folder.read_totals() == compute_totals(0, 1, 2, sums=False)


def test_of_two_starts_one_runs(folder: Folder) -> None:
    folder.add_orders(0)
    processes = [start_endless(folder) for _ in range(2)]
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while all(each.poll() is None for each in processes):
            assert time.monotonic() < deadline
            time.sleep(0.5)
        (loser,) = (each for each in processes if each.poll() is not None)
        (winner,) = (each for each in processes if each is not loser)
        assert "error[job-is-running]" in loser.communicate()[1]
        wait_for_batch(folder, winner)
    finally:
        stop(processes)
    folder.run_totals(COUNTS)
    assert folder.read_totals() == compute_totals(0, sums=False)


def test_a_killed_job_resumes(folder: Folder) -> None:
    folder.add_orders(0)
    first = start_endless(folder)
    try:
        wait_for_batch(folder, first)
    finally:
        stop([first])
    folder.add_orders(1)
    folder.run_totals(COUNTS)
    assert folder.read_totals() == compute_totals(0, 1, sums=False)
