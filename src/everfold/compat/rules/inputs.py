"""Rules for the input of an operator. They apply to operators of every kind."""

from __future__ import annotations

from collections.abc import Iterator

from everfold.compat.kept_types import can_keep_type, find_changed_types
from everfold.compat.rules.rule import Change, Observation, format_expressions, rule
from everfold.compat.shape import BranchShape
from everfold.compat.verdict import Verdict
from everfold.plan.readable import format_canonical_text


@rule("INP001", Verdict.INCOMPATIBLE)
def other_tables(change: Change) -> Iterator[Observation]:
    """The operator reads different tables.

    Its state was computed from other rows. The order of the inputs of a UNION ALL does not matter,
    only which tables they are.

    To resolve this, run the new query with a new `--state` folder.
    """
    old, new = change.old.input.tables, change.new.input.tables
    if old != new:
        yield Observation(
            f"its input tables changed from {format_expressions(old)} to {format_expressions(new)}", change.new.span
        )


@rule("INP002", Verdict.INCOMPATIBLE)
def other_conditions(change: Change) -> Iterator[Observation]:
    """A WHERE condition below the operator has changed.

    The rows in the state were selected by the old condition, and new rows are selected by the new
    one. The result would match neither. A condition on the result itself (HAVING, or a WHERE around
    the query) has no state and may change.

    If this mix is what you want, SET 'everfold.compat.ignore-filter' = 'true'.
    """
    if change.options.ignore_filter:
        return
    old, new = change.old.input.filters, change.new.input.filters
    gone = tuple(each for each in old if each not in new)
    came = tuple(each for each in new if each not in old)
    if old != new:
        yield Observation(
            f"the rows below were filtered by {format_expressions(gone)}"
            f" and are now filtered by {format_expressions(came)}",
            change.new.span,
        )


@rule("INP003", Verdict.INCOMPATIBLE)
def other_window_below(change: Change) -> Iterator[Observation]:
    """A window function below the operator has changed.

    An operator over the rows of a window function, or over an aggregation by windows, holds rows of
    the old windows, while new rows belong to other windows.

    To resolve this, run the new query with a new `--state` folder.
    """
    old, new = change.old.input.windows, change.new.input.windows
    if old != new:
        yield Observation(
            f"the window function below changed from {format_expressions(old)} to {format_expressions(new)}",
            change.new.span,
        )
    for was, is_now in change.resliced_below:
        yield Observation(f"the windows below changed from {was} to {is_now}", change.new.span)


@rule("INP004", Verdict.INCOMPATIBLE)
def other_changes(change: Change) -> Iterator[Observation]:
    """The input was append-only and may now retract rows, or the reverse.

    Over an updating input an aggregate stores more, such as the number of rows or their values.
    State without this information is not reusable.

    To resolve this, run the new query with a new `--state` folder.
    """
    old, new = change.old.input.updating, change.new.input.updating
    if old != new:
        yield Observation(
            "its input was append-only and may now retract rows"
            if new
            else "its input could retract rows and is now append-only",
            change.new.span,
        )


@rule("INP005", Verdict.UNKNOWN)
def other_joins(change: Change) -> Iterator[Observation]:
    """A join, an UNNEST or constant rows below the operator have changed.

    The query does not show whether the rows in the state are those that the new query would have
    produced.

    To resolve this, run the new query with a new `--state` folder.
    """
    if change.old.input.others != change.new.input.others:
        yield Observation("a join, an UNNEST or constant rows below it have changed", change.new.span)


@rule("INP006", Verdict.INCOMPATIBLE)
def other_positions(change: Change) -> Iterator[Observation]:
    """A column is read from a different field of the record.

    The formats csv and avro find fields by their position: a column that is declared earlier or
    later in CREATE TABLE, or after a column that was inserted or removed, takes the values of
    another field. So does a column that is METADATA FROM another key, or that is now in the key of
    a record and not in its value. The state was computed from the old field, and a result would mix
    both. Columns that the operator does not read may move. A column may be added after the last
    one, and a column that is not read may be renamed.

    To resolve this, declare the columns in the order of the record, new ones last. If the record
    itself has changed, run the new query with a new `--state` folder.
    """
    old, new = ({each.field: each.position for each in of.positions or ()} for of in (change.old, change.new))
    moved = {each: (old[each], position) for each, position in new.items() if old.get(each, position) != position}
    for each, (was, is_now) in moved.items():
        was, is_now = (position or "found by its name" for position in (was, is_now))
        yield Observation(f"`{format_canonical_text(each)}` was {was} and is now {is_now}", change.new.span)


@rule("INP007", Verdict.INCOMPATIBLE)
def other_types(change: Change) -> Iterator[Observation]:
    """A key, a stored column or an argument of an aggregate has a different type.

    The state holds values of the old type. It is found by the hash of the keys, which depends on
    their type. The length of a STRING, the precision of a TIMESTAMP and NOT NULL do not matter.

    To resolve this, declare the old type, or run the new query with a new `--state` folder.
    """
    for text, (was, is_now) in find_changed_types(change.old, change.new).items():
        if not can_keep_type(text, change.old, change.new):
            yield Observation(f"`{format_canonical_text(text)}` was {was} and is now {is_now}", change.new.span)


@rule("INP009", Verdict.UNKNOWN)
def of_earlier_release(change: Change) -> Iterator[Observation]:
    """The job was last started by an earlier everfold, which did not record which parts of its
    query belong together, and its old query cannot be planned again from the manifest.

    To resolve this, run the old query once more with this everfold, and then change it.
    """
    if not change.old.input.branches:
        yield Observation("an earlier everfold did not record enough of the old query", change.new.span)


@rule("INP008", Verdict.INCOMPATIBLE)
def other_branches(change: Change) -> Iterator[Observation]:
    """A condition, a join or a query has moved to another branch of a UNION ALL.

    The branches consist of the same parts, which now belong to other rows: the state was computed
    from the rows of the old branches. The order of the branches does not matter.

    To resolve this, run the new query with a new `--state` folder.
    """
    old, new = change.old.input, change.new.input
    if change.options.ignore_filter:
        old, new = old.without_filters(), new.without_filters()
    parts = [(of.tables, of.filters, of.windows, of.others) for of in (old, new)]
    if old.branches != new.branches and parts[0] == parts[1]:
        moved = [branch for branch in new.branches if branch not in old.branches]
        what = f"; its rows {_describe_branch(moved[0])} are new" if moved else ""
        yield Observation(f"the parts of its input belong to other branches of UNION ALL{what}", change.new.span)


def _describe_branch(branch: BranchShape) -> str:
    source = "of the operator below" if branch.operator is not None else f"of `{branch.table}`"
    joined = f" with {format_expressions(branch.joins)}" if branch.joins else ""
    return f"{source}{joined} where {format_expressions(branch.filters)}" if branch.filters else f"{source}{joined}"


RULES = (
    other_tables,
    other_positions,
    other_types,
    other_conditions,
    other_window_below,
    other_changes,
    other_joins,
    other_branches,
    of_earlier_release,
)
