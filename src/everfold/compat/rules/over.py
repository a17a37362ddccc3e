"""Rules for OVER.

Source: the seed on state compatibility of over aggregates.
"""

from __future__ import annotations

from collections.abc import Iterator

from everfold.compat.rules.aggregate_calls import CALLS, python_functions
from everfold.compat.rules.inputs import RULES as INPUTS
from everfold.compat.rules.rule import Change, Observation, format_expressions, rule
from everfold.compat.verdict import Verdict


@rule("OVR001", Verdict.INCOMPATIBLE)
def other_partition(change: Change) -> Iterator[Observation]:
    """The set of the PARTITION BY fields has changed.

    State is stored by these fields, so with different fields no partition can be found. Their order
    does not matter.

    To resolve this, run the new query with a new `--state` folder.
    """
    if sorted(change.old.keys) != sorted(change.new.keys):
        yield Observation(
            f"PARTITION BY changed from {format_expressions(change.old.keys)} to {format_expressions(change.new.keys)}",
            change.new.span,
        )


@rule("OVR002", Verdict.INCOMPATIBLE)
def other_sorting(change: Change) -> Iterator[Observation]:
    """ORDER BY has changed: the column or the direction differs, or the column has become a time
    attribute or is no longer one.

    The state belongs to the old order. Ordered by a time attribute, rows are kept until the
    watermark passes them; ordered by any other column, they are never discarded.

    To resolve this, run the new query with a new `--state` folder.
    """
    if change.old.order != change.new.order:
        yield Observation(
            f"ORDER BY changed from {format_expressions(change.old.order)} to {format_expressions(change.new.order)}",
            change.new.span,
        )
    elif change.old.time != change.new.time:
        what = "a time attribute to a column" if change.new.time else "a column to a time attribute"
        yield Observation(f"ORDER BY changed from {what}", change.new.span)


@rule("OVR003", Verdict.INCOMPATIBLE)
def other_frame(change: Change) -> Iterator[Observation]:
    """The frame has changed: its unit, or one of its bounds.

    For a bounded frame the rows are stored, for an unbounded one only their accumulated state; a
    longer frame would need rows that are no longer stored. The default frame is RANGE BETWEEN
    UNBOUNDED PRECEDING AND CURRENT ROW.

    To resolve this, run the new query with a new `--state` folder.
    """
    if change.old.window != change.new.window:
        yield Observation(f"the frame changed from {change.old.window} to {change.new.window}", change.new.span)


@rule("OVR004", Verdict.INCOMPATIBLE)
def other_columns(change: Change) -> Iterator[Observation]:
    """The input columns of OVER have changed: those that the query returns, and those that its
    windows and aggregates use.

    Each row is stored with all of them until the watermark passes it; if the rows are not ordered
    by time, it is never discarded. Stored rows would lack a new column. The order of the columns
    does not matter, and unused columns do not count. With `--rules extended` any column can be
    dropped, and if the rows are ordered by time, a nullable column can be added.

    To resolve this, run the new query with a new `--state` folder.
    """
    came, gone = change.added_columns, change.dropped_columns
    if change.tolerates_column_changes:
        return
    if came and gone:
        yield Observation(
            f"its input loses {format_expressions(gone)} and gains {format_expressions(came)}", change.new.span
        )
    elif came or gone:
        yield Observation(
            f"its input {'gains' if came else 'loses'} {format_expressions(came or gone)}", change.new.span
        )


@rule("OVR005", Verdict.FULLY)
def other_partition_order(change: Change) -> Iterator[Observation]:
    """The PARTITION BY fields are the same, in a different order.

    The partitions are the same, and so is their state.
    """
    if change.old.keys != change.new.keys and sorted(change.old.keys) == sorted(change.new.keys):
        yield Observation("the fields of PARTITION BY are in a different order", change.new.span)


@rule("OVR006", Verdict.PARTIALLY)
def column_added(change: Change) -> Iterator[Observation]:
    """OVER has a new input column. Only with `--rules extended`, and only if the column is
    nullable.

    The remaining aggregates do not use the column, and keep their state. The column is NULL in the
    rows that wait for the watermark when the query changes.
    """
    if change.tolerates_column_changes and change.added_columns:
        yield Observation(
            f"its input gains {format_expressions(change.added_columns)},"
            " which is NULL in rows that wait at the restart",
            change.new.span,
        )


@rule("OVR007", Verdict.FULLY)
def column_dropped(change: Change) -> Iterator[Observation]:
    """OVER no longer has an input column. Only with `--rules extended`.

    Values of the column in the waiting rows are ignored.
    """
    if change.tolerates_column_changes and change.dropped_columns:
        yield Observation(f"its input loses {format_expressions(change.dropped_columns)}", change.new.span)


RULES = (
    python_functions,
    other_partition,
    other_sorting,
    other_frame,
    other_columns,
    *INPUTS,
    *CALLS,
    column_added,
    column_dropped,
    other_partition_order,
)
"""The rules, in the order in which they decide."""
