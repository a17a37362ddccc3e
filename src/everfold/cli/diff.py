"""`everfold diff`: the difference between two versions of a job, and the verdict on it."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from everfold.cli.runner import open_job

if TYPE_CHECKING:
    from everfold.jobs.folders import FolderName


def diff(folder: FolderName, old: int, new: int, conf: Mapping[str, str]) -> None:
    """Print the difference of the queries of two versions, and the verdict on it.

    Raises UsageError `no-job`, `no-version`.
    """
    from everfold.compat.report import as_text
    from everfold.jobs.job_dir import load_manifest
    from everfold.jobs.versions import judge_versions

    manifest = load_manifest(open_job(folder, conf))
    before, after = manifest.find_version(old), manifest.find_version(new)
    lines = difflib.unified_diff(
        before.sql.splitlines(), after.sql.splitlines(), f"version {old}", f"version {new}", lineterm=""
    )
    sys.stdout.write("\n".join(lines) + "\n\n" + as_text(judge_versions(manifest, before, after)) + "\n")
