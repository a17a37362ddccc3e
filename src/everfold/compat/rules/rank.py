"""Rules about Top-N and deduplication, and about the last row by key of a table whose rows change."""

from __future__ import annotations

from collections.abc import Iterator

from everfold.compat.rules.inputs import RULES as INPUTS
from everfold.compat.rules.rule import Change, Said, other_rows, rule, sentence_of
from everfold.compat.verdict import Verdict


@rule("TOP001", Verdict.INCOMPATIBLE)
def other_partition(change: Change) -> Iterator[Said]:
    """The set of the fields of PARTITION BY has changed.

    Rows are kept by these fields: with others no partition can be found again. Their order does not matter.

    Way out: run the new query with a new `--state` folder.
    """
    if sorted(change.old.keys) != sorted(change.new.keys):
        yield Said(
            f"rows were ranked by {sentence_of(change.old.keys)} and are to be by {sentence_of(change.new.keys)}",
            change.new.span,
        )


@rule("TOP002", Verdict.INCOMPATIBLE)
def other_sorting(change: Change) -> Iterator[Said]:
    """ORDER BY has changed.

    The rows that were kept are the first of another order: those that would be the first now may be gone.

    Way out: run the new query with a new `--state` folder.
    """
    if change.old.order != change.new.order:
        yield Said(
            f"rows were sorted by {sentence_of(change.old.order)} and are to be by {sentence_of(change.new.order)}",
            change.new.span,
        )


@rule("TOP003", Verdict.INCOMPATIBLE)
def other_numbers(change: Change) -> Iterator[Said]:
    """The numbers of the rows that are wanted have changed.

    No more rows were kept than were wanted: with a greater number some are missing, and with a smaller one rows that were given would have to be taken back.

    Way out: run the new query with a new `--state` folder.
    """
    if change.old.counted != change.new.counted:
        old, new = (" to ".join(map(str, each.counted)) for each in (change.old, change.new))
        yield Said(f"rows {old} were wanted, and rows {new} are to be", change.new.span)


@rule("TOP004", Verdict.INCOMPATIBLE)
def other_columns(change: Change) -> Iterator[Said]:
    """The columns of the ranked rows have changed.

    The rows are kept with the columns that the query uses: a new one would be missing. Deduplication that keeps the first row by processing time
    keeps no rows, and any column of it may change.

    Way out: run the new query with a new `--state` folder.
    """
    if not all(each.by_arrival and each.counted == (1, 1) for each in (change.old, change.new)):
        yield from other_rows(change)


@rule("TOP005", Verdict.INCOMPATIBLE)
def other_window(change: Change) -> Iterator[Said]:
    """The rows are ranked in another window, or in windows instead of for ever.

    Rows of a window are kept by its end, and given once.

    Way out: run the new query with a new `--state` folder.
    """
    if change.old.window != change.new.window:
        yield Said(
            f"rows were ranked in {change.old.window or 'no window'} and are to be in {change.new.window or 'none'}",
            change.new.span,
        )


@rule("TOP006", Verdict.FULLY)
def number_shown(change: Change) -> Iterator[Said]:
    """The number of the row is shown now, or no more.

    It is counted anew each time and not kept.
    """
    if change.old.numbered != change.new.numbered:
        yield Said(
            f"the number of the row {'is shown' if change.new.numbered else 'is shown no more'}", change.new.span
        )


@rule("TOP007", Verdict.FULLY)
def other_partition_order(change: Change) -> Iterator[Said]:
    """The fields of PARTITION BY are the same, in another order.

    The partitions are the same, and so is their state.
    """
    if change.old.keys != change.new.keys and sorted(change.old.keys) == sorted(change.new.keys):
        yield Said("the fields of PARTITION BY are in another order", change.new.span)


@rule("KEY001", Verdict.INCOMPATIBLE)
def other_primary_key(change: Change) -> Iterator[Said]:
    """The primary key of a table has changed whose rows come as changes by key.

    The last row of each key is kept, to know what was before a change.

    Way out: run the new query with a new `--state` folder.
    """
    if change.old.keys != change.new.keys:
        yield Said(
            f"the key was {sentence_of(change.old.keys)} and is to be {sentence_of(change.new.keys)}", change.new.span
        )


@rule("KEY002", Verdict.INCOMPATIBLE)
def other_kept_columns(change: Change) -> Iterator[Said]:
    """Other columns are used of a table whose rows come as changes by key.

    The last row of each key is kept with the columns that the query uses: what is new is missing in the rows that were kept.

    Way out: run the new query with a new `--state` folder.
    """
    yield from other_rows(change)


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
"""In the order in which they decide: of a Top-N, of the last rows by key."""
