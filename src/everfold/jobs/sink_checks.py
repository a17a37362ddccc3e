"""Check before a start that a job directory and the job's tables fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from everfold.checkpoint.damage import damaged_checkpoint_error, find_damaged_file
from everfold.checkpoint.logs import last_planned_batch
from everfold.connectors.applied import BatchId, check_not_ahead
from everfold.errors import StateError
from everfold.jobs.batch_log import compute_digest
from everfold.jobs.change import streaming_job_error
from everfold.jobs.foreach_batch import Target
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import Manifest


def check_sinks_not_ahead(folder: JobDir, manifest: Manifest, targets: Iterable[Target]) -> None:
    """Refuse a job whose tables hold later batches than its checkpoint.

    This happens when the job directory is restored from an older copy. A changed job is compared as
    it was before the change; a rebuilt job has no batch yet. Raises StateError `sink-ahead`, or
    `damaged-checkpoint` if a file of the checkpoint is damaged.
    """
    known = folder.read_manifest()
    if known is None:
        return
    epoch, batch, digest = manifest.current, -1, ""
    if known.current == manifest.current or not manifest.version.rebuilt:
        checkpoint = folder.checkpoint(known, known.current)
        epoch, batch = known.current, last_planned_batch(checkpoint)
        digest = compute_digest(checkpoint, batch)
    past = manifest.job_lineage
    for target in targets:
        earlier = frozenset[str]() if past is None else past.sinks.get(target.sink.table.name, frozenset())
        for name in sorted({target.name, *earlier}):
            planned = BatchId(manifest.job, name, epoch, batch, digest)
            try:
                check_not_ahead(target.sink.table.name, planned, target.sink.last_applied(manifest.job, name))
            except StateError:
                file = find_damaged_file(folder.path)
                if file is not None:
                    raise damaged_checkpoint_error(file) from None
                raise


def holds_batch(manifest: Manifest, targets: Iterable[Target], batch: int) -> bool:
    """Whether a table may hold rows of a batch of the current epoch that is not finished.

    Tables that keep no record of batches do not tell.
    """
    for target in targets:
        applied = target.sink.last_applied(manifest.job, target.name)
        if applied is not None and (applied.epoch, applied.batch) == (manifest.current, batch):
            return True
    return False


def note_other_jobs(manifest: Manifest, targets: Sequence[Target], note: Callable[[str], None]) -> None:
    """Report tables to which another job has written the result of the same query."""
    for target in targets:
        other = target.sink.find_other_job(manifest.job)
        if other is not None:
            note(
                f"table `{target.sink.table.name}`: the job in `{other}` has written the result of the same query"
                f" to it: rows of the same input will be duplicates. To resume that job: --state {other}"
            )


def refuse_batch(job_dir: JobDir) -> None:
    """Refuse to run a query as a batch in the directory of a streaming job.

    It would write the whole result again. Raises StateError `streaming-job`.
    """
    if job_dir.read_manifest() is not None:
        raise streaming_job_error(f"the job in `{job_dir.path}`")
