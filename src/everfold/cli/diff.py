"""`everfold diff`: the difference between two versions of a job, and the verdict on it."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path


def diff(folder: Path, old: int, new: int) -> None:
    """Print the difference of the queries of two versions, and the verdict on it.

    Raises UsageError `no-job`, `no-version`.
    """
    from everfold.compat import judge, report
    from everfold.jobs.job_dir import load_manifest

    manifest = load_manifest(folder)
    before, after = manifest.find_version(old), manifest.find_version(new)
    lines = difflib.unified_diff(
        before.sql.splitlines(), after.sql.splitlines(), f"version {old}", f"version {new}", lineterm=""
    )
    sys.stdout.write("\n".join(lines) + "\n\n" + report.as_text(judge(before.query_shapes, after.query_shapes)) + "\n")
