"""The names of a job's files in the folder of a table, and those of files that are withdrawn.

A file of a batch is `part-<job and sink>-<epoch>-<batch>-<number>.<format>`. A withdrawn one is
`.part-….withdrawn`, so that no reader sees it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator

from everfold.connectors.replay import JobLineage
from everfold.storage import Location

_WITHDRAWN = ".withdrawn"


def identify_sink(job: str, sink: str) -> str:
    """Return the identifier of job and sink that is used in file names."""
    return hashlib.sha256(f"{job}\0{sink}".encode()).hexdigest()[:8]


def find_misnamed(root: Location, sinks: Collection[str], past: JobLineage) -> list[tuple[Location, Location]]:
    """Return the files to withdraw, and the withdrawn ones that count again, with their new names.

    root: the table's folder. sinks: the names that the job's sinks of the table have had.
    """
    files = _find_files(root, past.job, sinks)
    return [(file, file.with_name(name)) for file, found in files if (name := _rename(found, past))]


def find_left_files(root: Location, job: str, sinks: Collection[str], epochs: Collection[int]) -> list[Location]:
    """Return the withdrawn files of some epochs. See `find_misnamed`."""
    return [file for file, found in _find_files(root, job, sinks) if found[4] and int(found[2]) in epochs]


def _find_files(root: Location, job: str, sinks: Collection[str]) -> Iterator[tuple[Location, re.Match[str]]]:
    """Yield the visible and the withdrawn files of a job, with the parts of their names."""
    identities = "|".join(identify_sink(job, each) for each in sorted(sinks))
    own = re.compile(rf"(\.?)part-(?:{identities})-(\d+)-(\d+)-\d+\.\w+({re.escape(_WITHDRAWN)})?")
    for file in root.walk():
        found = own.fullmatch(file.name)
        if found is not None:
            yield file, found


def _rename(found: re.Match[str], past: JobLineage) -> str | None:
    """Return the new name of a file of the job, None if it keeps its name."""
    name, counts = found[0], past.includes(int(found[2]), int(found[3]))
    match (bool(found[1]), bool(found[4])):
        case (False, False) if not counts:
            return f".{name}{_WITHDRAWN}"
        case (True, True) if counts:
            return name[1 : -len(_WITHDRAWN)]
    return None
