"""The commands and their options.

Each command imports its modules when it runs, so that `everfold --help` starts fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from everfold import __version__
from everfold.cli.pairs import parse_answers, parse_pairs, parse_sources
from everfold.cli.similar_arguments import limit_suggestions
from everfold.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_WRONG_USE, EverfoldError, UsageError
from everfold.local_paths import parse_local_path

if TYPE_CHECKING:
    from everfold.jobs.folders import FolderName

_Command = TypeVar("_Command", bound=Callable[..., Any])
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


class _Commands(click.Group):
    """The commands. Without arguments on a terminal, the shell opens."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and sys.stdin.isatty() and sys.stdout.isatty() and _has_shell():
            args = ["sql"]
        return super().parse_args(ctx, args)


def _has_shell() -> bool:
    """Return whether the packages of the shell are installed."""
    return all(find_spec(name) is not None for name in ("prompt_toolkit", "pygments"))


@click.group(cls=_Commands, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="everfold", message="%(prog)s %(version)s")
def everfold() -> None:
    """Streaming aggregations in Flink SQL, run on Spark.

    \b
    everfold                          open the SQL shell (on a terminal)
    everfold init shop/               create a project from a template
    everfold check-setup              check that this machine has everything installed
    everfold run orders.sql           run a script to the end of its input, or until Ctrl-C
    everfold explain orders.sql       show its plan
    everfold explain too-complex      print what an error code means and what to do
    everfold check old.sql new.sql    report which state survives a change of the query
    everfold format --write jobs/     rewrite scripts in one style
    everfold lsp                      serve an editor
    everfold jobs                     list the jobs in this folder, and whether they run
    everfold status orders/           show the progress of a job
    everfold ui jobs/                 show jobs on web pages
    everfold stop orders/             stop a job after the running batch
    everfold history orders/          list the versions of a job
    everfold rollback orders/ 0       roll a job back to a version
    everfold rescale orders/ 16       run a job with another number of partitions
    everfold expire orders/ --keep 3  remove what only older versions need
    everfold state orders/            show the state of a job
    everfold test tests/              run case files

    \b
    Shell completion for bash (zsh and fish are supported too):
      eval "$(_EVERFOLD_COMPLETE=bash_source everfold)"
    """


_import_functions = click.option(
    "--import-functions",
    is_flag=True,
    help="Import the modules of Python functions, which runs their code. By default they are only read.",
)


def _format_option(*formats: str, help: str) -> Callable[[_Command], _Command]:
    """Return the option `--format`, which defaults to text."""
    choice = click.Choice(formats)
    return click.option("--format", "format_", type=choice, default="text", show_default=True, help=help)


_dialect = click.option(
    "--dialect",
    type=click.Choice(["flink", "lenses"]),
    default="flink",
    show_default=True,
    help="SQL dialect. A script can change it with SET 'everfold.dialect'.",
)

_sink_duplicates = click.option(
    "--sink-duplicates",
    type=click.Choice(["refuse", "accept"]),
    default="refuse",
    show_default=True,
    help="What to do when a rewind would write rows twice into a table.",
)


class _Folder(click.Path):
    """A folder of this machine."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(parse_local_path(value), param, ctx)


class _JobFolder(_Folder):
    """A job directory, on this machine or in another store."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from everfold.jobs.folders import parse_folder

        folder = parse_folder(value)
        return folder if isinstance(folder, str) else super().convert(folder, param, ctx)


_folder = click.argument("folder", type=_JobFolder())
_store_conf = click.option(
    "--conf", multiple=True, metavar="KEY=VALUE", help="Set a Spark option (spark.*), for a FOLDER in another store."
)

_master = click.option("--master", metavar="URL", help="URL of the Spark master.  [default: local[*]]")


_batch = click.option(
    "--batch", is_flag=True, help="Run in batch mode, as SET 'execution.runtime-mode' = 'batch' does."
)
_variables = click.option(
    "--var", "variables", multiple=True, metavar="NAME=VALUE", help="Replace ${NAME} in options by VALUE."
)
_conf = click.option(
    "--conf", multiple=True, metavar="KEY=VALUE", help="Set an option, as SET does, or a Spark option (spark.*)."
)


