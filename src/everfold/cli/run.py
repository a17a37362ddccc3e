"""`everfold run`: run the statements of a script in order.

Each query, INSERT or statement set is a job.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import click

from everfold.cli.endless_jobs import EndlessJobs
from everfold.cli.output import Format, create_output, show
from everfold.cli.progress import ProgressView, show_activities
from everfold.cli.runner import LogName, Runners
from everfold.cli.stop_listener import listen_for_stop
from everfold.connectors.formats.text_decode import excerpt
from everfold.errors import EXIT_INTERRUPTED, UsageError
from everfold.hidden_values import hide_active
from everfold.jobs.change import ChangedJob, Decide, OnChange, list_answers
from everfold.jobs.folders import FolderName, join_folder, needs_s3
from everfold.jobs.rewind import Consent, Moved, NewSink
from everfold.jobs.spec import STOP_TIMEOUT_S, EngineName, Finished, JobRunner, JobSpec
from everfold.plan.emitted_changes import is_updating
from everfold.plan.nodes import Collect, Root, Sink
from everfold.rendering.quantities import format_count
from everfold.secrets import redact_script

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.cli.output import Output
    from everfold.compat import Judgement
    from everfold.connectors.validate import CheckedTables
    from everfold.jobs.preflight import CheckedJob
    from everfold.jobs.progress import Progress
    from everfold.metrics.server import MetricsOptions, MetricsServer
    from everfold.sql.planner import Session, Submit
    from everfold.sql.settings import Note, Settings

WhenChanged: TypeAlias = Literal["ask", "accept", "backfill", "reset", "rebuild"]
STATE_FOLDER = ".everfold"
"""The folder of INSERT jobs, next to the script, unless `--state` names another."""
_BRIEF_BYTES = 8 << 20
"""A script that reads less than this ends before an optimizing JVM compiler would pay off."""
_WIDTH_OPTION = "sql-client.display.max-column-width"
_MODE_OPTION = "sql-client.execution.result-mode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The SQL of a script.

    source: its name in messages. folder: the folder that relative paths start from. name: default
    of the job name and the job directory.
    """

    text: str
    source: str
    folder: Path
    name: str

    @classmethod
    def read(cls, path: str | None, text: str | None) -> Script:
        """Read the script: a file, `-` for standard input, or the SQL of `-e`.

        Raises UsageError `no-script`, `unreadable-file`.
        """
        if (path is None) == (text is None):
            raise UsageError.of("no-script", "name one script, or pass SQL with -e", help="everfold run script.sql")
        here = Path()
        if text is not None:
            return cls(text=text, source="-e", folder=here, name="-e")
        assert path is not None
        if path == "-":
            return cls(text=sys.stdin.read(), source="<stdin>", folder=here, name="stdin")
        file = Path(path)
        try:
            return cls(text=file.read_text(encoding="utf-8"), source=path, folder=file.parent, name=file.stem)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise UsageError.of("unreadable-file", f"`{path}` cannot be read: {reason}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The command-line options of `everfold run`, without the script.

    import_functions: whether the modules of Python functions may be imported. `run` always does.
    """

    state: FolderName | None = None
    batch: bool = False
    suspend: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    master: str | None = None
    engine: EngineName | None = None
    log: LogName = "file"
    stop_timeout_s: float = STOP_TIMEOUT_S
    format: Format = "text"
    changelog: bool = False
    dialect: str = "flink"
    on_change: WhenChanged = "ask"
    sink_duplicates: bool = False
    prune: bool = False
    refresh: bool = False
    sources: Mapping[str, Moved] = field(default_factory=dict)
    renamed_sources: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, NewSink] = field(default_factory=dict)
    metrics: MetricsOptions | None = None
    import_functions: bool = False


def create_session(options: RunOptions, folder: Path, *, lenient: bool = False, notes: Note | None = None) -> Session:
    """Return a session for a script in a folder, with the options of the command line.

    `spark.*` options are left out. lenient: as in Session.
    """
    from everfold.connectors.registry import apply_connector
    from everfold.sql.planner import Session

    settings = {key: value for key, value in options.conf.items() if not key.startswith("spark.")}
    if options.batch:
        settings["execution.runtime-mode"] = "batch"
    if options.dialect != "flink":
        settings["everfold.dialect"] = options.dialect
    return Session(
        options=settings,
        variables=options.variables,
        environment=options.environment,
        notes=notes or note,
        connected=apply_connector,
        folder=folder,
        import_functions=options.import_functions,
        lenient=lenient,
        describe_scans=_describe_scans,
    )


def _describe_scans(roots: Sequence[Root], settings: Settings) -> str:
    from everfold.spark.scan_report import describe_scans

    return describe_scans(roots, settings)


def note(text: str) -> None:
    """Print a note for the user on stderr."""
    click.echo(f"note: {hide_active(text)}", err=True)


def run(script: Script, options: RunOptions) -> None:
    """Run a script.

    All statements are planned and their jobs checked before the first job starts.
    """
    from everfold.jobs.preflight import check_answers, check_jobs
    from everfold.sql.planner import Done, Show, Submit

    actions: list[Show | Submit] = []
    options = replace(options, import_functions=True)
    for action in create_session(options, script.folder).run(script.text, source=script.source):
        match action:
            case Show() if not any(isinstance(each, Submit) for each in actions):
                show(sys.stdout, action.columns, action.rows, options.format)
            case Show() | Submit():
                actions.append(action)
            case Done():
                if sys.stderr.isatty():
                    click.echo(action.message, err=True)
    submits = [each for each in actions if isinstance(each, Submit)]
    jobs = check_jobs(submits, script.folder, engine=options.engine, note=note)
    check_answers(submits, options.sources, options.sinks, options.renamed_sources)
    several = sum(isinstance(each.roots[0], Collect) for each in submits) > 1
    brief = _reads_little([job.tables for job in jobs], script.folder)
    uses_s3 = any(needs_s3(options.state, each.roots) for each in submits)
    runners = Runners(master=options.master, conf=options.conf, brief=brief, uses_s3=uses_s3, log=options.log)
    folders = _find_folders(jobs, script, options, runners)
    waiting = iter(zip(jobs, folders, strict=True))
    with _serve_metrics(options, [job.engine for job in jobs]) as metrics, _run_endless_jobs(options) as endless:
        for action in actions:
            if isinstance(action, Show):
                show(sys.stdout, action.columns, action.rows, options.format)
                continue
            if several and options.format == "text" and isinstance(action.roots[0], Collect):
                # As Flink's SQL client: print each query above its result.
                click.echo(f"\n{redact_script(action.text)}", err=True)
            job, folder = next(waiting)
            spec = _specify_job(job, script, options, folder)
            runner, watch = runners.load(job.engine), nullcontext if metrics is None else metrics.watch
            is_endless = job is not jobs[-1] and isinstance(action.roots[0], Sink) and not runner.is_bounded(spec)
            if is_endless:
                _start_endless_job(endless, runner, spec, watch, options)
                if endless.should_stop():
                    return
                continue
            with watch(spec) as watched:
                if _run_job(runner, watched, options, endless):
                    return


@contextmanager
def _run_endless_jobs(options: RunOptions) -> Iterator[EndlessJobs]:
    """Collect the jobs that run in the background of the block, and wait for them after it.

    They stop if the block fails, or has stopped.
    """
    endless = EndlessJobs(note)
    try:
        yield endless
    except BaseException:
        endless.is_stopping = True
        with suppress(Exception):  # that of the block is reported
            endless.wait()
        raise
    if not endless.are_running:
        ended = endless.wait()
    else:
        with _show_job(endless) as progress, listen_for_stop(progress, options.stop_timeout_s, endless) as stop:
            progress.say(f"running {endless.names}")
            ended = endless.wait(stop.should_stop)
    for spec, finished in ended:
        _print_summary(finished, spec, stopped=endless.is_stopping or finished.is_stopped)
    if any(finished.unfinished_batch is not None for _, finished in ended):
        sys.exit(EXIT_INTERRUPTED)


@contextmanager
def _show_job(endless: EndlessJobs) -> Iterator[ProgressView]:
    """Show the progress of the job in the foreground, which jobs in the background hide."""
    with show_activities() as progress:
        endless.view = progress
        try:
            yield progress
        finally:
            endless.view = None


def _start_endless_job(
    endless: EndlessJobs,
    runner: JobRunner,
    spec: JobSpec,
    watch: Callable[[JobSpec], AbstractContextManager[JobSpec]],
    options: RunOptions,
) -> None:
    """Start a job without end, and return when its query runs."""
    with _show_job(endless) as progress, listen_for_stop(progress, options.stop_timeout_s, endless):
        endless.start(runner, replace(spec, decide=_pause(progress, spec.decide)), watch)
    if not endless.should_stop():
        note(f"job `{spec.name}` runs in `{spec.state_dir}`, at the same time as the next one")


@contextmanager
def _serve_metrics(options: RunOptions, engines: Sequence[EngineName]) -> Iterator[MetricsServer | None]:
    """Serve metrics in the block if the command line asks for it."""
    if options.metrics is None:
        yield None
        return
    if "memory" in engines:
        raise UsageError.of("not-in-memory", "the memory engine serves no metrics", help="leave out --metrics-port")
    from everfold.metrics.server import MetricsServer

    server = MetricsServer.start(options.metrics)
    note(f"metrics: {server.url}/metrics")
    try:
        yield server
    finally:
        server.close()


def _reads_little(checked: Sequence[CheckedTables], folder: Path) -> bool:
    left = _BRIEF_BYTES
    for table in (table for each in checked for table in each.sources.values()):
        size = table.source().size(folder, left)
        if size is None or size >= left:
            return False
        left -= size
    return True


def _find_folders(
    jobs: Sequence[CheckedJob], script: Script, options: RunOptions, runners: Runners
) -> list[FolderName | None]:
    """Return the job directory of each job, None for a job that keeps no state.

    If a new job begins, notes the jobs that no statement of the script continues.
    """
    from everfold.jobs.script_jobs import describe_left_job, find_script_jobs

    def keeps_state(job: CheckedJob) -> bool:
        # The rows of a query are only printed: keep its state only if the user names a folder.
        return job.engine == "spark" and (options.state is not None or isinstance(job.submit.roots[0], Sink))

    base = options.state or script.folder / STATE_FOLDER / script.name
    submits = [job.submit for job in jobs if keeps_state(job)]
    if not submits:
        return [None] * len(jobs)
    with show_activities():
        location = runners.open_folder(base)
    script_jobs = find_script_jobs(location, submits, script.folder)
    if None in script_jobs.jobs:
        for left in script_jobs.left:
            note(describe_left_job(left))
    folders = iter(script_jobs.folders)
    return [join_folder(base, *next(folders)) if keeps_state(job) else None for job in jobs]


def _specify_job(job: CheckedJob, script: Script, options: RunOptions, folder: FolderName | None) -> JobSpec:
    action = job.submit
    inserts = all(isinstance(root, Sink) for root in action.roots)
    return JobSpec(
        roots=action.roots,
        name=action.settings.pipeline_name or ("+".join(action.names) if inserts else script.name),
        sql=action.text,
        script=script.text,
        bind=action.bind,
        settings=action.settings,
        tables=job.tables,
        state_dir=folder,
        base_folder=script.folder,
        suspend=options.suspend,
        stop_timeout_s=options.stop_timeout_s,
        decide=_make_decide(options.on_change),
        consent=Consent(
            duplicates=options.sink_duplicates,
            prune=options.prune,
            refresh=options.refresh,
            sources=options.sources,
            renamed_sources=options.renamed_sources,
            sinks=options.sinks,
        ),
    )


def _make_decide(on_change: WhenChanged) -> Decide:
    """Return a function that decides what to do about a changed query.

    The answer is the value of `--on-change`; for `ask`, that of the user at the terminal.
    """

    def decide(job: ChangedJob) -> OnChange:
        from everfold.compat import Verdict
        from everfold.compat.report import as_text

        judgement = job.judgement
        if on_change != "ask":
            if on_change == "accept":
                _note_partial_columns(judgement)
            return OnChange(on_change)
        if judgement.verdict is Verdict.PARTIALLY and sys.stdin.isatty() and sys.stderr.isatty():
            offered = [each for each in job.list_answers() if each.how in (OnChange.ACCEPT, OnChange.BACKFILL)]
            click.echo(f"{as_text(judgement)}\n\n{list_answers(offered)}", err=True)
            choices = click.Choice([*(each.how.value for each in offered), "no"])
            answer = click.prompt("Accept this, or backfill the new aggregates?", "no", type=choices, err=True)
            if answer == "accept":
                _note_partial_columns(judgement)
            return OnChange.REFUSE if answer == "no" else OnChange(answer)
        return OnChange.REFUSE

    return decide


def _note_partial_columns(judgement: Judgement) -> None:
    """Name the columns that lack the rows which the job has read before, if its state is reused."""
    from everfold.compat.columns import Status

    if not judgement.verdict.reuses_state:
        return
    several = len({each.sink for each in judgement.columns}) > 1
    for each in judgement.columns:
        name = f"{each.sink}.{each.name}" if several else each.name
        if each.status is Status.STARTS:
            note(f"column `{name}` is partial: {each.reason}, and counts from now on")
        elif each.status is Status.MIXED:
            note(f"column `{name}` is mixed: {each.reason}")
    for effect in judgement.rows:
        note(f"`{effect.condition}` {effect.message}")


def _run_job(engine: JobRunner, spec: JobSpec, options: RunOptions, endless: EndlessJobs) -> bool:
    """Run a job and show its results; return whether it was stopped, and so the script.

    endless: the jobs in its background, which stop with it. Ends the process with
    `EXIT_INTERRUPTED` if the stop has interrupted a batch.
    """
    bounded = engine.is_bounded(spec)
    (root, *_) = spec.roots
    results: _LazyOutput | None = None
    if isinstance(root, Collect):
        results = _LazyOutput(root, spec, options, live=not bounded)
    with _show_job(endless) as progress:

        def report(now: Progress) -> None:
            progress.update(now)
            if spec.progress is not None:
                spec.progress(now)

        def print_note(text: str) -> None:
            with progress.hidden():
                note(text)

        with listen_for_stop(progress, options.stop_timeout_s, endless) as stop:

            def should_stop() -> bool:
                return stop.should_stop() or endless.should_stop()

            finished = engine.run(
                replace(
                    spec,
                    receive=_writer(results, progress),
                    progress=report,
                    printing=progress.hidden,
                    stopping=should_stop,
                    consent=replace(spec.consent, note=print_note),
                    decide=_pause(progress, spec.decide),
                )
            )
    if results is not None:
        results.finish()
    stopped = should_stop() or finished.is_stopped
    _print_summary(finished, spec, stopped=stopped)
    if finished.unfinished_batch is not None:
        sys.exit(EXIT_INTERRUPTED)
    return stopped


def _pause(progress: ProgressView, decide: Decide) -> Decide:
    """Return the decision, made while the progress is hidden: it may prompt the user."""

    def decide_hidden(job: ChangedJob) -> OnChange:
        with progress.hidden():
            return decide(job)

    return decide_hidden


class _LazyOutput:
    """The output of a query, opened when its first rows arrive.

    So an error that comes first is printed without an empty table.
    """

    def __init__(self, root: Collect, spec: JobSpec, options: RunOptions, *, live: bool) -> None:
        self._root, self._spec, self._options, self._live = root, spec, options, live
        self._output: Output | None = None

    def _open(self) -> Output:
        if self._output is None:
            settings = self._spec.settings
            width = settings.options.get(_WIDTH_OPTION)
            most = int(width) if width else None
            changing = is_updating(self._root.input) and settings.streaming
            if changing and self._shows_table(settings):
                from everfold.cli.live_table import LiveTable

                self._output = LiveTable(sys.stdout, self._root.schema, zone=settings.local_time_zone, most=most)
            else:
                self._output = create_output(
                    self._options.format,
                    sys.stdout,
                    self._root.schema,
                    zone=settings.local_time_zone,
                    live=self._live,
                    kinds=changing,
                    most=most,
                )
        return self._output

    def _shows_table(self, settings: Settings) -> bool:
        """Return whether to show an updating result as its current rows, not as changes."""
        asked = settings.value_of(_MODE_OPTION)
        return (
            self._options.format == "text"
            and not self._options.changelog
            and asked in (None, "table")
            and sys.stdout.isatty()
        )

    def write(self, rows: pa.Table) -> None:
        self._open().write(rows)

    def finish(self) -> None:
        self._open().finish()


def _writer(results: _LazyOutput | None, progress: ProgressView) -> Callable[[pa.Table], None]:
    def write(rows: pa.Table) -> None:
        if results is not None and rows.num_rows:
            with progress.hidden():
                results.write(rows)

    return write


def _print_summary(finished: Finished, spec: JobSpec, *, stopped: bool) -> None:
    """Print the summary of a job that has ended, on stderr."""
    for why, rows in finished.dropped_rows.items():
        if rows:
            click.echo(f"{format_count(rows)} dropped: {why}", err=True)
            for row in finished.dropped_examples:
                if row.reason == why and row.location:
                    click.echo(
                        f"  the first: {row.location}" + (f": {excerpt(row.record)}" if row.record else ""), err=True
                    )
    if finished.late_rows:
        click.echo(f"{format_count(finished.late_rows, 'late row')} dropped", err=True)
    if any(isinstance(root, Collect) for root in spec.roots) and spec.state_dir is None:
        return
    ended = "stopped" if stopped else "suspended" if spec.suspend else "finished"
    click.echo(
        f"{spec.name}: {ended}; {format_count(finished.rows)} in, {format_count(finished.rows_out)} out", err=True
    )
    if finished.unfinished_batch is not None:
        click.echo(
            f"batch {finished.unfinished_batch} did not end within {spec.stop_timeout_s:g} s and was interrupted;"
            " the next start replays it",
            err=True,
        )
    if spec.state_dir is not None and (stopped or spec.suspend):
        click.echo(f"run the same command again to resume from {spec.state_dir}", err=True)
