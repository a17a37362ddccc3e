"""`everfold check`: state compatibility of an old and a new query, without running either."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from everfold.cli.run import RunOptions, Script, create_session
from everfold.errors import SqlError, UsageError

if TYPE_CHECKING:
    from everfold.compat import QueryShape
    from everfold.plan.nodes import Table
    from everfold.sql.settings import Settings

CheckFormat: TypeAlias = Literal["text", "json", "github"]


@dataclass(frozen=True, slots=True)
class _Queries:
    """The queries of a script or job.

    notes: what `everfold run` would refuse, and how it was judged. settings: of the script; None
    for a job. tables: the tables that the script reads.
    """

    shapes: tuple[QueryShape, ...]
    notes: tuple[str, ...]
    settings: Settings | None
    tables: tuple[Table, ...] = ()


def check(old: Script | Path, new: Script, options: RunOptions, format_: CheckFormat) -> int:
    """Print the verdict on two scripts, or on a job directory and a script; return its exit code.

    Raises UsageError `nothing-to-check` for a script without a query, `no-job` for a folder that
    is not a job directory; StateError `damaged-manifest`.
    """
    from everfold.compat import CompatOptions, judge, report

    before = _read_job(old) if isinstance(old, Path) else _read_script(old, options)
    after = _read_script(new, options)
    assert after.settings is not None
    terms = CompatOptions.of(after.settings)
    judgement = judge(before.shapes, after.shapes, terms)
    moved = _find_moved(old, after, new.folder) if isinstance(old, Path) else []
    notes = tuple(dict.fromkeys((*before.notes, *after.notes, *moved)))
    match format_:
        case "json":
            text = report.as_json(judgement, notes)
        case "github":
            text = "\n".join([report.as_github(judgement), *map(report.as_warning, moved)])
        case _:
            text = report.as_text(judgement, notes)
    sys.stdout.write(text + "\n")
    return judgement.verdict.exit_code


def _read_script(script: Script, options: RunOptions) -> _Queries:
    from everfold.compat import shape_of
    from everfold.sql.planner import Submit

    notes: list[str] = []
    session = create_session(options, script.folder, lenient=True, notes=notes.append)
    submits = [each for each in session.run(script.text, source=script.source) if isinstance(each, Submit)]
    if not submits:
        raise UsageError.of("nothing-to-check", f"`{script.source}` has no query", help="add a SELECT or an INSERT")
    notes += _refusals(session.catalog.tolerated_errors or ())
    shapes = tuple(shape_of(root) for each in submits for root in each.roots)
    tables = dict.fromkeys(table for each in submits for table in each.sources)
    return _Queries(shapes, tuple(f"{script.source}: {each}" for each in notes), session.settings, tuple(tables))


def _find_moved(job: Path, script: _Queries, folder: Path) -> list[str]:
    """Return a message for each table of the script whose location differs from the job's."""
    from everfold.jobs.job_dir import JobDir, load_manifest
    from everfold.jobs.locations import Locations

    opened = JobDir(Path(os.path.realpath(job)))
    return Locations(opened, folder).find_changed(load_manifest(job), script.tables)


def _read_job(path: Path) -> _Queries:
    """Return the queries of the job in a folder."""
    from everfold.jobs.job_dir import load_manifest

    return _Queries(tuple(load_manifest(path).version.query_shapes), (), None)


def _refusals(errors: Sequence[SqlError]) -> list[str]:
    return [f"`everfold run` refuses it: {each.diagnostics[0].message}" for each in errors]
