"""Judge the change from an old script, or the query of a job, to a new script.

The new script must be one that `everfold run` would start, as far as that can be found out without
Spark and without its data. The old script was started before, perhaps by an earlier release: what
`everfold run` would refuse there is only noted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.cli.run import RunOptions, Script, create_session
from everfold.cli.runner import open_job
from everfold.errors import EXIT_WRONG_USE, EverfoldError, StateError, UsageError
from everfold.storage import Location

if TYPE_CHECKING:
    from everfold.compat import Judgement
    from everfold.connectors.validate import CheckedTable
    from everfold.jobs.answers import Answer, ChangedJob
    from everfold.jobs.change_plan import ChangePlan
    from everfold.jobs.changed_tables import ChangedTable
    from everfold.jobs.folders import FolderName
    from everfold.jobs.job_dir import JobDir
    from everfold.jobs.job_pairs import JobOutline
    from everfold.jobs.manifest import Manifest, NewQuery
    from everfold.jobs.preflight import CheckedJob
    from everfold.plan.nodes import Root
    from everfold.sql.planner import Session, Submit
    from everfold.sql.settings import Settings
    from everfold.sql.statements import Statement

ANY_TABLE = "*"
"""Stands for every table in the answers of `--source` and `--sink`."""
_NO_TABLES: Mapping[str, CheckedTable] = {}


@dataclass(frozen=True, slots=True)
class _Queries:
    """The queries of a script.

    notes: what `everfold run` would refuse, and how it was judged. complete: whether everything
    that it uses is declared. jobs: those that `everfold run` would start, None for a script whose
    tables are inferred from their use.
    """

    script: Script
    submits: tuple[Submit, ...]
    notes: tuple[str, ...]
    settings: Settings
    complete: bool
    jobs: tuple[CheckedJob, ...] | None = None
    renamed_sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def roots(self) -> tuple[Root, ...]:
        """The plans of all queries."""
        return tuple(root for submit in self.submits for root in submit.roots)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFinding:
    """A table at another location than before. answer: that of the user, None without one."""

    changed: ChangedTable
    answer: str | None

    @property
    def rebuilds(self) -> bool:
        """Whether the job reads all its tables from their beginning, wherever they are."""
        return self.answer == f"--sink {self.changed.table.name}=rebuild"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A judged change.

    notes: sentences for the user. unreachable: those about tables whose location is unknown.
    tables: those at another location. plans: the stages in which the change would be carried out,
    by value of `--on-change`. answers: those that a user can give if there is one job. explained:
    the new plan.
    """

    judgement: Judgement
    notes: tuple[str, ...]
    unreachable: tuple[str, ...]
    tables: tuple[TableFinding, ...]
    plans: Mapping[str, Sequence[str]]
    answers: tuple[Answer, ...]
    explained: str

    @property
    def exit_code(self) -> int:
        """The code of the verdict, unless `everfold run` would ask for an answer."""
        if any(finding.answer is None for finding in self.tables):
            return EXIT_WRONG_USE
        return self.judgement.verdict.exit_code


