"""Aggregate calls as a manifest remembers them: which columns of a page are theirs, of which types, and how parts of them are put together.

The plan that made the state need not be there. A function of the user's is not called: its slots are lists, and parts of them stand one behind the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import polars as pl

from everfold.aggregates import lists
from everfold.aggregates.calls import over_distinct
from everfold.aggregates.folding import Fold
from everfold.aggregates.registry import Aggregate, Distinct, Signature, Slot, lookup
from everfold.aggregates.shared_state import stored_as
from everfold.compat.shape import CallShape
from everfold.errors import StateError
from everfold.sql.dialects.flink import parse_type
from everfold.types import NULL, DataType

ROW_COUNT = "COUNT()|count"
"""The slot by which a window whose rows may be taken back knows how many it has. A COUNT(*) of the query's is the same."""
_LEFT = "__left"


def type_of(text: str) -> DataType:
    """The type that a text says, as shapes have it."""
    return NULL if text == NULL.sql else parse_type(text)


def slots_of(call: CallShape, columns: Iterable[str]) -> dict[str, str]:
    """The columns of a page that are slots of a call, by the slot's name."""
    since = f" since {call.since}" if call.since else ""
    named = re.compile(rf"{re.escape(call.text)}\|(\w+){since}")
    return {found[1]: column for column in columns if (found := named.fullmatch(column)) is not None}


def slot_types(call: CallShape) -> dict[str, DataType]:
    """The types of a call's slots, by name, as far as its function is known."""
    return {slot.name: slot.type for retracting in (True, False) for slot in _slots(call, retracting)}


def completed(rows: pl.DataFrame, calls: Iterable[CallShape]) -> pl.DataFrame:
    """Rows of pages with the slots that the calls have from relatives, where pages are older than the calls (`aggregates.shared_state`)."""
    made = []
    for call in calls:
        since = f" since {call.since}" if call.since else ""
        for slot in slot_types(call):
            known = f"{call.text}|{slot}{since}"
            found = stored_as(known, rows.columns)
            if found and found != [known]:
                made.append(pl.coalesce(found).alias(known))
    return rows.with_columns(made)


def merged(rows: pl.DataFrame, by: Sequence[str], calls: Sequence[CallShape], *, retracting: bool) -> pl.DataFrame:
    """One row a group, given in parts that come in their order: `by` and the slots of the calls, as far as the rows have them. retracting: rows may be taken back, and
    groups of which none is left are left out.

    StateError `unknown-aggregate-state` where it is not known how an aggregate's parts are put together.
    """
    folds, joined = [], []
    for call in calls:
        named = slots_of(call, rows.columns)
        if call.python:
            joined += [_joined(column, call, retracting).alias(column) for column in named.values()]
        elif named:
            folds.append(_fold(call, named, retracting))
    made = [*(expr for fold in folds for expr in fold.merge()), *joined]
    if retracting and ROW_COUNT in rows.columns:
        made.append(pl.col(ROW_COUNT).sum().alias(_LEFT))
    found = rows.group_by(by, maintain_order=True).agg(made)
    if _LEFT in found.columns:
        found = found.filter(pl.col(_LEFT) != 0).drop(_LEFT)
    netted = [column for fold in folds for column in fold.settle(found, True)]
    return found.with_columns(netted) if netted else found


def _joined(column: str, call: CallShape, retracting: bool) -> pl.Expr:
    parts = lists.elements_of(pl.col(column))
    return (parts.unique(maintain_order=True) if call.distinct and not retracting else parts).implode()


def _fold(call: CallShape, named: dict[str, str], retracting: bool) -> Fold:
    entry = _entry(call)
    slots = [slot.name for slot in _slots(call, retracting)]
    if entry is None or {*slots} != named.keys():
        raise StateError.of(
            "unknown-aggregate-state",
            f"it is not known how the state of `{call.label}` is put together",
            help="the job was written by another everfold: show its state with that one",
        )
    return Fold(entry, _signature(call, retracting), (), tuple(named[slot] for slot in slots))


def _slots(call: CallShape, retracting: bool) -> tuple[Slot, ...]:
    entry = _entry(call)
    return () if entry is None else entry.slots(_signature(call, retracting))


def _entry(call: CallShape) -> Aggregate | None:
    """The call's function; None for one of the user's, and for one that this everfold does not have."""
    entry = None if call.python else lookup(call.function)
    applies = entry is not None and call.distinct and entry.distinct is Distinct.APPLIES
    return over_distinct(entry) if applies and entry is not None else entry


def _signature(call: CallShape, retracting: bool) -> Signature:
    return Signature(tuple(map(type_of, call.args)), call.constants, retracting)
