"""Run jobs on Spark: choose stream or batch, open the job directory, connect sinks and run."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.activity import report_activity
from everfold.connectors.contract import BatchId, LocalSink, OptionValues, SinkContext
from everfold.connectors.filesystem.paths import locate
from everfold.connectors.validate import CheckedTables, check_tables
from everfold.jobs.answers import Inputs
from everfold.jobs.batch_job import run_batch
from everfold.jobs.batch_log import last_batch
from everfold.jobs.behind_sinks import BehindSinks
from everfold.jobs.carry_out import ChangeExecutor
from everfold.jobs.change_plan import ChangePlan
from everfold.jobs.changed_tables import ChangedTable
from everfold.jobs.failure import spark_may_be_gone
from everfold.jobs.folders import FolderName, needs_s3, open_folder
from everfold.jobs.foreach_batch import Target
from everfold.jobs.job_dir import JobDir, locate_log
from everfold.jobs.locations import Locations, move_job
from everfold.jobs.lost_sources import LostSource, skip_lost_rows
from everfold.jobs.manifest import Manifest, Version, fingerprint, now
from everfold.jobs.opening import note_unused_answers, open_job
from everfold.jobs.preflight import check_loops, check_streamable
from everfold.jobs.rescale import rescale
from everfold.jobs.rewind import Consent, check_duplicates, describe_effects
from everfold.jobs.rewind_progress import RewindProgress
from everfold.jobs.run_record import RunRecorder, describe_version, record_run
from everfold.jobs.sink_checks import check_sinks_not_ahead, holds_batch, note_other_jobs, refuse_batch
from everfold.jobs.sink_tables import sink_name
from everfold.jobs.sources import External, Sources
from everfold.jobs.spec import Finished, JobSpec, Receive
from everfold.jobs.stop import StopSignal
from everfold.jobs.stream_job import StreamJob
from everfold.operators.reemit import can_reemit
from everfold.plan.nodes import Collect, Root, Sink, Table
from everfold.plan.walk import is_constant, last_operators, tables_read
from everfold.spark.executors import ExecutorCheck, count_cores, is_cluster, ship_package
from everfold.spark.first_task import start_workers
from everfold.spark.hadoop import connect
from everfold.spark.session import create_session, start_spark
from everfold.spark.spark_log import append_line, silence_log
from everfold.spark.store_check import UsedPath
from everfold.sql.settings import Settings
from everfold.storage import Location, local

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_MIN_BUCKETS = 8
_MAX_PARTITIONS = 256
_IGNORED = "retractions of rows that do not exist"


def _announce_rebuild(manifest: Manifest, consent: Consent) -> None:
    """Report the effect of a rebuild on the job's tables. Raises StateError `sink-duplicates`."""
    notes = manifest.rewritten_sinks
    for line in describe_effects(notes, lambda again: again.on_rebuild):
        consent.note(line)
    check_duplicates(notes, accepted=consent.duplicates)


def _warn(job_dir: JobDir, consent: Consent, text: str) -> None:
    """Report a warning to the user and write it to the job's log."""
    consent.note(text)
    append_line(job_dir.spark_log, f"{now()} WARN everfold: {text}")


def _report_stale_rows(plan: ChangePlan, consent: Consent) -> None:
    """Report which rows of the tables stay as the old query wrote them."""
    new = plan.manifest.new_operators
    for root in plan.roots:
        name = f"`{root.table.name}`" if isinstance(root, Sink) else "the result"
        operators = [node for node in last_operators(root.input) if node.operator_id not in new]
        parts = {can_reemit(node) for node in operators}
        is_refreshed = any(node.operator_id in plan.manifest.version.again for node in operators)
        if consent.refresh and False in parts:
            consent.note(f"{name}: rows that state no longer holds, as those of closed windows, stay as they are")
        elif not is_refreshed and True in parts:
            consent.note(f"{name}: rows stay as they are until they change; --refresh re-emits them all")


class _PlanAgain(Exception):
    """A job must be planned again, for tables that lack rows. behind: with the user's answers."""

    def __init__(self, behind: Sequence[ChangedTable]) -> None:
        super().__init__()
        self.behind = behind


