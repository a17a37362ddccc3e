"""Kill jobs that write to PostgreSQL and Kafka with SIGKILL repeatedly, and restore backups of
their job directories.

Backups that are 1, 2 and 20 batches old are refused. The newest directory resumes, and the table
holds each row once.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker import KafkaBroker
from killing import commits, seed_random, start
from postgres import Database

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STAGES = {"20": 4, "2": 18, "1": 1, "newest": 1}
"""Name of a backup, and how many files are read before it is made.

Each file is a batch. But a job that is killed after Spark has listed a file, and before it has
planned the batch, reads that file together with the next one.
"""
SCRIPT = """
CREATE TABLE t (k STRING, x INT)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'scan.max-files-per-batch' = '1');
CREATE TABLE o (k STRING, x INT{key}) WITH ({options});
INSERT INTO o {query};
"""
EACH, SUMS = "SELECT k, x FROM t", "SELECT k, SUM(x) FROM t GROUP BY k"
KEY = ", PRIMARY KEY (k) NOT ENFORCED"
Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


def make_table(kind: str, request: pytest.FixtureRequest) -> tuple[str, Callable[[], Rows]]:
    """Return a script that writes to a table, and a function that reads the table."""
    upsert = "upsert" in kind
    if kind.startswith("jdbc"):
        database: Database = request.getfixturevalue("database")
        database.run(f"CREATE TABLE o (k text{' PRIMARY KEY' if upsert else ''}, x int)")
        options = database.options("o")

        def read_content() -> Rows:
            return sorted(database.run("SELECT k, x FROM o"))
    else:
        broker: KafkaBroker = request.getfixturevalue("broker")
        topic = f"killed-{time.time_ns()}"
        broker.create_topic(topic)
        formats = {"key.format": "raw", "value.format": "json"} if upsert else {"format": "json"}
        options = {
            "connector": kind,
            "topic": topic,
            "properties.bootstrap.servers": broker.bootstrap_servers,
            **formats,
        }

        def read_content() -> Rows:
            rows = [json.loads(each.value) for each in broker.consume(topic) if each.value is not None]
            pairs = [(row["k"], row["x"]) for row in rows]
            return sorted(dict(pairs).items() if upsert else pairs)

    with_options = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    return SCRIPT.format(key=KEY if upsert else "", options=with_options, query=SUMS if upsert else EACH), read_content


def put(folder: Path, number: int) -> Rows:
    rows = [(f"k{number % 7}", number * 10 + at) for at in range(3)]
    file = folder / "in" / f"{number:03}.json"
    file.write_text("".join(json.dumps({"k": k, "x": x}) + "\n" for k, x in rows))
    os.utime(file, (time.time() - 1000 + number,) * 2)
    return rows


def run_and_kill(folder: Path, kills: int, chance: random.Random) -> None:
    """Run the job to its end.

    Kill it the given number of times, each time a moment after a new commit.
    """
    for _ in range(kills):
        before, job = commits(folder), start(folder, "job.sql", folder / "log.txt")
        while job.poll() is None and commits(folder) == before:
            time.sleep(0.01)
        deadline = time.monotonic() + chance.uniform(0, 0.7)
        while job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    assert start(folder, "job.sql", folder / "log.txt").wait(timeout=300) == 0, (folder / "log.txt").read_text()


@pytest.mark.parametrize("kind", ["jdbc", "jdbc upsert", "kafka", "upsert-kafka"])
def test_backups_of_a_killed_job_are_refused(tmp_path: Path, request: pytest.FixtureRequest, kind: str) -> None:
    script, read_content = make_table(kind, request)
    chance = seed_random()
    (tmp_path / "in").mkdir()
    (tmp_path / "job.sql").write_text(script)
    rows: Rows = []
    ends: dict[str, int] = {}
    for name, count in STAGES.items():
        for _ in range(count):
            rows += put(tmp_path, len(rows) // 3)
        run_and_kill(tmp_path, 2 if count > 1 else 1, chance)
        shutil.copytree(tmp_path / "state", tmp_path / name)
        ends[name] = commits(tmp_path)
    sums: Counter[str] = Counter()
    for k, x in rows:
        sums[k] += x
    expected = sorted(sums.items() if "upsert" in kind else rows)
    assert read_content() == expected
    newest = ends.pop("newest")
    assert (ends["1"], ends["2"]) == (newest - 1, newest - 2)
    assert newest - 20 <= ends["20"] <= newest - 10
    for name, end in ends.items():
        shutil.rmtree(tmp_path / "state")
        shutil.copytree(tmp_path / name, tmp_path / "state")
        log = tmp_path / f"{name}.txt"
        job = start(tmp_path, "job.sql", log)
        assert job.wait(timeout=300) == 1
        held = f"it holds batch {newest} of the job, and the job's checkpoint is only at batch {end}"
        assert f"error[sink-ahead]: table `o` is ahead of the job: {held}" in log.read_text()
        assert read_content() == expected
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "newest", tmp_path / "state")
    more = put(tmp_path, len(rows) // 3)
    run_and_kill(tmp_path, 1, chance)
    for k, x in more:
        sums[k] += x
    assert read_content() == sorted(sums.items() if "upsert" in kind else [*rows, *more])
