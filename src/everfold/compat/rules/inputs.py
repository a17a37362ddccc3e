"""Rules about what an operator reads. They hold for operators of every kind."""

from __future__ import annotations

from collections.abc import Iterator

from everfold.compat.kept_types import can_keep_type, changed_types
from everfold.compat.rules.rule import Change, Said, rule, sentence_of
from everfold.compat.verdict import Verdict
from everfold.plan.readable import readable


@rule("INP001", Verdict.INCOMPATIBLE)
def other_tables(change: Change) -> Iterator[Said]:
    """The operator reads other tables.

    What it has kept was computed from other rows. The order of the inputs of a UNION ALL does not matter, their set does.

    Way out: run the new query with a new `--state` folder.
    """
    old, new = change.old.input.tables, change.new.input.tables
    if old != new:
        yield Said(f"it read {sentence_of(old)} and is to read {sentence_of(new)}", change.new.span)


@rule("INP002", Verdict.INCOMPATIBLE)
def other_conditions(change: Change) -> Iterator[Said]:
    """A WHERE below the operator has changed.

    The rows that it has kept were chosen by the old condition, those that come will be by the new one: a result would be neither. A condition over the
    result itself (HAVING, or a WHERE around the query) keeps no state and may change.

    Way out: if you want just that, SET 'everfold.compat.ignore-filter' = 'true'.
    """
    if change.terms.ignore_filter:
        return
    old, new = change.old.input.filters, change.new.input.filters
    gone = tuple(each for each in old if each not in new)
    came = tuple(each for each in new if each not in old)
    if old != new:
        yield Said(
            f"the rows below were chosen by {sentence_of(gone)}, and are to be chosen by {sentence_of(came)}",
            change.new.span,
        )


@rule("INP003", Verdict.INCOMPATIBLE)
def other_window_below(change: Change) -> Iterator[Said]:
    """A window function below the operator has changed.

    A plain group over the rows of a window function keeps groups of the old windows; rows that come will be in others.

    Way out: run the new query with a new `--state` folder.
    """
    old, new = change.old.input.windows, change.new.input.windows
    if old != new:
        yield Said(
            f"its rows were in windows of {sentence_of(old)} and are to be in windows of {sentence_of(new)}",
            change.new.span,
        )


@rule("INP004", Verdict.INCOMPATIBLE)
def other_changes(change: Change) -> Iterator[Said]:
    """Rows that stayed may now change, or the other way round.

    Over rows that may be taken back an aggregate keeps more (how many rows there are, which values): what was kept without that is of no use.

    Way out: run the new query with a new `--state` folder.
    """
    old, new = change.old.input.updating, change.new.input.updating
    if old != new:
        yield Said(
            "its rows stayed, and may now be taken back" if new else "its rows could be taken back, and now stay",
            change.new.span,
        )


@rule("INP005", Verdict.UNKNOWN)
def other_joins(change: Change) -> Iterator[Said]:
    """A join, an UNNEST or constant rows below the operator have changed.

    Whether the rows that it has kept are those that the new query would have given cannot be told from the query.

    Way out: run the new query with a new `--state` folder.
    """
    if change.old.input.others != change.new.input.others:
        yield Said("a join, an UNNEST or constant rows below it have changed", change.new.span)


@rule("INP006", Verdict.INCOMPATIBLE)
def other_positions(change: Change) -> Iterator[Said]:
    """A column is read from another field of the record.

    The formats csv and avro find fields by their position: a column that is declared earlier or later in CREATE TABLE, or after a column that was
    inserted or removed, takes the values of another field. The state was computed from the old field, and a result would mix both. Columns that the operator does not
    read may move. A column may be added after the last one, and a column that is not read may be renamed.

    To resolve this, declare the columns in the order of the record, new ones last. If the record itself has changed, run the new query with a new `--state` folder.
    """
    old, new = ({each.field: each.position for each in of.positions or ()} for of in (change.old, change.new))
    moved = {each: (old[each], position) for each, position in new.items() if old.get(each, position) != position}
    for each, (was, is_now) in moved.items():
        yield Said(f"`{readable(each)}` was {was}, and is {is_now}", change.new.span)


@rule("INP007", Verdict.INCOMPATIBLE)
def other_types(change: Change) -> Iterator[Said]:
    """A key, a kept column or an argument of an aggregate has another type.

    State has values of the old type. It is found by the hash of the keys, which depends on their type. The length of a STRING, the precision of a TIMESTAMP
    and NOT NULL do not matter.

    To resolve this, declare the old type, or run the new query with a new `--state` folder.
    """
    for text, (was, is_now) in changed_types(change.old, change.new).items():
        if not can_keep_type(text, change.old, change.new):
            yield Said(f"`{readable(text)}` was {was}, and is {is_now}", change.new.span)


RULES = (other_tables, other_positions, other_types, other_conditions, other_window_below, other_changes, other_joins)
