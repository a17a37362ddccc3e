"""`everfold check`: what the state of an old query is worth to a new one, without running either."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from everfold.cli.run import RunOptions, Script, session_of
from everfold.errors import SqlError, UsageError

if TYPE_CHECKING:
    from everfold.compat import QueryShape
    from everfold.plan.nodes import Table
    from everfold.sql.settings import Settings

CheckFormat: TypeAlias = Literal["text", "json", "github"]


@dataclass(frozen=True, slots=True)
class _Read:
    """What a script runs. notes: what no stream could run of it, and what was made of it. settings: of the script, None for a job. tables: that the script reads."""

    shapes: tuple[QueryShape, ...]
    notes: tuple[str, ...]
    settings: Settings | None
    tables: tuple[Table, ...] = ()


def check(old: Script | Path, new: Script, options: RunOptions, format_: CheckFormat) -> int:
    """Prints the judgement on two scripts, or on a job by its folder and a script; its exit code.

    UsageError `nothing-to-check` for a script without a query, `no-job` for a folder that is none, StateError `damaged-manifest`.
    """
    from everfold.compat import Terms, judge, report

    before = _read_job(old) if isinstance(old, Path) else _read(old, options)
    after = _read(new, options)
    assert after.settings is not None
    terms = Terms.of(after.settings)
    judgement = judge(before.shapes, after.shapes, terms)
    moved = _moved(old, after, new.folder) if isinstance(old, Path) else []
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


def _read(script: Script, options: RunOptions) -> _Read:
    from everfold.compat import shape_of
    from everfold.sql.planner import Submit

    notes: list[str] = []
    session = session_of(options, script.folder, lenient=True, notes=notes.append)
    submits = [each for each in session.run(script.text, source=script.source) if isinstance(each, Submit)]
    if not submits:
        raise UsageError.of(
            "nothing-to-check", f"`{script.source}` has no query", help="it takes a SELECT or an INSERT"
        )
    notes += _refused(session.catalog.excused or ())
    shapes = tuple(shape_of(root) for each in submits for root in each.roots)
    tables = dict.fromkeys(table for each in submits for table in each.sources)
    return _Read(shapes, tuple(f"{script.source}: {each}" for each in notes), session.settings, tuple(tables))


def _moved(job: Path, script: _Read, folder: Path) -> list[str]:
    """The tables of a script that lie elsewhere than those of a job did."""
    from everfold.jobs.folder import JobFolder, manifest_of
    from everfold.jobs.locations import Locations

    opened = JobFolder(Path(os.path.realpath(job)))
    return Locations(opened, folder).find_changed(manifest_of(job), script.tables)


def _read_job(path: Path) -> _Read:
    """What the job runs that a folder belongs to."""
    from everfold.jobs.folder import manifest_of

    return _Read(tuple(manifest_of(path).version.known), (), None)


def _refused(errors: Sequence[SqlError]) -> list[str]:
    return [f"`everfold run` refuses it: {each.diagnostics[0].message}" for each in errors]
