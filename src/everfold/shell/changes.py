"""A changed job: judge the new query before it starts, and ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from everfold.compat import Verdict
from everfold.compat.report import as_text
from everfold.errors import StateError
from everfold.jobs.answers import ChangedJob, Inputs
from everfold.jobs.change import MEANINGS, OnChange
from everfold.jobs.changed_tables import ChangedTable
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import Manifest, NewQuery
from everfold.jobs.moving import move_sinks
from everfold.jobs.renamed_sources import rename_sources
from everfold.jobs.rewind import NewSink, check_duplicates, describe_effects
from everfold.jobs.sink_tables import sink_notes
from everfold.plan.naming import number_operators

if TYPE_CHECKING:
    from everfold.shell.screen import Screen
    from everfold.sql.planner import Submit

_NO = "no"


def find_change(
    job_dir: JobDir, manifest: Manifest, submit: Submit, inputs: Inputs, behind: Sequence[ChangedTable] = ()
) -> ChangedJob | None:
    """Return a job with the query that is to continue it.

    Return None if it is the job's query, and writes the tables where the job has written them.
    behind: tables that lacked rows when the job last started.
    """
    query = NewQuery(
        roots=number_operators(submit.roots),
        zone=submit.settings.local_time_zone,
        sql=submit.text,
        base_folder=inputs.base_folder,
        bind=submit.bind,
    )
    query = rename_sources(query, manifest.version, {})
    manifest = move_sinks(job_dir, manifest, sink_notes(query.roots, query.base_folder))
    job = ChangedJob.of(job_dir, manifest, query, inputs, submit.settings, behind)
    return None if manifest.version.is_query(query) and not job.changed_sinks else job


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do with a changed job.

    duplicates: rows may be written twice to its tables. sinks: what tables receive that are now
    written elsewhere.
    """

    how: OnChange
    duplicates: bool = False
    sinks: Mapping[str, NewSink] = field(default_factory=dict)


def decide_change(screen: Screen, name: str, job: ChangedJob) -> Decision:
    """Show the verdict on a changed job, and ask the user what to do.

    A change that keeps the whole state is accepted.
    """
    decision = _decide_query(screen, name, job)
    if decision.how in (OnChange.REFUSE, OnChange.REBUILD):
        return decision
    sinks: dict[str, NewSink] = {}
    for table in job.changed_sinks:
        answer = screen.ask(
            f"{table.message}. What does it receive?", {**table.answers, _NO: MEANINGS[OnChange.REFUSE]}, _NO
        )
        if answer == _NO:
            return Decision(how=OnChange.REFUSE)
        sinks[table.table.name] = NewSink(answer)
    if NewSink.REBUILD in sinks.values():
        return replace(_confirm_rebuild(screen, job.known), sinks=sinks)
    return replace(decision, sinks=sinks)


def _decide_query(screen: Screen, name: str, job: ChangedJob) -> Decision:
    """Decide how a job continues, without regard to where its tables are."""
    if job.known.version.is_query(job.query):
        return Decision(how=OnChange.ACCEPT)
    screen.show_message(f"The query of job `{name}` has changed.\n\n{as_text(job.judgement)}\n")
    if job.judgement.verdict is Verdict.FULLY:
        return Decision(how=OnChange.ACCEPT)
    answers = {
        answer.how.value: f"{answer.meaning} ({answer.cost_summary})" if answer.cost_summary else answer.meaning
        for answer in job.list_answers()
    }
    answer = screen.ask("Change the job?", answers | {_NO: MEANINGS[OnChange.REFUSE]}, _NO)
    if answer == OnChange.REBUILD:
        return _confirm_rebuild(screen, job.known)
    return Decision(how=OnChange.REFUSE if answer == _NO else OnChange(answer))


def _confirm_rebuild(screen: Screen, manifest: Manifest) -> Decision:
    """Show the effect of a rebuild on the job's tables; ask if rows would be written twice."""
    tables = manifest.version.sinks
    for line in describe_effects(tables or (), lambda effect: effect.on_rebuild):
        screen.show_message(line)
    try:
        check_duplicates(tables, accepted=False)
    except StateError as error:
        answers = {"yes": "rebuild the job", "no": "leave it as it is"}
        if screen.ask(f"{error.diagnostics[0].message}. Accept this?", answers, _NO) == _NO:
            return Decision(how=OnChange.REFUSE)
        return Decision(how=OnChange.REBUILD, duplicates=True)
    return Decision(how=OnChange.REBUILD)
