"""A real Prometheus scrapes a job that runs as users run it, and evaluates what is in `deploy/`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus import Prometheus, find_program
from servers import free_ports
from spark.test_metrics import TABLES, WATCHED, put
from spark.test_running_jobs import wait_until

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
START_S = 300.0
"""Time for the first batch of a new process."""


def list_expressions() -> Iterator[str]:
    """Yield the queries of the Grafana dashboard, with the values of its variables."""
    dashboard = json.loads((DEPLOY / "grafana" / "everfold.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$job", ".*").replace("$__rate_interval", "1m")
    for each in dashboard["annotations"]["list"]:
        yield each["expr"].replace("$job", ".*")


@pytest.mark.slow
def test_prometheus_accepts_the_files() -> None:
    for kind, file in (("rules", ALERTS), ("config", DEPLOY / "prometheus" / "scrape.yml")):
        command = [str(find_program("promtool")), "check", kind, str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_alerts_fire(tmp_path: Path) -> None:
    job = 'job_name="o"'
    cases = {
        "EverfoldNoMetrics": ('up{job="everfold"}', "0x60"),
        "EverfoldStuck": (f"everfold_last_sign_timestamp_seconds{{{job}}}", "0x60"),
        "EverfoldRestarts": (f"everfold_start_timestamp_seconds{{{job}}}", "0+60x40"),
        "EverfoldFallsBehind": (f'everfold_source_lag_rows{{{job},source="t",split="t/0"}}', "10000+1000x60"),
        "EverfoldWatermarkBehind": (f'everfold_watermark_timestamp_seconds{{{job},operator="w1"}}', "-9000x60"),
        "EverfoldLateRows": (f'everfold_late_rows_total{{{job},operator="w1"}}', "0+1x40"),
        "EverfoldRowsSkipped": (f'everfold_skipped_rows_total{{{job},reason="bad-record"}}', "0+1x40"),
        "EverfoldHeapFull": (f"everfold_jvm_heap_bytes{{{job}}}", "95x60"),
    }
    names = {rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}
    assert cases.keys() == names
    limit = {"series": f"everfold_jvm_heap_limit_bytes{{{job}}}", "values": "100x60"}
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": series, "values": values}, *([limit] if alert == "EverfoldHeapFull" else [])],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                    "eval_time": "40m",
                    "exp_samples": [{"value": 1}],
                }
            ],
        }
        for alert, (series, values) in cases.items()
    ]
    (tmp_path / "tests.yml").write_text(json.dumps({"rule_files": [str(ALERTS)], "tests": tests}))
    command = [str(find_program("promtool")), "test", "rules", str(tmp_path / "tests.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


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
            assert rows["metric"]["source"] == "a"
            assert rows["metric"]["job_name"] == "o"
            assert rows["value"][1] == "2"
            assert [each["value"][1] for each in prometheus.query('up{job="everfold"}')] == ["1"]
            for expression in list_expressions():
                found = prometheus.query(expression)
                assert found or re.search(r"source_lag|changes", expression), expression
            names = {rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}
            wait_until(lambda: prometheus.alerts() == names)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
                assert answer.status == 200
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(200)
    assert f"note: metrics: http://127.0.0.1:{port}/metrics\n" in (tmp_path / "err.txt").read_text()
