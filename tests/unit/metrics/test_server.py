"""The server of metrics: its routes, what the probes answer, and the names in `deploy/`."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.jobs.test_progress_log import BATCH, RUN

from everfold.errors import UsageError
from everfold.jobs.spec import JobSpec
from everfold.metrics.registry import BATCH_DURATION, MEMORY, METRICS
from everfold.metrics.server import MetricsOptions, MetricsServer
from everfold.sql.settings import Settings

ROOT = Path(__file__).parents[3]
SPEC = JobSpec(roots=(), settings=Settings.of({}), base_folder=Path(), name="orders")
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_NAME = re.compile(r"\beverfold_\w+")


def get(server: MetricsServer, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(server.url + path, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scrape(server: MetricsServer) -> dict[str, list[tuple[str, float]]]:
    """Return labels and values of the series by name."""
    found: dict[str, list[tuple[str, float]]] = {}
    for line in get(server, "/metrics")[1].splitlines():
        match = _SAMPLE.match(line)
        if match:
            found.setdefault(match[1], []).append((match[2] or "", float(match[3])))
    return found


def names_in_deploy() -> set[str]:
    """Return the metrics that the Grafana dashboard and the alerts use."""
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "everfold.json").read_text(encoding="utf-8"))
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    queries += [each["expr"] for each in dashboard["annotations"]["list"]]
    queries += [each["query"]["query"] for each in dashboard["templating"]["list"] if isinstance(each["query"], dict)]
    queries += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    assert len(queries) > 30
    return {name for query in queries for name in _NAME.findall(query)}


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    server = MetricsServer.start(MetricsOptions(port=0, stale_after_s=100))
    yield server
    server.close()


def test_the_routes(server: MetricsServer) -> None:
    assert server.url.startswith("http://127.0.0.1:")
    assert get(server, "/metrics")[0] == 200
    assert get(server, "/") == (404, "there are /metrics, /livez, /readyz, /healthz\n")
    assert get(server, "/metrics/more")[0] == 404
    assert get(server, "/metrics", "POST")[0] == 405


def test_the_probes(server: MetricsServer) -> None:
    def probe() -> list[int]:
        return [get(server, path)[0] for path in ("/readyz", "/healthz", "/livez")]

    now_ms = time.time_ns() // 1_000_000
    assert probe() == [503, 503, 200]
    assert get(server, "/readyz")[1] == "no job runs\n"
    with server.watch(SPEC) as spec:
        assert get(server, "/readyz") == (503, "job `orders` is starting\n")
        assert get(server, "/livez")[0] == 200
        assert spec.progress is not None
        spec.started(RUN)
        assert probe() == [200, 200, 200]
        (job,) = server.list_jobs()
        job.sign_ms = now_ms - 101_000
        assert probe() == [503, 503, 200]
        assert re.fullmatch(
            r"job `orders` has not finished a batch or looked for new input for 10\d s\n", get(server, "/readyz")[1]
        )
        spec.idle(now_ms)
        assert probe() == [200, 200, 200]
        job.sign_ms = now_ms - 601_000
        assert probe() == [503, 503, 503]
        spec.progress(replace(BATCH, ended_ms=now_ms))
        assert probe() == [200, 200, 200]
    assert probe() == [503, 503, 200]


def test_the_callbacks_of_the_job_are_called_too(server: MetricsServer) -> None:
    called: list[Any] = []
    callbacks = replace(SPEC, started=called.append, progress=called.append, idle=called.append)
    with server.watch(callbacks) as spec:
        spec.started(RUN)
        assert spec.progress is not None
        spec.progress(BATCH)
        spec.idle(5)
    assert called == [RUN, BATCH, 5]


def test_the_metrics_of_two_jobs_of_one_name(server: MetricsServer) -> None:
    memory = {"0": {"heap": 300, "python": 500}, "1": {"heap": 200}}
    run = replace(RUN, job="abc", epoch=4, column_since_ms={"o.k": 1500})
    with server.watch(SPEC) as spec, server.watch(SPEC):
        spec.started(run)
        assert spec.progress is not None
        spec.progress(replace(BATCH, ended_ms=2500, phases_ms={"addBatch": 300, "triggerExecution": 700}))
        phases = {"addBatch": 400, "triggerExecution": 1300}
        spec.progress(replace(BATCH, ended_ms=4500, phases_ms=phases, executor_bytes=memory))
        found = scrape(server)
    job = 'job_name="orders"'
    assert found["everfold_job_info"] == [(f'epoch="4",job_id="abc",{job},release="1.0",version="3"', 1)]
    assert found["everfold_start_timestamp_seconds"] == [(job, 1)]
    assert found["everfold_last_commit_timestamp_seconds"] == [(job, 4.5)]
    assert found["everfold_batches_total"] == [(job, 2), ('job_name="orders-2"', 0)]
    assert found["everfold_batch_phase_seconds_total"] == [
        (f'{job},phase="addBatch"', 0.7),
        (f'{job},phase="triggerExecution"', 2.0),
    ]
    assert found["everfold_rows_in_total"] == [(f'{job},source="in"', 10), (f'{job},source="other"', 0)]
    assert found["everfold_source_lag_rows"] == [(f'{job},source="in",split="in/0"', 7)]
    assert found["everfold_aggregate_state_bytes"] == [(f'aggregate="SUM(v)",{job},operator="w1"', 8)]
    assert found["everfold_column_since_timestamp_seconds"] == [(f'column="o.k",{job}', 1.5)]
    assert found["everfold_executor_peak_memory_bytes"] == [
        (f'executor="0",{job},memory="heap"', 300),
        (f'executor="0",{job},memory="python"', 500),
        (f'executor="1",{job},memory="heap"', 200),
    ]
    durations = dict(found["everfold_batch_duration_seconds_bucket"])
    assert [durations[f'{job},le="{bound}"'] for bound in ("0.5", "1.0", "2.5", "+Inf")] == [0, 1, 2, 2]
    assert dict(found["everfold_batch_duration_seconds_sum"])[job] == 2.0
    assert all(size > 0 for labels, size in found["everfold_memory_bytes"] if 'process="driver"' in labels)


def test_deploy_uses_metrics_that_exist() -> None:
    suffixes = ("_bucket", "_count", "_sum")
    known = {each.series for each in METRICS} | {MEMORY} | {BATCH_DURATION + suffix for suffix in suffixes}
    assert names_in_deploy() - known == set()
    assert {each.series for each in METRICS} - names_in_deploy() == set(), "a metric that nothing shows"


def test_names_follow_the_conventions_of_prometheus() -> None:
    for metric in METRICS:
        assert metric.name.startswith("everfold_")
        assert not metric.name.endswith("_total")
        assert metric.help.endswith(".")
        if "timestamp" in metric.name:
            assert metric.name.endswith("_timestamp_seconds")


def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match=r"the metrics cannot be served on 127\.0\.0\.1, port") as caught:
            MetricsServer.start(MetricsOptions(port=taken.getsockname()[1]))
    assert caught.value.code == "port-not-available"


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="prometheus_client") as caught:
        MetricsServer.start(MetricsOptions(port=0))
    assert caught.value.code == "missing-package"
    assert caught.value.diagnostics[0].help == "pip install 'everfold[metrics]'"
