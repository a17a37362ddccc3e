"""Open the job directory of a stream: create the job, resume it, or plan its change."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from everfold.checkpoint.logs import has_unfinished_batch
from everfold.compat import (
    REFERENCE,
    QueryShape,
    carry_state,
    pair_queries,
    record_coverage,
    shape_of,
)
from everfold.compat.operator_ids import source_notes
from everfold.compat.serde import to_json
from everfold.jobs.answers import ChangedJob, Inputs
from everfold.jobs.change import OnChange, changed_zone_error, decide_change
from everfold.jobs.change_plan import ChangePlan, SettleTables, SwitchManifest
from everfold.jobs.changed_tables import ChangedTable, check_sink_answers, select_answers
from everfold.jobs.earlier_shapes import PlannedAgain, complete_shapes, is_earlier
from everfold.jobs.function_sources import describe_changed_functions, digest_functions
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import Manifest, NewQuery, Version, create_version, name_plans
from everfold.jobs.moving import move_sinks
from everfold.jobs.readiness import awaits_files, check_batches
from everfold.jobs.renamed_sources import rename_sources
from everfold.jobs.rewind import Consent, NewSink
from everfold.jobs.sink_tables import sink_notes
from everfold.jobs.spec import JobSpec
from everfold.operators.reemit import can_reemit
from everfold.plan.explain import explain
from everfold.plan.naming import name_operators, number_operators
from everfold.plan.nodes import Sink
from everfold.plan.walk import last_operators
from everfold.secrets import redact_script
from everfold.spark.buckets import choose_modulus


def open_job(
    job_dir: JobDir,
    spec: JobSpec,
    inputs: Inputs,
    *,
    buckets: int,
    partitions: int,
    behind: Sequence[ChangedTable] = (),
) -> ChangePlan:
    """Return how a stream starts in a job directory that this process has locked.

    A new job gets its manifest at once. If the query has changed and the change is allowed, the
    plan has its stages. With `Consent.refresh`, also an unchanged query gets a new version, whose
    operators re-emit their rows; so it does if a table at a new location is to receive the current
    result. inputs: the tables that the query reads. buckets, partitions: of a new job. behind:
    tables that lack rows which the job has written, with an answer.

    Raises StateError `incompatible-change` and similar (`decide_change`), `changed-sink` for tables
    at a new location without an answer, `changed-zone`, `unfinished-batch`, `unfinished-change`,
    `no-backfill`, `no-past`, `reshaped-query`, `damaged-checkpoint`, UsageError
    `wrong-option-value` for wrong names of renamed tables.
    """
    explained = "\n".join(explain(root) for root in spec.roots)
    query = NewQuery(
        roots=number_operators(spec.roots),
        zone=spec.settings.local_time_zone,
        sql=spec.sql,
        script=spec.script,
        explained=explained,
        base_folder=spec.base_folder,
        bind=spec.bind,
    )
    known = job_dir.read_manifest()
    if known is None:
        return _create_job(job_dir, query, buckets, partitions)
    if known.version.zone != query.zone:
        raise changed_zone_error(f"the state in `{job_dir.path}`", known.version.zone, query.zone)
    query = rename_sources(query, known.version, spec.consent.renamed_sources)
    known = move_sinks(job_dir, known, sink_notes(query.roots, query.base_folder))
    for sentence in describe_changed_functions(known.version.functions, query.roots):
        spec.consent.note(sentence)
    is_same = known.version.is_query(query)
    if is_same or (_must_finish(job_dir, known) and known.version.read_shapes(query) == query.shapes):
        refreshes = is_same and spec.consent.refresh and not _is_starting(job_dir, known)
        changed = ChangedJob.of(job_dir, known, query, inputs, spec.settings, behind).changed_sinks
        if not refreshes and not _is_computed_again(changed, spec.consent):
            check_sink_answers(changed, spec.consent.sinks)
            _note_answers(changed, query, spec.consent)
            return replace(_resume(job_dir, known, query), asked=_name_tables(changed))
    return _change(job_dir, known, query, spec, inputs, behind)


def _create_job(job_dir: JobDir, query: NewQuery, buckets: int, partitions: int) -> ChangePlan:
    name = hashlib.sha256(f"{job_dir.path}{time.time_ns()}".encode()).hexdigest()[:12]
    version = create_version(0, 0, query, query.roots)
    manifest = Manifest(
        job=name,
        buckets=buckets,
        partitions=partitions,
        modulus=choose_modulus(buckets, partitions),
        current=0,
        versions=(version,),
    )
    with job_dir.writing():
        job_dir.control.make_folder()
    job_dir.write_manifest(manifest)
    return _start(manifest, query)


def _resume(job_dir: JobDir, known: Manifest, query: NewQuery) -> ChangePlan:
    check_batches(job_dir, known)
    return _start(renew_version(known, query), query)


def renew_version(known: Manifest, query: NewQuery) -> Manifest:
    """Return a manifest whose version records the present tables of its unchanged query."""
    last = known.version
    sources = last.sources or source_notes(name_operators(query.roots, last.operators))
    pairs = pair_queries(_complete_shapes(last, query), query.shapes)
    roots = [carry_state(pair, root, last.number) for pair, root in zip(pairs, query.roots, strict=False)]
    version = replace(
        last,
        fingerprint=query.fingerprint,
        functions=digest_functions(query.roots),
        known_names=query.known_names,
        shapes=tuple(
            to_json(record_coverage(pair, shape_of(root), last.number, REFERENCE, is_backfilled=False))
            for pair, root in zip(pairs, roots, strict=False)
        ),
        sinks=sink_notes(query.roots, query.base_folder),
        sources=sources,
        script=redact_script(query.script),
    )
    versions = tuple(version if each.epoch == known.current else each for each in known.versions)
    return replace(known, versions=versions)


def _complete_shapes(version: Version, query: NewQuery) -> list[QueryShape]:
    """Return the shapes of a version whose query has not changed."""
    shapes = version.read_shapes(query)
    if any(map(is_earlier, shapes)):
        return complete_shapes(shapes, PlannedAgain(query.roots)) or shapes
    return shapes


def _start(manifest: Manifest, query: NewQuery) -> ChangePlan:
    """Return the plan of a job whose query has not changed."""
    version = manifest.version
    pairs = pair_queries(version.query_shapes, query.shapes)
    roots = [carry_state(pair, root, version.number) for pair, root in zip(pairs, query.roots, strict=False)]
    stages = (SwitchManifest(version.number), SettleTables.of(version))
    return ChangePlan(manifest, name_plans(roots, version), stages)


def _change(
    job_dir: JobDir,
    known: Manifest,
    query: NewQuery,
    spec: JobSpec,
    inputs: Inputs,
    behind: Sequence[ChangedTable],
) -> ChangePlan:
    job, consent = ChangedJob.of(job_dir, known, query, inputs, spec.settings, behind), spec.consent
    changed = job.changed_sinks
    answers = select_answers(changed, consent.sinks)
    job = job.refresh_tables(
        None if consent.refresh else [table for table, answer in answers.items() if answer is NewSink.REFRESH]
    )
    if NewSink.REBUILD in answers.values():
        how = OnChange.REBUILD
    else:
        how = decide_change(str(job_dir.path), job, spec.decide)
    job.check_state(how)
    plan = job.plan(how)
    if how is not OnChange.REBUILD:
        check_sink_answers(changed, consent.sinks)
    _note_answers([] if how is OnChange.REBUILD else changed, query, consent)
    return replace(plan, asked=_name_tables(changed))


def _name_tables(changed: Sequence[ChangedTable]) -> frozenset[str]:
    return frozenset(table.table.name for table in changed)


def _is_computed_again(changed: Sequence[ChangedTable], consent: Consent) -> bool:
    """Whether a table at a new location is to receive rows that the job has already written."""
    return any(answer is not NewSink.EMPTY for answer in select_answers(changed, consent.sinks).values())


def _note_answers(changed: Sequence[ChangedTable], query: NewQuery, consent: Consent) -> None:
    """Report what tables at a new location receive. changed: those with an answer."""
    for table, answer in select_answers(changed, consent.sinks).items():
        roots = [root for root in query.roots if isinstance(root, Sink) and root.table.name == table]
        operators = [node for root in roots for node in last_operators(root.input)]
        if answer is NewSink.EMPTY:
            consent.note(f"`{table}`: its present location receives only rows that change from now on")
        elif all(map(can_reemit, operators)):
            consent.note(f"`{table}`: its present location receives the current result")
        else:
            consent.note(
                f"`{table}`: its present location receives the current result without the rows that state no longer"
                " holds, as those of closed windows"
            )


def note_unused_answers(plan: ChangePlan, asked: Collection[str], consent: Consent) -> None:
    """Report answers about tables that need none. asked: tables that lack rows."""
    written = {root.table.name for root in plan.roots if isinstance(root, Sink)}
    for table in sorted(written & consent.sinks.keys() - plan.asked - {*asked}):
        consent.note(f"table `{table}` is at its old location: --sink {table}={consent.sinks[table]} has no effect")


def _must_finish(job_dir: JobDir, manifest: Manifest) -> bool:
    """Whether a batch was planned that is not finished."""
    return has_unfinished_batch(job_dir.checkpoint(manifest, manifest.current))


def _is_starting(job_dir: JobDir, manifest: Manifest) -> bool:
    """Whether the first batch of a version with backfill or re-emit files is not done yet."""
    version = manifest.version
    if version.history is None:
        return False
    begun = has_unfinished_batch(job_dir.checkpoint(manifest, version.epoch)) and any(
        job_dir.backfill_folder(version.history).glob("part-*")
    )
    return begun or awaits_files(job_dir, manifest, version)
