"""Which job each statement of a script continues: the one that has written its tables.

So statements may stand in any order, and one that is added or removed changes no other job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from everfold.compat.matching import compare_jobs, continues_job
from everfold.compat.serde import from_json
from everfold.compat.shape import QueryShape, shape_of
from everfold.connectors.connector_errors import file_system_error
from everfold.errors import EverfoldError
from everfold.jobs.job_dir import JobDir
from everfold.jobs.job_list import OTHER_JOBS
from everfold.jobs.moving import move_sinks
from everfold.jobs.sink_tables import SinkNote, may_share_location, sink_notes
from everfold.plan.nodes import Root, Sink
from everfold.storage import Location

if TYPE_CHECKING:
    from everfold.jobs.manifest import Manifest
    from everfold.sql.planner import Submit


@dataclass(frozen=True, kw_only=True)
class JobOutline:
    """What tells a job from the others of its script.

    sinks: the tables that it writes, none for a bare SELECT; undeclared ones, and those of an
    earlier release, have only a name. read_shapes: returns the shapes of its queries.
    """

    sinks: Sequence[SinkNote]
    read_shapes: Callable[[], Sequence[QueryShape]] = field(repr=False)

    @classmethod
    def of_statement(cls, submit: Submit, base_folder: Path) -> JobOutline:
        """Return the outline of the job that a statement starts. base_folder: of relative paths."""
        roots = submit.roots
        return cls(sinks=_describe_sinks(roots, base_folder), read_shapes=lambda: [shape_of(root) for root in roots])

    @classmethod
    def of_job(cls, manifest: Manifest) -> JobOutline:
        """Return the outline of a job with a manifest."""
        version = manifest.version
        names = (from_json(shape).sink for shape in version.shapes) if version.sinks is None else ()
        sinks = version.sinks if version.sinks is not None else [_note_name(name) for name in names if name]
        return cls(sinks=sinks, read_shapes=version.read_shapes)

    @cached_property
    def shapes(self) -> Sequence[QueryShape]:
        """The shapes of its queries."""
        return self.read_shapes()

    @property
    def tables(self) -> str:
        """The names of its tables for people, empty for a bare SELECT."""
        return ", ".join(f"`{name}`" for name in dict.fromkeys(note["table"] for note in self.sinks))


def _describe_sinks(roots: Sequence[Root], base_folder: Path) -> list[SinkNote]:
    notes: list[SinkNote] = []
    for root in roots:
        if isinstance(root, Sink):
            is_declared = root.table.connector is not None
            notes += sink_notes([root], base_folder) if is_declared else [_note_name(root.table.name)]
    return notes


def _note_name(table: str) -> SinkNote:
    """Return the note of a table of which only the name is known."""
    return {"table": table, "connector": ""}


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

    folders: for each statement, the path of its job directory below the folder of the script.
    jobs: for each statement, the job that it continues, None for a new one. left: the jobs that no
    statement continues. errors: why the manifest in a folder cannot be read.
    """

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


def pair_jobs(old: Sequence[JobOutline], new: Sequence[JobOutline], *, is_first_old: bool = True) -> dict[int, int]:
    """Return the position of the old job that each new statement continues, by that of the
    statement.

    A statement continues a job that writes one of its tables: at the same location rather than
    under the same name alone, and of several the one with the most similar queries. Of those that
    are left, it continues one that computes the same for other tables. The only statement of a
    script continues the first job in any case. is_first_old: whether the first job is `old[0]`.
    """
    same_tables = {
        (position, number): closeness
        for number, statement in enumerate(new)
        for position, job in enumerate(old)
        if (closeness := _compare_tables(job.sinks, statement.sinks)) is not None
    }
    pairs = _pair_closest(same_tables, old, new)
    same_queries = {
        (position, number): _Closeness(0, 0)
        for number, statement in enumerate(new)
        for position, job in enumerate(old)
        if not (number in pairs or position in pairs.values())
        and (job.sinks and statement.sinks and continues_job(job.shapes, statement.shapes))
    }
    pairs |= _pair_closest(same_queries, old, new)
    return {0: 0} if len(new) == 1 and not pairs and is_first_old else pairs


class _Closeness(NamedTuple):
    """How close the tables of two jobs are.

    level: 3 for the same table, 2 for another name, 1 for another location. tables: their number.
    """

    level: int
    tables: int


def _compare_tables(old: Sequence[SinkNote], new: Sequence[SinkNote]) -> _Closeness | None:
    """Compare the tables that two jobs write; return None if none is the same."""
    if not old and not new:
        return _Closeness(0, 0)
    levels = [level for note in old for other in new if (level := _compare_table(note, other)) > 0]
    return _Closeness(max(levels), len(levels)) if levels else None


def _compare_table(old: SinkNote, new: SinkNote) -> int:
    """Return the level of closeness of two tables, 0 if they differ."""
    is_named_alike = old["table"] == new["table"]
    if not (old.get("location") and new.get("location")):
        return 3 * is_named_alike
    return 2 * may_share_location(old, new) + is_named_alike


def _pair_closest(
    closeness: Mapping[tuple[int, int], _Closeness], old: Sequence[JobOutline], new: Sequence[JobOutline]
) -> dict[int, int]:
    """Return the position of an old job by that of the new statement, the closest ones first.

    closeness: by the positions of an old job and a new statement. Of several that are equally
    close, the ones with the most similar queries are paired, and else the first ones.
    """
    rivals = [Counter(positions) for positions in zip(*closeness, strict=True)]

    def rank(candidate: tuple[int, int]) -> tuple[_Closeness, tuple[float, ...]]:
        position, number = candidate
        is_sure = rivals[0][position] == rivals[1][number] == 1
        return closeness[candidate], () if is_sure else compare_jobs(old[position].shapes, new[number].shapes)

    pairs: dict[int, int] = {}
    for position, number in sorted(closeness, key=rank, reverse=True):
        if number not in pairs and position not in pairs.values():
            pairs[number] = position
    return pairs
