"""Run plans on Spark: choose stream or batch, open the job directory, connect sinks and run."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.compat import CompatOptions
from everfold.connectors.contract import BatchId, ClusterSink, LocalSink, OptionValues, Role, SinkContext
from everfold.connectors.registry import connector_of
from everfold.connectors.validate import check_tables
from everfold.files import make_private_file
from everfold.jobs import Finished
from everfold.jobs.backfill import Backfill
from everfold.jobs.batch_job import run_batch
from everfold.jobs.batch_log import last_batch
from everfold.jobs.change import Decide, refuse
from everfold.jobs.failure import spark_may_be_gone
from everfold.jobs.folder import JobFolder, Manifest, fingerprint, now
from everfold.jobs.foreach_batch import Target
from everfold.jobs.locations import Locations
from everfold.jobs.progress import Progress
from everfold.jobs.rewind import Consent, check_duplicates, describe_effects, sink_name
from everfold.jobs.rewind_progress import RewindProgress
from everfold.jobs.sink_checks import check_sinks_not_ahead, note_other_jobs, refuse_batch
from everfold.jobs.sources import External, Sources
from everfold.jobs.spark_checkpoint import newest_batch
from everfold.jobs.state_pages import reading_session
from everfold.jobs.stream_job import StreamJob
from everfold.operators.reemit import can_reemit
from everfold.plan.explain import explain
from everfold.plan.nodes import Collect, Root, Sink, Table
from everfold.plan.walk import last_operators, tables_read
from everfold.spark.batch import is_constant
from everfold.spark.buckets import bucket_ids
from everfold.spark.session import create_session, start_spark
from everfold.sql.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Receive = Callable[["pa.Table"], None]
"""Receives the rows of a bare SELECT as they become final: `c0…` and `__kind`."""

_MIN_BUCKETS = 8
_NO_CONSENT = Consent()
_IGNORED = "retractions of rows that do not exist"


def _announce_rebuild(manifest: Manifest, consent: Consent) -> None:
    """Report the effect of a rebuild on the job's tables. Raises StateError `sink-duplicates`."""
    notes = manifest.version.sinks or ()
    for line in describe_effects(notes, lambda again: again.on_rebuild):
        consent.note(line)
    check_duplicates(notes, accepted=consent.duplicates)


def _warn(folder: JobFolder, consent: Consent, text: str) -> None:
    """Report a warning to the user and write it to the job's log."""
    consent.note(text)
    with suppress(OSError):
        make_private_file(folder.log_file)
        with open(folder.log_file, "a", encoding="utf-8") as log:
            log.write(f"{now()} WARN everfold: {text}\n")


