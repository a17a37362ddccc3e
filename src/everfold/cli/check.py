"""`everfold check`: state compatibility of an old and a new query, without running either."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from everfold.cli.run import RunOptions, Script, create_session
from everfold.cli.runner import open_job
from everfold.errors import SqlError, StateError, UsageError
from everfold.storage import Location

if TYPE_CHECKING:
    from everfold.compat import CompatOptions, Judgement, QueryPair, QueryShape
    from everfold.jobs.folders import FolderName
    from everfold.jobs.manifest import Manifest, NewQuery
    from everfold.plan.nodes import Root, Table
    from everfold.sql.settings import Settings

CheckFormat: TypeAlias = Literal["text", "json", "github"]


@dataclass(frozen=True, slots=True)
class _Queries:
    """The queries of a script.

    notes: what `everfold run` would refuse, and how it was judged. tables: those that it reads.
    complete: whether everything that it uses is declared. bind: see `Submit`.
    """

    roots: tuple[Root, ...]
    notes: tuple[str, ...]
    settings: Settings
    tables: tuple[Table, ...]
    sql: str
    complete: bool
    bind: Callable[[str], Sequence[Root]]

    @property
    def query(self) -> NewQuery:
        """The queries as a job would run them."""
        from everfold.jobs.manifest import NewQuery
        from everfold.plan.naming import number_operators

        zone = self.settings.local_time_zone
        return NewQuery(roots=number_operators(self.roots), zone=zone, sql=self.sql, bind=self.bind)

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
    from everfold.compat import report

    found = judge_change(old, new, options)
    match format_:
        case "json":
            text = report.as_json(found.judgement, found.notes, found.plans)
        case "github":
            text = "\n".join([report.as_github(found.judgement), *map(report.as_warning, found.moved)])
            _append_summary(report.as_markdown(new.source, found.judgement, found.notes))
        case _:
            text = report.as_text(found.judgement, found.notes, found.plans)
    sys.stdout.write(text + "\n")
    return found.judgement.verdict.exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A judged change.

    notes: sentences for the user. moved: those about tables whose location has changed. plans: the
    stages in which it would be carried out, by value of `--on-change`. explained: the new plan.
    """

    judgement: Judgement
    notes: tuple[str, ...]
    moved: tuple[str, ...]
    plans: Mapping[str, Sequence[str]]
    explained: str


def judge_change(old: Script | FolderName | Location, new: Script, options: RunOptions) -> Change:
    """Judge the change from a script or the query of a job to a new script. Raises as `check`."""
    from everfold.compat import CompatOptions, judge_pairs, pair_queries
    from everfold.plan.explain import explain

    after = _read_script(new, options)
    terms = CompatOptions.of(after.settings)
    moved: list[str] = []
    plans: dict[str, list[str]] = {}
    if isinstance(old, Script):
        before = _read_script(old, options)
        judgement = judge_pairs(pair_queries(before.shapes, after.shapes), terms)
        notes = (*before.notes, *after.notes)
    else:
        from everfold.jobs.job_dir import load_manifest

        job = old if isinstance(old, Location) else open_job(old, options.conf)
        manifest = load_manifest(job)
        pairs = pair_queries(manifest.version.read_shapes(after.query), after.shapes)
        judgement = judge_pairs(pairs, terms)
        moved = _find_moved(job, after, new.folder)
        if after.complete:
            plans = _plan_change(manifest, after, pairs, judgement, terms)
        notes = (*after.notes, *moved)
    return Change(
        judgement=judgement,
        notes=tuple(dict.fromkeys(notes)),
        moved=tuple(moved),
        plans=plans,
        explained="\n\n".join(explain(root, streaming=after.settings.streaming) for root in after.roots),
    )


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

    query = new.query
    if manifest.version.is_query(query):
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
        bind=submits[0].bind,
    )


def _find_moved(job: Location, script: _Queries, folder: Path) -> list[str]:
    """Return a message for each table of the script whose location differs from the job's."""
    from everfold.jobs.job_dir import JobDir, load_manifest
    from everfold.jobs.locations import Locations

    return Locations(JobDir(job), folder).find_changed(load_manifest(job), script.tables)


def _refusals(errors: Sequence[SqlError]) -> list[str]:
    return [f"`everfold run` refuses it: {each.diagnostics[0].message}" for each in errors]