def judge_change(
    old: Script | FolderName | Location, new: Script, options: RunOptions, *, lenient: bool = False
) -> Change:
    """Judge the change from a script or the query of a job to a new script. Raises as `check`.

    lenient: note what `everfold run` would refuse, also if the script declares its tables.
    """
    from everfold.jobs.preflight import check_answers
    from everfold.plan.explain import explain

    after = _read_script(new, options, lenient=lenient)
    sources, sinks = (answers.keys() - {ANY_TABLE} for answers in (options.sources, options.sinks))
    check_answers(after.submits, sources, sinks, options.renamed_sources)
    after = replace(after, renamed_sources=options.renamed_sources)
    comparison = (
        _compare_with_script(old, after, options)
        if isinstance(old, Script)
        else _compare_with_jobs(old, after, options)
    )
    answered = tuple(
        finding
        for finding in map(_find_answer(options), comparison.changed)
        if finding.answer is not None or finding.changed not in comparison.unasked
    )
    if len(after.submits) == 1 and any(finding.rebuilds for finding in answered):
        answered = tuple(finding for finding in answered if finding.changed.option == "--sink")
    used = {(finding.changed.option, finding.changed.table.name) for finding in answered}
    unused = [
        f"table `{name}` is at its old location: {option} {name}={answer} has no effect"
        for option, answers in (("--source", options.sources), ("--sink", options.sinks))
        for name, answer in answers.items()
        if (option, name) not in used and name != ANY_TABLE
    ]
    return Change(
        judgement=comparison.judgement,
        notes=tuple(dict.fromkeys((*comparison.notes, *after.notes, *comparison.unreachable, *unused))),
        unreachable=tuple(comparison.unreachable),
        tables=answered,
        plans=comparison.plans,
        answers=tuple(comparison.answers),
        explained="\n\n".join(explain(root, streaming=after.settings.streaming) for root in after.roots),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """What is known about the change of a job before the answers of the user, see `Change`.

    changed: the tables at another location. unasked: those that need no answer, as their job can
    only be rebuilt.
    """

    judgement: Judgement
    notes: Sequence[str] = ()
    changed: Sequence[ChangedTable] = ()
    unasked: Sequence[ChangedTable] = ()
    unreachable: Sequence[str] = ()
    plans: Mapping[str, Sequence[str]] = field(default_factory=dict)
    answers: Sequence[Answer] = ()

    @classmethod
    def join(cls, comparisons: Sequence[_Comparison]) -> _Comparison:
        """Return the comparison of several jobs. A user can answer only if one of them changes."""
        from everfold.compat import join_judgements

        plans: dict[str, list[str]] = {}
        for comparison in comparisons:
            for decision, stages in comparison.plans.items():
                plans.setdefault(decision, []).extend(stages)
        answered = [comparison.answers for comparison in comparisons if comparison.answers]
        return cls(
            judgement=join_judgements([comparison.judgement for comparison in comparisons]),
            notes=[note for comparison in comparisons for note in comparison.notes],
            changed=[table for comparison in comparisons for table in comparison.changed],
            unasked=[table for comparison in comparisons for table in comparison.unasked],
            unreachable=[sentence for comparison in comparisons for sentence in comparison.unreachable],
            plans=plans,
            answers=answered[0] if len(answered) == 1 else (),
        )


def _find_answer(options: RunOptions) -> Callable[[ChangedTable], TableFinding]:
    """Return a function that finds the user's answer about a table, if the table allows it."""

    def find(changed: ChangedTable) -> TableFinding:
        answers: Mapping[str, str] = options.sources if changed.option == "--source" else options.sinks
        answer = answers.get(changed.table.name, answers.get(ANY_TABLE))
        given = f"{changed.option} {changed.table.name}={answer}"
        return TableFinding(changed=changed, answer=given if given in changed.choices else None)

    return find


def _compare_with_script(script: Script, after: _Queries, options: RunOptions) -> _Comparison:
    """Compare each statement with the one of the old script whose job it would continue."""
    from everfold.compat import judge_left_job
    from everfold.jobs.function_sources import describe_compared_functions
    from everfold.jobs.job_pairs import JobOutline, pair_jobs

    before = _read_script(script, options, is_old=True)
    # The scripts are versions of one script: the paths of both start in the same folder.
    folder = after.script.folder
    old, new = (
        [JobOutline.of_statement(submit, folder) for submit in submits] for submits in (before.submits, after.submits)
    )
    pairs = pair_jobs(old, new)
    comparisons = [
        _compare_statements(script, before.submits[pairs[number]], after, number)
        if number in pairs
        else _note_new_job(outline)
        for number, outline in enumerate(new)
    ]
    comparisons += [
        _Comparison(judgement=judge_left_job(outline.shapes))
        for position, outline in enumerate(old)
        if position not in pairs.values()
    ]
    joined = _Comparison.join(comparisons)
    return replace(joined, notes=[*before.notes, *joined.notes, *describe_compared_functions(after.roots)])


def _compare_statements(script: Script, old: Submit, after: _Queries, number: int) -> _Comparison:
    """Compare a statement with an old one. number: of the new statement, counted from 0."""
    from everfold.compat import CompatOptions, judge_pairs, pair_queries, shape_of
    from everfold.compat.alternatives import add_alternative
    from everfold.jobs.changed_tables import compare_sources
    from everfold.jobs.preflight import runs_as_stream

    new = after.submits[number]
    manifest = None
    if runs_as_stream(old):
        job = _Job(f"the job of `{script.source}`", f"the state of the job of `{script.source}`")
        _check_mode(job, old.settings.local_time_zone, new)
        manifest = _imagine_manifest(old, after.script.folder) if after.jobs is not None else None
    if manifest is None:
        pairs = pair_queries([shape_of(root) for root in old.roots], [shape_of(root) for root in new.roots])
        rules = CompatOptions.of(new.settings)
        return _Comparison(judgement=add_alternative(judge_pairs(pairs, rules), pairs, rules))
    start = _plan_start(manifest, new, after, number, old_sources=_check_sources(old.roots))
    sources = _check_sources(start.roots or new.roots)
    changed = compare_sources(_check_sources(old.roots, start.resumed), sources, after.script.folder)
    return _Comparison(
        judgement=start.judgement,
        changed=[*changed, *start.changed_sinks],
        unasked=() if start.can_resume else start.changed_sinks,
    )


def _note_new_job(outline: JobOutline) -> _Comparison:
    """Return the comparison of a statement that starts a new job."""
    from everfold.compat import Judgement

    writes = f"{outline.tables}: written" if outline.sinks else "a SELECT is run"
    return _Comparison(
        judgement=Judgement((), ()), notes=[f"{writes} by a new job, which reads its tables from the beginning"]
    )


def _imagine_manifest(submit: Submit, base_folder: Path) -> Manifest | None:
    """Return the manifest of a job that a statement has started, None if it cannot start one."""
    from everfold.jobs.manifest import Manifest, create_version

    query = _new_query(submit, base_folder)
    try:
        version = create_version(0, 0, query, query.roots)
    except EverfoldError:
        return None
    return Manifest(job="", buckets=1, partitions=1, current=0, versions=(version,))


def _check_sources(roots: Iterable[Root], resumed: Collection[str] | None = None) -> dict[str, CheckedTable]:
    """Return the tables that a stream reads, by their names in the job, if declared rightly.

    resumed: those whose positions are used again, None for all that are read.
    """
    from everfold.connectors.contract import Role
    from everfold.connectors.validate import check_table
    from everfold.plan.walk import scans_of

    checked: dict[str, CheckedTable] = {}
    for table in dict.fromkeys(scan.table for scan in scans_of(roots)):
        if resumed is None or table.identity in resumed:
            with suppress(EverfoldError):
                checked[table.identity] = check_table(table, Role.SOURCE)
    return checked


def _compare_with_jobs(folder: FolderName | Location, after: _Queries, options: RunOptions) -> _Comparison:
    """Compare each statement with the job that `everfold run` would continue with it."""
    from everfold.compat import judge_left_job
    from everfold.jobs.job_dir import no_job_error
    from everfold.jobs.script_jobs import describe_left_job, find_script_jobs

    base = folder if isinstance(folder, Location) else open_job(folder, options.conf)
    script_jobs = find_script_jobs(base, after.submits, after.script.folder)
    script_jobs.check_readable()
    if not any(script_jobs.jobs) and not script_jobs.left:
        raise no_job_error(base)
    comparisons = [
        _note_new_job(outline) if job is None else _compare_with_job(job.job_dir, job.manifest, after, number)
        for number, (outline, job) in enumerate(zip(script_jobs.outlines, script_jobs.jobs, strict=True))
    ]
    comparisons += [
        _Comparison(judgement=judge_left_job(job.outline.shapes), notes=[describe_left_job(job)])
        for job in script_jobs.left
    ]
    return _Comparison.join(comparisons)


def _compare_with_job(job_dir: JobDir, manifest: Manifest, after: _Queries, number: int) -> _Comparison:
    """Compare a statement with its job. number: of the statement, counted from 0."""
    from everfold.jobs.function_sources import describe_changed_functions
    from everfold.jobs.locations import Locations
    from everfold.jobs.moving import move_sinks
    from everfold.jobs.sink_tables import sink_notes

    submit = after.submits[number]
    _check_mode(_Job(f"the job in `{job_dir.path}`", f"the state in `{job_dir.path}`"), manifest.version.zone, submit)
    if after.jobs is not None:
        manifest = move_sinks(job_dir, manifest, sink_notes(submit.roots, after.script.folder))
    start = _plan_start(manifest, submit, after, number, job_dir)
    changed: list[ChangedTable] = []
    unreachable: list[str] = []
    if after.jobs is not None:
        changed += start.changed_sinks
    if after.jobs is not None and start.manifest is not None:
        locations = Locations(job_dir, after.script.folder)
        tables = after.jobs[number].tables.sources
        sources, unreachable = locations.find_changed(start.manifest, start.roots, tables)
        changed += sources
    return _Comparison(
        judgement=start.judgement,
        notes=describe_changed_functions(manifest.version.functions, submit.roots),
        changed=changed,
        unasked=() if start.can_resume else start.changed_sinks,
        unreachable=unreachable,
        plans={decision: _describe_plan(plan) for decision, plan in start.plans.items()},
        answers=start.answers,
    )


# --- the start of a job ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Job:
    """A job in error messages. name: of itself. state: of its state."""

    name: str
    state: str


def _check_mode(job: _Job, zone: str, new: Submit) -> None:
    """Check that a stream remains a stream, in the same time zone.

    Raises UsageError `changed-zone`, `streaming-job`.
    """
    from everfold.jobs.change import changed_zone_error, streaming_job_error
    from everfold.jobs.preflight import runs_as_stream

    if not runs_as_stream(new):
        raise _refuse(streaming_job_error(job.name))
    if zone != new.settings.local_time_zone:
        raise _refuse(changed_zone_error(job.state, zone, new.settings.local_time_zone))


def _refuse(error: StateError) -> UsageError:
    """Return an error of `everfold run` with the exit code of `check`: nothing has been started."""
    return UsageError(*error.diagnostics)


def _new_query(submit: Submit, base_folder: Path) -> NewQuery:
    from everfold.jobs.manifest import NewQuery
    from everfold.plan.naming import number_operators

    return NewQuery(
        roots=number_operators(submit.roots),
        zone=submit.settings.local_time_zone,
        sql=submit.text,
        base_folder=base_folder,
        bind=submit.bind,
    )


@dataclass(frozen=True, slots=True)
class _Start:
    """How a job starts with a statement.

    plans: by value of `--on-change`, the plan of the change, or why it is refused. changed_sinks:
    the tables that are now written elsewhere. can_resume: whether the job can resume with its state
    or at its position. manifest, roots: those with which the job resumes, None and empty if it can
    only be rebuilt: it then reads its tables from their beginning, wherever they are. resumed: the
    tables that are read further. answers: those that would not be refused.
    """

    judgement: Judgement
    plans: Mapping[str, ChangePlan | StateError]
    changed_sinks: Sequence[ChangedTable] = ()
    can_resume: bool = True
    manifest: Manifest | None = None
    roots: Sequence[Root] = ()
    resumed: frozenset[str] = frozenset()
    answers: Sequence[Answer] = ()


def _plan_start(
    manifest: Manifest,
    submit: Submit,
    after: _Queries,
    number: int = 0,
    job_dir: JobDir | None = None,
    old_sources: Mapping[str, CheckedTable] = _NO_TABLES,
) -> _Start:
    """Plan how a job starts with a statement.

    number: of the statement, counted from 0. job_dir: of the job, None for an imagined one.
    old_sources: the tables that an imagined job has read, as declared. Raises UsageError
    `reshaped-query` and similar if the state is compatible, but the job cannot be changed.
    """
    from everfold.jobs.answers import ChangedJob, Inputs
    from everfold.jobs.change import OnChange
    from everfold.jobs.opening import renew_version
    from everfold.jobs.renamed_sources import rename_sources
    from everfold.jobs.status import find_owner
    from everfold.plan.nodes import Sink

    query = rename_sources(_new_query(submit, after.script.folder), manifest.version, after.renamed_sources)
    inputs = Inputs()
    if after.jobs is not None:
        inputs = replace(Inputs.of(after.jobs[number].tables, after.script.folder), old_declared=old_sources)
    job = ChangedJob.of(job_dir, manifest, query, inputs, submit.settings)
    if after.jobs is None and any(isinstance(root, Sink) and root.table.connector is None for root in submit.roots):
        return _Start(judgement=job.judgement, plans={})
    if manifest.version.is_query(query):
        tables = frozenset(note["table"] for note in manifest.version.sources or ())
        return _Start(
            judgement=job.judgement,
            plans={},
            changed_sinks=job.changed_sinks,
            manifest=renew_version(manifest, query),
            roots=query.roots,
            resumed=tables,
        )
    is_running = job_dir is not None and find_owner(job_dir.path) is not None
    plans = _plan_change(job, is_running=is_running) if after.complete else {}
    accepted = plans.get(OnChange.ACCEPT.value)
    if isinstance(accepted, StateError):
        raise _refuse(accepted)
    answers = job.list_answers() if plans and job_dir is not None and not is_running else ()
    old_names = {note["name"] for note in manifest.version.sources or ()}
    for plan in plans.values():
        if not isinstance(plan, StateError) and not plan.manifest.version.rebuilt:
            resumed = frozenset(
                note["table"] for note in plan.manifest.version.sources or () if note["name"] in old_names
            )
            return _Start(
                judgement=job.judgement,
                plans=plans,
                changed_sinks=job.changed_sinks,
                manifest=plan.manifest,
                roots=plan.roots,
                resumed=resumed,
                answers=answers,
            )
    return _Start(
        judgement=job.judgement,
        plans=plans,
        changed_sinks=job.changed_sinks,
        can_resume=not plans,
        answers=answers,
    )


def _plan_change(job: ChangedJob, *, is_running: bool) -> dict[str, ChangePlan | StateError]:
    """Return the plans of the change by the values of `--on-change` that the verdict allows.

    The state of a job that is running changes until it is stopped.
    """
    from everfold.compat import Verdict
    from everfold.jobs.change import OnChange

    match job.judgement.verdict:
        case Verdict.FULLY:
            decisions = [OnChange.ACCEPT]
        case Verdict.PARTIALLY:
            decisions = [OnChange.ACCEPT, OnChange.BACKFILL]
        case _:
            decisions = [OnChange.REBUILD, OnChange.RESET]
    plans: dict[str, ChangePlan | StateError] = {}
    for decision in decisions:
        try:
            if not is_running:
                job.check_state(decision)
            plans[decision.value] = job.plan(decision)
        except StateError as error:
            plans[decision.value] = error
    return plans


def _describe_plan(plan: ChangePlan | StateError) -> list[str]:
    from everfold.jobs.change_plan import Judge

    if isinstance(plan, StateError):
        return [f"refused: {plan.code}: {plan.diagnostics[0].message}"]
    return [stage.summary for stage in plan.stages if not isinstance(stage, Judge)]


# --- scripts --------------------------------------------------------------------------------------


def _read_script(script: Script, options: RunOptions, *, is_old: bool = False, lenient: bool = False) -> _Queries:
    """Bind the queries of a script.

    A new script that declares the tables it uses is read as `everfold run` reads it. All others are
    judged as far as possible. Raises SqlError, UsageError `nothing-to-check`.
    """
    from everfold.jobs.preflight import check_jobs
    from everfold.sql.script import parse_script
    from everfold.sql.undeclared import declares_tables

    notes: list[str] = []
    session = create_session(options, script.folder, lenient=True, notes=notes.append)
    statements = parse_script(script.text, script.source, session.settings.dialect)
    declared = declares_tables(statements)
    if declared and not is_old and not lenient:
        return _read_as_run(script, statements, options)
    submits = _bind_queries(script, session, statements)
    refused = [error.diagnostics[0].message for error in session.catalog.tolerated_errors or ()]
    jobs: tuple[CheckedJob, ...] | None = None
    if declared:
        try:
            jobs = tuple(check_jobs(submits, script.folder))
        except EverfoldError as error:
            if not any(map(_has_variables, submits)):
                refused += [diagnostic.message for diagnostic in error.diagnostics]
    notes += [f"`everfold run` refuses it: {message}" for message in refused]
    return _Queries(
        script=script,
        submits=submits,
        notes=tuple(f"{script.source}: {note}" for note in notes),
        settings=session.settings,
        complete=not refused,
        jobs=jobs,
    )


def _read_as_run(script: Script, statements: tuple[Statement, ...], options: RunOptions) -> _Queries:
    """Bind the queries of a script, and check its jobs.

    Passwords and other secrets need no value: nothing is connected to. Raises what `everfold run`
    raises.
    """
    from everfold.jobs.preflight import check_jobs

    unset = _find_unset_secrets(statements, options)
    notes = [f"`everfold run` needs a value for {text}" for text in unset]
    filled = replace(
        options,
        variables={**{unset[text]: text for text in unset if not _is_environment(text)}, **options.variables},
        environment={**{unset[text]: text for text in unset if _is_environment(text)}, **options.environment},
    )
    session = create_session(filled, script.folder, notes=notes.append)
    try:
        submits = _bind_queries(script, session, statements)
        jobs = tuple(check_jobs(submits, script.folder))
    except EverfoldError:
        if not unset:
            raise
        session = create_session(options, script.folder, notes=notes.append)
        submits = _bind_queries(script, session, statements)
        jobs = tuple(check_jobs(submits, script.folder))
    return _Queries(
        script=script,
        submits=submits,
        notes=tuple(f"{script.source}: {note}" for note in notes),
        settings=session.settings,
        complete=True,
        jobs=jobs,
    )


def _find_unset_secrets(statements: Iterable[Statement], options: RunOptions) -> dict[str, str]:
    """Return the variables without a value of which only secrets are made.

    Each is returned as it is written, with its name.
    """
    from everfold.secrets import is_secret
    from everfold.sql.script import keep_variables
    from everfold.sql.statements import CreateTable, SetOption

    used: dict[bool, dict[str, str]] = {False: {}, True: {}}
    for statement in statements:
        values: list[tuple[str, str]] = []
        match statement:
            case CreateTable():
                values = [(option.key, option.value) for option in statement.options]
            case SetOption(key=str(key), value=str(value)):
                values = [(key, value)]
        for key, value in values:
            variables, environment = keep_variables(value)
            unset = {text: name for name, text in variables.items() if name not in options.variables}
            unset |= {text: name for name, text in environment.items() if name not in options.environment}
            used[is_secret(key)] |= unset
    return {text: name for text, name in used[True].items() if text not in used[False]}


def _is_environment(variable: str) -> bool:
    return variable.startswith("${env:")


def _bind_queries(script: Script, session: Session, statements: tuple[Statement, ...]) -> tuple[Submit, ...]:
    from everfold.sql.planner import Submit

    submits = tuple(action for action in session.run_statements(statements) if isinstance(action, Submit))
    if not submits:
        raise UsageError.of("nothing-to-check", f"`{script.source}` has no query", help="add a SELECT or an INSERT")
    return submits


def _has_variables(submit: Submit) -> bool:
    """Return whether options of its tables have variables without a value."""
    from everfold.plan.nodes import Sink

    written = (root.table for root in submit.roots if isinstance(root, Sink))
    return any("${" in value for table in (*submit.sources, *written) for _, value in table.options)