def _check_behind(job_dir: JobDir, plan: ChangePlan, targets: Sequence[Target], consent: Consent) -> None:
    """Check that the tables hold what the job has written to them.

    Raises StateError `sink-behind`, `_PlanAgain`.
    """
    known = job_dir.read_manifest()
    asked: Collection[str] = ()
    if known is not None and not (plan.replaces is not None and plan.manifest.version.rebuilt):
        found = BehindSinks.find(job_dir, known, plan.roots, targets)
        planned = found.settle(consent)
        if planned:
            raise _PlanAgain(planned)
        asked = {sink.table for sink in found.sinks}
    note_unused_answers(plan, asked, consent)


class _Receiver(LocalSink):
    """The sink of a bare SELECT."""

    def __init__(self, receive: Receive) -> None:
        table = Table(name="(result)", columns=())
        super().__init__(SinkContext(name="result", base_folder=Path(), table=table), OptionValues({}, frozenset()))
        self._receive = receive

    def write(self, rows: pa.Table, batch: BatchId) -> None:
        self._receive(rows)


@dataclass(slots=True)
class Engine:
    """Spark, started when the first job needs it.

    session: the caller's session, whose Spark is used; without one, a JVM is started with `master`
        and `conf`, and ended by `close`.
    log_file: Spark's log, None for that of the first job. brief: whether the jobs read only little
        input. uses_s3: whether any of them has a path in S3.
    externals: tables whose rows the caller provides.
    watch: called for each job that runs, returns a context with how to run it.
    """

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    brief: bool = False
    log_file: Path | None = None
    uses_s3: bool = False
    session: SparkSession | None = None
    externals: dict[str, External] = field(default_factory=dict)
    watch: Callable[[JobSpec], AbstractContextManager[JobSpec]] = nullcontext
    _started: SparkSession | None = None
    _starting: threading.Lock = field(default_factory=threading.Lock)

    def spark(self, log_file: Path) -> SparkSession:
        """Return the session from which jobs derive theirs, starting Spark if needed."""
        if self.session is not None:
            return self.session
        with self._starting:
            if self._started is None:
                report_activity("starting Spark")
                self._started = start_spark(
                    master=self.master,
                    conf=self.conf,
                    log_file=self.log_file or log_file,
                    brief=self.brief,
                    uses_s3=self.uses_s3,
                )
            return self._started

    def warm_up(self, log_file: Path) -> None:
        """Start Spark and its Python workers, so that the first job need not."""
        self.log_file = self.log_file or log_file
        start_workers(self.spark(log_file))

    def tag_jobs(self) -> Callable[[], None]:
        """Tag the Spark jobs of queries that this thread starts; return a function to cancel them.

        Spark must run.
        """
        assert self._started is not None or self.session is not None
        context = (self.session or self._started).sparkContext  # type: ignore[union-attr]
        tag = f"everfold-{time.monotonic_ns()}"
        context.addJobTag(tag)

        def cancel() -> None:
            with spark_may_be_gone():
                context.cancelJobsWithTag(tag)

        return cancel

    def close(self) -> None:
        """Stop the JVM if this engine has started it."""
        if self._started is not None:
            with spark_may_be_gone():
                silence_log(self._started)
                self._started.stop()
            self._started = None

    def is_bounded(self, spec: JobSpec) -> bool:
        """Whether all input of a job is bounded; the input of a batch always is.

        Judged by the options of its tables alone.
        """
        tables = self._check(spec).sources
        externals = (self.externals[each.name] for each in tables_read(spec.roots) if each not in tables)
        ends = [*(each.source().is_bounded() for each in tables.values()), *(each.is_bounded for each in externals)]
        return not spec.settings.streaming or all(ends)

    def rescale(self, folder: FolderName, partitions: int, say: Callable[[str], None]) -> Version:
        """Give a job another number of partitions, see `rescale`."""
        self.uses_s3 = self.uses_s3 or needs_s3(folder, ())
        return rescale(self.open_job_dir(folder), partitions, lambda: self.spark(locate_log(folder)), say)

    # --- jobs -------------------------------------------------------------------------------------

    def check(self, roots: Sequence[Root], *, streaming: bool) -> CheckedTables:
        """See `check_tables`."""
        return check_tables(roots, streaming=streaming, given=self.externals)

    def _check(self, spec: JobSpec) -> CheckedTables:
        return spec.tables or self.check(spec.roots, streaming=spec.settings.streaming)

    def run(self, spec: JobSpec) -> Finished:
        """Run a job to its end. Raises EverfoldError."""
        with self.watch(spec) as watched:
            return self._run(watched)

    def _run(self, spec: JobSpec) -> Finished:
        tables = self._check(spec)
        self.uses_s3 = self.uses_s3 or needs_s3(spec.state_dir, spec.roots)
        if spec.state_dir is not None:
            return self._run_in(self.open_job_dir(spec.state_dir), spec, tables)
        with tempfile.TemporaryDirectory(prefix="everfold-") as folder:
            return replace(self._run_in(local(folder), spec, tables), log_file=None)

    def open_job_dir(self, folder: FolderName) -> Location:
        """Return the location of a job directory; another store than the local disk needs Spark."""
        return open_folder(folder, lambda: connect(self.spark(locate_log(folder))))

    def _run_in(self, path: Location, spec: JobSpec, tables: CheckedTables) -> Finished:
        job_dir = JobDir(path, spec.consent.note, self.log_file)
        with job_dir.locked():
            signal = StopSignal(path, job_dir.ownership.process, spec.stopping, spec.consent.note)
            return self._run_locked(job_dir, replace(spec, stopping=signal), tables)

    def _run_locked(self, job_dir: JobDir, spec: JobSpec, tables: CheckedTables) -> Finished:
        with record_run(job_dir, spec) as recorder:
            if spec.settings.streaming and not all(is_constant(root.input) for root in spec.roots):
                return self._run_stream(job_dir, spec, tables, recorder)
            refuse_batch(job_dir)
            return self._run_batch(job_dir, spec, tables, recorder)

    def _run_batch(self, job_dir: JobDir, spec: JobSpec, tables: CheckedTables, recorder: RunRecorder) -> Finished:
        spark = self._start(job_dir, self._choose_partitions(job_dir, spec.settings))
        with self._open_targets(job_dir, spec, spec.roots, tables, spark) as targets:
            self._check_executors(spark, job_dir, spec, tables, targets)
            recorder.describe(is_under_way=True)
            report_activity("running the query")
            return run_batch(
                spark,
                spec.roots,
                targets,
                Sources(spark, spec.base_folder, spec.settings, tables, job_dir.path, self.externals),
                zone=spec.settings.local_time_zone,
                job=job_dir.path.name,
                epoch=time.time_ns(),
                log_file=job_dir.spark_log,
            )

    def _run_stream(self, job_dir: JobDir, spec: JobSpec, tables: CheckedTables, recorder: RunRecorder) -> Finished:
        check_streamable(spec.roots)
        check_loops(spec.roots, tables, spec.base_folder)
        note_once = cache(spec.consent.note)  # a job that is planned again has the same notes
        spec = replace(spec, consent=replace(spec.consent, note=note_once))
        try:
            return self._run_planned(job_dir, spec, tables, recorder, ())
        except _PlanAgain as reason:
            return self._run_planned(job_dir, spec, tables, recorder, reason.behind)

    def _run_planned(
        self,
        job_dir: JobDir,
        spec: JobSpec,
        tables: CheckedTables,
        recorder: RunRecorder,
        behind: Sequence[ChangedTable],
    ) -> Finished:
        """Plan a stream and run it.

        behind: tables that lack rows which the job has written. Raises `_PlanAgain` if there are
        some, and the user's answers need another plan.
        """
        settings, consent = spec.settings, spec.consent
        is_new = job_dir.read_manifest() is None
        starts_jvm = self.session is None and self._started is None
        partitions = self._choose_partitions(job_dir, settings) if is_new else 0
        forgotten = [name for name, external in self.externals.items() if external.history is None]
        inputs = Inputs.of(tables, spec.base_folder, forgotten)
        buckets = self.buckets(partitions)
        plan = open_job(job_dir, spec, inputs, buckets=buckets, partitions=partitions, behind=behind)
        tables = tables.rename_sources(plan.roots)
        locations = Locations(job_dir, spec.base_folder, self.externals, consent.sources)
        located = locations.locate(plan.manifest, plan.roots, tables.sources)
        if located.lost:
            self._skip_lost_rows(job_dir, spec, plan, tables, located.lost)
            # The job directory has another version now: start from the beginning.
            others = {name: answer for name, answer in consent.sources.items() if name not in located.lost_tables}
            rest = replace(spec, consent=replace(consent, sources=others))
            return self._run_stream(job_dir, rest, self._check(rest), recorder)
        for line in located.notes:
            consent.note(line)
        manifest = located.manifest
        own = manifest.count_partitions(manifest.version)
        if settings.parallelism not in (None, own):
            consent.note(
                f"`parallelism.default` is {settings.parallelism}, but the job keeps its {own} partitions;"
                f" `everfold rescale` changes them"
            )
        plan = replace(plan, manifest=manifest)
        if plan.replaces is not None and manifest.version.rebuilt:
            _announce_rebuild(manifest, consent)
        elif plan.replaces is not None and manifest.version.state_epoch != manifest.version.number:
            _report_stale_rows(plan, consent)
        spark = self._start(job_dir, own)
        if starts_jvm:
            start_workers(spark)
        manifest = move_job(job_dir, located)
        plan = replace(plan, manifest=manifest)
        with self._open_targets(job_dir, spec, plan.roots, tables, spark) as targets:
            executors = self._check_executors(spark, job_dir, spec, tables, targets)
            if not is_new:
                check_sinks_not_ahead(job_dir, manifest, targets)
                if not behind:
                    _check_behind(job_dir, plan, targets, consent)
            if last_batch(job_dir.path) is None:
                note_other_jobs(manifest, targets, consent.note)

            def open_sources() -> Sources:
                found = Sources(spark, spec.base_folder, settings, tables, job_dir.path, self.externals)
                found.spark_names, found.identities = located.spark_names, located.identities
                found.origin = manifest.origin
                return found

            ChangeExecutor(job_dir, spark, plan, targets, open_sources, settings.local_time_zone, consent.note).run()
            sources = open_sources()
            sources.earlier = [
                job_dir.checkpoint(manifest, one.epoch) for one in manifest.versions if one.epoch < manifest.origin
            ]
            recorder.describe(**describe_version(manifest, spark))
            job = StreamJob(
                spark=spark,
                job_dir=job_dir,
                manifest=manifest,
                spec=spec,
                recorder=recorder,
                roots=plan.roots,
                targets=targets,
                sources=sources,
                rewind_progress=_watch_rewind(job_dir, manifest, targets, consent),
                warn=lambda text: _warn(job_dir, consent, text),
                check_executors=executors.run,
            )
            router = job.run()
        return Finished(
            rows=router.rows,
            rows_out=router.rows_out,
            late_rows=router.reports.late_rows,
            state_rows=router.reports.state_rows,
            dropped_rows=router.dropped | {_IGNORED: router.reports.ignored_rows},
            log_file=job_dir.spark_log,
            is_stopped=job.is_stopped,
            unfinished_batch=job.unfinished_batch,
        )

    def _skip_lost_rows(
        self,
        job_dir: JobDir,
        spec: JobSpec,
        plan: ChangePlan,
        tables: CheckedTables,
        lost: Sequence[LostSource],
    ) -> None:
        """Let a job continue after rows that were lost, as the user has answered."""

        def is_delivered(batch: int) -> bool:
            known = job_dir.load_manifest()
            spark = create_session(self.spark(job_dir.spark_log), known.count_partitions(known.version))
            with self._open_targets(job_dir, spec, plan.roots, tables, spark) as targets:
                return holds_batch(known, targets, batch)

        skip_lost_rows(job_dir, lost, spec.consent.sources, spec.consent, is_delivered)

    @staticmethod
    def _check_executors(
        spark: SparkSession, job_dir: JobDir, spec: JobSpec, tables: CheckedTables, targets: Sequence[Target]
    ) -> ExecutorCheck:
        """Check that the executors of a cluster can run the job. Raises what the check raises.

        Returns the check for those that join later.
        """
        used = [UsedPath(job_dir.path, "the job directory", is_written=True)]
        for table, checked in tables.sources.items():
            source = checked.source()
            if source.reads_files:
                location = locate(source.location(spec.base_folder), spec.base_folder, spark)
                used.append(UsedPath(location, f"table `{table.name}` in"))
        for target in targets:
            folder = target.sink.target_folder
            if folder is not None:
                used.append(UsedPath(folder, f"table `{target.sink.table.name}` in", is_written=True))
        check = ExecutorCheck(spark, used)
        check.run()
        return check

    def _start(self, job_dir: JobDir, partitions: int) -> SparkSession:
        """Return a session for a job, whose JVM holds the lock of the job directory."""
        spark = create_session(self.spark(job_dir.spark_log), partitions)
        if is_cluster(spark):
            ship_package(spark)
        job_dir.lock_in_jvm(spark)
        report_activity("preparing the job")
        return spark

    @contextmanager
    def _open_targets(
        self, job_dir: JobDir, spec: JobSpec, roots: Sequence[Root], tables: CheckedTables, spark: SparkSession
    ) -> Iterator[list[Target]]:
        """Open the sinks of a job for the block, and prepare them."""
        targets: list[Target] = []
        try:
            targets += [_create_target(at, root, spec, tables, job_dir, spark) for at, root in enumerate(roots)]
            for target in targets:
                target.sink.prepare()
            yield targets
        finally:
            for target in targets:
                target.sink.close()

    def _choose_partitions(self, job_dir: JobDir, settings: Settings) -> int:
        """Return the shuffle partitions of a new job; on a cluster, by default one per core."""
        if settings.parallelism is None:
            spark = self.spark(job_dir.spark_log)
            if is_cluster(spark):
                return min(_MAX_PARTITIONS, max(2, count_cores(spark)))
        return self.partitions(settings)

    @staticmethod
    def partitions(settings: Settings) -> int:
        """Return the shuffle partitions for this machine: `parallelism.default`, else one per core.

        The default is at least 2 and at most 8.
        """
        return settings.parallelism or min(8, max(2, os.cpu_count() or 2))

    @staticmethod
    def buckets(partitions: int) -> int:
        """Return the buckets of a new job: a power of two, and at least twice the partitions.

        The extra buckets let the job grow.
        """
        return max(_MIN_BUCKETS, 1 << (2 * partitions - 1).bit_length())


