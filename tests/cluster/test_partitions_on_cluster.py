"""The partitions of jobs on a standalone cluster: one per core, until the job is rescaled."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from jvm import conf_options
from standalone import CLUSTER_CONF, StandaloneCluster

pytestmark = [pytest.mark.slow, pytest.mark.spark]
SCRIPT = """
CREATE TABLE orders (k STRING) WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json');
CREATE TABLE counts (k STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'counts', 'format' = 'debezium-json');
INSERT INTO counts SELECT k, COUNT(*) FROM orders GROUP BY k;
"""
OPTIONS = conf_options(CLUSTER_CONF)


def everfold(*arguments: str) -> str:
    """Run a command, which must be good. Return what it prints."""
    done = subprocess.run([sys.executable, "-m", "everfold", *arguments], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_counts() -> dict[str, int]:
    """Return the latest count of each key."""
    files = [file for file in Path("counts").rglob("*") if file.is_file() and file.name[0] not in "._"]
    changes = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return {
        row["k"]: max(each["after"]["n"] for each in changes if (each["after"] or {}).get("k") == row["k"])
        for row in (each["after"] for each in changes)
        if row is not None
    }


def test_a_job_has_a_partition_for_each_core_until_it_is_rescaled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.sql").write_text(SCRIPT)
    Path("orders").mkdir()
    orders: list[str] = []

    def add_orders() -> None:
        keys = [f"k{at % 50}" for at in range(300)]
        Path("orders", f"{len(orders)}.json").write_text("".join(f'{{"k": "{key}"}}\n' for key in keys))
        orders.extend(keys)

    with StandaloneCluster(cores=2) as cluster:
        add_orders()
        everfold("run", "job.sql", "--state", "state", "--master", cluster.url, *OPTIONS)
        everfold("rescale", "state", "8", "--master", cluster.url, *OPTIONS)
        add_orders()
        everfold("run", "job.sql", "--state", "state", "--master", cluster.url, *OPTIONS)
    versions = json.loads(everfold("history", "state", "--format", "json"))
    assert [each["partitions"] for each in versions] == [4, 8]
    assert read_counts() == Counter(orders)
