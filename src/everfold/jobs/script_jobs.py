"""The job directories of a script: which one each statement continues, or begins in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.connectors.connector_errors import file_system_error
from everfold.errors import EverfoldError
from everfold.jobs.job_dir import JobDir
from everfold.jobs.job_list import OTHER_JOBS
from everfold.jobs.job_pairs import JobOutline, pair_jobs
from everfold.jobs.moving import move_sinks
from everfold.plan.nodes import Sink
from everfold.storage import Location

if TYPE_CHECKING:
    from everfold.jobs.manifest import Manifest
    from everfold.sql.planner import Submit


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptJob:
    """A job of a script that has run before. folder: its path below the folder of the script."""

    folder: tuple[str, ...]
    job_dir: JobDir
    manifest: Manifest
    outline: JobOutline


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptJobs:
    """The jobs of a script.

    outlines: of the job of each statement. folders: the paths of their job directories below the
    folder of the script. jobs: those that they continue, None for a new one. left: the jobs that no
    statement continues. errors: why the manifest in a folder cannot be read.
    """

    outlines: Sequence[JobOutline]
    folders: Sequence[tuple[str, ...]]
    jobs: Sequence[ScriptJob | None]
    left: Sequence[ScriptJob]
    errors: Mapping[tuple[str, ...], EverfoldError]

    def check_readable(self) -> None:
        """Check that the jobs of all statements can be read. Raises the error of the first one."""
        for folder in self.folders:
            if folder in self.errors:
                raise self.errors[folder]


def find_script_jobs(base: Location, submits: Sequence[Submit], base_folder: Path) -> ScriptJobs:
    """Find the job of each statement of a script.

    base: the job directory of the script. base_folder: start of relative paths. A new job gets the
    directory of the script if its statement is the first one and no job has it, else one below it
    with the names of its tables. A job that cannot be read is taken for the one that would begin in
    its directory. Raises what `JobDir.read_manifest` raises if a statement might continue one that
    cannot be read, and would begin elsewhere; ConnectorError `no-permission` and similar.
    """
    outlines = [JobOutline.of_statement(submit, base_folder) for submit in submits]
    notes = [note for outline in outlines for note in outline.sinks]
    jobs: list[ScriptJob] = []
    errors: dict[tuple[str, ...], EverfoldError] = {}
    for folder in _list_folders(base):
        job_dir = JobDir(locate(base, folder))
        try:
            manifest = job_dir.read_manifest()
            if manifest is not None:
                outline = JobOutline.of_job(move_sinks(job_dir, manifest, notes))
                jobs.append(ScriptJob(folder=folder, job_dir=job_dir, manifest=manifest, outline=outline))
        except EverfoldError as error:
            errors[folder] = error
    pairs = pair_jobs([job.outline for job in jobs], outlines, is_first_old=bool(jobs) and not jobs[0].folder)
    taken = {job.folder for job in jobs}
    folders: list[tuple[str, ...]] = []
    for number, submit in enumerate(submits):
        folder = jobs[pairs[number]].folder if number in pairs else _choose_folder(number, submit, taken)
        if errors and number not in pairs and folder not in errors:
            raise next(iter(errors.values()))
        taken.add(folder)
        folders.append(folder)
    return ScriptJobs(
        outlines=outlines,
        folders=folders,
        jobs=[jobs[pairs[number]] if number in pairs else None for number in range(len(submits))],
        left=[job for position, job in enumerate(jobs) if position not in pairs.values()],
        errors=errors,
    )


def describe_left_job(job: ScriptJob) -> str:
    """Return a sentence for the user about a job that no statement continues."""
    tables = f", which writes {job.outline.tables}," if job.outline.sinks else ""
    return f"no statement of the script continues the job in `{job.job_dir.path}`{tables} any more: it is left as it is"


def locate(base: Location, folder: Sequence[str]) -> Location:
    """Return the location of a job directory. folder: its path below that of the script."""
    for name in folder:
        base /= name
    return base


def _list_folders(base: Location) -> Iterator[tuple[str, ...]]:
    """Yield the paths below the folder of a script where its jobs may be. Raises ConnectorError."""
    yield ()
    try:
        names = [entry.name for entry in (base / OTHER_JOBS).entries() if entry.is_folder]
    except OSError as error:
        raise file_system_error(error, f"the job directories in `{base}/{OTHER_JOBS}` cannot be listed") from error
    yield from ((OTHER_JOBS, name) for name in sorted(names, key=lambda name: (len(name), name)))


def _choose_folder(number: int, submit: Submit, taken: Collection[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the path for the directory of a new job. number: of its statement, counted from 0."""
    if number == 0 and () not in taken:
        return ()
    writes = all(isinstance(root, Sink) for root in submit.roots)
    name = "+".join(submit.names) if writes else "query"
    names = chain([name], (f"{name}-{suffix}" for suffix in count(2)))
    return next(folder for folder in ((OTHER_JOBS, name) for name in names) if folder not in taken)
