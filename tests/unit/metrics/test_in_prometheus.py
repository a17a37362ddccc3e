"""A real Prometheus accepts and evaluates what is in `deploy/`."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from prometheus import Prometheus, find_program
from unit.jobs.test_progress_log import BATCH, RUN
from unit.metrics.test_server import SPEC

from everfold.jobs.progress import OperatorProgress
from everfold.metrics.server import MetricsOptions, MetricsServer

DEPLOY = Path(__file__).parents[3] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
PATIENCE_S = 120.0


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
    assert cases.keys() == names_of_alerts()
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
def test_the_dashboard_and_the_alerts_are_evaluated() -> None:
    server = MetricsServer.start(MetricsOptions(port=0))
    target = server.url.removeprefix("http://")
    with server.watch(SPEC) as spec, Prometheus(target, ALERTS) as prometheus:
        now_ms = time.time_ns() // 1_000_000
        operator = OperatorProgress(
            name="w1", watermark_ms=now_ms, splits={"in/0": now_ms}, state_bytes=100, aggregate_bytes={"SUM(v)": 8}
        )
        spec.started(replace(RUN, column_since_ms={"o.k": 1500}))
        deadline = time.monotonic() + PATIENCE_S
        expressions = list(list_expressions())
        number = 0
        while expressions or prometheus.alerts() != names_of_alerts():
            assert time.monotonic() < deadline, expressions
            number += 1
            assert spec.progress is not None
            spec.started(replace(RUN, started_ms=number, column_since_ms={"o.k": 1500}))
            spec.progress(
                replace(
                    BATCH,
                    batch=number,
                    ended_ms=time.time_ns() // 1_000_000,
                    phases_ms={"addBatch": 20, "triggerExecution": 25},
                    operators=(operator,),
                    heap_bytes=1,
                    heap_limit_bytes=2,
                    executor_bytes={"0": {"heap": 1}},
                )
            )
            time.sleep(0.5)
            expressions = [each for each in expressions if not prometheus.query(each)]
    server.close()


def names_of_alerts() -> set[str]:
    """Return the names of all alerts."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"] for group in groups for rule in group["rules"]}
