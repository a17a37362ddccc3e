"""The Python API `TableEnvironment`, with PyFlink's names where the meaning is the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar, Unpack, overload

from everfold.compat.operator_ids import source_notes
from everfold.connectors.registry import apply_connector
from everfold.errors import Diagnostic, EverfoldError, UnsupportedFeature, UsageError
from everfold.files import cache_folder, make_private_folder
from everfold.jobs.change import Decide, OnChange, refuse
from everfold.jobs.engine import Engine
from everfold.jobs.folders import FolderName, parse_folder
from everfold.jobs.lookup_tables import LookupTables
from everfold.jobs.preflight import check_answers
from everfold.jobs.rewind import Consent, NewSink, split_sources
from everfold.jobs.sources import External, Sources
from everfold.jobs.spec import Finished, JobSpec
from everfold.local_paths import parse_local_path, spark_path
from everfold.metrics.server import LOOPBACK, MetricsOptions, MetricsServer
from everfold.plan.changelog import KIND, RowKind
from everfold.plan.emitted_changes import is_updating
from everfold.plan.explain import explain
from everfold.plan.naming import name_sources
from everfold.plan.nodes import Collect, Root, Sink
from everfold.plan.walk import is_constant, tables_of, walk_streamed
from everfold.rendering.html import format_facts
from everfold.spark.batch import BatchLowering
from everfold.spark.buckets import bucket_ids
from everfold.spark.scan_report import describe_scans
from everfold.spark.session import create_session
from everfold.spark.stream import StreamLowering
from everfold.spark.task_input import FORWARDED, KEEP
from everfold.sql.catalog import CatalogTable
from everfold.sql.dialects.render import quote_name
from everfold.sql.planner import Done, Session, Show, Submit
from everfold.sql.script import DIALECT_OPTION
from everfold.sql.user_functions import Kind
from everfold.table.arguments import errors_of_python, name_arguments
from everfold.table.frames import FrameReader, LocalTable, table_of, to_spark_frame
from everfold.table.result import TableResult, concat_rows, string_result
from everfold.table.running import RunningJob, summarize
from everfold.types import Schema, physical_name
from everfold.udf.declared import DeclaredFunction
from everfold.udf.interface import AggregateFunction

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession


_INSERTED = f"'{RowKind.INSERT.short}'"
_SHORT_KIND = f"element_at(array({', '.join(repr(kind.short) for kind in RowKind)}), {KIND} + 1)"


@dataclass(slots=True)
class TableConfig:
    """The options of an environment, as set by `SET`."""

    _session: Session = field(repr=False)

    def set(self, key: str, value: str) -> TableConfig:
        """Set an option.

        Raises SqlError if the option does not exist or cannot have that value.
        """
        self._session.catalog.set_option(key, value)
        return self

    def get(self, key: str, default: str | None = None) -> str | None:
        """Return the value of an option as a string, `default` if it was not set."""
        return self._session.settings.options.get(key, default)


class _Duplicates(StrEnum):
    """The values of `sink_duplicates`."""

    REFUSE = "refuse"
    ACCEPT = "accept"


_Value = TypeVar("_Value", bound=StrEnum)


def _parse(values: type[_Value], argument: str, value: str) -> _Value:
    """Return the value of an argument. Raises UsageError `wrong-option-value`."""
    try:
        return values(value)
    except ValueError:
        known = ", ".join(repr(str(each)) for each in values)
        raise UsageError.of("wrong-option-value", f"`{argument}` is one of {known}, not {value!r}") from None


class JobOptions(TypedDict, total=False):
    """The options of `execute_sql` for jobs, which explains them."""

    state_dir: str | os.PathLike[str] | None
    on_change: Literal["refuse", "accept", "backfill", "reset", "rebuild"]
    sink_duplicates: Literal["refuse", "accept"]
    prune: bool
    refresh: bool
    sources: Mapping[str, str] | None
    sinks: Mapping[str, Literal["refresh", "empty", "rebuild"]] | None


class TableEnvironment:
    """Tables, views and queries in Flink SQL over one Spark session.

    spark: everfold runs in a `newSession()` of this session and leaves its conf unchanged. Default:
    the active session; if there is none, Spark is started with `master` and `conf`.
    dialect: the SQL dialect of scripts, `flink` or `lenses`.
    options: as set by SET.
    variables: values for `${name}` in option values.
    base_folder: relative paths start here; its folder `.everfold/` holds the state of INSERT jobs.
    metrics_port, metrics_host: where to serve metrics of the jobs for Prometheus; default: nowhere.
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        *,
        dialect: Literal["flink", "lenses"] = "flink",
        options: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        base_folder: str | os.PathLike[str] = ".",
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        metrics_port: int | None = None,
        metrics_host: str = LOOPBACK,
    ) -> None:
        if spark is None:
            from pyspark.sql import SparkSession

            spark = SparkSession.getActiveSession()
        self._base_folder = parse_local_path(base_folder)
        self._session = Session(
            options={**({} if dialect == "flink" else {DIALECT_OPTION: dialect}), **(options or {})},
            variables=variables,
            environment=os.environ,
            connected=apply_connector,
            folder=self._base_folder,
            import_functions=True,
            describe_scans=describe_scans,
        )
        self._engine = Engine(master=master, conf=dict(conf or {}), session=spark)
        self._metrics: MetricsServer | None = None
        if metrics_port is not None:
            self._metrics = MetricsServer.start(MetricsOptions(port=metrics_port, host=metrics_host))
            self._engine.watch = self._metrics.watch
        self._jobs: list[RunningJob] = []
        self._frames: dict[str, DataFrame] = {}
        self.config = TableConfig(self._session)

    def get_config(self) -> TableConfig:
        """Return the options of this environment."""
        return self.config

    # --- statements -------------------------------------------------------------------------------

    @overload
    def execute_sql(self, script: str, *, wait: Literal[True] = True, **options: Unpack[JobOptions]) -> TableResult: ...

    @overload
    def execute_sql(self, script: str, *, wait: Literal[False], **options: Unpack[JobOptions]) -> RunningJob: ...

    def execute_sql(
        self,
        script: str,
        *,
        wait: bool = True,
        state_dir: str | os.PathLike[str] | None = None,
        on_change: Literal["refuse", "accept", "backfill", "reset", "rebuild"] = "refuse",
        sink_duplicates: Literal["refuse", "accept"] = "refuse",
        prune: bool = False,
        refresh: bool = False,
        sources: Mapping[str, str] | None = None,
        sinks: Mapping[str, Literal["refresh", "empty", "rebuild"]] | None = None,
    ) -> TableResult | RunningJob:
        """Run statements in order, wait for each and return the result of the last one.

        wait: False returns a handle as soon as the job runs; the last statement must be an INSERT
        or a statement set, and the only one that starts a job.

        state_dir: the job directory of an INSERT; default: `.everfold/<table>` in the base folder.
        on_change: what to do when the new query can reuse only part of the state. `refuse`: raise
        an error. `accept`: continue with the reusable state. `backfill`: also compute what new
        aggregates have missed. `reset`: continue without the state. `rebuild`: start from scratch,
        at the start of the input.
        sink_duplicates: whether a rebuild may write rows to a sink table a second time.
        prune: whether a rebuild or rollback deletes rows with a key that were not written again.
        refresh: re-emit the current result of every operator that still holds it.
        sources: for tables whose location has changed since the job last ran. `moved`: the same
        data was moved, and the job resumes at its position in it. `new`: other data, which is read
        from its start. `skip`: records that a topic no longer has are left out. Another value: the
        present name of a table that was renamed, or of a column whose key is `table.column`.
        sinks: for tables whose location has changed, or that the job has not written yet.
        `refresh`: they receive the current result, as far as the state holds it. `empty`: only what
        changes from now on. `rebuild`: the whole result, computed from the beginning of the input.

        Raises EverfoldError.
        """
        answers, renamed = split_sources((sources or {}).items())
        duplicates = _parse(_Duplicates, "sink_duplicates", sink_duplicates) is _Duplicates.ACCEPT
        new_sinks = {name: _parse(NewSink, f"sinks[{name!r}]", answer) for name, answer in (sinks or {}).items()}
        consent = Consent(
            duplicates=duplicates,
            prune=prune,
            refresh=refresh,
            sources=answers,
            renamed_sources=renamed,
            sinks=new_sinks,
        )
        choice = _parse(OnChange, "on_change", on_change)
        with errors_of_python():
            folder = None if state_dir is None else parse_folder(state_dir)
            actions = list(self.plan(script))  # errors are reported before any job starts
            if sources or sinks:
                check_answers([action for action in actions if isinstance(action, Submit)], answers, new_sinks, renamed)
            if not wait:
                job = _last_job(actions)
                return self.start(job, self.specify(job, folder, lambda _: choice, consent, script))
            self._check_all_start([action for action in actions if isinstance(action, Submit)])
            result = string_result((), ())
            for action in actions:
                match action:
                    case Show():
                        result = string_result(action.columns, action.rows)
                    case Done():
                        result = string_result((), (), action.message)
                    case Submit():
                        spec = self.specify(action, folder, lambda _: choice, consent, script)
                        result = self._run(action, spec)
            return result

    def sql_query(self, query: str) -> Query:
        """Return a query without running it."""
        with errors_of_python():
            actions = list(self.plan(query))
        if len(actions) != 1 or not isinstance(actions[0], Submit) or not isinstance(actions[0].roots[0], Collect):
            raise UsageError.of(
                "not-a-query", "`sql_query` takes exactly one query", help="use `execute_sql` for other statements"
            )
        return Query(self, actions[0], actions[0].roots[0])

    def explain_sql(self, statement: str) -> str:
        """Return the plan of a query, an INSERT or a statement set, as `EXPLAIN` does.

        It has the watermark, changelog mode and state of each operator. Creates no table. Raises
        SqlError, and UsageError `not-a-query` for other or several statements.
        """
        return self._session.explain(statement)

    def _check_all_start(self, submits: Sequence[Submit]) -> None:
        """Raise UsageError `never-starts` for a statement after an INSERT without end."""
        for submit, following in pairwise(submits):
            if isinstance(submit.roots[0], Sink) and not self.is_bounded(self.specify(submit)):
                names = ", ".join(f"`{name}`" for name in submit.names)
                raise UsageError(
                    Diagnostic(
                        "never-starts",
                        f"this statement would never start: the INSERT into {names} before it has no end",
                        following.span,
                        "write the INSERTs as one job, BEGIN STATEMENT SET; … END; or start them with wait=False",
                    )
                )

    def _run(self, action: Submit, spec: JobSpec) -> TableResult:
        received: list[pa.Table] = []
        notes: list[str] = []
        finished = self.run(
            replace(
                spec,
                receive=received.append,
                consent=replace(spec.consent, note=lambda text: notes.append(name_arguments(text))),
            )
        )
        first = action.roots[0]
        if isinstance(first, Collect):
            rows = concat_rows(received, first.schema)
            return TableResult(rows, schema=first.schema, zone=action.settings.local_time_zone)
        return summarize(finished, notes)

    # --- for front ends, such as notebooks --------------------------------------------------------

    def plan(self, script: str) -> Iterator[Show | Done | Submit]:
        """Run the statements of a script that need no engine; yield the result of each one."""
        return self._session.run(script)

    def specify(
        self,
        action: Submit,
        state_dir: FolderName | None = None,
        decide: Decide = refuse,
        consent: Consent | None = None,
        script: str = "",
    ) -> JobSpec:
        """Return the job of a query, an INSERT or a statement set. Arguments: as in JobSpec."""
        if all(isinstance(root, Sink) for root in action.roots):
            state_dir = state_dir or self._base_folder / ".everfold" / "+".join(action.names)
        settings = action.settings
        name = "query" if any(isinstance(root, Collect) for root in action.roots) else "+".join(action.names)
        if settings.streaming and self._all_static(action.roots):
            settings = settings.with_option("execution.runtime-mode", "batch")
        return JobSpec(
            roots=action.roots,
            name=settings.pipeline_name or name,
            settings=settings,
            base_folder=self._base_folder,
            state_dir=state_dir,
            sql=action.text,
            script=script,
            bind=action.bind,
            decide=decide,
            consent=consent or Consent(),
        )

    def is_bounded(self, spec: JobSpec) -> bool:
        """Whether all input of a job is bounded."""
        return self._engine.is_bounded(spec)

    def run(self, spec: JobSpec) -> Finished:
        """Run a job to its end. Raises EverfoldError."""
        with errors_of_python():
            return self._engine.run(spec)

    def start(self, action: Submit, spec: JobSpec) -> RunningJob:
        """Start a job in the background, and return when it runs. Raises EverfoldError."""
        assert spec.state_dir is not None
        job = RunningJob("+".join(action.names), spec.state_dir, self._engine)
        job.start(spec)
        self._jobs.append(job)
        return job

    # --- tables -----------------------------------------------------------------------------------

    def create_temporary_view(
        self, name: str, frame: DataFrame | LocalTable, *, rowtime: str | None = None, watermark: str | None = None
    ) -> None:
        """Register a DataFrame, batch or streaming, as a table.

        frame: a DataFrame of Spark, pandas or Polars, or an Arrow table.
        rowtime: the event time column; windows over a streaming DataFrame need one.
        watermark: the watermark expression in SQL; default: the rowtime column itself.
        """
        frame = to_spark_frame(frame, lambda: self._engine.spark(cache_folder() / "spark.log"))
        columns = [f"{quote_name(column.name)} {column.type.sql}" for column in table_of(name, frame).columns]
        if rowtime is not None:
            columns.append(f"WATERMARK FOR {quote_name(rowtime)} AS {watermark or quote_name(rowtime)}")
        self.drop_temporary_view(name)
        for _ in self._session.run(f"CREATE TEMPORARY TABLE {quote_name(name)} ({', '.join(columns)})"):
            pass
        entry = self._session.catalog.find((name,))
        assert isinstance(entry, CatalogTable)
        self._session.catalog.replace(replace(entry, table=replace(entry.table, bounded=not frame.isStreaming)))
        self._engine.externals[name] = External(FrameReader(frame), is_bounded=not frame.isStreaming)
        self._frames[name] = frame

    def drop_temporary_view(self, name: str) -> bool:
        """Drop a temporary table or view; return whether there was one."""
        self._engine.externals.pop(name, None)
        self._frames.pop(name, None)
        entry = self._session.catalog.find((name,))
        if entry is None or not entry.temporary:
            return False
        view = not isinstance(entry, CatalogTable)
        return self._session.catalog.drop((name,), view=view, temporary=True, if_exists=True)

    def list_tables(self) -> list[str]:
        """Return the names of all tables and views."""
        return [entry.name for entry in self._session.catalog.entries()]

    # --- functions --------------------------------------------------------------------------------

    def create_temporary_function(self, path: str, function: DeclaredFunction | AggregateFunction) -> None:
        """Register a Python function under a name, which may be qualified by its database.

        function: a result of `udf` or `udaf`, or an AggregateFunction that declares its types.
        Raises SqlError `function-exists` if the name is taken.
        """
        self._session.register_function(tuple(path.split(".")), function, Kind.TEMPORARY)

    def create_temporary_system_function(self, name: str, function: DeclaredFunction | AggregateFunction) -> None:
        """Register a Python function under a name that takes precedence over built-in functions."""
        self._session.register_function((name,), function, Kind.SYSTEM)

    def drop_temporary_function(self, path: str) -> bool:
        """Drop a temporary function; return whether there was one."""
        return self._session.forget_function(tuple(path.split(".")), Kind.TEMPORARY)

    def drop_temporary_system_function(self, name: str) -> bool:
        """Drop a temporary system function; return whether there was one."""
        return self._session.forget_function((name,), Kind.SYSTEM)

    def list_user_defined_functions(self) -> list[str]:
        """Return the names of all registered functions."""
        return [function.name for function in self._session.catalog.functions]

    # --- DataFrames -------------------------------------------------------------------------------

    def _all_static(self, roots: tuple[Root, ...]) -> bool:
        """Return whether only batch DataFrames of the caller are read, so no stream has to run."""
        scans = [table.name for root in roots for table in tables_of(walk_streamed(root.input))]
        frames = self._frames
        return bool(scans) and all(name in frames and not frames[name].isStreaming for name in scans)

    def close(self) -> None:
        """Stop the jobs that run in the background, and Spark if this environment started it."""
        for job in self._jobs:
            with suppress(EverfoldError):  # it has failed, which `wait` reports
                job.stop()
        self._jobs.clear()
        self._engine.close()
        if self._metrics is not None:
            self._metrics.close()

    def _to_spark(self, action: Submit, root: Collect, *, kinds: bool = False) -> DataFrame:
        settings = action.settings
        tables = self._engine.check(action.roots, streaming=settings.streaming)
        log_file = cache_folder() / "spark.log"
        partitions = self._engine.partitions(settings)
        spark = create_session(self._engine.spark(log_file), partitions)
        frames = self._frames
        sources = Sources(spark, self._base_folder, settings, tables, None, self._engine.externals)
        zone = settings.local_time_zone
        if not settings.streaming or is_constant(root.input) or self._all_static(action.roots):
            frame = BatchLowering(spark, zone, sources.read_scan).lower(root.input)
            return _rename_columns(frame, root.schema, [_INSERTED] if kinds else [])
        scans = {table.name for table in tables_of(walk_streamed(root.input))}
        own_streams = scans & frames.keys()
        if own_streams and scans - own_streams:
            raise UnsupportedFeature.of(
                "mixed-sources", "a query cannot read both your own streaming DataFrame and a table with a connector"
            )
        if own_streams:
            spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "false")
            spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "1")
        mark = hashlib.sha256(repr(root).encode()).hexdigest()
        control = cache_folder() / "control" / mark[:16]
        make_private_folder(control)
        lowering = StreamLowering(
            spark=spark,
            zone=zone,
            open_source=sources.stream,
            control_folder=spark_path(control.absolute()),
            bucket_ids=bucket_ids(self._engine.buckets(partitions), partitions),
            idle_timeout_ms=settings.idle_timeout_ms,
            drop_null_rowtime=settings.null_rowtime == "drop",
            query_digest=mark,
            named_sources=not own_streams,
            read_lookup_table=LookupTables(BatchLowering(spark, zone, sources.read_scan), sources, None),
        )
        (named,) = name_sources([root], [note["name"] for note in source_notes([root])])
        stream = lowering.lower(named.input)
        kind = [_SHORT_KIND if stream.has_row_kinds else _INSERTED] if kinds else []
        return _rename_columns(stream.frame.where(f"{FORWARDED} IS NULL AND {KEEP}"), root.schema, kind)


