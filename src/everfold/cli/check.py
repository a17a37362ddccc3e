"""`everfold check`: state compatibility of an old and a new query, without running either."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from everfold.cli.run import RunOptions, Script, create_session
from everfold.errors import SqlError, StateError, UsageError

if TYPE_CHECKING:
    from everfold.compat import CompatOptions, Judgement, QueryPair, QueryShape
    from everfold.jobs.folders import FolderName
    from everfold.jobs.manifest import Manifest
    from everfold.plan.nodes import Root, Table
    from everfold.sql.settings import Settings
    from everfold.storage import Location

CheckFormat: TypeAlias = Literal["text", "json", "github"]


@dataclass(frozen=True, slots=True)
class _Queries:
    """The queries of a script.

    notes: what `everfold run` would refuse, and how it was judged. tables: those that it reads.
    complete: whether everything that it uses is declared.
    """

    roots: tuple[Root, ...]
    notes: tuple[str, ...]
    settings: Settings
    tables: tuple[Table, ...]
    sql: str
    complete: bool

    @property
    def shapes(self) -> list[QueryShape]:
        """The shapes of the queries."""
        from everfold.compat import shape_of

        return [shape_of(root) for root in self.roots]


def check(old: Script | FolderName, new: Script, options: RunOptions, format_: CheckFormat) -> int:
    """Print the verdict on two scripts, or on a job directory and a script; return its exit code.

    In the format `github`, also append a Markdown table to the file of `GITHUB_STEP_SUMMARY`. For a
    job directory, also print the stages in which `everfold run` would carry the change out.

    Raises UsageError `nothing-to-check` for a script without a query, `no-job` for a folder that
    is not a job directory; StateError `damaged-manifest`.
    """
    from everfold.compat import CompatOptions, judge_pairs, pair_queries, report

    after = _read_script(new, options)
    terms = CompatOptions.of(after.settings)
    if not isinstance(old, Script):
        from everfold.jobs.folders import open_folder_alone
        from everfold.jobs.job_dir import load_manifest

        job = open_folder_alone(old, options.conf)
        manifest = load_manifest(job)
        pairs = pair_queries(manifest.version.query_shapes, after.shapes)
        judgement = judge_pairs(pairs, terms)
        moved = _find_moved(job, after, new.folder)
        plans = _plan_change(manifest, after, pairs, judgement, terms) if after.complete else {}
        notes = (*after.notes, *moved)
    else:
        before = _read_script(old, options)
        judgement = judge_pairs(pair_queries(before.shapes, after.shapes), terms)
        moved, plans = [], {}
        notes = (*before.notes, *after.notes)
    notes = tuple(dict.fromkeys(notes))
    match format_:
        case "json":
            text = report.as_json(judgement, notes, plans)
        case "github":
            text = "\n".join([report.as_github(judgement), *map(report.as_warning, moved)])
            _append_summary(report.as_markdown(new.source, judgement, notes))
        case _:
            text = report.as_text(judgement, notes, plans)
    sys.stdout.write(text + "\n")
    return judgement.verdict.exit_code


def _append_summary(markdown: str) -> None:
    """Append to the summary of the job that GitHub runs, if it runs this process."""
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(summary, "a", encoding="utf-8") as file:
            file.write(markdown + "\n\n")


def _plan_change(
    manifest: Manifest, new: _Queries, pairs: Sequence[QueryPair], judgement: Judgement, terms: CompatOptions
) -> dict[str, list[str]]:
    """Return the stages of the change by value of `--on-change`.

    These are the values that the verdict allows; if nothing has changed, there are none.
    """
    from everfold.compat import Verdict
    from everfold.jobs.change import OnChange
    from everfold.jobs.change_plan import Judge, plan_change
    from everfold.jobs.manifest import NewQuery
    from everfold.plan.naming import number_operators

    query = NewQuery(roots=number_operators(new.roots), zone=new.settings.local_time_zone, sql=new.sql)
    if query.fingerprint == manifest.version.fingerprint:
        return {}
    match judgement.verdict:
        case Verdict.FULLY:
            ways = [OnChange.ACCEPT]
        case Verdict.PARTIALLY:
            ways = [OnChange.ACCEPT, OnChange.BACKFILL]
        case _:
            ways = [OnChange.REBUILD, OnChange.RESET]
    found: dict[str, list[str]] = {}
    for how in ways:
        try:
            plan = plan_change(manifest, query, pairs, judgement, how, terms=terms, refresh=False)
        except StateError as error:
            found[how.value] = [f"refused: {error.code}: {error.diagnostics[0].message}"]
        else:
            found[how.value] = [stage.summary for stage in plan.stages if not isinstance(stage, Judge)]
    return found


def _read_script(script: Script, options: RunOptions) -> _Queries:
    from everfold.sql.planner import Submit

    notes: list[str] = []
    session = create_session(options, script.folder, lenient=True, notes=notes.append)
    submits = [each for each in session.run(script.text, source=script.source) if isinstance(each, Submit)]
    if not submits:
        raise UsageError.of("nothing-to-check", f"`{script.source}` has no query", help="add a SELECT or an INSERT")
    refused = _refusals(session.catalog.tolerated_errors or ())
    return _Queries(
        roots=tuple(root for each in submits for root in each.roots),
        notes=tuple(f"{script.source}: {each}" for each in (*notes, *refused)),
        settings=session.settings,
        tables=tuple(dict.fromkeys(table for each in submits for table in each.sources)),
        sql=script.text,
        complete=not refused,
    )


def _find_moved(job: Location, script: _Queries, folder: Path) -> list[str]:
    """Return a message for each table of the script whose location differs from the job's."""
    from everfold.jobs.job_dir import JobDir, load_manifest
    from everfold.jobs.locations import Locations

    return Locations(JobDir(job), folder).find_changed(load_manifest(job), script.tables)


def _refusals(errors: Sequence[SqlError]) -> list[str]:
    return [f"`everfold run` refuses it: {each.diagnostics[0].message}" for each in errors]
