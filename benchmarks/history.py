"""Where the measurements are stored, and what is noted about their circumstances."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


def describe_circumstances() -> dict[str, str]:
    """Return when, where and of what the measurements are."""
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "commit": _read_commit(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def history_file() -> Path:
    """Return the file for measurements of today and of this commit, and create its folder."""
    named = describe_circumstances()
    file = HERE / "history" / f"{named['date']}-{named['commit']}.jsonl"
    file.parent.mkdir(exist_ok=True)
    return file


def _read_commit() -> str:
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--exclude", "*", "--abbrev=8"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
