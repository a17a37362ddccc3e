"""Check that the state of a job is complete, so that its query may be changed."""

from __future__ import annotations

from everfold.errors import StateError
from everfold.jobs.batch_log import check_complete, last_batch
from everfold.jobs.control import Control
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import Manifest, Version


def check_may_change(job_dir: JobDir, manifest: Manifest) -> None:
    """Refuse to change a job that has lost batches, or must finish one first.

    Raises StateError `damaged-checkpoint`, `unfinished-batch`, `unfinished-change`.
    """
    check_batches(job_dir, manifest)
    job_dir.check_finished(manifest, manifest.current)
    if awaits_files(job_dir, manifest, manifest.version):
        raise StateError.of(
            "unfinished-change",
            f"the job in `{job_dir.path}` was interrupted before the first batch of its last change, which fills new"
            " aggregates",
            help="run that query once more, and then change it; --on-change rebuild needs no old state",
        )


def check_batches(job_dir: JobDir, manifest: Manifest) -> None:
    """Refuse a checkpoint that lacks batches which the job has run.

    Raises StateError `damaged-checkpoint`.
    """
    check_complete(job_dir.checkpoint(manifest, manifest.current), _expected_batch(job_dir, manifest))


def _expected_batch(job_dir: JobDir, manifest: Manifest) -> int:
    """Return the last batch that the current checkpoint must have planned, -1 for none.

    This is the last batch that the sinks received, in this epoch or in the epoch that the
    checkpoint was copied from.
    """
    ran, version = last_batch(job_dir.path), manifest.version
    if ran is not None and ran[0] == version.epoch:
        return ran[1]
    if version.back_after is not None:
        return version.back_after
    line = manifest.lineage(version)
    if ran is not None and len(line) > 1 and ran[0] == line[1][0].epoch:
        return ran[1]
    return -1


def awaits_files(job_dir: JobDir, manifest: Manifest, version: Version) -> bool:
    """Whether no batch has read the backfill or re-emit files of a version yet."""
    if version.history is None:
        return False
    control = Control(job_dir.control, job_dir.checkpoint(manifest, version.epoch))
    return bool(control.list_pending(job_dir.backfill_folder(version.history)))
