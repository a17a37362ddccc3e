"""A job that counts orders, in a folder of any store: its script, its input, and its rows.

The job is run by commands in processes of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hdfs import HdfsCluster
from jvm import SHORT_LIVED_DRIVER, conf_options
from s3 import S3Server
from warm_process import Done, WarmProcess

from everfold.spark.hadoop import connect_without_spark
from everfold.storage import Location

TIMEOUT_S = 900.0
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
    """A folder in a store.

    conf: of Spark, to reach the store. process: runs the commands; by default, each one starts its
    own.
    """

    location: Location
    conf: Mapping[str, str] = field(default_factory=dict)
    process: WarmProcess | None = None

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
        return [sys.executable, "-m", "everfold", *self._add_conf(arguments, conf)]

    def _add_conf(self, arguments: Sequence[str], conf: Mapping[str, str] | None) -> list[str]:
        return [*arguments, *conf_options({**SHORT_LIVED_DRIVER, **self.conf, **(conf or {})})]

    def try_to_run(self, *arguments: str, conf: Mapping[str, str] | None = None) -> Done:
        """Run a command to its end."""
        if self.process is not None:
            return self.process.run(self._add_conf(arguments, conf))
        command = self.everfold(*arguments, conf=conf)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        return Done(done.returncode, done.stdout, done.stderr)

    def run(self, *arguments: str, conf: Mapping[str, str] | None = None) -> Done:
        """Run a command to its end, which must be good."""
        done = self.try_to_run(*arguments, conf=conf)
        assert done.returncode == 0, done.stderr
        return done

    def run_totals(self, query: Mapping[str, str], *options: str) -> Done:
        """Run the totals of the orders."""
        script = DDL.format(root=self.uri, **query)
        return self.run("run", "-e", script, "--state", self.job, "--master", "local[2]", *options)

    def add_orders(self, number: int) -> None:
        """Add a file of orders."""
        (self.location / "orders" / f"{number}.json").write(write_orders(number))

    def read_totals(self) -> list[dict[str, object]]:
        """Return the rows that the changes in the visible files add up to."""
        return add_up_changes(read_lines(self.location / "totals"))


def add_up_changes(lines: Iterable[str]) -> list[dict[str, object]]:
    """Return the rows that changes add up to; each row exists once."""
    kept: dict[str, int] = {}
    for line in lines:
        change = json.loads(line)
        for row, weight in ((change["before"], -1), (change["after"], 1)):
            if row is not None:
                # A query with more columns retracts rows of the earlier one with NULL in them.
                text = json.dumps({name: value for name, value in row.items() if value is not None}, sort_keys=True)
                kept[text] = kept.get(text, 0) + weight
    assert set(kept.values()) <= {0, 1}, kept
    return [json.loads(text) for text, weight in sorted(kept.items()) if weight]


def write_orders(number: int) -> str:
    """Return the content of a file of orders."""
    return "".join(json.dumps({"k": k, "v": v}) + "\n" for k, v in ORDERS[number])


def read_lines(folder: Location) -> list[str]:
    """Return the lines of the visible files of a table; no hidden file may be left."""
    files = sorted(folder.walk())
    check_nothing_hidden(each.relative_to(folder) for each in files)
    return [line for each in files if each.name[0] not in "._" for line in each.read_text().splitlines()]


def check_nothing_hidden(names: Iterable[str]) -> None:
    """Check that no file of an unfinished batch is in a table's folder."""
    left = [name for name in names if "inprogress" in name or name.endswith(".part")]
    assert not left, left


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
        return make_folder_in_s3(request.getfixturevalue("s3_server"), tmp_path.name)
    cluster: HdfsCluster = request.getfixturevalue("hdfs_cluster")
    return Folder(Location(f"{cluster.uri}/{tmp_path.name}", connect_without_spark({})))


def make_folder_in_s3(server: S3Server, name: str, bucket: str = "everfold") -> Folder:
    """Return an empty folder in a bucket."""
    return Folder(Location(f"s3a://{bucket}/{name}", connect_without_spark(server.conf)), server.conf)


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