def _options_of_scripts(command: Any) -> Any:
    for option in (_batch, _variables, _conf, _dialect):
        command = option(command)
    return command


def _script_options(command: Any) -> Any:
    for option in (
        click.argument("script", required=False, type=click.Path(dir_okay=False, allow_dash=True)),
        click.option("-e", "text", metavar="SQL", help="Run this SQL instead of a script file."),
    ):
        command = option(command)
    return _options_of_scripts(command)


@everfold.command()
@click.argument("folder", type=_Folder(), default=".")
@click.option(
    "--template",
    type=click.Choice(["files", "kafka", "postgres"]),
    help="""\b
What the project reads and writes:
  files     files to printed rows; needs no server
  kafka     a Kafka topic to an upsert-kafka topic
  postgres  a Kafka topic to a PostgreSQL table
[default: prompt on a terminal, otherwise files]""",
)
def init(folder: Path, template: str | None) -> None:
    """Create a project in FOLDER, which defaults to the current one.

    The project has a script, a case file, a workflow for GitHub that tests it and checks changes of
    its queries, and the servers that it needs as a file for Docker Compose. Existing files are
    never overwritten.

    \b
    everfold init shop
    everfold init shop --template kafka
    """
    from everfold.cli import init as command

    command.init(folder, template)


@everfold.command()
@_script_options
@click.option(
    "--state",
    type=_JobFolder(),
    help="Job directory, also as s3a: or hdfs: URI. A later run with the same directory resumes the job.",
)
@click.option("--suspend", is_flag=True, help="At the end of bounded input, keep windows open for the next run.")
@_master
@click.option(
    "--engine",
    type=click.Choice(["spark", "memory"]),
    help="memory runs the script in this process, without Spark: for small bounded input. Same as SET "
    "'everfold.engine'.  [default: spark]",
)
@_format_option("text", "json", "csv", help="Output format of query results.")
@click.option(
    "--log",
    type=click.Choice(["file", "stderr"]),
    default="file",
    show_default=True,
    help="Where Spark logs: job.log in the job directory, which is rotated, or standard error, for containers.",
)
@click.option(
    "--stop-timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long a stop waits for the running batch before it interrupts the batch, which the next start replays.  "
    "[default: 120]",
)
@click.option(
    "--changelog",
    is_flag=True,
    help="Print every change of an updating result, even on a terminal. Without a terminal this is the default.",
)
@click.option(
    "--on-change",
    type=click.Choice(["ask", "accept", "backfill", "reset", "rebuild"]),
    default="ask",
    help="""\b
What to do when the new query can reuse only
part of the state, or none:
  ask       prompt on a terminal, otherwise refuse
  accept    carry the reusable state
  backfill  accept, and compute new aggregates
            over the input already read
  reset     discard the state, resume in the input
  rebuild   discard the state, read all input again
[default: ask]""",
)
@click.option(
    "--refresh",
    is_flag=True,
    help="Re-emit the current result of every operator that still holds it: after a change of SELECT or HAVING, "
    "or when a table was lost.",
)
@_sink_duplicates
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="TABLE=moved|new|skip|NAME",
    help="What to do when the location of a source table has changed, or its topic was created again. moved: it holds "
    "the same data, resume in it. new: it holds other data, read it from the start. skip: leave out records that a "
    "topic no longer has. NAME: the table has this name now. TABLE.COLUMN=NAME: the column has this name now.",
)
@click.option(
    "--sink",
    "sinks",
    multiple=True,
    metavar="TABLE=refresh|empty|rebuild",
    help="What a table receives whose location has changed, or that the job has not written yet. refresh: the current "
    "result, as far as the state holds it. empty: only what changes from now on. rebuild: the whole result, computed "
    "from the beginning of the input.",
)
@click.option(
    "--prune",
    is_flag=True,
    help="After a rebuild or rollback has caught up, delete the rows of jdbc and upsert-kafka tables whose keys "
    "the job did not write again.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve metrics for Prometheus and probes on this port (0: a free one): /metrics, /readyz, /livez.",
)
@click.option(
    "--metrics-host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Address of the metrics; 0.0.0.0 lets other machines read them.",
)
@click.option(
    "--stale-after",
    type=click.FloatRange(min=30),  # Spark reports every ten seconds that it has no input
    metavar="SECONDS",
    default=300.0,
    show_default=True,
    help="/readyz fails if no batch has ended for so long although there is input, /livez after six times as long.",
)
def run(
    script: str | None,
    text: str | None,
    batch: bool,
    variables: tuple[str, ...],
    conf: tuple[str, ...],
    dialect: str,
    state: FolderName | None,
    suspend: bool,
    master: str | None,
    engine: Any,
    format_: Any,
    log: Any,
    stop_timeout: float | None,
    changelog: bool,
    on_change: Any,
    sink_duplicates: str,
    sources: tuple[str, ...],
    sinks: tuple[str, ...],
    prune: bool,
    refresh: bool,
    metrics_port: int | None,
    metrics_host: str,
    stale_after: float,
) -> None:
    """Run the statements of SCRIPT (- for standard input).

    A job over bounded input runs to its end, a job over unbounded input until it is stopped. Run
    the same command again to resume a stopped or killed INSERT job. Its job directory is
    .everfold/<script name>/ in the folder of the script, unless --state names another.

    Ctrl-C, SIGTERM and `everfold stop` stop a job after the running batch. The exit code is then 0,
    and 130 if the batch did not end within --stop-timeout and was interrupted.

    A changed query resumes with the state that it can reuse. `everfold check` reports which state
    that is before you run it.

    \b
    everfold run orders.sql
    everfold run orders.sql --state /var/lib/orders --conf spark.driver.memory=4g
    everfold run orders.sql --on-change rebuild --prune
    everfold run orders.sql --source orders=moved --sink totals=refresh
    everfold run orders.sql --metrics-port 9249
    everfold run -e "SELECT 1 + 1 AS two" --engine memory
    cat orders.sql | everfold run - --batch --format json
    """
    from everfold.cli import run as command
    from everfold.jobs.rewind import NewSink
    from everfold.jobs.spec import STOP_TIMEOUT_S

    metrics = None
    if metrics_port is not None:
        from everfold.metrics.server import MetricsOptions

        metrics = MetricsOptions(port=metrics_port, host=metrics_host, stale_after_s=stale_after)
    answers, renamed = parse_sources(sources)
    options = command.RunOptions(
        state=state,
        batch=batch,
        suspend=suspend,
        conf=parse_pairs(conf, "--conf"),
        variables=parse_pairs(variables, "--var"),
        master=master,
        engine=engine,
        format=format_,
        log=log,
        stop_timeout_s=STOP_TIMEOUT_S if stop_timeout is None else stop_timeout,
        changelog=changelog,
        dialect=dialect,
        on_change=on_change,
        sink_duplicates=sink_duplicates == "accept",
        prune=prune,
        refresh=refresh,
        sources=answers,
        renamed_sources=renamed,
        sinks=parse_answers(sinks, "--sink", NewSink),
        metrics=metrics,
    )
    command.run(command.Script.read(script, text), options)


