"""Ctrl-C and SIGTERM at every stage of a job: it ends soon and says so, and the same command
resumes it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark]

MINUTES = 4
SCRIPT = """
CREATE TABLE t (at_time TIMESTAMP(3), n INT, WATERMARK FOR at_time AS at_time)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'scan.max-files-per-batch' = '1');
CREATE TABLE totals (window_end TIMESTAMP(3), total INT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO totals SELECT window_end, SUM(n) FROM TUMBLE(TABLE t, DESCRIPTOR(at_time), INTERVAL '1' MINUTE) GROUP BY window_start, window_end;
"""
STAGES: dict[str, Callable[[Path], bool]] = {
    "Spark starts": lambda job: (job / "job.log").exists(),
    "the query starts": lambda job: (job / "checkpoints" / "0").exists(),
    "a batch runs": lambda job: (job / "checkpoints" / "0" / "offsets" / "1").exists(),
}


def start(folder: Path) -> subprocess.Popen[str]:
    """Start the command in a new process group, with SIGINT handled as in a foreground shell."""
    command = [sys.executable, "-m", "everfold", "run", "job.sql", "--state", "job", "--master", "local[2]"]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def totals(folder: Path) -> list[int]:
    files = [file for file in (folder / "out").rglob("*.json") if not file.name.startswith((".", "_"))]
    return sorted(json.loads(line)["total"] for file in files for line in file.read_text().splitlines())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupted_job_stops_and_resumes(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "in").mkdir()
    for minute in range(MINUTES):
        rows = ({"at_time": f"2020-01-01 00:0{minute}:{second:02}", "n": second} for second in range(60))
        (tmp_path / "in" / f"{minute}").write_text("".join(json.dumps(row) + "\n" for row in rows))
        stamp = time.time() - 100 + minute
        os.utime(tmp_path / "in" / f"{minute}", (stamp, stamp))
    (tmp_path / "job.sql").write_text(SCRIPT)
    for stage, reached in STAGES.items():
        job = start(tmp_path)
        while job.poll() is None and not reached(tmp_path / "job"):
            time.sleep(0.01)
        # A terminal signals the whole process group; a service manager signals the process.
        (os.killpg if number is signal.SIGINT else os.kill)(job.pid, number)
        out, err = job.communicate(timeout=300)
        assert out == ""
        assert (job.returncode, "stopped" in err) in ((130, True), (0, True), (0, False)), (stage, err)
        assert not [each for each in ("Traceback", "Exception", "java.") if each in err], (stage, err)
    last = start(tmp_path)
    _, err = last.communicate(timeout=300)
    assert last.returncode == 0, err
    assert totals(tmp_path) == [sum(range(60))] * MINUTES
