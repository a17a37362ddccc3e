"""The answers that a user can give to a changed query: what each does, and what it costs.

An answer that would be refused is not offered. `everfold check --state` lists the same ones as the
errors of `everfold run`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.checkpoint.logs import last_finished_batch, last_planned_batch
from everfold.compat import CompatOptions, Judgement, QueryPair, Verdict, judge_pairs, pair_queries
from everfold.compat.alternatives import add_alternative
from everfold.connectors.contract import Source, no_past_error
from everfold.errors import EverfoldError, StateError
from everfold.jobs.change import MEANINGS, OnChange
from everfold.jobs.change_plan import BackfillCalls, ChangePlan, plan_change
from everfold.jobs.changed_tables import ChangedTable, describe_location, list_changed_sinks
from everfold.jobs.job_dir import JobDir
from everfold.jobs.read_cost import NOTHING, ReadCost, measure_cost
from everfold.jobs.readiness import check_batches, check_may_change
from everfold.jobs.rewind import check_duplicates
from everfold.jobs.sink_tables import SinkComparison, compare_sinks, may_share_location, sink_notes
from everfold.jobs.suggested_renamings import suggest_renaming
from everfold.plan.nodes import Scan, Sink, Table
from everfold.plan.walk import operators_of, scans_of, walk_streamed

if TYPE_CHECKING:
    from everfold.compat.operator_ids import SourceNote
    from everfold.connectors.validate import CheckedTable, CheckedTables
    from everfold.jobs.manifest import Manifest, NewQuery
    from everfold.sql.settings import Settings

_KEEP_STATE = (OnChange.ACCEPT, OnChange.BACKFILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of a user to a changed query.

    duplicates: whether the user must accept duplicate rows, too. cost: of the input that is read
    again.
    """

    how: OnChange
    duplicates: bool
    cost: ReadCost

    @property
    def option(self) -> str:
        """The answer as it is written on the command line."""
        return f"--on-change {self.how}{' --sink-duplicates accept' * self.duplicates}"

    @property
    def meaning(self) -> str:
        """What the answer does, for people."""
        return MEANINGS[self.how]

    @property
    def cost_summary(self) -> str:
        """What is read again, for people; empty if nothing is."""
        return "" if self.cost == NOTHING else self.cost.summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The tables that a query reads.

    sources: by name, without those whose rows the caller provides. forgotten: those of the caller
    whose rows cannot be provided again. base_folder: start of relative paths. declared: the tables
    as declared. old_declared: likewise those of an imagined job, which has opened no source.
    """

    sources: Mapping[str, Source] = field(default_factory=dict)
    forgotten: Collection[str] = ()
    base_folder: Path = Path()
    declared: Mapping[str, CheckedTable] = field(default_factory=dict)
    old_declared: Mapping[str, CheckedTable] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: CheckedTables, base_folder: Path, forgotten: Collection[str] = ()) -> Inputs:
        """Return the tables of a job that were checked."""
        sources = {table.name: checked.source() for table, checked in tables.sources.items()}
        declared = {table.name: checked for table, checked in tables.sources.items()}
        return cls(sources=sources, forgotten=forgotten, base_folder=base_folder, declared=declared)

    def is_same_location(self, note: SourceNote, table: Table) -> bool:
        """Return whether a table that the job has read is at the location of a table of the query.

        Asks an external system if its connector cannot tell otherwise.
        """
        old, new = self.old_declared.get(note["table"]), self.declared.get(table.name)
        if new is None:
            return False
        if old is not None:
            return may_share_location(
                describe_location(old, self.base_folder), describe_location(new, self.base_folder)
            )
        with suppress(EverfoldError):
            location = self.sources[table.name].location(self.base_folder)
            return (note.get("connector"), note.get("location")) == (new.connector.name, location)
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedJob:
    """A job whose query has changed.

    job_dir: None for a job that is only imagined. known: its manifest. query: the new query.
    pairs, judgement: of the old and the new query. options: by which they were judged. inputs: the
    tables that the new query reads. sinks: the tables that it writes. behind: those that lack rows
    which the job has written to them. refresh: the positions of the queries whose operators re-emit
    the result.
    """

    job_dir: JobDir | None
    known: Manifest
    query: NewQuery
    pairs: Sequence[QueryPair]
    judgement: Judgement
    options: CompatOptions
    inputs: Inputs
    sinks: SinkComparison
    behind: Sequence[ChangedTable] = ()
    refresh: Collection[int] = ()

    @classmethod
    def of(
        cls,
        job_dir: JobDir | None,
        known: Manifest,
        query: NewQuery,
        inputs: Inputs,
        settings: Settings,
        behind: Sequence[ChangedTable] = (),
    ) -> ChangedJob:
        """Judge a query that is to continue a job, by the rules that a session has set."""
        options = CompatOptions.of(settings)
        declared = [root for root in query.roots if isinstance(root, Sink) and root.table.connector is not None]
        sinks = compare_sinks(known.version.sinks or (), sink_notes(declared, query.base_folder))
        pairs = pair_queries(known.version.read_shapes(query), query.shapes, sinks.renamed)
        judgement = add_alternative(judge_pairs(pairs, options), pairs, options)
        if judgement.verdict is not Verdict.FULLY:
            suggested = suggest_renaming(
                known.version, query, judgement, options, sinks.renamed, inputs.is_same_location
            )
            judgement = judgement if suggested is None else replace(judgement, alternative=suggested)
        return cls(
            job_dir=job_dir,
            known=known,
            query=query,
            pairs=pairs,
            judgement=judgement,
            options=options,
            inputs=inputs,
            sinks=sinks,
            behind=behind,
        )

    @property
    def changed_sinks(self) -> list[ChangedTable]:
        """The tables that the user must be asked about if the job resumes with its state."""
        if self.job_dir is not None and not has_planned_batch(self.job_dir, self.known):
            return []
        return [*list_changed_sinks(self.query.roots, self.pairs, self.sinks), *self.behind]

    def refresh_tables(self, tables: Collection[str] | None = None) -> ChangedJob:
        """Return the job with operators that re-emit their rows to tables, by default to all."""
        refresh = [
            position
            for position, root in enumerate(self.query.roots)
            if tables is None or (isinstance(root, Sink) and root.table.name in tables)
        ]
        return replace(self, refresh=refresh)

    def list_answers(self) -> list[Answer]:
        """Return the answers that would not be refused."""
        return [answer for how in MEANINGS if (answer := self._find_answer(how)) is not None]

    def check_state(self, how: OnChange) -> None:
        """Check that the old state may be used as an answer says.

        Raises StateError `damaged-checkpoint`, `unfinished-batch`, `unfinished-change`.
        """
        if self.job_dir is None:
            return
        match how:
            case OnChange.ACCEPT | OnChange.BACKFILL:
                check_may_change(self.job_dir, self.known)
            case OnChange.RESET:
                check_batches(self.job_dir, self.known)
                self.job_dir.check_finished(self.known, self.known.current)

    def plan(self, how: OnChange) -> ChangePlan:
        """Plan how the job continues with an answer.

        Raises StateError `no-backfill`, `no-past`, `reshaped-query`.
        """
        plan = plan_change(
            self.known,
            self.query,
            self.pairs,
            self.judgement,
            how,
            terms=self.options,
            refresh=self.refresh,
            renamed_sinks=self.sinks.renamed,
        )
        if how is OnChange.BACKFILL:
            self._check_past(plan)
        return plan

    def _find_answer(self, how: OnChange) -> Answer | None:
        if how is OnChange.REFUSE or (how in _KEEP_STATE and not self.judgement.verdict.reuses_state):
            return None
        try:
            self.check_state(how)
            plan = self.plan(how)
        except StateError:
            return None
        return Answer(how=how, duplicates=_may_duplicate(plan), cost=self.measure(plan))

    def measure(self, plan: ChangePlan) -> ReadCost:
        """Return what it costs to read again what a plan needs. Asks no external system."""
        tables = [scan.table for scan in _list_scans(plan)]
        if not tables or self.job_dir is None:
            return NOTHING
        return measure_cost(self.job_dir, self.known, tables, self.inputs.sources, self.inputs.base_folder)

    def _check_past(self, plan: ChangePlan) -> None:
        """Check that what the job has read can be read again. Raises StateError `no-past`."""
        job_dir = self.job_dir
        if job_dir is None or last_finished_batch(job_dir.checkpoint(self.known, self.known.current)) < 0:
            return
        names = {note["table"]: note.get("spark_name", "") for note in self.known.version.sources or ()}
        for table in dict.fromkeys(scan.table for scan in _list_scans(plan)):
            if table.name in self.inputs.sources:
                self.inputs.sources[table.name].check_history(job_dir.path, names.get(table.identity, ""))
            elif table.name in self.inputs.forgotten:
                raise no_past_error(table)


def has_planned_batch(job_dir: JobDir, manifest: Manifest) -> bool:
    """Return whether a job has begun. manifest: the one in place."""
    return last_planned_batch(job_dir.checkpoint(manifest, manifest.current)) >= 0


def _list_scans(plan: ChangePlan) -> list[Scan]:
    """Return the scans whose tables a plan reads again."""
    if plan.manifest.version.rebuilt:
        return scans_of(plan.roots)
    stages = [stage for stage in plan.stages if isinstance(stage, BackfillCalls)]
    backfilled = {change.operator_id for stage in stages for change in stage.operators}
    return [
        scan
        for node in operators_of(plan.roots)
        if node.operator_id in backfilled
        for scan in walk_streamed(node)
        if isinstance(scan, Scan)
    ]


def _may_duplicate(plan: ChangePlan) -> bool:
    """Whether a plan would duplicate rows in a table."""
    if not plan.manifest.version.rebuilt:
        return False
    try:
        check_duplicates(plan.manifest.rewritten_sinks, accepted=False)
    except StateError:
        return True
    return False
