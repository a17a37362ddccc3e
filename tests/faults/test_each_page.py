"""A job whose k-th page fails, or whose Python worker is killed there, ends with the correct rows
for every k.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from faults.break_each_page import PAGE
from faults.injection import Plan

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.mark.parametrize("action", ["raise", "kill-worker"])
def test_a_job_broken_at_each_page_recovers(action: str, tmp_path: Path) -> None:
    environment = Plan(tmp_path, PAGE).environment
    environment["PYTHONPATH"] += f":{Path(__file__).parents[1]}"
    done = subprocess.run(
        [sys.executable, "-m", "faults.break_each_page", str(tmp_path), action],
        env=environment,
        capture_output=True,
        text=True,
        timeout=3000,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-2]) >= 10, done.stdout
