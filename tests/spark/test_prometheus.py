"""A real Prometheus scrapes a job that runs as users run it."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus import Prometheus
from servers import free_ports
from spark.test_metrics import TABLES, WATCHED, put
from spark.test_running_jobs import wait_until

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
START_S = 600.0
"""Time for the first batch of a new process."""


@pytest.mark.slow
def test_prometheus_scrapes_a_job(tmp_path: Path) -> None:
    put(tmp_path / "a", "1.json", (1, 10, "01"), (1, 20, "02"))
    script = TABLES.format(watched=WATCHED) + (
        "CREATE TABLE o (k INT, total INT) WITH ('connector' = 'blackhole');"
        "INSERT INTO o SELECT k, SUM(v) FROM a GROUP BY k;"
    )
    (tmp_path / "job.sql").write_text(script)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "everfold", "run", "job.sql", "--master", "local[2]", "--metrics-port", str(port)]
    with (
        (tmp_path / "err.txt").open("w") as err,
        subprocess.Popen(command, cwd=tmp_path, stderr=err) as process,
        Prometheus(f"127.0.0.1:{port}", ALERTS) as prometheus,
    ):
        try:
            wait_until(lambda: bool(prometheus.query("everfold_rows_out_total > 0")), START_S)
            (rows,) = prometheus.query("everfold_rows_in_total")
            assert (rows["metric"]["source"], rows["metric"]["job_name"], rows["value"][1]) == ("a", "o", "2")
            assert [each["value"][1] for each in prometheus.query('up{job="everfold"}')] == ["1"]
            idle = "everfold_last_sign_timestamp_seconds > everfold_last_commit_timestamp_seconds"
            wait_until(lambda: bool(prometheus.query(idle)))  # a job without input makes progress
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
                assert answer.status == 200
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(200)
    assert f"note: metrics: http://127.0.0.1:{port}/metrics\n" in (tmp_path / "err.txt").read_text()
