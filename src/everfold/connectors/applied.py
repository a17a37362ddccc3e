"""Compare the last batch that a sink has applied with the checkpoint of the job that writes it.

A batch number alone does not identify a batch: a job folder that was restored from an older copy
plans the same numbers again for different input. The record of an applied batch therefore carries
a digest of what the batch read. Records of earlier versions have none.
"""

from __future__ import annotations

from dataclasses import dataclass

from everfold.errors import StateError

_HELP = """the job folder is older than the table, as after restoring it from a backup. Options:
  put the newest copy of the job folder in place, and run the same command again
  everfold rollback FOLDER --restored  resumes from the checkpoint: reports first what happens to each table
  restore the table too, as it was when the copy of the job folder was made
  --state FOLDER  another folder is another job, which reads the input from its start"""


@dataclass(frozen=True, slots=True)
class BatchId:
    """Identify a batch: Spark's batch numbers restart with each epoch of a job.

    digest: of what the batch reads, empty if unknown.
    """

    job: str
    sink: str
    epoch: int
    batch: int
    digest: str = ""


@dataclass(frozen=True, slots=True)
class AppliedBatch:
    """The last batch that a sink has applied.

    digest: or its first characters; empty in a record of an earlier version.
    """

    epoch: int
    batch: int
    digest: str = ""


def is_applied(table: str, batch: BatchId, last: AppliedBatch | None) -> bool:
    """Return whether a sink already holds a batch that it is about to write.

    Raises StateError `sink-ahead`, `sink-taken-over`.
    """
    if last is None or last.epoch < batch.epoch:
        return False
    if last.epoch > batch.epoch:
        raise StateError.of("sink-taken-over", f"table `{table}`: another run of this job writes to it now")
    check_not_ahead(table, batch, last)
    return last.batch == batch.batch


def check_not_ahead(table: str, planned: BatchId, last: AppliedBatch | None) -> None:
    """Refuse a sink whose last batch is ahead of the last batch that a checkpoint has planned.

    A batch with the same number that read different input is refused too.

    Raises StateError `sink-ahead`.
    """
    if last is None or (last.epoch, last.batch) < (planned.epoch, planned.batch):
        return
    has_epochs = last.epoch != planned.epoch
    held, here = _name(last.epoch, last.batch, has_epochs), _name(planned.epoch, planned.batch, has_epochs)
    if (last.epoch, last.batch) == (planned.epoch, planned.batch):
        if not planned.digest or planned.digest.startswith(last.digest):
            return
        digests = f"digests {last.digest[:8]} and {planned.digest[:8]}"
        what = f"its {held} read other input than {here} of the job's checkpoint ({digests})"
    else:
        what = f"it holds {held} of the job, and the job's checkpoint is only at {here}"
    raise StateError.of("sink-ahead", f"table `{table}` is ahead of the job: {what}; nothing was written", help=_HELP)


def _name(epoch: int, batch: int, has_epochs: bool) -> str:
    name = f"batch {batch}" if batch >= 0 else "its start"
    return f"{name} of epoch {epoch}" if has_epochs else name
