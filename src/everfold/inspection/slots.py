"""Aggregate calls as a manifest stores them: which columns of a page are their slots, the types of
these, and how parts of them are merged.

The plan that created the state is not needed. A user's function is not called: its slots are lists,
and parts of them are concatenated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from everfold.aggregates import lists
from everfold.aggregates.calls import make_distinct
from everfold.aggregates.folding import Fold
from everfold.aggregates.registry import Aggregate, Distinct, Signature, Slot, lookup
from everfold.aggregates.shared_state import matching_columns
from everfold.compat.shape import CallShape
from everfold.errors import StateError
from everfold.sql.dialects.flink import parse_type
from everfold.types import NULL, DataType

ROW_COUNT = "COUNT()|count"
"""The slot with the number of rows of a window whose rows may be retracted.

A COUNT(*) of the query shares it.
"""
_LEFT = "__left"


def type_of(text: str) -> DataType:
    """Return the type that a string in a shape denotes."""
    return NULL if text == NULL.sql else parse_type(text)


def known_slots(call: CallShape) -> dict[str, Slot]:
    """Return a call's slots, by name, if its function is known."""
    return {slot.name: slot for retracting in (True, False) for slot in _slots(call, retracting)}


def add_shared_slots(rows: pl.DataFrame, calls: Iterable[CallShape]) -> pl.DataFrame:
    """Add the slots that calls share with other calls, where pages are older than the calls
    (`aggregates.shared_state`).
    """
    columns = []
    for call in calls:
        since = f" since {call.since}" if call.since else ""
        for slot in known_slots(call):
            known = f"{call.text}|{slot}{since}"
            found = matching_columns(known, rows.columns)
            if found and found != [known]:
                columns.append(pl.coalesce(found).alias(known))
    return rows.with_columns(columns)


def merge_parts(rows: pl.DataFrame, by: Sequence[str], calls: Sequence[CallShape], *, retracting: bool) -> pl.DataFrame:
    """Merge the parts of each group, which are in order, to one row with `by` and those slots of
    the calls that the rows have.

    retracting: rows may be retracted, and groups without remaining rows are left out. StateError
    `unknown-aggregate-state` if it is not known how an aggregate's parts are merged.
    """
    folds, list_slots = [], []
    for call in calls:
        slots = call.find_slots(rows.columns)
        if call.python:
            list_slots += [_concat(column, call, retracting).alias(column) for column in slots.values()]
        elif slots:
            folds.append(_fold(call, slots, retracting))
    merged_slots = [*(expr for fold in folds for expr in fold.merged), *list_slots]
    if retracting and ROW_COUNT in rows.columns:
        merged_slots.append(pl.col(ROW_COUNT).sum().alias(_LEFT))
    found = rows.group_by(by, maintain_order=True).agg(merged_slots)
    if _LEFT in found.columns:
        found = found.filter(pl.col(_LEFT) != 0).drop(_LEFT)
    netted = [column for fold in folds for column in fold.settle(found, True)]
    return found.with_columns(netted) if netted else found


def _concat(column: str, call: CallShape, retracting: bool) -> pl.Expr:
    parts = lists.explode_lists(pl.col(column))
    return (parts.unique(maintain_order=True) if call.distinct and not retracting else parts).implode()


def _fold(call: CallShape, named: dict[str, str], retracting: bool) -> Fold:
    entry = _entry(call)
    slots = [slot.name for slot in _slots(call, retracting)]
    if entry is None or {*slots} != named.keys():
        raise StateError.of(
            "unknown-aggregate-state",
            f"the state of `{call.label}` has an unknown format",
            help="the job was written by another version of everfold: use that version to show its state",
        )
    names = tuple(named[slot] for slot in slots)
    return Fold(entry, _signature(call, retracting), (), names, begins_late=call.since > 0)


def _slots(call: CallShape, retracting: bool) -> tuple[Slot, ...]:
    entry = _entry(call)
    return () if entry is None else entry.slots(_signature(call, retracting))


def _entry(call: CallShape) -> Aggregate | None:
    """Return the call's function; None for a user's function, and for one that this version of
    everfold does not have.
    """
    entry = None if call.python else lookup(call.function)
    applies = entry is not None and call.distinct and entry.distinct is Distinct.APPLIES
    return make_distinct(entry) if applies and entry is not None else entry


def _signature(call: CallShape, retracting: bool) -> Signature:
    return Signature(tuple(map(type_of, call.args)), call.constants, retracting)
