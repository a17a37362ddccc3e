"""`everfold diff`: how two versions of a job's query differ, and what was kept from one to the other."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from everfold.errors import UsageError


def diff(folder: Path, old: int, new: int) -> None:
    """Prints the difference of the texts of two versions, and the judgement on it. UsageError `no-job`, `no-version`."""
    from everfold.compat import judge, report
    from everfold.jobs.folder import manifest_of

    versions = {each.number: each for each in manifest_of(folder).versions}
    for number in (old, new):
        if number not in versions:
            there = ", ".join(map(str, versions))
            raise UsageError.of("no-version", f"the job has no version {number}", help=f"there are {there}")
    before, after = versions[old], versions[new]
    lines = difflib.unified_diff(
        before.sql.splitlines(), after.sql.splitlines(), f"version {old}", f"version {new}", lineterm=""
    )
    sys.stdout.write("\n".join(lines) + "\n\n" + report.as_text(judge(before.known, after.known)) + "\n")