@everfold.command()
@_options_of_scripts
@_master
@click.option(
    "--engine",
    type=click.Choice(["spark", "memory"]),
    help="Engine of the queries. Same as SET 'everfold.engine'.  [default: memory, where it can run a query]",
)
@click.option("--jobs", type=_Folder(), help="Folder of the job directories of INSERTs.  [default: .everfold/jobs]")
@click.option(
    "--init", "-i", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Run this script first."
)
def sql(
    batch: bool,
    variables: tuple[str, ...],
    conf: tuple[str, ...],
    dialect: str,
    master: str | None,
    engine: str | None,
    jobs: Path | None,
    init: Path | None,
) -> None:
    """Open the SQL shell.

    Queries run in this process at once, and on Spark where only it can read the tables. An INSERT
    runs as a job in the background, in .everfold/jobs/<table>/. Enter \\? for help. Needs
    `pip install 'everfold[shell]'`.

    \b
    everfold sql
    everfold sql --engine spark --init tables.sql
    """
    if not _has_shell():
        message = "the shell needs the packages prompt-toolkit and Pygments"
        raise UsageError.of("missing-package", message, help="pip install 'everfold[shell]'")
    from everfold.shell.options import ShellOptions
    from everfold.shell.start import open_shell

    options = parse_pairs(conf, "--conf")
    if batch:
        options["execution.runtime-mode"] = "batch"
    if dialect != "flink":
        options["everfold.dialect"] = dialect
    if engine is not None:
        options["everfold.engine"] = engine
    open_shell(
        ShellOptions(options=options, variables=parse_pairs(variables, "--var"), master=master, jobs=jobs, init=init)
    )


