"""Rules for Top-N and deduplication, and for the last row by key of a table whose rows change."""

from __future__ import annotations

from collections.abc import Iterator

from everfold.compat.rules.inputs import RULES as INPUTS
from everfold.compat.rules.rule import Change, Observation, format_expressions, report_changed_columns, rule
from everfold.compat.verdict import Verdict


@rule("TOP001", Verdict.INCOMPATIBLE)
def other_partition(change: Change) -> Iterator[Observation]:
    """The set of the PARTITION BY fields has changed.

    Rows are stored by these fields, so with different fields no partition can be found. Their order
    does not matter.

    To resolve this, run the new query with a new `--state` folder.
    """
    if sorted(change.old.keys) != sorted(change.new.keys):
        yield Observation(
            f"PARTITION BY changed from {format_expressions(change.old.keys)} to {format_expressions(change.new.keys)}",
            change.new.span,
        )


@rule("TOP002", Verdict.INCOMPATIBLE)
def other_sorting(change: Change) -> Iterator[Observation]:
    """ORDER BY has changed.

    The stored rows are the first ones in the old order. Those that would be first in the new order
    may not be stored.

    To resolve this, run the new query with a new `--state` folder.
    """
    if change.old.order != change.new.order:
        yield Observation(
            f"ORDER BY changed from {format_expressions(change.old.order)} to {format_expressions(change.new.order)}",
            change.new.span,
        )


@rule("TOP003", Verdict.INCOMPATIBLE)
def other_numbers(change: Change) -> Iterator[Observation]:
    """The range of row numbers in the result has changed.

    No more rows are stored than the result needs. With a greater number some are missing, and with
    a smaller one rows that were emitted would have to be retracted.

    To resolve this, run the new query with a new `--state` folder.
    """
    if change.old.counted != change.new.counted:
        old, new = (" to ".join(map(str, each.counted)) for each in (change.old, change.new))
        yield Observation(f"the row numbers changed from {old} to {new}", change.new.span)


@rule("TOP004", Verdict.INCOMPATIBLE)
def other_columns(change: Change) -> Iterator[Observation]:
    """The columns of the ranked rows have changed.

    The rows are stored with the columns that the query uses, so they would lack a new column.
    Deduplication that keeps the first row by processing time stores no rows, and any of its columns
    may change.

    To resolve this, run the new query with a new `--state` folder.
    """
    if not all(each.by_arrival and each.counted == (1, 1) for each in (change.old, change.new)):
        yield from report_changed_columns(change)


@rule("TOP005", Verdict.INCOMPATIBLE)
def other_window(change: Change) -> Iterator[Observation]:
    """The rows are ranked in a different window, or with a window instead of without one, or the
    reverse.

    Rows of a window are stored by the end of the window, and emitted once.

    To resolve this, run the new query with a new `--state` folder.
    """
    if change.old.window != change.new.window:
        yield Observation(
            f"the window changed from {change.old.window or 'none'} to {change.new.window or 'none'}",
            change.new.span,
        )


@rule("TOP006", Verdict.FULLY)
def number_shown(change: Change) -> Iterator[Observation]:
    """The row number is now part of the result, or no longer.

    It is computed each time and not stored.
    """
    if change.old.numbered != change.new.numbered:
        yield Observation(
            f"the row number is {'now' if change.new.numbered else 'no longer'} part of the result", change.new.span
        )


@rule("TOP007", Verdict.FULLY)
def other_partition_order(change: Change) -> Iterator[Observation]:
    """The PARTITION BY fields are the same, in a different order.

    The partitions are the same, and so is their state.
    """
    if change.old.keys != change.new.keys and sorted(change.old.keys) == sorted(change.new.keys):
        yield Observation("the fields of PARTITION BY are in a different order", change.new.span)


@rule("KEY001", Verdict.INCOMPATIBLE)
def other_primary_key(change: Change) -> Iterator[Observation]:
    """The primary key has changed of a table whose rows arrive as changes by key.

    The last row of each key is stored, so that the row before a change is known.

    To resolve this, run the new query with a new `--state` folder.
    """
    if change.old.keys != change.new.keys:
        yield Observation(
            f"the primary key changed from {format_expressions(change.old.keys)}"
            f" to {format_expressions(change.new.keys)}",
            change.new.span,
        )


@rule("KEY002", Verdict.INCOMPATIBLE)
def other_kept_columns(change: Change) -> Iterator[Observation]:
    """The query uses different columns of a table whose rows arrive as changes by key.

    The last row of each key is stored with the columns that the query uses, so stored rows would
    lack a new column.

    To resolve this, run the new query with a new `--state` folder.
    """
    yield from report_changed_columns(change)


RANK = (
    other_partition,
    other_sorting,
    other_numbers,
    other_columns,
    other_window,
    *INPUTS,
    number_shown,
    other_partition_order,
)
LAST_ROWS = (other_primary_key, other_kept_columns, *INPUTS)
"""The rules for a Top-N and for the last rows by key, in the order in which they decide."""
