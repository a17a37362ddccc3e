"""`everfold run`: runs the statements of a script in order; each query, INSERT or statement set is a job."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import click

from everfold.cli.main import EXIT_INTERRUPTED
from everfold.cli.output import Format, output, show
from everfold.cli.progress import ProgressView, counted, view
from everfold.cli.runner import EngineName, Finished, JobRequest, Jobs, jobs
from everfold.errors import UsageError, nearest
from everfold.jobs.change import OnChange
from everfold.jobs.rewind import Consent, Moved
from everfold.plan.changelog import is_updating
from everfold.plan.nodes import Collect, Sink
from everfold.secrets import without_secrets, without_secrets_in_log

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.cli.output import Output
    from everfold.compat import Judgement
    from everfold.sql.planner import Session, Submit
    from everfold.sql.settings import Note, Settings

WhenChanged: TypeAlias = Literal["ask", "accept", "backfill", "reset", "rebuild"]
STATE_FOLDER = ".everfold"
"""Where INSERT jobs live, beside the script, unless `--state` names another folder."""
_BRIEF_BYTES = 8 << 20
"""A script that reads no more than this is over before a JVM that compiles with care would pay."""
_WIDTH_OPTION = "sql-client.display.max-column-width"
_MODE_OPTION = "sql-client.execution.result-mode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """SQL text, what to call it in messages, and where its relative paths start."""

    text: str
    source: str
    folder: Path
    name: str

    @classmethod
    def read(cls, path: str | None, text: str | None) -> Script:
        """The script that the arguments name: a file, `-` for standard input, or the text of `-e`."""
        if (path is None) == (text is None):
            raise UsageError.of("no-script", "name one script, or give SQL with -e", help="everfold run script.sql")
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
    """What `everfold run` was told beside the script."""

    state: Path | None = None
    batch: bool = False
    suspend: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    engine: EngineName = "spark"
    format: Format = "text"
    changelog: bool = False
    dialect: str = "flink"
    on_change: WhenChanged = "ask"
    sink_duplicates: bool = False
    prune: bool = False
    refresh: bool = False
    sources: Mapping[str, Moved] = field(default_factory=dict)


def session_of(options: RunOptions, folder: Path, *, lenient: bool = False, notes: Note | None = None) -> Session:
    """A session for a script in a folder, with the options of the command line; `spark.*` options are not its business. lenient: as in Session."""
    from everfold.connectors.registry import connected
    from everfold.sql.planner import Session

    settings = {key: value for key, value in options.conf.items() if not key.startswith("spark.")}
    if options.batch:
        settings["execution.runtime-mode"] = "batch"
    if options.dialect != "flink":
        settings["everfold.dialect"] = options.dialect
    return Session(
        options=settings,
        variables=options.variables,
        environment=os.environ,
        notes=notes or note,
        connected=connected,
        folder=folder,
        lenient=lenient,
    )


def note(text: str) -> None:
    """Tells the user something that is no error."""
    click.echo(f"note: {text}", err=True)


def run(script: Script, options: RunOptions) -> None:
    """Runs a script. All its statements are understood and their tables checked before the first job starts."""
    from everfold.connectors.validate import check_tables
    from everfold.sql.planner import Done, Show, Submit

    engine = jobs(options.engine)
    actions: list[Show | Submit] = []
    for action in session_of(options, script.folder).run(script.text, source=script.source):
        match action:
            case Show() if not any(isinstance(each, Submit) for each in actions):
                show(sys.stdout, action.columns, action.rows, options.format)
            case Show() | Submit():
                actions.append(action)
            case Done():
                if sys.stderr.isatty():
                    click.echo(action.message, err=True)
    submits = [each for each in actions if isinstance(each, Submit)]
    for each in submits:
        check_tables(each.roots, streaming=each.settings.streaming, note=note)
    _check_sources(options, {table.name for each in submits for table in each.sources})
    several = sum(isinstance(each.roots[0], Collect) for each in submits) > 1
    brief = _little_to_read(submits, script.folder)
    folders = _Folders(options.state or script.folder / STATE_FOLDER / script.name)
    for action in actions:
        if isinstance(action, Show):
            show(sys.stdout, action.columns, action.rows, options.format)
            continue
        if several and options.format == "text" and isinstance(action.roots[0], Collect):
            # As the SQL client does with a script: each table under the query that it answers.
            click.echo(f"\n{without_secrets(action.text)}", err=True)
        if _run_job(engine, _request(action, script, options, folders, brief=brief), options):
            return


def _check_sources(options: RunOptions, tables: Collection[str]) -> None:
    for name in options.sources:
        if name not in tables:
            raise UsageError.of(
                "wrong-option-value",
                f"`--source {name}=…`: the script reads no table `{name}`",
                help=nearest(name, tables) or f"it reads {', '.join(f'`{each}`' for each in sorted(tables))}",
            )


def moved_sources(values: Sequence[str]) -> dict[str, Moved]:
    """The answers of `--source`, by table."""
    found = pairs(values, "--source")
    for name, answer in found.items():
        if answer not in list(Moved):
            help_ = f"write --source {name}=moved or --source {name}=new"
            raise UsageError.of("wrong-option-value", f"`--source {name}={answer}` is not an answer", help=help_)
    return {name: Moved(answer) for name, answer in found.items()}


def _little_to_read(submits: Sequence[Submit], folder: Path) -> bool:
    from everfold.connectors.registry import connector_of

    left = _BRIEF_BYTES
    for table in (table for each in submits for table in each.sources):
        size = connector_of(table).source(table).size(folder, left)
        if size is None or size >= left:
            return False
        left -= size
    return True


class _Folders:
    """Gives each INSERT job of a script a folder of its own: the first one has the script's, the others are in `jobs/` below it.

    So an INSERT that is added at the end moves no job that was there before.
    """

    def __init__(self, base: Path) -> None:
        self._base = base
        self._taken: set[Path] = set()

    def take(self, name: str) -> Path:
        """The folder of the next job."""
        place = self._base if not self._taken else self._base / "jobs" / name
        number = 2
        while place in self._taken:
            place = self._base / "jobs" / f"{name}-{number}"
            number += 1
        self._taken.add(place)
        return place


def _request(action: Submit, script: Script, options: RunOptions, folders: _Folders, *, brief: bool) -> JobRequest:
    name = action.settings.pipeline_name or script.name
    state: Path | None
    if all(isinstance(root, Sink) for root in action.roots):
        name = action.settings.pipeline_name or "+".join(action.names)
        state = folders.take("+".join(action.names))
    else:
        # A query's rows are shown and gone: its state is worth keeping only if somebody says where.
        state = folders.take("query") if options.state is not None else None
    return JobRequest(
        roots=action.roots,
        name=name,
        sql=action.text,
        settings=action.settings,
        state_dir=state,
        base_folder=script.folder,
        suspend=options.suspend,
        master=options.master,
        brief=brief,
        decide=_deciding(options.on_change),
        consent=Consent(
            duplicates=options.sink_duplicates, prune=options.prune, refresh=options.refresh, sources=options.sources
        ),
        conf={key: value for key, value in options.conf.items() if key.startswith("spark.")},
    )


def _deciding(on_change: WhenChanged) -> Callable[[Judgement], OnChange]:
    """What becomes of a job whose query has changed: as the command line says, or whoever sits at the terminal."""

    def decide(judgement: Judgement) -> OnChange:
        from everfold.compat import Verdict
        from everfold.compat.report import as_text

        if on_change != "ask":
            return OnChange(on_change)
        if judgement.verdict is Verdict.PARTIALLY and sys.stdin.isatty() and sys.stderr.isatty():
            click.echo(as_text(judgement), err=True)
            ways = click.Choice(["accept", "backfill", "no"])
            said = click.prompt(
                "Go on with that, or compute what is new from the beginning?", "no", type=ways, err=True
            )
            return OnChange.REFUSE if said == "no" else OnChange(said)
        return OnChange.REFUSE

    return decide


def _run_job(engine: Jobs, request: JobRequest, options: RunOptions) -> bool:
    """Runs a job and shows what there is to see; whether the user stopped it, and with it the script."""
    bounded = engine.bounded(request)
    (root, *_) = request.roots
    shown: _Lazy | None = None
    if isinstance(root, Collect):
        shown = _Lazy(root, request, options, live=not bounded)
    progress = view()
    stop = _Stop(progress)

    def told(text: str) -> None:
        with progress.hidden():
            note(text)

    try:
        with stop:
            finished = engine.submit(
                replace(request, stopping=stop.asked, consent=replace(request.consent, note=told)),
                rows=_writer(shown, progress),
                progress=progress.update,
            )
    finally:
        progress.close()
    if shown is not None:
        shown.finish()
    _closing_words(finished, request, stopped=stop.wanted)
    return stop.wanted


class _Lazy:
    """The output of a query, opened when its first rows come, so that an error before them stands alone."""

    def __init__(self, root: Collect, request: JobRequest, options: RunOptions, *, live: bool) -> None:
        self._root, self._request, self._options, self._live = root, request, options, live
        self._output: Output | None = None

    def _opened(self) -> Output:
        if self._output is None:
            settings = self._request.settings
            width = settings.options.get(_WIDTH_OPTION)
            most = int(width) if width else None
            changing = is_updating(self._root.input) and settings.streaming
            if changing and self._as_table(settings):
                from everfold.cli.live_table import LiveTable

                self._output = LiveTable(sys.stdout, self._root.schema, zone=settings.local_time_zone, most=most)
            else:
                self._output = output(
                    self._options.format,
                    sys.stdout,
                    self._root.schema,
                    zone=settings.local_time_zone,
                    live=self._live,
                    kinds=changing,
                    most=most,
                )
        return self._output

    def _as_table(self, settings: Settings) -> bool:
        """Whether a changing result is shown as it is now, and not by its changes."""
        asked = settings.text(_MODE_OPTION)
        return (
            self._options.format == "text"
            and not self._options.changelog
            and asked in (None, "table")
            and sys.stdout.isatty()
        )

    def write(self, rows: pa.Table) -> None:
        self._opened().write(rows)

    def finish(self) -> None:
        self._opened().finish()


def _writer(shown: _Lazy | None, progress: ProgressView) -> Callable[[pa.Table], None]:
    def write(rows: pa.Table) -> None:
        if shown is not None and rows.num_rows:
            with progress.hidden():
                shown.write(rows)

    return write


class _Stop:
    """Whether the user wants the job to stop: the first Ctrl-C asks for it after the running batch, the second stops at once.

    Before the job has begun to ask, and in a job that never does (a batch), there is nothing to wait for: the first one stops at once.
    To stop at once is to end this process as if it were killed, after which a job goes on from its last batch. An exception out of the
    handler would not do: py4j swallows it, and a lock that was about to be released stays taken. SIGTERM counts as Ctrl-C.

    Spark takes SIGINT for itself when its session starts, and then would break off in the middle: so the handler is put back in place
    whenever the job asks whether to stop.
    """

    def __init__(self, progress: ProgressView) -> None:
        self._progress = progress
        self.wanted = False
        self._running = False
        self._before: dict[int, object] = {}
        self._stderr = 2

    def __enter__(self) -> _Stop:
        self._stderr = os.dup(2)
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, cast(Any, handler))
        os.close(self._stderr)

    def _listen(self) -> None:
        for number in self._before:
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: object) -> None:
        if self.wanted or not self._running:
            self._end()
        self.wanted = True
        with self._progress.hidden():
            click.echo("stopping after the running batch; Ctrl-C again stops at once", err=True)

    def _end(self) -> None:
        os.dup2(self._stderr, 2)  # while Spark starts, standard error is its log
        with suppress(Exception):  # whatever was interrupted: it may be the very writing of the progress
            self._progress.close()
            sys.stdout.flush()
        os.write(2, b"stopped\n")
        os._exit(EXIT_INTERRUPTED)

    def asked(self) -> bool:
        """Whether the user has asked; the job calls this between batches."""
        self._running = True
        if threading.current_thread() is threading.main_thread():
            self._listen()
        return self.wanted


def _closing_words(finished: Finished, request: JobRequest, *, stopped: bool) -> None:
    """What is worth saying when a job has ended; all of it on stderr."""
    for why, rows in finished.dropped_rows.items():
        if rows:
            click.echo(f"{counted(rows)} dropped: {why}", err=True)
    if finished.late_rows:
        click.echo(f"{counted(finished.late_rows, 'late row')} dropped", err=True)
    if any(isinstance(root, Collect) for root in request.roots) and request.state_dir is None:
        return
    ended = "stopped" if stopped else "suspended" if request.suspend else "finished"
    click.echo(f"{request.name}: {ended}; {counted(finished.rows)} in, {counted(finished.rows_out)} out", err=True)
    if request.state_dir is not None and (stopped or request.suspend):
        click.echo(f"the same command goes on from {request.state_dir}", err=True)


def pairs(values: Sequence[str], option: str) -> dict[str, str]:
    """The `k=v` texts of an option that may be given several times."""
    found: dict[str, str] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError.of(
                "wrong-option-value",
                f"`{option} {without_secrets_in_log(text)}` has no `=`",
                help=f"write {option} name=value",
            )
        found[key.strip()] = value
    return found
