"""The columns of a group aggregate: its input columns, its slots, and the value tables of the
groups.

Some calls cannot follow changes with a few slots per group: DISTINCT has to know how often each
value occurs, MIN and MAX which value comes next when the extreme one is retracted. Their values are
stored in one table per argument list, with one row per group and value, and a count for every
FILTER. DISTINCT calls receive the values that appear and disappear; MIN and MAX search the table
when their extreme has disappeared.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from everfold.aggregates.calls import argument_columns, arguments_of, entry_of, filter_condition_of
from everfold.aggregates.folding import Fold
from everfold.operators.layout import Layout, fold_of, slot_name
from everfold.operators.protocol import InputColumn
from everfold.operators.state_names import StateNames
from everfold.plan.canonical import call_text
from everfold.plan.expressions import Call, Expr, Literal
from everfold.plan.nodes import AggCall, GroupAggregate
from everfold.types import BIGINT, BOOLEAN

EXTREMES = frozenset({"MIN", "MAX"})


@dataclass(frozen=True, slots=True)
class Count:
    """How often a value occurs among the rows of a FILTER.

    condition: column of the condition (None: all rows). name: column of the count. page_name: its
    name in pages. since: the version in which it begins.
    """

    condition: str | None
    name: str
    page_name: str
    since: int = 0


@dataclass(frozen=True, slots=True)
class ValueTable:
    """The values of one argument list.

    columns: of the arguments, in frames; page_names: in pages; hashes: columns with their hashes.
    distinct, extremes: the folds that use it, each with the position of its count.
    """

    name: str
    columns: tuple[str, ...]
    page_names: tuple[str, ...]
    hashes: tuple[str, ...]
    counts: tuple[Count, ...]
    distinct: tuple[tuple[int, int], ...]
    extremes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """The columns and value tables of a group aggregate.

    layout: keys, all folds and their names in pages. plain: positions of the folds that rows are
    folded into directly.
    """

    layout: Layout
    plain: tuple[int, ...]
    tables: tuple[ValueTable, ...]


def group_layout(node: GroupAggregate, updating: bool) -> GroupLayout:
    """Return the columns of a group aggregate.

    UnsupportedFeature for a function that cannot follow its input.
    """
    return _LayoutBuilder(node, updating).build()


class _LayoutBuilder:
    def __init__(self, node: GroupAggregate, updating: bool) -> None:
        self._node, self._updating = node, updating
        self.state_names = StateNames(node)
        self._inputs: list[InputColumn] = []
        self._columns: dict[Expr, str] = {}
        self._folds: list[Fold] = []
        self._names: dict[str, str] = {}
        self._slot_types: dict[str, pl.DataType] = {}
        self._plain: list[int] = []
        self._tables: dict[tuple[Expr, ...], _Values] = {}

    def build(self) -> GroupLayout:
        node = self._node
        keys = tuple(f"k{at}" for at in range(len(node.keys)))
        self._inputs += map(InputColumn.of, keys, node.keys)
        self._names |= zip(keys, self.state_names.name_keys(node.keys), strict=True)
        known: dict[str, int] = {}
        calls: list[int] = []
        for call in node.calls:
            text = call_text(node, call)
            if text not in known:
                known[text] = len(self._folds)
                self._add(call)
            calls.append(known[text])
        layout = Layout(tuple(self._inputs), keys, tuple(self._folds), tuple(calls), self._names, self._slot_types)
        return GroupLayout(layout, tuple(self._plain), tuple(each.build() for each in self._tables.values()))

    def _add(self, call: AggCall) -> None:
        entry = entry_of(call)
        extreme = call.function in EXTREMES
        distinct = call.distinct and not extreme and entry.distinct == "applies"
        if not distinct and not (extreme and self._updating):
            self._plain.append(len(self._folds))
            self._fold(call, arguments_of(call), self._updating)
            return
        values = self._tables.setdefault(call.args, _Values(self, call))
        at = len(self._folds)
        # Values that appear and disappear are folded without FILTER, which has already been
        # applied.
        self._fold(call, call.args, self._updating and distinct, filtered=False)
        (values.distinct if distinct else values.extremes).append((at, values.count(call)))

    def _fold(self, call: AggCall, arguments: tuple[Expr, ...], retracting: bool, filtered: bool = True) -> None:
        columns = argument_columns(call, arguments, self.column, self.hash_of)
        kept = self.column(condition) if filtered and (condition := filter_condition_of(call)) is not None else None
        start = sum(len(fold.slots) for fold in self._folds)
        fold, slots = fold_of(call, columns, kept, start, retracting)
        for name, slot in zip(fold.slots, slots, strict=True):
            self._names[name] = slot_name(self.state_names.name_call(call), slot, call)
            self._slot_types[name] = slot.type.polars
        self._folds.append(fold)

    def column(self, expression: Expr) -> str:
        """Return the input column of an expression."""
        if expression not in self._columns:
            self._columns[expression] = f"a{len(self._columns)}"
            self._inputs.append(InputColumn.of(self._columns[expression], expression))
        return self._columns[expression]

    def hash_of(self, expression: Expr) -> str:
        """Return the input column of an expression's hash."""
        name = f"h_{self.column(expression)}"
        if all(each.name != name for each in self._inputs):
            self._inputs.append(InputColumn(name=name, expression=expression, type=BIGINT, as_hash=True))
        return name


class _Values:
    """A value table while it is built."""

    def __init__(self, builder: _LayoutBuilder, call: AggCall) -> None:
        self._builder = builder
        self._name, self._page_names = builder.state_names.name_values(call.args)
        self._columns = tuple(map(builder.column, call.args))
        self._hashes = tuple(map(builder.hash_of, call.args))
        self._counts: list[Count] = []
        self.distinct: list[tuple[int, int]] = []
        self.extremes: list[tuple[int, int]] = []

    def count(self, call: AggCall) -> int:
        """Return the position of the count for a call's FILTER and the version in which it
        begins.
        """
        page_name = self._builder.state_names.name_count(call) + (f" since {call.since}" if call.since else "")
        for at, each in enumerate(self._counts):
            if each.page_name == page_name:
                return at
        condition = None if call.filter is None else self._builder.column(_is_true(call.filter))
        self._counts.append(Count(condition, f"n{len(self._counts)}", page_name, call.since))
        return len(self._counts) - 1

    def build(self) -> ValueTable:
        return ValueTable(
            self._name,
            self._columns,
            tuple(self._page_names),
            self._hashes,
            tuple(self._counts),
            tuple(self.distinct),
            tuple(self.extremes),
        )


def _is_true(condition: Expr) -> Expr:
    false = Literal(type=BOOLEAN.as_nullable(False), value=False)
    return Call(type=BOOLEAN.as_nullable(False), function="COALESCE", args=(condition, false))