@everfold.command()
@click.argument("folder", type=_JobFolder(), required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8086, show_default=True, help="Port; 0 for a free one.")
@click.option(
    "--token",
    envvar="EVERFOLD_UI_TOKEN",
    metavar="TOKEN",
    default="",
    help="Secret that a visitor needs. Better in the variable EVERFOLD_UI_TOKEN: arguments are visible to other "
    "users. Without one, it is made, and printed with the address.",
)
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Listen on a Unix socket instead, which only your user can connect to, without a token.",
)
@click.option("--allow-changes", is_flag=True, help="Let visitors stop jobs and roll them back.")
@_store_conf
def ui(
    folder: FolderName | None,
    host: str,
    port: int,
    token: str,
    socket: Path | None,
    allow_changes: bool,
    conf: tuple[str, ...],
) -> None:
    """Show the jobs in FOLDER, by default the current one, on web pages.

    Each job has its plan with rates, charts of its batches, its versions, its state, and the
    verdict on a query that you paste. The pages read job directories and change nothing. Open the
    address that is printed: it contains the token that the pages require.

    \b
    everfold ui
    everfold ui /var/lib/everfold --port 9000
    everfold ui --socket /run/user/1000/everfold.sock
    EVERFOLD_UI_TOKEN=… everfold ui s3a://bucket/jobs --host 0.0.0.0
    """
    from everfold.web.server import serve

    serve(
        folder or Path(),
        host=host,
        port=port,
        token=token,
        path=socket,
        allow_changes=allow_changes,
        conf=parse_pairs(conf, "--conf"),
    )


@everfold.command()
@click.argument("folder", type=_JobFolder(), required=False)
@_format_option("text", "json", help="Output format.")
@_store_conf
def jobs(folder: FolderName | None, format_: Any, conf: tuple[str, ...]) -> None:
    """List the jobs in FOLDER and the folders below it; by default, in this folder.

    Shows whether each job runs, its version, watermark and lag, the rows of its last run, and the
    error with which that run failed.

    \b
    everfold jobs
    everfold jobs /var/lib/everfold --format json
    """
    from everfold.cli import status as command

    command.list_jobs(folder or Path(), format_, parse_pairs(conf, "--conf"))


@everfold.command()
@_folder
@click.option("--watch", is_flag=True, help="Show the status again every two seconds, until Ctrl-C.")
@_format_option("text", "json", help="Output format.")
@_store_conf
def status(folder: FolderName, watch: bool, format_: Any, conf: tuple[str, ...]) -> None:
    """Show the progress of the job in FOLDER.

    Shows whether the job runs and in which process, or how its last run ended; the last batch, and
    the tables and operators of the job. Only reads the job directory.

    \b
    everfold status /var/lib/orders
    everfold status /var/lib/orders --watch
    everfold status /var/lib/orders --format json | jq .state
    """
    from everfold.cli import status as command

    command.status(folder, format_, parse_pairs(conf, "--conf"), watch=watch)


@everfold.command()
@_folder
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=150,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until the job has stopped.",
)
@_format_option("text", "json", help="Output format.")
@_store_conf
def stop(folder: FolderName, timeout: float, format_: Any, conf: tuple[str, ...]) -> None:
    """Stop the job in FOLDER, which another process runs, and wait until it has stopped.

    The job stops after the running batch, as with Ctrl-C. The exit code is 0 if it has stopped,
    also if no process ran it, and 1 if it still runs after the timeout.

    \b
    everfold stop /var/lib/orders
    everfold stop /var/lib/orders --timeout 600
    """
    from everfold.cli import status as command

    command.stop(folder, timeout, format_, parse_pairs(conf, "--conf"))


