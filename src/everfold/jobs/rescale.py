"""Change the number of shuffle partitions of a stopped job.

State is keyed by bucket, and a job never changes its buckets. So a new epoch starts with a copy of
the checkpoint, in which Spark moves each bucket to its new partition. That adds a batch without
input to the checkpoint. Writing the manifest is the switch, as with every change; a rollback to the
earlier version undoes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from everfold.activity import report_activity
from everfold.checkpoint.logs import last_finished_batch
from everfold.errors import UsageError
from everfold.jobs.failure import explain_failure
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import Manifest, Version, now
from everfold.jobs.readiness import check_may_change
from everfold.spark.buckets import count_buckets
from everfold.spark.session import create_session
from everfold.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rescale(path: Location, partitions: int, start: Callable[[], SparkSession], say: Callable[[str], None]) -> Version:
    """Give a job another number of partitions, as a new version, and return that.

    A job that has this number already keeps its version. start: starts Spark; not called for
    a job without state. say: called with how the buckets are divided.

    Raises UsageError `no-job`, `too-many-partitions`, StateError `unfinished-batch`,
    `unfinished-change`, `damaged-checkpoint`, `job-is-running`, ConnectorError `disk-full` and
    similar.
    """
    folder = JobDir(path)
    folder.load_manifest()
    with folder.locked():
        manifest = folder.load_manifest()
        version = manifest.version
        if partitions > manifest.buckets:
            raise UsageError.of(
                "too-many-partitions",
                f"the job has {manifest.buckets} buckets, so more partitions would have no state",
                help=f"choose at most {manifest.buckets}",
            )
        if partitions == manifest.count_partitions(version):
            return version
        check_may_change(folder, manifest)
        say(describe_shares(manifest, partitions))
        return _carry_out(folder, manifest, partitions, start)


def describe_shares(manifest: Manifest, partitions: int) -> str:
    """Say how many buckets each partition gets."""
    shares = count_buckets(manifest.bucket_ids, partitions)
    least, most = min(shares), max(shares)
    if least == most:
        return f"{partitions} partitions of {most} buckets each"
    return f"{partitions} partitions of {least} to {most} buckets; a power of two divides them most evenly"


def _carry_out(folder: JobDir, manifest: Manifest, partitions: int, start: Callable[[], SparkSession]) -> Version:
    version = manifest.version
    number, epoch = manifest.next_ids
    old, new = folder.checkpoint(manifest, version.epoch), folder.checkpoint(manifest, epoch)
    report_activity("copying the checkpoint")
    folder.copy_checkpoint(old, new)
    if version.operators and last_finished_batch(old) >= 0:
        spark = create_session(start(), manifest.count_partitions(version))
        folder.lock_in_jvm(spark)
        report_activity("moving the buckets")
        _move_buckets(folder, spark, new, partitions)
    made = replace(
        version,
        number=number,
        epoch=epoch,
        created=now(),
        history=None,
        again=(),
        back_to=None,
        back_after=None,
        gaps=(),
        rebuilt=False,
        checkpoint=None,
        partitions=partitions,
    )
    folder.write_manifest(replace(manifest, current=epoch, versions=(*manifest.versions, made)))
    return made


def _move_buckets(folder: JobDir, spark: SparkSession, checkpoint: Location, partitions: int) -> None:
    """Move the buckets of a checkpoint to the partitions where Spark will look for them."""
    # Loaded stores report to a coordinator, which Spark starts with its first stream manager.
    spark.streams.resetTerminated()
    try:
        spark._streamingCheckpointManager.repartition(checkpoint.uri, partitions)
    except Exception as error:
        raise explain_failure(error, (), folder.spark_log, folder.path) from error
