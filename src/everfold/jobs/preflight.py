"""Check the jobs of a script as `everfold run` does before it starts anything.

`everfold check` and `explain` call the same functions, so that they accept and refuse the same
scripts. No external system is accessed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.connectors.contract import USE_SPARK, Source
from everfold.connectors.filesystem.paths import is_hidden
from everfold.connectors.validate import CheckedTable, CheckedTables, check_tables
from everfold.errors import SqlError, UnsupportedFeature, UsageError, suggest_name
from everfold.jobs.spec import EngineName, ignore
from everfold.plan.nodes import Limit, Root, Scan, SetOperation, Sink, Sort, Values
from everfold.plan.walk import is_constant, walk_streamed

if TYPE_CHECKING:
    from everfold.sql.planner import Submit


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedJob:
    """A job of a script that can start, with its engine and its tables."""

    submit: Submit
    engine: EngineName
    tables: CheckedTables

    @property
    def is_stream(self) -> bool:
        """Whether it keeps state in its job directory; a batch keeps none."""
        return runs_as_stream(self.submit)


def check_jobs(
    submits: Sequence[Submit],
    base_folder: Path,
    *,
    engine: EngineName | None = None,
    note: Callable[[str], None] = ignore,
) -> list[CheckedJob]:
    """Check the tables of each job, and that its engine can read and write them.

    base_folder: start of relative paths. engine: that of the command line. note: called with notes
    on options without effect. Raises SqlError.
    """
    jobs: list[CheckedJob] = []
    for submit in submits:
        tables = check_tables(submit.roots, streaming=submit.settings.streaming, note=note)
        job = CheckedJob(submit=submit, engine=engine or submit.settings.engine or "spark", tables=tables)
        if job.is_stream:
            check_loops(submit.roots, tables, base_folder)
        if job.engine == "spark" and job.is_stream:
            check_streamable(submit.roots)
        if job.engine == "memory":
            check_memory_sources(tables, base_folder)
            for root in submit.roots:
                if isinstance(root, Sink):
                    check_memory_sink(tables.sinks[root.table], root)
        jobs.append(job)
    return jobs


def runs_as_stream(submit: Submit) -> bool:
    """Return whether a statement runs as a stream: not in batch mode, and not over constants."""
    return submit.settings.streaming and not all(is_constant(root.input) for root in submit.roots)


def check_streamable(roots: Iterable[Root]) -> None:
    """Check that Spark can run a query as a stream.

    Raises UnsupportedFeature `not-in-stream` for a node that only a batch has.
    """
    for root in roots:
        for node in walk_streamed(root.input):
            if isinstance(node, Values | Sort | Limit | SetOperation):
                kind = type(node).__name__
                raise UnsupportedFeature.of("not-in-stream", f"{kind} does not run in a stream", node.span)


def check_loops(roots: Iterable[Root], tables: CheckedTables, base_folder: Path) -> None:
    """Check that a stream does not read the files that it writes.

    base_folder: start of relative paths. Raises SqlError `sink-in-source`.
    """
    sinks = [root for root in roots if isinstance(root, Sink) and tables.sinks[root.table].connector.is_folder]
    streamed = {node.table for root in roots for node in walk_streamed(root.input) if isinstance(node, Scan)}
    for table, source in tables.sources.items() if sinks else ():
        if table not in streamed or not source.connector.is_folder:
            continue
        for sink in sinks:
            if _reads_files_of(source, tables.sinks[sink.table], base_folder):
                raise SqlError.of(
                    "sink-in-source",
                    f"table `{sink.table.name}` is written into the folder of table `{table.name}`:"
                    " the job would read its own rows, and never end",
                    sink.table.span_of_option("path") or sink.span,
                    "write it to another folder; names that begin with `.` or `_` are not read",
                )


def _reads_files_of(source: CheckedTable, sink: CheckedTable, base_folder: Path) -> bool:
    """Return whether a source finds the files of a sink."""
    (folder,), (written,) = source.locations(base_folder), sink.locations(base_folder)
    if folder == written or not source.source().reads_files:
        return folder == written
    prefix = f"{folder.rstrip('/')}/"
    return written.startswith(prefix) and not any(map(is_hidden, written.removeprefix(prefix).split("/")))


def check_answers(
    submits: Iterable[Submit], sources: Collection[str], sinks: Collection[str], renamed_sources: Mapping[str, str]
) -> None:
    """Check that the tables of `--source` and `--sink` are read and written by a script.

    renamed_sources: see `rename_sources`, which checks what only the job knows.

    Raises UsageError `wrong-option-value`.
    """
    submits = tuple(submits)
    read = {table.name for submit in submits for table in submit.sources}
    written = {root.table.name for submit in submits for root in submit.roots if isinstance(root, Sink)}
    columns = {column.name for submit in submits for table in submit.sources for column in table.columns}
    for old, new in renamed_sources.items():
        if new not in read | (columns if "." in old else set()):
            message = f"`--source {old}={new}`: the script reads no table `{new}`"
            help_ = suggest_name(new, [*read, "moved", "new", "skip"], never=("new", "skip"))
            help_ = help_ or "write --source TABLE=moved, TABLE=new, TABLE=skip or OLD=NEW"
            raise UsageError.of("wrong-option-value", message, help=help_)
    for option, verb, names, tables in (("--source", "read", sources, read), ("--sink", "write", sinks, written)):
        for name in names:
            if name not in tables:
                listed = ", ".join(f"`{table}`" for table in sorted(tables)) or "no table"
                raise UsageError.of(
                    "wrong-option-value",
                    f"`{option} {name}=…`: the script {verb}s no table `{name}`",
                    help=suggest_name(name, tables) or f"it {verb}s {listed}",
                )


def check_memory_sources(tables: CheckedTables, base_folder: Path) -> None:
    """Check that the memory engine can read tables.

    Raises UnsupportedFeature `not-in-memory` for an unbounded table, and for one whose connector
    only Spark reads.
    """
    for source in (checked.source() for checked in tables.sources.values()):
        if not source.is_bounded():
            message = f"the memory engine reads bounded input only, and table `{source.table.name}` is unbounded"
            raise UnsupportedFeature.of("not-in-memory", message, source.table.span, USE_SPARK)
        if type(source).read_local is Source.read_local:
            source.read_local(base_folder)


def check_memory_sink(checked: CheckedTable, root: Sink) -> None:
    """Raise UnsupportedFeature `not-in-memory` for a table that only Spark writes."""
    if not checked.connector.writes_in_process:
        message = f"table `{root.table.name}`: the memory engine does not write to `{root.table.connector}`"
        raise UnsupportedFeature.of("not-in-memory", message, root.span, help=USE_SPARK)