@everfold.command()
@_script_options
@_format_option("text", "json", help="Output format of plans; json: one document per statement.")
@_import_functions
def explain(
    script: str | None,
    text: str | None,
    batch: bool,
    variables: tuple[str, ...],
    conf: tuple[str, ...],
    dialect: str,
    format_: Any,
    import_functions: bool,
) -> None:
    """Show the plan of each query of SCRIPT without running it, or explain a code.

    The plan has the watermark, the changelog mode and the state of each operator.

    With the code of an error, or of a compatibility rule as printed by `everfold check`, print what
    it means and what to do. A file of that name is read as a script.

    \b
    everfold explain orders.sql
    everfold explain orders.sql --format json | jq '.nodes[].contents'
    everfold explain too-complex
    everfold explain AGG006
    """
    from everfold.cli import explain as command
    from everfold.cli.run import RunOptions, Script

    if script is not None and command.is_rule(script):
        command.explain_rule(script)
        return
    if script is not None and command.explain_error(script):
        return
    options = RunOptions(
        batch=batch,
        conf=parse_pairs(conf, "--conf"),
        variables=parse_pairs(variables, "--var"),
        dialect=dialect,
        import_functions=import_functions,
    )
    command.explain(Script.read(script, text), options, format_)


@everfold.command(short_help="Report which state survives a change of the query.")
@click.argument("scripts", nargs=-1, required=True, type=click.Path(dir_okay=False), metavar="[OLD] NEW")
@click.option("--state", type=_JobFolder(), help="Job directory, instead of OLD.")
@_format_option(
    "text",
    "json",
    "github",
    help="Output format. github prints annotations for a pull request, and appends a table to the job summary.",
)
@click.option(
    "--rules",
    type=click.Choice(["reference", "extended"]),
    help="reference applies the rules of Realtime Compute for Apache Flink; extended also reuses state that only "
    "everfold can. Same as SET 'everfold.compat.rules'.  [default: reference]",
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="TABLE=moved|new|skip|NAME",
    help="The answer about a table that NEW reads at another location, or under another name, or whose topic has lost "
    "records, as in `everfold run`. "
    "* stands for all tables.",
)
@click.option(
    "--sink",
    "sinks",
    multiple=True,
    metavar="TABLE=refresh|empty|rebuild",
    help="The answer about a table that NEW writes at another location, or that OLD does not write, as in "
    "`everfold run`. * stands for all tables.",
)
@_import_functions
@_options_of_scripts
def check(
    scripts: tuple[str, ...],
    state: FolderName | None,
    format_: Any,
    rules: str | None,
    sources: tuple[str, ...],
    sinks: tuple[str, ...],
    import_functions: bool,
    batch: bool,
    variables: tuple[str, ...],
    conf: tuple[str, ...],
    dialect: str,
) -> None:
    """Report which state survives changing the query from OLD to NEW.

    OLD and NEW are scripts. Give --state instead of OLD to check NEW against the query of a job.
    Nothing is run. If NEW declares its tables, it must be a script that `everfold run` would start;
    otherwise they are inferred from their use.

    \b
    Exit codes: 0 fully compatible, 3 partially compatible, 4 unknown, 5 incompatible;
    2 if `everfold run` would refuse NEW, or ask where a table is.

    \b
    everfold check orders.sql orders-new.sql
    everfold check orders-new.sql --state /var/lib/orders --format json
    everfold check orders.sql orders-new.sql --rules extended
    everfold check orders.sql orders-new.sql --source orders=moved
    everfold check orders.sql orders-new.sql --source orders=purchases --source orders.price=amount
    everfold explain AGG006
    """
    from everfold.cli import check as command
    from everfold.cli.run import RunOptions, Script
    from everfold.jobs.rewind import NewSink

    if len(scripts) != (1 if state is not None else 2):
        raise click.UsageError("name two scripts, OLD and NEW, or NEW and --state")
    old = Script.read(scripts[0], None) if state is None else state
    chosen = {} if rules is None else {"everfold.compat.rules": rules}
    answers, renamed = parse_sources(sources)
    options = RunOptions(
        batch=batch,
        conf={**parse_pairs(conf, "--conf"), **chosen},
        variables=parse_pairs(variables, "--var"),
        dialect=dialect,
        sources=answers,
        renamed_sources=renamed,
        sinks=parse_answers(sinks, "--sink", NewSink),
        import_functions=import_functions,
    )
    sys.exit(command.check(old, Script.read(scripts[-1], None), options, format_))


