"""The commands and their options. What a command needs is imported when it runs: `everfold --help` is there at once."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from everfold import __version__
from everfold.cache import cache_folder
from everfold.errors import EXIT_FAILED, EXIT_WRONG_USE, EverfoldError

_Command = TypeVar("_Command", bound=Callable[..., Any])
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
EXIT_INTERRUPTED = 130


@click.group(context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="everfold", message="%(prog)s %(version)s")
def everfold() -> None:
    """Streaming aggregations in Flink SQL, run on Spark.

    \b
    everfold check-setup              what is missing on this machine
    everfold run orders.sql           run a script to the end of its input, or until Ctrl-C
    everfold explain orders.sql       show its plan
    everfold check old.sql new.sql    what a job keeps of its state when its query changes
    everfold history orders/          the versions of a job's query
    everfold rollback orders/ 0       take a job back to one of them
    everfold state orders/            what lies in its state
    everfold test tests/              run case files

    \b
    Completion for bash (zsh, fish likewise):
      eval "$(_EVERFOLD_COMPLETE=bash_source everfold)"
    """


def _format_option(*formats: str, help: str) -> Callable[[_Command], _Command]:
    """`--format`, text unless it is said."""
    choice = click.Choice(formats)
    return click.option("--format", "format_", type=choice, default="text", show_default=True, help=help)


_dialect = click.option(
    "--dialect",
    type=click.Choice(["flink", "lenses"]),
    default="flink",
    show_default=True,
    help="The SQL dialect; a script can change it: SET 'everfold.dialect'.",
)

_sink_duplicates = click.option(
    "--sink-duplicates",
    type=click.Choice(["refuse", "accept"]),
    default="refuse",
    show_default=True,
    help="When the job goes back in its input and a table would hold rows twice: refuse, or accept it.",
)


def _script_options(command: Any) -> Any:
    for option in (
        click.argument("script", required=False, type=click.Path(dir_okay=False, allow_dash=True)),
        click.option("-e", "text", metavar="SQL", help="Run this SQL instead of a script."),
        click.option(
            "--batch", is_flag=True, help="Run once over bounded input: SET 'execution.runtime-mode' = 'batch'."
        ),
        click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="Value of ${NAME} in options."),
        click.option(
            "--conf", multiple=True, metavar="KEY=VALUE", help="An option as SET sets it, or one of Spark's (spark.*)."
        ),
        _dialect,
    ):
        command = option(command)
    return command


@everfold.command()
@_script_options
@click.option(
    "--state", type=click.Path(file_okay=False, path_type=Path), help="The job's folder: where it goes on after a stop."
)
@click.option("--suspend", is_flag=True, help="At the end of bounded input, keep open windows for the next run.")
@click.option("--master", metavar="URL", help="Spark's master; local[*] without it.")
@click.option(
    "--engine",
    type=click.Choice(["spark", "memory"]),
    default="spark",
    show_default=True,
    help="memory: in this process, for small bounded files.",
)
@_format_option("text", "json", "csv", help="How a query's rows are printed.")
@click.option(
    "--changelog",
    is_flag=True,
    help="Print every change of a changing result, also on a terminal (elsewhere it is so anyway).",
)
@click.option(
    "--on-change",
    type=click.Choice(["ask", "accept", "backfill", "reset", "rebuild"]),
    default="ask",
    show_default=True,
    help="When the query of a job has changed so that not all of its state is of use: ask on a terminal and else refuse; accept what it keeps; accept, and backfill what is new from all that the job has read; reset the state and go on where the job was in its input; or rebuild it from the beginning of the input.",
)
@click.option(
    "--refresh",
    is_flag=True,
    help="Give the whole result again, as far as it is kept: when a changed HAVING or SELECT is to be seen in all rows, or a table was lost.",
)
@_sink_duplicates
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="TABLE=moved|new",
    help="When a table of a job lies elsewhere than it did: moved: the same data was moved, and the job resumes where it is in it; new: other data, which is read from its start.",
)
@click.option(
    "--prune",
    is_flag=True,
    help="When a job that was rebuilt or rolled back has caught up, delete the rows of jdbc and upsert-kafka tables whose keys did not come again.",
)
def run(
    script: str | None,
    text: str | None,
    batch: bool,
    variables: tuple[str, ...],
    conf: tuple[str, ...],
    dialect: str,
    state: Path | None,
    suspend: bool,
    master: str | None,
    engine: Any,
    format_: Any,
    changelog: bool,
    on_change: Any,
    sink_duplicates: str,
    sources: tuple[str, ...],
    prune: bool,
    refresh: bool,
) -> None:
    """Run the statements of SCRIPT (- for standard input).

    Bounded input runs to its end, unbounded input until Ctrl-C, which stops after the running batch. An INSERT job started again with the
    same command goes on where it was: without --state it lives in .everfold/<script name>/ beside the script. So does one whose query has changed, as far as
    its state is of use to the new one (`everfold check` says so in advance).

    \b
    everfold run orders.sql
    everfold run orders.sql --state /var/lib/orders --conf spark.driver.memory=4g
    everfold run orders.sql --on-change rebuild --prune
    everfold run -e "SELECT 1 + 1 AS two" --engine memory
    cat orders.sql | everfold run - --batch --format json
    """
    from everfold.cli import run as command

    options = command.RunOptions(
        state=state,
        batch=batch,
        suspend=suspend,
        conf=command.pairs(conf, "--conf"),
        variables=command.pairs(variables, "--var"),
        master=master,
        engine=engine,
        format=format_,
        changelog=changelog,
        dialect=dialect,
        on_change=on_change,
        sink_duplicates=sink_duplicates == "accept",
        prune=prune,
        refresh=refresh,
        sources=command.moved_sources(sources),
    )
    command.run(command.Script.read(script, text), options)


@everfold.command()
@_script_options
def explain(
    script: str | None, text: str | None, batch: bool, variables: tuple[str, ...], conf: tuple[str, ...], dialect: str
) -> None:
    """Show the plan of each query of SCRIPT, with watermark, changelog mode and state per operator. Nothing is run.

    With the code of a rule, as `everfold check` names them, show what the rule means.

    \b
    everfold explain orders.sql
    everfold explain AGG006
    """
    from everfold.cli import explain as command
    from everfold.cli.run import RunOptions, Script, pairs

    if script is not None and command.is_rule(script):
        command.explain_rule(script)
        return
    options = RunOptions(batch=batch, conf=pairs(conf, "--conf"), variables=pairs(variables, "--var"), dialect=dialect)
    command.explain(Script.read(script, text), options)


@everfold.command()
@click.argument("scripts", nargs=-1, required=True, type=click.Path(dir_okay=False), metavar="[OLD] NEW")
@click.option("--state", type=click.Path(file_okay=False, path_type=Path), help="The folder of a job, in place of OLD.")
@_format_option(
    "text", "json", "github", help="How the judgement is printed; github: as annotations of a pull request."
)
@click.option(
    "--rules",
    type=click.Choice(["reference", "extended"]),
    help="Judge as Realtime Compute for Apache Flink does (the default), or by all that everfold can keep: as SET 'everfold.compat.rules' does.",
)
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="An option as SET sets it, for both scripts.")
@_dialect
def check(
    scripts: tuple[str, ...], state: Path | None, format_: Any, rules: str | None, conf: tuple[str, ...], dialect: str
) -> None:
    """Say what a job keeps of its state that ran by the script OLD, or whose folder is given, when it goes on by the script NEW.

    Nothing is run, and no table need be declared.

    \b
    Exit codes: 0 fully compatible, 3 partially compatible, 4 unknown, 5 incompatible.

    \b
    everfold check orders.sql orders-new.sql
    everfold check orders-new.sql --state /var/lib/orders --format json
    everfold check orders.sql orders-new.sql --rules extended
    everfold explain AGG006
    """
    from everfold.cli import check as command
    from everfold.cli.run import RunOptions, Script, pairs

    if len(scripts) != (1 if state is not None else 2):
        raise click.UsageError("name two scripts, the old and the new one; or the new one and --state")
    old = Script.read(scripts[0], None) if state is None else state
    chosen = {} if rules is None else {"everfold.compat.rules": rules}
    options = RunOptions(conf={**pairs(conf, "--conf"), **chosen}, dialect=dialect)
    sys.exit(command.check(old, Script.read(scripts[-1], None), options, format_))


@everfold.command()
@click.argument("script", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--from", "old", type=click.Choice(["flink", "lenses"]), required=True, help="The dialect of SCRIPT.")
@click.option("--to", "new", type=click.Choice(["flink", "lenses"]), required=True, help="The dialect wanted.")
def translate(script: str, old: Any, new: Any) -> None:
    """Print SCRIPT in the words of another dialect, if it can be said there, and prove that both are one plan.

    \b
    everfold translate --from lenses --to flink sessions.sql
    """
    from everfold.cli import translate as command
    from everfold.cli.run import Script

    command.translate(Script.read(script, None), old, new)


@everfold.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.argument("old", type=int)
@click.argument("new", type=int)
def diff(folder: Path, old: int, new: int) -> None:
    """Show how the versions OLD and NEW of the job in FOLDER differ, and what the one keeps of the other.

    \b
    everfold diff /var/lib/orders 0 1
    """
    from everfold.cli import diff as command

    command.diff(folder, old, new)


@everfold.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@_format_option("text", "json", help="How the versions are printed.")
def history(folder: Path, format_: Any) -> None:
    """List the versions of the job in FOLDER: when each began, and since when each of its aggregates counts.

    \b
    everfold history /var/lib/orders
    """
    from everfold.cli import history as command

    command.history(folder, format_)


@everfold.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.argument("version", type=int, required=False)
@click.option(
    "--restored",
    is_flag=True,
    help="Instead of a version: FOLDER was restored from an older copy. Resume from its checkpoint, though the tables hold later batches.",
)
@_sink_duplicates
def rollback(folder: Path, version: int | None, restored: bool, sink_duplicates: str) -> None:
    """Take the job in FOLDER back to VERSION of its query: to the state that it had then, and to its place in the input.

    Says what becomes of its tables, and is quick: no Spark is started. The next `everfold run` with that version's script goes on from there.
    What is taken back is kept: a rollback to the newer version undoes this one.

    \b
    everfold history /var/lib/orders
    everfold rollback /var/lib/orders 0
    everfold rollback /var/lib/orders --restored
    """
    from everfold.cli import rollback as command

    if version is None and not restored:
        raise click.MissingParameter(param_type="argument", param_hint="'VERSION'")
    if version is not None and restored:
        raise click.UsageError("--restored goes back to the current version: it takes no VERSION")
    command.rollback(folder, version, duplicates=sink_duplicates == "accept")


@everfold.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--operator", metavar="NAME", help="Only this one: w1, or as `everfold history` shows it.")
@click.option(
    "--where", metavar="CONDITION", help="Only rows that meet a condition in SQL (DuckDB's) over the shown columns."
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Show at most so many rows of a table; 0: all.  [default: 100, all in Parquet]",
)
@click.option("--sizes", is_flag=True, help="Show bytes and pages, by aggregate and by table, instead of rows.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json", "parquet"]),
    default="table",
    show_default=True,
    help="How the state is given; parquet: as a file for each table, in the folder --out.",
)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="The folder for Parquet files.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="An option of Spark's (spark.*).")
def state(
    folder: Path,
    operator: str | None,
    where: str | None,
    limit: int | None,
    sizes: bool,
    format_: Any,
    out: Path | None,
    conf: tuple[str, ...],
) -> None:
    """Show the state of the job in FOLDER as tables, as of its last finished batch: keys, windows, what each aggregate holds, and since when it counts.

    The job may run meanwhile. Nothing is written into its folder.

    \b
    everfold state /var/lib/orders
    everfold state /var/lib/orders --operator w1 --where '"COUNT(*)" > 3 AND customer <> 42'
    everfold state /var/lib/orders --sizes
    everfold state /var/lib/orders --format parquet --out orders-state/
    """
    from everfold.cli import state as command
    from everfold.cli.run import pairs

    if (format_ == "parquet") != (out is not None):
        raise click.UsageError("--format parquet and --out go together")
    if format_ == "parquet" and sizes:
        raise click.UsageError("--sizes are no rows for a Parquet file: use --format json")
    options = command.StateOptions(
        operator=operator,
        where=where,
        limit=limit,
        format=format_,
        out=out,
        sizes=sizes,
        conf=pairs(conf, "--conf"),
    )
    command.state(folder, options)


@everfold.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option(
    "--engine",
    type=click.Choice(["memory", "spark", "all"]),
    default="memory",
    show_default=True,
    help="Where the cases run.",
)
@_format_option("text", "json", help="How results are printed.")
@click.option(
    "--bless", is_flag=True, help="Write what failed cases answer into their files. Read the difference afterwards."
)
def test(files: tuple[Path, ...], engine: str, format_: str, bless: bool) -> None:
    """Run the cases of case files, and of folders that hold some (*.case.yaml). Exit code 1 if one fails.

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
    help="Make Spark start faster from now on: archive its classes, once for a Java and an installed Spark (a minute, 170 MB).",
)
def check_setup(quiet: bool, prepare: bool) -> None:
    """Say what is missing on this machine, and what to do about it. Exit code 1 if something is.

    \b
    everfold check-setup --prepare
    """
    from everfold.cli.setup import checks, fast_start

    found = list(checks(Path()))
    if all(check.ok for check in found):
        found.append(fast_start(prepare=prepare))
    for check in found:
        if not quiet or not check.ok:
            click.echo(check.line(), err=quiet)
    sys.exit(0 if all(check.ok for check in found) else EXIT_FAILED)


