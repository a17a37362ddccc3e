"""Find the job directories in a folder and below it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from everfold.jobs.shared_ownership import list_numbers
from everfold.storage import Entry, Location

_MAX_DEPTH = 6
OTHER_JOBS = "jobs"
"""The folder in a job directory for the other jobs of its script."""


def find_jobs(folder: Location, depth: int = _MAX_DEPTH, above: frozenset[str] = frozenset()) -> Iterator[Location]:
    """Yield the job directories in a folder, itself included, by path. Raises OSError.

    Folders of files that this user may not read are left out, and so are links to a folder above
    them. above: the real paths of the folders above a local one.
    """
    path = folder.local_path
    if path is not None:
        real = os.path.realpath(path)
        if real in above:
            return
        above |= {real}
    try:
        entries = folder.entries()
    except PermissionError:
        return
    is_job = _is_job(folder, entries)
    if is_job:
        yield folder
    if depth:
        for each in entries:
            if each.is_folder and (not is_job or each.name == OTHER_JOBS):
                yield from find_jobs(folder / each.name, depth - 1, above)


def _is_job(folder: Location, entries: Sequence[Entry]) -> bool:
    names = {each.name for each in entries}
    is_numbered = "manifest" in names and bool(list_numbers(folder / "manifest"))
    was_started = {"lock", "progress"} <= names  # a first start that ended early has no manifest
    return is_numbered or was_started or {"manifest.json", "checkpoints"} <= names
