"""The same job with workers in other processes (`local-cluster`), which receive the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import flights
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark]
DAYS = 5


def test_a_cluster_returns_the_rows_of_a_local_run(tmp_path: Path) -> None:
    flights.module("make_data").main(["--out", str(tmp_path / "data"), "--days", str(DAYS), "--files", "3"])
    (tmp_path / "job.sql").write_text(flights.script("daily_by_carrier"))
    command = [
        sys.executable,
        "-m",
        "everfold",
        "run",
        "job.sql",
        "--format",
        "csv",
        "--master",
        "local-cluster[2,1,1024]",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    header, *lines = done.stdout.splitlines()
    assert header.startswith("window_start,window_end,carrier")
    expected = flights.answers("daily_by_carrier", DAYS)
    counts = sorted((line.split(",")[2], int(line.split(",")[3])) for line in lines)
    assert counts == sorted((row[2], row[3]) for row in expected)
