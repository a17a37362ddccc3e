"""Lineages of jobs that were changed, rebuilt or rolled back, for the tests of sinks."""

from __future__ import annotations

from everfold.connectors.replay import JobLineage


def lineage_after_rebuild(epoch: int, origin: int | None = None) -> JobLineage:
    """Return the lineage of a job that was rebuilt in this epoch, or in the epoch `origin`."""
    first = epoch if origin is None else origin
    return JobLineage(
        job="job",
        epoch=epoch,
        last_batches={epoch: None, first: None},
        rewind_epoch=first,
        first_discarded_epoch=None,
        sinks={},
    )


def lineage_after_change(epoch: int) -> JobLineage:
    """Return the lineage of a job whose query was changed and that was never rewound."""
    return JobLineage(
        job="job",
        epoch=epoch,
        last_batches=dict.fromkeys(range(epoch + 1)),
        rewind_epoch=None,
        first_discarded_epoch=None,
        sinks={},
    )


def lineage_after_rollback(epoch: int, to: int, since: int | None = None) -> JobLineage:
    """Return the lineage of a job that went back to the epoch `to`, in this epoch or in the epoch
    `since`.
    """
    return JobLineage(
        job="job",
        epoch=epoch,
        last_batches={epoch: None, to: 0},
        rewind_epoch=since or epoch,
        first_discarded_epoch=to + 1,
        sinks={},
    )