@everfold.command()
@click.argument("script", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--from",
    "old",
    type=click.Choice(["flink", "lenses"]),
    required=True,
    help="Dialect of SCRIPT, or of its first statements if it changes with SET 'everfold.dialect'.",
)
@click.option("--to", "new", type=click.Choice(["flink", "lenses"]), required=True, help="Dialect to print.")
def translate(script: str, old: Any, new: Any) -> None:
    """Translate SCRIPT into another SQL dialect.

    The translation is printed only if both scripts have the same plan. What the other dialect
    cannot express is an error. Statements that are in the other dialect already are unchanged.

    \b
    everfold translate --from lenses --to flink sessions.sql
    """
    from everfold.cli import translate as command
    from everfold.cli.run import Script

    command.translate(Script.read(script, None), old, new)


@everfold.command()
@click.option("--stdio", is_flag=True, help="Accepted because editors pass it; the server always does this.")
def lsp(stdio: bool) -> None:
    """Serve an editor: errors, completion, types, definitions, formatting and hints about state.

    The editor starts this command and talks to it over stdin and stdout. See docs/editors.md for
    VS Code and Neovim. Needs `pip install 'everfold[lsp]'`.
    """
    from importlib.util import find_spec

    if find_spec("pygls") is None:
        raise UsageError.of(
            "missing-package", "the language server needs the package pygls", help="pip install 'everfold[lsp]'"
        )
    from everfold.lsp.server import serve

    serve()


@everfold.command("format")
@click.argument("scripts", nargs=-1, required=True, type=click.Path(allow_dash=True), metavar="SCRIPT…")
@click.option("--check", is_flag=True, help="Write nothing: name the files that would change, and exit with 1.")
@click.option("--write", is_flag=True, help="Rewrite the files.")
@_dialect
def format_(scripts: tuple[str, ...], check: bool, write: bool, dialect: str) -> None:
    """Print SCRIPT (- for standard input) in one style.

    Keywords are in capitals, and each clause is in a line of its own. Comments stay in place, and
    the meaning is the same. A folder means the *.sql files in it.

    \b
    everfold format orders.sql
    everfold format --check jobs/
    everfold format --write jobs/
    """
    from everfold.cli.format import format_scripts

    if check and write:
        raise click.UsageError("--check writes nothing: leave out --write")
    if not check and not write and (len(scripts) > 1 or Path(scripts[0]).is_dir()):
        raise click.UsageError("several scripts need --check or --write")
    sys.exit(format_scripts(scripts, "check" if check else "write" if write else "print", dialect))


@everfold.command()
@_folder
@click.argument("old", type=int)
@click.argument("new", type=int)
@_store_conf
def diff(folder: FolderName, old: int, new: int, conf: tuple[str, ...]) -> None:
    """Compare the versions OLD and NEW of the job in FOLDER.

    Shows the difference of their queries, and which state of OLD the query of NEW can reuse.

    \b
    everfold diff /var/lib/orders 0 1
    """
    from everfold.cli import diff as command

    command.diff(folder, old, new, parse_pairs(conf, "--conf"))


@everfold.command()
@_folder
@click.option("--sql", "number", type=int, metavar="VERSION", help="Print the script of this version instead.")
@_format_option("text", "json", help="Output format.")
@_store_conf
def history(folder: FolderName, number: int | None, format_: Any, conf: tuple[str, ...]) -> None:
    """List the versions of the job in FOLDER.

    Shows when each version began, and since which version each aggregate has counted. With --sql,
    prints the whole script of a version as it last ran, with the declarations of its tables and
    without secrets.

    \b
    everfold history /var/lib/orders
    everfold history /var/lib/orders --sql 0 > orders-0.sql
    """
    from everfold.cli import history as command

    if number is not None:
        command.print_script(folder, number, parse_pairs(conf, "--conf"))
        return
    command.history(folder, format_, parse_pairs(conf, "--conf"))


