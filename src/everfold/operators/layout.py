"""The columns of an aggregating operator: its input columns, its slots, and their names in pages.

In frames columns have short names (`k0` keys, `a0` arguments, `s0` slots). In pages they are named
by meaning: the canonical expression of the key or call, and the slot. So a page that an older query
wrote can be read: a slot that it lacks is unset (NULL), and a slot that the query does not need is
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from everfold.aggregates.calls import (
    argument_columns,
    arguments_of,
    entry_of,
    filter_condition_of,
    is_distinct,
    make_distinct,
    signature_of,
)
from everfold.aggregates.folding import Fold
from everfold.aggregates.registry import Slot
from everfold.aggregates.shared_state import matching_columns
from everfold.errors import StateError, UnsupportedFeature
from everfold.operators.protocol import InputColumn
from everfold.operators.state_names import StateNames
from everfold.plan.canonical import call_text
from everfold.plan.expressions import Expr, InputRef
from everfold.plan.nodes import ROW_COUNT, AggCall, StatefulNode, WindowAggregate, WindowTableFunction
from everfold.types import BIGINT, FloatingType, Schema, TimestampType, physical_name

_PRESENT = "present"
"""The only column of a page that has neither keys nor slots (SELECT DISTINCT window_start,
window_end): it carries the number of rows.
"""
_ROWS = AggCall(function="COUNT", args=(), type=ROW_COUNT)


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of an aggregating operator.

    inputs: `ts`, keys, arguments. keys: names of the key columns. folds: one per different call, in
    order. calls: the position of the fold of each call of the node. page_names: the name in pages
    of each key and slot, by its name in frames. rows: the slot that counts the rows of a window,
    less retracted ones; None where rows cannot be retracted.
    """

    inputs: tuple[InputColumn, ...]
    keys: tuple[str, ...]
    folds: tuple[Fold, ...]
    calls: tuple[int, ...]
    page_names: dict[str, str]
    slot_types: dict[str, pl.DataType]
    rows: str | None = None

    @property
    def hash_keys(self) -> tuple[str, ...]:
        """The keys in canonical order, so that the hash of a group does not depend on how they are
        written.
        """
        return tuple(sorted(self.keys, key=self.page_names.__getitem__))

    @property
    def key_names(self) -> dict[str, str]:
        """The name in pages of each key, by its name in frames."""
        return {key: self.page_names[key] for key in self.keys}

    @property
    def slots(self) -> list[str]:
        """Names of all slot columns in frames."""
        return [slot for fold in self.folds for slot in fold.slots]

    @property
    def ordered(self) -> bool:
        """Whether a value depends on row order."""
        return any(fold.is_ordered for fold in self.folds)

    def to_page(self, frame: pl.DataFrame, kept: Sequence[str | pl.Series] = ()) -> pl.DataFrame:
        """Rename the columns of a frame to their names in pages.

        kept: columns that keep their names, or other columns of the page.
        """
        columns = [frame[each] if isinstance(each, str) else each for each in kept]
        columns += [frame[name].alias(known) for name, known in self.page_names.items()]
        return pl.DataFrame(columns or {_PRESENT: np.ones(frame.height, dtype=bool)})

    def from_page(self, page: pl.DataFrame, kept: Sequence[str | pl.Series] = ()) -> pl.DataFrame:
        """Rename the columns of a page to their names in the frames of this query.

        kept: columns that keep their names, or other columns of the frame.
        A slot that the page lacks is read from a call that shares its state
        (`aggregates.shared_state`), or is NULL.
        """
        present = set(page.columns)
        columns = [page[each] if isinstance(each, str) else each for each in kept]
        for name, known in self.page_names.items():
            if name in self.slot_types:
                found = matching_columns(known, present)
                if len(found) > 1:
                    column = page.select_seq(pl.coalesce(found)).to_series()
                else:
                    column = page[found[0]] if found else null_column(page.height, self.slot_types[name])
            elif known in present:
                column = page[known]
            else:
                raise StateError.of(
                    "foreign-state",
                    f"the state lacks the key `{known.removeprefix('key ')}`",
                    help="the state belongs to a query with other keys: start a new job, or reset the operator",
                )
            columns.append(column.alias(name))
        return pl.DataFrame(columns) if columns else page[page.columns[:1]]

    def empty(self, kept: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """Return an empty frame with the columns `kept`, keys and slots."""
        types = {each.name: each.type.polars for each in self.inputs if each.name in self.keys}
        return pl.DataFrame(schema={**kept, **types, **self.slot_types})


def layout_of(node: WindowAggregate, retracting: bool = False) -> Layout:
    """Return the columns of a window aggregate.

    retracting: its input may retract rows. UnsupportedFeature for a function that cannot follow its
    input.
    """
    inputs = [time_input(node)]
    keys = tuple(f"k{at}" for at in range(len(node.keys)))
    inputs += map(InputColumn.of, keys, node.keys)
    names = dict(zip(keys, StateNames(node).name_keys(node.keys), strict=True))
    calls = [*node.calls, *([_ROWS] if retracting else [])]
    folds = folds_of(node, calls, inputs, retracting)
    rows = folds.folds[folds.calls[-1]].slots[0] if retracting else None
    positions = tuple(folds.calls[: len(node.calls)])
    return Layout(tuple(inputs), keys, tuple(folds.folds), positions, names | folds.page_names, folds.slot_types, rows)


@dataclass(frozen=True, slots=True)
class Folds:
    """One fold per different call, the position of the fold of each call, the names of slots in
    pages, and their types.
    """

    folds: tuple[Fold, ...]
    calls: tuple[int, ...]
    page_names: dict[str, str]
    slot_types: dict[str, pl.DataType]


def folds_of(
    node: StatefulNode, calls: Sequence[AggCall], inputs: list[InputColumn], retracting: bool = False
) -> Folds:
    """Return the folds of calls over the rows that an operator reads.

    The input columns that they need are added to `inputs`.
    """
    names = StateNames(node)
    columns: dict[tuple[Expr, bool], str] = {}

    def column(expression: Expr, as_hash: bool = False) -> str:
        """Return the input column of an expression, or of its hash."""
        if (expression, as_hash) not in columns:
            columns[expression, as_hash] = name = f"a{len(columns)}"
            type_ = BIGINT if as_hash else expression.type
            inputs.append(InputColumn(name=name, expression=expression, type=type_, as_hash=as_hash))
        return columns[expression, as_hash]

    folds: list[Fold] = []
    which: list[int] = []
    known: dict[str, int] = {}
    page_names: dict[str, str] = {}
    slot_types: dict[str, pl.DataType] = {}
    for call in calls:
        text = call_text(node, call)
        if text not in known:
            arguments = argument_columns(call, arguments_of(call), column, lambda of: column(of, as_hash=True))
            condition = filter_condition_of(call)
            kept = None if condition is None else column(condition)
            fold, slots = fold_of(call, arguments, kept, len(slot_types), retracting, is_distinct(call))
            for name, slot in zip(fold.slots, slots, strict=True):
                page_names[name] = slot_name(names.name_call(call), slot, call)
                slot_types[name] = slot.type.polars
            known[text] = len(folds)
            folds.append(fold)
        which.append(known[text])
    return Folds(tuple(folds), tuple(which), page_names, slot_types)


def slot_name(name: str, slot: Slot, call: AggCall) -> str:
    """Return the name of a call's slot in pages: the call's name and, unless it is the first, the
    version in which it begins.
    """
    return f"{name}|{slot.name}" + (f" since {call.since}" if call.since else "")


def fold_of(
    call: AggCall, columns: Sequence[str], kept: str | None, start: int, retracting: bool, distinct: bool = False
) -> tuple[Fold, tuple[Slot, ...]]:
    """Return the fold of a call over `columns`, with slots numbered from `start`.

    distinct: over the values that are collected in a slot. UnsupportedFeature for a function that
    does not support retraction.
    """
    entry = entry_of(call)
    if retracting and not entry.is_retractable:
        raise UnsupportedFeature.of(
            "no-retraction",
            f"`{call.function}` does not support retraction, and its input may retract rows",
            call.span,
            "COUNT(DISTINCT …) can" if call.function == "APPROX_COUNT_DISTINCT" else None,
        )
    if distinct:
        entry = make_distinct(entry)
    of = signature_of(call, retracting)
    slots = entry.slots(of)
    names = tuple(f"s{start + at}" for at in range(len(slots)))
    return Fold(entry, of, tuple(columns), names, kept, begins_late=call.since > 0), slots


def time_input(node: WindowAggregate | WindowTableFunction) -> InputColumn:
    """Return `ts`: the time column in milliseconds of the wall clock."""
    of = node.input.schema[node.time_column]
    column = InputRef(type=of.type, position=node.time_column, name=of.name)
    return InputColumn(name="ts", expression=column, type=BIGINT, as_ms=True, zone=node.zone)


def page_columns(
    page: pl.DataFrame, names: Mapping[str, str], types: Mapping[str, pl.DataType | type[pl.DataType]]
) -> list[pl.Series]:
    """Return the columns of a page under their names in frames.

    A column that the page lacks is NULL, with its type in frames.
    """
    present = set(page.columns)
    return [
        (page[known] if known in present else null_column(page.height, types[name])).alias(name)
        for name, known in names.items()
    ]


def null_column(height: int, of: pl.DataType | type[pl.DataType]) -> pl.Series:
    """Return a column of NULLs."""
    return pl.Series([None], dtype=of).new_from_index(0, height)


def normalize_keys(inputs: Sequence[InputColumn], keys: Sequence[str]) -> list[pl.Expr]:
    """Normalize the keys so that equal ones have the same bits: -0.0 becomes 0.0."""
    floating = [each.name for each in inputs if each.name in keys and isinstance(each.type, FloatingType)]
    return [pl.when(pl.col(key) == 0).then(pl.col(key).abs()).otherwise(pl.col(key)).alias(key) for key in floating]


def window_columns(schema: Schema) -> tuple[str, str, str]:
    """Return the physical names of window_start, window_end and window_time: the last three
    columns.
    """
    count = len(schema)
    return physical_name(count - 3), physical_name(count - 2), physical_name(count - 1)


def has_local_zone(schema: Schema) -> bool:
    """Whether window_time, the last column, is TIMESTAMP_LTZ."""
    of = schema[len(schema) - 1].type
    assert isinstance(of, TimestampType)
    return of.local_zone
