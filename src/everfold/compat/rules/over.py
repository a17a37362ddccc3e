"""Rules about OVER. Source: the seed on state compatibility of over aggregates."""

from __future__ import annotations

from collections.abc import Iterator

from everfold.compat.rules.aggregate_calls import CALLS, python_functions
from everfold.compat.rules.inputs import RULES as INPUTS
from everfold.compat.rules.rule import Change, Said, rule, sentence_of
from everfold.compat.verdict import Verdict


@rule("OVR001", Verdict.INCOMPATIBLE)
def other_partition(change: Change) -> Iterator[Said]:
    """The set of the fields of PARTITION BY has changed.

    State is kept by these fields: with others no partition can be found again. Their order does not matter.

    Way out: run the new query with a new `--state` folder.
    """
    if sorted(change.old.keys) != sorted(change.new.keys):
        yield Said(
            f"rows were partitioned by {sentence_of(change.old.keys)} and are to be by {sentence_of(change.new.keys)}",
            change.new.span,
        )


@rule("OVR002", Verdict.INCOMPATIBLE)
def other_sorting(change: Change) -> Iterator[Said]:
    """ORDER BY has changed: another column, or another direction; or its column has become a time attribute, or is no longer one.

    The state belongs to the old order. Ordered by a time attribute, rows are kept until the watermark passes them; ordered by any other column, they are never discarded.

    Way out: run the new query with a new `--state` folder.
    """
    if change.old.order != change.new.order:
        yield Said(
            f"rows were sorted by {sentence_of(change.old.order)} and are to be by {sentence_of(change.new.order)}",
            change.new.span,
        )
    elif change.old.time != change.new.time:
        what = "by time, and are to be by a column" if change.new.time else "by a column, and are to be by time"
        yield Said(f"rows were sorted {what}", change.new.span)


@rule("OVR003", Verdict.INCOMPATIBLE)
def other_frame(change: Change) -> Iterator[Said]:
    """The frame has changed: its unit, or one of its bounds.

    Of a frame with a bound rows are kept, of one without only what they add up to; a longer frame would need rows that are gone. The frame that is
    meant when none is written is RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW.

    Way out: run the new query with a new `--state` folder.
    """
    if change.old.window != change.new.window:
        yield Said(f"the frame was {change.old.window} and is to be {change.new.window}", change.new.span)


@rule("OVR004", Verdict.INCOMPATIBLE)
def other_columns(change: Change) -> Iterator[Said]:
    """The columns that OVER takes in have changed: those that the query shows, and those that its windows and aggregates use.

    Each row is kept with all of them until the watermark passes it; if the rows are not ordered by time, it is never discarded. Kept rows would lack a new column. The
    order of the columns does not matter, and unused columns do not count. With `--rules extended` any can go, and in the order of time one that may be NULL can come.

    Way out: run the new query with a new `--state` folder.
    """
    came, gone = change.came, change.gone
    if change.tolerant:
        return
    if came and gone:
        yield Said(f"its input had {sentence_of(gone)} and is to have {sentence_of(came)}", change.new.span)
    elif came or gone:
        yield Said(f"its input {'gets' if came else 'loses'} {sentence_of(came or gone)}", change.new.span)


@rule("OVR005", Verdict.FULLY)
def other_partition_order(change: Change) -> Iterator[Said]:
    """The fields of PARTITION BY are the same, in another order.

    The partitions are the same, and so is their state.
    """
    if change.old.keys != change.new.keys and sorted(change.old.keys) == sorted(change.new.keys):
        yield Said("the fields of PARTITION BY are in another order", change.new.span)


@rule("OVR006", Verdict.PARTIALLY)
def columns_that_came(change: Change) -> Iterator[Said]:
    """OVER takes in a column that it did not. Only with `--rules extended`, if the column may be NULL.

    The aggregates that stay do not use it, and keep their state. In the rows that wait for time to pass them when the query changes it is NULL.
    """
    if change.tolerant and change.came:
        yield Said(
            f"its input gets {sentence_of(change.came)}, which rows that wait at the restart lack", change.new.span
        )


@rule("OVR007", Verdict.FULLY)
def columns_that_went(change: Change) -> Iterator[Said]:
    """OVER does not take in a column any more. Only with `--rules extended`.

    What is left of it in the rows that wait is not looked at.
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
"""In the order in which they decide."""