@everfold.command()
@_folder
@click.argument("version", type=int, required=False)
@click.option(
    "--restored",
    is_flag=True,
    help="Instead of VERSION: FOLDER was restored from an older copy. Resume from its checkpoint, although the "
    "tables hold later batches.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=0),
    metavar="N",
    help="Resume after batch N of VERSION instead of its last one, as when a table was restored that holds the "
    "batches up to N. VERSION can be the current one.",
)
@_sink_duplicates
@_store_conf
def rollback(
    folder: FolderName,
    version: int | None,
    restored: bool,
    batch: int | None,
    sink_duplicates: str,
    conf: tuple[str, ...],
) -> None:
    """Roll the job in FOLDER back to VERSION.

    Restores the query, the state and the position in the input that the job had at the end of
    VERSION, and prints what happens to each table. Starts no Spark. The next `everfold run` with
    the script of VERSION resumes there. The newer versions are kept: roll back to one of them to
    undo a rollback.

    \b
    everfold history /var/lib/orders
    everfold rollback /var/lib/orders 0
    everfold rollback /var/lib/orders 0 --batch 1234
    everfold rollback /var/lib/orders --restored
    """
    from everfold.cli import rollback as command

    if version is None and not restored:
        raise click.MissingParameter(param_type="argument", param_hint="'VERSION'")
    if version is not None and restored:
        raise click.UsageError("--restored resumes the current version: it takes no VERSION")
    if batch is not None and restored:
        raise click.UsageError("--restored resumes after the last batch: it takes no --batch")
    command.rollback(
        folder, version, batch=batch, duplicates=sink_duplicates == "accept", conf=parse_pairs(conf, "--conf")
    )


@everfold.command()
@_folder
@click.option(
    "--keep", type=click.IntRange(min=1), required=True, metavar="N", help="How many versions to keep: the newest."
)
@click.option("--dry-run", is_flag=True, help="Only print what would be removed. The job may be running.")
@_format_option("text", "json", help="Output format.")
@_store_conf
def expire(folder: FolderName, keep: int, dry_run: bool, format_: Any, conf: tuple[str, ...]) -> None:
    """Remove what only old versions of the job in FOLDER need.

    Keeps the N newest versions, the current one among them, and removes the state of all others,
    with their key snapshots, withdrawn files and backfill. A rollback to a kept version works as
    before; `everfold history` lists the others as expired. The job must be stopped, and resumes as
    before. If the command is interrupted, run it again to remove the rest.

    \b
    everfold expire /var/lib/orders --keep 3 --dry-run
    everfold expire /var/lib/orders --keep 3
    """
    from everfold.cli import expire as command

    command.expire(folder, keep, dry_run=dry_run, format_=format_, conf=parse_pairs(conf, "--conf"))


@everfold.command()
@_folder
@click.argument("partitions", type=click.IntRange(min=1))
@_master
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Set a Spark option (spark.*).")
def rescale(folder: FolderName, partitions: int, master: str | None, conf: tuple[str, ...]) -> None:
    """Give the job in FOLDER another number of PARTITIONS.

    Each operator runs as so many tasks. The job must be stopped. Its state is copied, and a new
    version continues with it; a rollback to the version before undoes this. A power of two divides
    the state most evenly.

    \b
    everfold rescale /var/lib/orders 16
    """
    from everfold.cli import rescale as command

    command.rescale(folder, partitions, master=master, conf=parse_pairs(conf, "--conf"))


@everfold.command()
@_folder
@click.option(
    "--operator",
    metavar="NAME",
    help="Show only this operator: its id, such as w1, or its label as in `everfold history`.",
)
@click.option(
    "--where", metavar="CONDITION", help="Show only rows that match an SQL condition (DuckDB) over the shown columns."
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Show at most this many rows of each table; 0 shows all.  [default: 100; all for Parquet]",
)
@click.option(
    "--internal",
    is_flag=True,
    help="Also show what only helps to compute a result, such as the number of values of a SUM that are not NULL.",
)
@click.option(
    "--sizes", is_flag=True, help="Show the size by aggregate and by table, in bytes and pages, instead of rows."
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json", "parquet"]),
    default="table",
    show_default=True,
    help="Output format. parquet writes one file per table into the folder given by --out.",
)
@click.option("--out", type=_Folder(), help="Folder for the Parquet files.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Set a Spark option (spark.*).")
def state(
    folder: FolderName,
    operator: str | None,
    where: str | None,
    limit: int | None,
    internal: bool,
    sizes: bool,
    format_: Any,
    out: Path | None,
    conf: tuple[str, ...],
) -> None:
    """Show the state of the job in FOLDER as tables.

    Shows keys, windows and the accumulators of each aggregate after the last finished batch, and
    since which version each aggregate has counted. The job may be running. Nothing is written
    into its job directory.

    \b
    everfold state /var/lib/orders
    everfold state /var/lib/orders --operator w1 --where '"COUNT(*)" > 3 AND customer <> 42'
    everfold state /var/lib/orders --sizes
    everfold state /var/lib/orders --format parquet --out orders-state/
    """
    from everfold.cli import state as command

    if (format_ == "parquet") != (out is not None):
        raise click.UsageError("--format parquet and --out go together")
    if format_ == "parquet" and sizes:
        raise click.UsageError("--sizes cannot be written as Parquet: use --format json")
    options = command.StateOptions(
        operator=operator,
        where=where,
        limit=limit,
        format=format_,
        out=out,
        sizes=sizes,
        internal=internal,
        conf=parse_pairs(conf, "--conf"),
    )
    command.state(folder, options)


