"""Where the measurements are stored, and what is noted about their circumstances."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
DIRTY = "-dirty"
NOT_MEASURED = ("compare.py", "goals.py", "growth.py", "history.py", "plot_*.py")
"""The scripts that do not make the measurements stored here: a change of them leaves these valid."""


def describe_circumstances() -> dict[str, str]:
    """Return when, where and of what the measurements are."""
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "commit": _read_commit(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def history_file() -> Path:
    """Return the file for measurements of this commit, and create its folder.

    Its name begins with the day of the first one. Of changed files, each day has a file of its own.
    """
    named = describe_circumstances()
    folder = HERE / "history"
    folder.mkdir(exist_ok=True)
    today = folder / f"{named['date']}-{named['commit']}.jsonl"
    return today if named["commit"].endswith(DIRTY) else next(folder.glob(f"*-{named['commit']}.jsonl"), today)


def _read_commit() -> str:
    """Return the last commit of the measured code, marked if the code differs from it."""
    git = ["git", "-C", str(HERE.parent)]
    code = ["--", "src", "benchmarks/*.py", *(f":(exclude)benchmarks/{each}" for each in NOT_MEASURED)]
    last = [*git, "log", "-1", "--format=%h", "--abbrev=8", *code]
    commit = subprocess.run(last, check=True, capture_output=True, text=True).stdout.strip()
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", *code], check=False).returncode
    return commit + (DIRTY if changed else "")
