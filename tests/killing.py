"""Run a job and kill it repeatedly with SIGKILL, each time shortly after a new commit."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from manifests import newest_manifest


def seed_random() -> random.Random:
    """Return a reproducible random generator: its seed is `EVERFOLD_SEED` or the time, and is
    printed.
    """
    seed = int(os.environ.get("EVERFOLD_SEED", time.time_ns() % 100_000))
    print("EVERFOLD_SEED", seed)
    return random.Random(seed)


def start(folder: Path, script: str, log: Path) -> subprocess.Popen[bytes]:
    """Start `everfold run` of a script in a directory, in its own process group."""
    command = [sys.executable, "-m", "everfold", "run", script, "--state", "state", "--master", "local[2]"]
    with log.open("ab") as out:
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, start_new_session=True)


def commits(folder: Path) -> int:
    """Return the number of the newest committed batch, -1 before the first."""
    log = folder / "state" / "checkpoints" / "0" / "commits"
    return max((int(each.name) for each in log.iterdir() if each.name.isdigit()), default=-1) if log.is_dir() else -1


def run_with_kills(folder: Path, script: str, *, kills: int, within_s: float, chance: random.Random) -> int:
    """Run a script to its end and return how often it was killed.

    It is killed at most `kills` times, each time 0 to `within_s` seconds after a new commit. Every
    other kill hits the Python process only: its JVM survives for a moment, while the next run
    starts.
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


CHANGE_STAGES: dict[str, Callable[[Path], bool]] = {
    "the change is settled": lambda folder: len(json.loads(newest_manifest(folder).read_text())["versions"]) == 2,
    "the first batch is planned": lambda folder: len(list_batches(folder / "checkpoints/1/offsets")) > 2,
    "the first batch is done": lambda folder: len(list_batches(folder / "checkpoints/1/commits")) > 2,
}
"""Whether the first change of a job that has run two batches has reached a stage, by its folder."""


def list_batches(log: Path) -> list[Path]:
    """Return the files of batches in a log of a checkpoint."""
    return list(log.glob("[0-9]*"))


def kill_at_stage(job: subprocess.Popen[bytes], has_reached: Callable[[Path], bool], folder: Path) -> bool:
    """Kill a job with SIGKILL when its folder has reached a stage; return whether it was running."""
    while job.poll() is None and not has_reached(folder):
        time.sleep(0.002)
    is_running = job.poll() is None
    if is_running:
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    return is_running