@dataclass(frozen=True, slots=True)
class Query:
    """A query of an environment."""

    _environment: TableEnvironment = field(repr=False)
    _action: Submit
    _root: Collect = field(repr=False)

    @property
    def schema(self) -> Schema:
        """The columns of the result."""
        return self._root.schema

    def execute(self) -> TableResult:
        """Run the query to its end; a stream over bounded input emits open windows at the end."""
        return self._environment._run(self._action, self._environment.specify(self._action))

    def collect(self) -> list[Row]:
        """Run the query to its end and return its rows."""
        return self.execute().collect()

    def to_pandas(self) -> pd.DataFrame:
        """Run the query to its end and return its rows as pandas."""
        return self.execute().to_pandas()

    def to_arrow(self) -> pa.Table:
        """Run the query to its end and return its rows as Arrow."""
        return self.execute().to_arrow()

    def to_spark(self) -> DataFrame:
        """Return the result as a DataFrame, streaming or batch; the result must not retract rows.

        A streaming DataFrame emits a window when the watermark has passed it; write it with a
        checkpoint location of your own. The state in that checkpoint belongs to this query: any
        other query is refused.

        Raises UnsupportedFeature `updating-result` if the result retracts rows.
        """
        if is_updating(self._root.input) and self._action.settings.streaming:
            raise UnsupportedFeature.of(
                "updating-result",
                "the result retracts rows, which a DataFrame without row kinds cannot express",
                help="use `to_changelog()`",
            )
        return self._environment._to_spark(self._action, self._root)

    def to_changelog(self) -> DataFrame:
        """Return the result with a first column `row_kind`: `+I`, `-U`, `+U` or `-D`."""
        return self._environment._to_spark(self._action, self._root, kinds=True)

    def to_polars(self) -> pl.DataFrame:
        """Run the query to its end and return its rows as Polars."""
        return self.execute().to_polars()

    def explain(self) -> str:
        """Return the plan: watermark, changelog mode and state of each operator."""
        return explain(self._root, streaming=self._action.settings.streaming)

    def _repr_html_(self) -> str:
        """The columns and the plan, for notebooks; does not run the query."""
        columns = format_facts((field.name, field.type.sql) for field in self.schema)
        return f"{columns}\n<details><summary>Plan</summary><pre>{escape(self.explain())}</pre></details>"


def _last_job(actions: Sequence[Show | Done | Submit]) -> Submit:
    """Return the job at the end of a script, its only one. Raises UsageError `not-a-job`."""
    submits = [each for each in actions if isinstance(each, Submit)]
    if len(submits) != 1 or submits[0] is not actions[-1] or isinstance(submits[0].roots[0], Collect):
        raise UsageError.of(
            "not-a-job",
            "`wait=False` takes a script that ends with an INSERT or a statement set, its only job",
            help="run several jobs with several calls; `sql_query` returns the rows of a query",
        )
    return submits[0]


def _rename_columns(frame: DataFrame, schema: Schema, kind: Sequence[str]) -> DataFrame:
    """Rename columns to those of the schema; `kind`: SQL of an optional first column `row_kind`."""
    columns = [*kind, *(physical_name(at) for at in range(len(schema)))]
    return frame.selectExpr(*columns).toDF(*(["row_kind"] if kind else []), *schema.names)