def _create_target(
    at: int, root: Root, spec: JobSpec, tables: CheckedTables, job_dir: JobDir, spark: SparkSession
) -> Target:
    """Create the sink of a root. at: position of the root, counted from 0."""
    settings = spec.settings
    if isinstance(root, Collect):
        assert spec.receive is not None, "a bare SELECT needs `receive`"
        return Target("result", _Receiver(spec.receive), len(root.input.schema))
    context = SinkContext(
        name=sink_name(at, root.table.name),
        base_folder=spec.base_folder,
        table=root.table,
        settings=settings,
        job_folder=job_dir.path,
        spark=spark,
        query=fingerprint([root], settings.local_time_zone) if settings.streaming else "",
        plan=root.input if settings.streaming else None,
        printing=spec.printing,
    )
    return Target(context.name, tables.sinks[root.table].sink(context), len(root.input.schema))


def _watch_rewind(
    job_dir: JobDir, manifest: Manifest, targets: Sequence[Target], consent: Consent
) -> RewindProgress | None:
    """Return the progress of a job after a rewind, None for a job that was never rewound."""
    if not manifest.abandoned_versions:
        return None
    return RewindProgress(
        checkpoint=job_dir.checkpoint(manifest, manifest.current),
        earlier=[job_dir.checkpoint(manifest, each.epoch) for each in manifest.abandoned_versions],
        targets=targets,
        prune=consent.prune,
        note=consent.note,
    )
