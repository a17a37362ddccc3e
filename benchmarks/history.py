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
    """Return the commit, marked if the measured code differs from it."""
    git = ["git", "-C", str(HERE.parent)]
    commit = subprocess.run([*git, "rev-parse", "--short=8", "HEAD"], check=True, capture_output=True, text=True)
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "src", "benchmarks/*.py"], check=False)
    return commit.stdout.strip() + ("-dirty" if changed.returncode else "")