def main() -> None:
    """Runs a command line; errors end as messages with an exit code, never as a trace."""
    try:
        everfold.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_WRONG_USE if isinstance(error, click.UsageError) else EXIT_FAILED)
    except EverfoldError as error:
        _say(error)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("stopped", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has gone: nothing is left to say, and flushing at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    except ConnectionError as error:  # from the JVM's socket: all other connections have errors of their library
        from everfold.jobs.failure import explained

        _say(explained(error, (), Path(_keep(error))))
        sys.exit(EXIT_FAILED)
    except OSError as error:
        from everfold.connectors.connector_errors import os_trouble

        what = f"`{error.filename}`" if error.filename else "a file"
        _say(os_trouble(error, f"{what} cannot be read or written", f"details are in {_keep(error)}"))
        sys.exit(EXIT_FAILED)
    except Exception as error:
        if type(error).__module__.startswith(("pyspark.", "py4j.")):
            from everfold.jobs.failure import explained

            _say(explained(error, (), Path(_keep(error))))
            sys.exit(EXIT_FAILED)
        # The last resort: a bug of ours.
        click.echo(f"internal error: {type(error).__name__}: {_first_line(error)} (details: {_keep(error)})", err=True)
        sys.exit(EXIT_FAILED)


def _say(error: EverfoldError) -> None:
    for diagnostic in error.diagnostics:
        head, newline, rest = diagnostic.render().partition("\n")
        label, colon, message = head.partition(":")
        click.echo(click.style(label, fg="red", bold=True) + colon + message + newline + rest, err=True)


def _first_line(error: Exception) -> str:
    from everfold.secrets import without_secrets_in_log

    return without_secrets_in_log(next(iter(str(error).splitlines()), "no message"))[:200]


def _keep(error: Exception) -> str:
    """Writes a trace down, and says where."""
    from everfold.files import make_private_file, make_private_folder
    from everfold.secrets import command_line, without_secrets_in_log

    folder = cache_folder()
    try:
        make_private_folder(folder)
        make_private_file(folder / "errors.log")
        with open(folder / "errors.log", "a", encoding="utf-8") as log:
            log.write(f"--- {datetime.now(UTC):%Y-%m-%d %H:%M:%S} {command_line(sys.argv)}\n")
            log.writelines(map(without_secrets_in_log, traceback.format_exception(error)))
    except OSError:
        return "could not be written down"
    return str(folder / "errors.log")
