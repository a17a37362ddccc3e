"""Jobs whose directory and tables are in S3 or HDFS: on a cluster without a shared folder, through
changes and rollbacks, taken over from a paused process, and started twice at once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import flights
import pytest
from hdfs import HdfsCluster, hdfs_cluster
from s3 import S3Server, s3_jars, s3_server
from standalone import CLUSTER_CONF, StandaloneCluster

from everfold.spark.hadoop import connect_without_spark
from everfold.storage import Location

__all__ = ["hdfs_cluster", "s3_jars", "s3_server"]
pytestmark = [pytest.mark.slow, pytest.mark.spark]
DAYS = 3
TIMEOUT_S = 400.0
ORDERS = [("a", 1), ("b", 2), ("a", 3), ("c", 4)], [("a", 10), ("d", 20)], [("b", 100), ("c", 200), ("a", 300)]
DDL = """
CREATE TABLE orders (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '{root}/orders', 'format' = 'json');
CREATE TABLE totals ({columns}) WITH ('connector' = 'filesystem', 'path' = '{root}/totals', 'format' = 'debezium-json');
INSERT INTO totals SELECT {select} FROM orders GROUP BY k;
"""
COUNTS = {"columns": "k STRING, n BIGINT", "select": "k, COUNT(*)"}
SUMS = {"columns": "k STRING, n BIGINT, s INT", "select": "k, COUNT(*), SUM(v)"}


@dataclass(slots=True)
class Folder:
    """A folder in a store. conf: of Spark, to reach the store."""

    location: Location
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        """The URI of the folder."""
        return self.location.path

    @property
    def job(self) -> str:
        """The URI of the job directory."""
        return f"{self.uri}/job"

    def everfold(self, *arguments: str, conf: Mapping[str, str] | None = None) -> list[str]:
        """Return a command line."""
        pairs = {**self.conf, **(conf or {})}.items()
        options = [part for key, value in pairs for part in ("--conf", f"{key}={value}")]
        return [sys.executable, "-m", "everfold", *arguments, *options]

    def run(self, *arguments: str, conf: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, which must be good."""
        done = subprocess.run(
            self.everfold(*arguments, conf=conf), capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr
        return done

    def run_totals(self, query: Mapping[str, str], *options: str) -> subprocess.CompletedProcess[str]:
        """Run the totals of the orders."""
        script = DDL.format(root=self.uri, **query)
        return self.run("run", "-e", script, "--state", self.job, "--master", "local[2]", *options)

    def add_orders(self, number: int) -> None:
        """Add a file of orders."""
        lines = "".join(json.dumps({"k": k, "v": v}) + "\n" for k, v in ORDERS[number])
        (self.location / "orders" / f"{number}.json").write(lines)

    def read_totals(self) -> list[dict[str, object]]:
        """Return the rows that the changes in the visible files add up to."""
        kept: dict[str, int] = {}
        for line in read_lines(self.location / "totals"):
            change = json.loads(line)
            for row, weight in ((change["before"], -1), (change["after"], 1)):
                if row is not None:
                    # A query with more columns retracts rows of the earlier one with NULL in them.
                    text = json.dumps({name: value for name, value in row.items() if value is not None}, sort_keys=True)
                    kept[text] = kept.get(text, 0) + weight
        assert set(kept.values()) <= {0, 1}, kept
        return [json.loads(text) for text, weight in sorted(kept.items()) if weight]


def read_lines(folder: Location) -> list[str]:
    """Return the lines of the visible files of a table; no hidden file may be left."""
    names = [each.name for each in folder.walk()]
    assert not [name for name in names if "inprogress" in name], names
    visible = [each for each in folder.walk() if each.name[0] not in "._"]
    return [line for file in sorted(visible) for line in file.read_text().splitlines()]


def compute_totals(*numbers: int, sums: bool) -> list[dict[str, object]]:
    """Return the totals of some files of orders, computed in Python."""
    orders = [order for number in numbers for order in ORDERS[number]]
    rows: list[dict[str, object]] = []
    for key in sorted({k for k, _ in orders}):
        values = [v for k, v in orders if k == key]
        rows.append({"k": key, "n": len(values)} | ({"s": sum(values)} if sums else {}))
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


@pytest.fixture(params=["s3a", "hdfs"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """An empty folder in a store."""
    if request.param == "s3a":
        server: S3Server = request.getfixturevalue("s3_server")
        conf, root = dict(server.conf), f"s3a://everfold/{tmp_path.name}"
    else:
        cluster: HdfsCluster = request.getfixturevalue("hdfs_cluster")
        conf, root = {}, f"{cluster.uri}/{tmp_path.name}"
    return Folder(Location(root, connect_without_spark(conf)), conf)


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


def test_a_change_and_a_rollback(folder: Folder) -> None:
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


def test_a_rescaled_job_continues(folder: Folder) -> None:
    folder.add_orders(0)
    folder.run_totals(COUNTS)
    assert "version 1 has 8 partitions" in folder.run("rescale", folder.job, "8", "--master", "local[2]").stdout
    folder.add_orders(1)
    folder.run_totals(COUNTS)
    assert folder.read_totals() == compute_totals(0, 1, sums=False)
    folder.run("rollback", folder.job, "0")
    folder.run_totals(COUNTS)
    assert folder.read_totals() == compute_totals(0, 1, sums=False)


def wait_for_batch(folder: Folder, process: subprocess.Popen[str]) -> None:
    """Wait until a job has committed its first batch."""
    deadline = time.monotonic() + TIMEOUT_S
    while not [*(folder.location / "job" / "checkpoints").glob("*/commits/[0-9]*")]:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.5)


def start_endless(folder: Folder, *options: str) -> subprocess.Popen[str]:
    """Start the totals as a job without end."""
    script = DDL.format(root=folder.uri, **COUNTS)
    script = script.replace("'format' = 'json'", "'format' = 'json', 'source.monitor-interval' = '1 s'")
    command = folder.everfold("run", "-e", script, "--state", folder.job, "--master", "local[2]", *options)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def stop(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Kill processes and their JVMs."""
    for each in processes:
        if each.poll() is None:
            os.killpg(each.pid, signal.SIGKILL)
            each.communicate()


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
