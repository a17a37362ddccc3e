"""Rules for OVER.

Source: the seed on state compatibility of over aggregates.
"""

from __future__ import annotations

from collections.abc import Iterator

from everfold.compat.rules.aggregate_calls import CALLS, python_functions
from everfold.compat.rules.inputs import RULES as INPUTS
from everfold.compat.rules.rule import Change, Said, rule, sentence_of
from everfold.compat.verdict import Verdict


@rule("OVR001", Verdict.INCOMPATIBLE)
def other_partition(change: Change) -> Iterator[Said]:
    """The set of the PARTITION BY fields has changed.

    State is stored by these fields, so with different fields no partition can be found. Their order
    does not matter.

    To resolve this, run the new query with a new `--state` folder.
    """
    if sorted(change.old.keys) != sorted(change.new.keys):
        yield Said(
            f"PARTITION BY changed from {sentence_of(change.old.keys)} to {sentence_of(change.new.keys)}",
            change.new.span,
        )


@rule("OVR002", Verdict.INCOMPATIBLE)
def other_sorting(change: Change) -> Iterator[Said]:
    """ORDER BY has changed: the column or the direction differs, or the column has become a time
    attribute or is no longer one.

    The state belongs to the old order. Ordered by a time attribute, rows are kept until the
    watermark passes them; ordered by any other column, they are never discarded.

    To resolve this, run the new query with a new `--state` folder.
    """
    if change.old.order != change.new.order:
        yield Said(
            f"ORDER BY changed from {sentence_of(change.old.order)} to {sentence_of(change.new.order)}",
            change.new.span,
        )
    elif change.old.time != change.new.time:
        what = "a time attribute to a column" if change.new.time else "a column to a time attribute"
        yield Said(f"ORDER BY changed from {what}", change.new.span)


@rule("OVR003", Verdict.INCOMPATIBLE)
def other_frame(change: Change) -> Iterator[Said]:
    """The frame has changed: its unit, or one of its bounds.

    For a bounded frame the rows are stored, for an unbounded one only their accumulated state; a
    longer frame would need rows that are no longer stored. The default frame is RANGE BETWEEN
    UNBOUNDED PRECEDING AND CURRENT ROW.

    To resolve this, run the new query with a new `--state` folder.
    """
    if change.old.window != change.new.window:
        yield Said(f"the frame changed from {change.old.window} to {change.new.window}", change.new.span)


@rule("OVR004", Verdict.INCOMPATIBLE)
def other_columns(change: Change) -> Iterator[Said]:
    """The input columns of OVER have changed: those that the query returns, and those that its
    windows and aggregates use.

    Each row is stored with all of them until the watermark passes it; if the rows are not ordered
    by time, it is never discarded. Stored rows would lack a new column. The order of the columns
    does not matter, and unused columns do not count. With `--rules extended` any column can be
    dropped, and if the rows are ordered by time, a nullable column can be added.

    To resolve this, run the new query with a new `--state` folder.
    """
    came, gone = change.came, change.gone
    if change.tolerant:
        return
    if came and gone:
        yield Said(f"its input loses {sentence_of(gone)} and gains {sentence_of(came)}", change.new.span)
    elif came or gone:
        yield Said(f"its input {'gains' if came else 'loses'} {sentence_of(came or gone)}", change.new.span)


@rule("OVR005", Verdict.FULLY)
def other_partition_order(change: Change) -> Iterator[Said]:
    """The PARTITION BY fields are the same, in a different order.

    The partitions are the same, and so is their state.
    """
    if change.old.keys != change.new.keys and sorted(change.old.keys) == sorted(change.new.keys):
        yield Said("the fields of PARTITION BY are in a different order", change.new.span)


@rule("OVR006", Verdict.PARTIALLY)
def columns_that_came(change: Change) -> Iterator[Said]:
    """OVER has a new input column. Only with `--rules extended`, and only if the column is
    nullable.

    The remaining aggregates do not use the column, and keep their state. The column is NULL in the
    rows that wait for the watermark when the query changes.
    """
    if change.tolerant and change.came:
        yield Said(
            f"its input gains {sentence_of(change.came)}, which is NULL in rows that wait at the restart",
            change.new.span,
        )


@rule("OVR007", Verdict.FULLY)
def columns_that_went(change: Change) -> Iterator[Said]:
    """OVER no longer has an input column. Only with `--rules extended`.

    Values of the column in the waiting rows are ignored.
    """
    if change.tolerant and change.gone:
        yield Said(f"its input loses {sentence_of(change.gone)}", change.new.span)


RULES = (
    python_functions,
    other_partition,
    other_sorting,
    other_frame,
    other_columns,
    *INPUTS,
    *CALLS,
    columns_that_came,
    columns_that_went,
    other_partition_order,
)
"""The rules, in the order in which they decide."""