@everfold.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option(
    "--engine",
    type=click.Choice(["memory", "spark", "all"]),
    default="memory",
    show_default=True,
    help="Engine that runs the cases.",
)
@_format_option("text", "json", help="Output format.")
@click.option(
    "--bless",
    is_flag=True,
    help="Write the actual results of failed cases into their files. Review the diff afterwards.",
)
def test(files: tuple[Path, ...], engine: str, format_: str, bless: bool) -> None:
    """Run case files, and the case files (*.case.yaml) of folders.

    A file that cannot be read counts as one failed case. The exit code is 1 if a case fails.

    \b
    everfold test tests/orders.case.yaml
    everfold test --bless tests/orders.case.yaml
    everfold test tests/ --engine all --format json
    """
    from everfold.cli.cases import test as run_cases
    from everfold.testing.engines import ENGINES

    engines: Any = ENGINES if engine == "all" else (engine,)
    sys.exit(run_cases(files, engines, as_json=format_ == "json", rewrite=bless))


@everfold.command("check-setup")
@click.option("--quiet", is_flag=True, help="Print only what is missing.")
@click.option(
    "--prepare",
    is_flag=True,
    help="Archive the classes of Spark so that it starts faster. Needed once for each installed Java and Spark; "
    "takes a minute and 170 MB.",
)
@click.option(
    "--with",
    "features",
    type=click.Choice(["s3"]),
    multiple=True,
    help="Download what a feature needs from Maven Central. s3: the classes for paths of `s3a`, 690 MB. "
    "Needed once on each machine of a cluster.",
)
def check_setup(quiet: bool, prepare: bool, features: Sequence[str]) -> None:
    """Check that this machine has everything that everfold needs.

    Prints what is missing and how to install it. The exit code is 1 if something is missing.

    \b
    everfold check-setup --prepare
    everfold check-setup --with s3
    """
    from everfold.cli.setup import check_fast_start, check_s3, run_checks

    found = list(run_checks(Path()))
    if all(check.ok for check in found):
        found.append(check_fast_start(prepare=prepare))
        found.append(check_s3(download="s3" in features))
    for check in found:
        if not quiet or not check.ok:
            click.echo(check.line(), err=quiet)
    sys.exit(0 if all(check.ok for check in found) else EXIT_FAILED)


def main() -> None:
    """Run the command line. Errors become messages with an exit code, never a traceback."""
    try:
        everfold.main(standalone_mode=False)
    except click.ClickException as error:
        limit_suggestions(error)
        error.show()
        sys.exit(EXIT_WRONG_USE if isinstance(error, click.UsageError) else EXIT_FAILED)
    except EverfoldError as error:
        _print_error(error)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("stopped", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has closed the pipe. The flush at exit must not fail either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    except Exception as error:
        from everfold.cli.failures import explain_exception

        explained = explain_exception(error)
        if isinstance(explained, str):
            click.echo(explained, err=True)
        else:
            _print_error(explained)
        sys.exit(EXIT_FAILED)


def _print_error(error: EverfoldError) -> None:
    for diagnostic in error.diagnostics:
        head, newline, rest = diagnostic.render().partition("\n")
        label, colon, message = head.partition(":")
        click.echo(click.style(label, fg="red", bold=True) + colon + message + newline + rest, err=True)