def _report_stale_rows(manifest: Manifest, roots: Sequence[Root], consent: Consent) -> None:
    """Report which rows of the tables stay as the old query wrote them."""
    new = manifest.new_operators
    for root in roots:
        name = f"`{root.table.name}`" if isinstance(root, Sink) else "the result"
        parts = {can_reemit(node) for node in last_operators(root.input) if node.operator_id not in new}
        if consent.refresh and False in parts:
            consent.note(f"{name}: rows that state no longer holds, as those of closed windows, stay as they are")
        elif not consent.refresh and True in parts:
            consent.note(f"{name}: rows stay as they are until they change; --refresh re-emits them all")


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
    log_file: Spark's log. brief: whether the jobs read only little input.
    externals: tables whose rows the caller provides.
    """

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    brief: bool = False
    log_file: Path | None = None
    session: SparkSession | None = None
    externals: dict[str, External] = field(default_factory=dict)
    _started: SparkSession | None = None

    def spark(self, log_file: Path) -> SparkSession:
        """Return the session from which jobs derive theirs, starting Spark if needed."""
        if self.session is not None:
            return self.session
        if self._started is None:
            self._started = start_spark(
                master=self.master, conf=self.conf, log_file=self.log_file or log_file, brief=self.brief
            )
        return self._started

    def close(self) -> None:
        """Stop the JVM if this engine has started it."""
        if self._started is not None:
            with spark_may_be_gone():
                self._started.stop()
            self._started = None

    def is_bounded(self, roots: Sequence[Root], settings: Settings) -> bool:
        """Whether all input of the roots is bounded; the input of a batch always is."""
        if not settings.streaming:
            return True
        for table in tables_read(roots):
            external = self.externals.get(table.name)
            if external is not None:
                ends = external.is_bounded
            else:
                found = connector_of(table)
                found.check(table, Role.SOURCE)
                ends = found.source(table).is_bounded()
            if not ends:
                return False
        return True

    # --- jobs -------------------------------------------------------------------------------------

    def check(self, roots: Sequence[Root], *, streaming: bool, note: Callable[[str], None] = lambda _: None) -> None:
        """See `check_tables`."""
        check_tables(roots, streaming=streaming, given=self.externals, note=note)

    def run(
        self,
        roots: Sequence[Root],
        *,
        settings: Settings,
        base_folder: Path,
        state_dir: Path | None = None,
        suspend: bool = False,
        receive: Receive | None = None,
        progress: Callable[[Progress], None] | None = None,
        stopping: Callable[[], bool] = lambda: False,
        sql: str = "",
        decide: Decide = refuse,
        consent: Consent = _NO_CONSENT,
    ) -> Finished:
        """Run the roots as one job to its end. Raises EverfoldError.

        state_dir: the job directory, None for a temporary one.
        suspend: at the end of bounded input, stop without emitting open results.
        receive: called with the rows of a bare SELECT.
        stopping: polled while the job runs; True stops it after the running batch.
        sql: the script, for people.
        decide: called if the new query can reuse only part of the state.
        consent: what may happen to the job's tables, and whom to notify.
        """
        self.check(roots, streaming=settings.streaming)
        if state_dir is not None:
            return self._run_in(
                state_dir, roots, settings, base_folder, suspend, receive, progress, stopping, sql, decide, consent
            )
        with tempfile.TemporaryDirectory(prefix="everfold-") as folder:
            return self._run_in(
                Path(folder), roots, settings, base_folder, suspend, receive, progress, stopping, sql, decide, consent
            )

    def _run_in(
        self,
        state_dir: Path,
        roots: Sequence[Root],
        settings: Settings,
        base_folder: Path,
        suspend: bool,
        receive: Receive | None,
        progress: Callable[[Progress], None] | None,
        stopping: Callable[[], bool],
        sql: str,
        decide: Decide,
        consent: Consent,
    ) -> Finished:
        folder = JobFolder(Path(os.path.realpath(state_dir)))
        folder.lock()
        targets: list[Target] = []
        try:
            streaming = settings.streaming and not all(is_constant(root.input) for root in roots)
            partitions = self.partitions(settings)
            if not streaming:
                refuse_batch(folder.path)
            is_new = streaming and folder.read_manifest() is None
            if streaming:
                plan = "\n".join(explain(root) for root in roots)
                buckets = self.buckets(partitions)
                zone = settings.local_time_zone
                manifest, roots = folder.open(
                    roots,
                    zone,
                    plan,
                    buckets=buckets,
                    partitions=partitions,
                    sql=sql,
                    terms=CompatOptions.of(settings),
                    decide=decide,
                    refresh=consent.refresh,
                )
                located = Locations(folder, base_folder, self.externals, consent.sources).locate(manifest, roots)
                for line in located.notes:
                    consent.note(line)
                manifest, partitions = located.manifest, manifest.partitions
                version, last = manifest.version, folder.previous_version(manifest)
                if last is not None and version.rebuilt:
                    _announce_rebuild(manifest, consent)
                elif last is not None and version.state_epoch != version.number:
                    _report_stale_rows(manifest, roots, consent)
            spark = create_session(self.spark(folder.log_file), partitions)
            folder.lock_in_jvm(spark)
            if streaming:
                folder.move(located)
            targets += [
                self._target(at, root, settings, base_folder, folder, spark, receive) for at, root in enumerate(roots)
            ]
            sources = Sources(spark, base_folder, settings, folder.path, self.externals)
            for target in targets:
                target.sink.prepare()
            if streaming and not is_new:
                check_sinks_not_ahead(folder, manifest, targets)
            if streaming and last_batch(folder.path) is None:
                note_other_jobs(manifest, targets, consent.note)
            if not streaming:
                epoch = time.time_ns()
                job = folder.path.name
                return run_batch(
                    spark,
                    roots,
                    targets,
                    sources,
                    zone=settings.local_time_zone,
                    job=job,
                    epoch=epoch,
                    log_file=folder.log_file,
                )
            if last is not None and manifest.version.is_backfilled:
                past = Sources(spark, base_folder, settings, folder.path, self.externals)
                past.spark_names = located.spark_names
                checkpoint = folder.checkpoint(last.epoch)
                self._backfill(spark, folder, manifest, checkpoint, roots, past, settings.local_time_zone, consent.note)
            folder.settle(manifest)
            earlier = [folder.checkpoint(each.epoch) for each in manifest.versions if each.epoch < manifest.origin]
            sources.origin, sources.earlier = manifest.origin, earlier
            sources.spark_names = located.spark_names
            if manifest.job_lineage is not None:
                for target in targets:
                    target.sink.undo_discarded_batches(manifest.job_lineage)
            router = StreamJob(
                spark=spark,
                folder=folder,
                manifest=manifest,
                roots=roots,
                targets=targets,
                sources=sources,
                zone=settings.local_time_zone,
                idle_timeout_ms=settings.idle_timeout_ms,
                drop_null_rowtime=settings.null_rowtime == "drop",
                suspend=suspend,
                batch_latency_ms=settings.batch_latency_ms or 0,
                progress=progress,
                stopping=stopping,
                rewind_progress=RewindProgress(
                    checkpoint=folder.checkpoint(manifest.current),
                    earlier=[folder.checkpoint(each.epoch) for each in manifest.abandoned_versions],
                    targets=targets,
                    prune=consent.prune,
                    note=consent.note,
                )
                if manifest.abandoned_versions
                else None,
                warn=lambda text: _warn(folder, consent, text),
            ).run()
            return Finished(
                rows=router.rows,
                rows_out=router.rows_out,
                late_rows=router.reports.late_rows,
                state_rows=router.reports.state_rows,
                dropped_rows=router.dropped | {_IGNORED: router.reports.ignored_rows},
                log_file=None if state_dir is None else folder.log_file,
            )
        finally:
            for target in targets:
                target.sink.close()
            folder.release()

    @staticmethod
    def _backfill(
        spark: SparkSession,
        folder: JobFolder,
        manifest: Manifest,
        checkpoint: Path,
        roots: Sequence[Root],
        sources: Sources,
        zone: str,
        note: Callable[[str], None],
    ) -> None:
        """Write the backfill of a new version. checkpoint: with the job's current position."""
        if newest_batch(checkpoint / "commits") < 0:
            return
        backfill = Backfill(
            spark=spark,
            reading=reading_session(spark, manifest.partitions),
            checkpoint=checkpoint,
            target=folder.backfill_folder(manifest.version.number),
            version=manifest.version.number,
            epoch=manifest.version.state_epoch,
            new_operators=manifest.new_operators,
            sources=sources,
            zone=zone,
            bucket_ids=bucket_ids(manifest.buckets, manifest.partitions),
            log_file=folder.log_file,
        )
        for filled in backfill.write(roots):
            note(filled.summary)
        for gone in backfill.lost_input:
            note(f"{gone}: new aggregates do not count them")

    @staticmethod
    def _target(
        at: int,
        root: Root,
        settings: Settings,
        base_folder: Path,
        folder: JobFolder,
        spark: SparkSession,
        receive: Receive | None,
    ) -> Target:
        sink: LocalSink | ClusterSink
        if isinstance(root, Collect):
            assert receive is not None, "a bare SELECT needs `receive`"
            sink = _Receiver(receive)
            name = "result"
        else:
            name = sink_name(at, root.table.name)
            context = SinkContext(
                name=name,
                base_folder=base_folder,
                table=root.table,
                settings=settings,
                job_folder=folder.path,
                spark=spark,
                query=fingerprint([root], settings.local_time_zone) if settings.streaming else "",
            )
            sink = connector_of(root.table).sink(context)
        return Target(name, sink, len(root.input.schema))

    @staticmethod
    def partitions(settings: Settings) -> int:
        """Return the shuffle partitions of a new job: `parallelism.default`, else one per core.

        The default is at least 2 and at most 8.
        """
        return settings.parallelism or min(8, max(2, os.cpu_count() or 2))

    @staticmethod
    def buckets(partitions: int) -> int:
        """Return the buckets of a new job: a power of two, and at least twice the partitions.

        The extra buckets let the job grow.
        """
        return max(_MIN_BUCKETS, 1 << (2 * partitions - 1).bit_length())
