"""Kafka tables with an unreadable record, an unreachable broker and a deleted topic.

Secrets stay secret throughout.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker import KafkaBroker

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.kafka]

CANARY = "hunter2-canary"
SCRIPT = """{before}
CREATE TABLE t (at_time TIMESTAMP(3), n INT, WATERMARK FOR at_time AS at_time) WITH (
  'connector' = 'kafka', 'topic' = 'in', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset',
  'properties.sasl.jaas.config' = 'x required username="u" password="{canary}";', 'properties.ssl.key.password' = '{canary}',
  'properties.ssl.keystore.password' = '{canary}', 'properties.my.reporter.token' = '{canary}', {more} 'scan.max-records-per-batch' = '60');
CREATE TABLE totals (window_end TIMESTAMP(3), total INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO totals SELECT window_end, SUM(n) FROM TUMBLE(TABLE t, DESCRIPTOR(at_time), INTERVAL '1' MINUTE) GROUP BY window_start, window_end;
"""
IGNORE = "'json.ignore-parse-errors' = 'true',"
DROP = "SET 'everfold.null-rowtime' = 'drop';"
A_MINUTE = sum(range(60))


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


class Job:
    """A script in a folder, and its runs."""

    def __init__(self, folder: Path, broker: KafkaBroker) -> None:
        self.folder, self.broker = folder, broker

    def start(self, more: str = "", before: str = "") -> subprocess.Popen[str]:
        servers = self.broker.bootstrap_servers
        (self.folder / "job.sql").write_text(SCRIPT.format(servers=servers, canary=CANARY, more=more, before=before))
        command = [sys.executable, "-m", "everfold", "run", "job.sql", "--state", "job", "--master", "local[2]"]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def end(self, job: subprocess.Popen[str]) -> tuple[int, str]:
        """Wait for the job.

        Return its exit code and its first line that is not progress; no secret is in its output or
        files.
        """
        out, err = job.communicate(timeout=400)
        messages = [line for line in err.splitlines() if not re.match(r"\d\d:\d\d:\d\d ", line)]
        assert not [each for each in ("Traceback", "java.", "org.apache", CANARY) if each in out + err], err
        files = [file for file in self.folder.rglob("*") if file.is_file() and file.name != "job.sql"]
        assert [file for file in files if CANARY.encode() in file.read_bytes()] == []
        return job.returncode, next(iter(messages), "")

    def run(self, more: str = "", before: str = "") -> tuple[int, str]:
        return self.end(self.start(more, before))

    def totals(self) -> list[int]:
        files = [file for file in (self.folder / "out").rglob("*.json") if not file.name.startswith((".", "_"))]
        return sorted(json.loads(line)["total"] for file in files for line in file.read_text().splitlines())

    def wait_for(self, totals: list[int], job: subprocess.Popen[str]) -> None:
        end = time.monotonic() + 300
        while self.totals() != totals:
            assert time.monotonic() < end, self.totals()
            assert job.poll() is None, job.communicate()[1]
            time.sleep(0.2)


def records(minute: int) -> list[tuple[None, str]]:
    stamps = [f"2020-01-01 00:0{minute}:{second:02}" for second in range(60)]
    return [(None, json.dumps({"at_time": stamp, "n": n})) for n, stamp in enumerate(stamps)]


def test_a_job_survives_bad_records_broker_outages_and_deleted_topics(tmp_path: Path, broker: KafkaBroker) -> None:
    job = Job(tmp_path, broker)
    servers = broker.bootstrap_servers
    absent = f"error[no-such-topic]: table `t`: the brokers at {servers} have no topic `in`"
    unreachable = f"error[kafka-unreachable]: table `t`: no Kafka broker answers at {servers}"
    assert job.run() == (1, absent)

    broker.create_topic("in", 1)
    rows = [record for minute in range(4) for record in records(minute)]
    rows[127] = (None, '{"at_time": "2020-01-01 00:02:07", "n": "seven"}')
    rows[188] = (None, '{"at_time": null, "n": 8}')
    broker.produce("in", rows)
    assert job.run() == (1, "error[bad-record]: topic `in` partition 0 offset 127: field `n` is not an INT: `seven`")
    assert job.totals() == [A_MINUTE]
    null = "error[null-rowtime]: topic `in` partition 0 offset 188: the time attribute `at_time` is NULL"
    assert job.run(IGNORE) == (1, null)
    assert job.totals() == [A_MINUTE, A_MINUTE]

    running = job.start(IGNORE, DROP)
    job.wait_for([A_MINUTE - 7, A_MINUTE, A_MINUTE], running)
    broker.stop()
    assert job.end(running) == (1, unreachable)
    assert job.run(IGNORE, DROP) == (1, unreachable)

    broker.start()
    broker.produce("in", records(4)[:1])
    running = job.start(IGNORE, DROP)
    job.wait_for([A_MINUTE - 8, A_MINUTE - 7, A_MINUTE, A_MINUTE], running)
    os.killpg(running.pid, signal.SIGINT)
    assert job.end(running)[0] == 0

    broker.delete_topic("in")
    assert job.run(IGNORE, DROP) == (1, absent)
    broker.create_topic("in", 1)
    code, messages = job.run(IGNORE, DROP)
    assert code == 1
    assert messages == "error[changed-source]: table `t`: `in` was deleted and created again since the job has read it"
    assert job.totals() == [A_MINUTE - 8, A_MINUTE - 7, A_MINUTE, A_MINUTE]
