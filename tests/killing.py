"""Killing a job again and again with SIGKILL, each time a while after it has got somewhere."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path


def seeded() -> random.Random:
    """Chance that can be had again: EVERFOLD_SEED, printed."""
    seed = int(os.environ.get("EVERFOLD_SEED", time.time_ns() % 100_000))
    print("EVERFOLD_SEED", seed)
    return random.Random(seed)


def start(folder: Path, script: str, log: Path) -> subprocess.Popen[bytes]:
    """`everfold run` of a script in a folder, in a process group of its own."""
    command = [sys.executable, "-m", "everfold", "run", script, "--state", "state", "--master", "local[2]"]
    with log.open("ab") as out:
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, start_new_session=True)


def commits(folder: Path) -> int:
    """Number of the newest committed batch, -1 before the first."""
    log = folder / "state" / "checkpoints" / "0" / "commits"
    return max((int(each.name) for each in log.iterdir() if each.name.isdigit()), default=-1) if log.is_dir() else -1


def run_with_kills(folder: Path, script: str, *, kills: int, within_s: float, chance: random.Random) -> int:
    """Runs a script to its end, killing it `kills` times at most, each time 0 to `within_s` after a new commit; how often it was.

    Every other kill takes Python alone: its JVM lives on for a moment, beside the next start.
    """
    log = folder / "log.txt"
    killed = 0
    while killed < kills:
        before = commits(folder)
        job = start(folder, script, log)
        while job.poll() is None and commits(folder) == before:
            time.sleep(0.02)
        deadline = time.monotonic() + chance.uniform(0, within_s)
        while job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if job.poll() is not None:
            assert job.returncode == 0, log.read_text()
            break
        if killed % 2:
            os.kill(job.pid, signal.SIGKILL)
        else:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        killed += 1
    last = start(folder, script, log)
    assert last.wait(timeout=600) == 0, log.read_text()
    return killed
