"""The schema of an operator's state that its pages do not contain: column names and types,
slice widths and expiry.

It is stored with the shape of a query, so that state can be read without its plan. Nothing of it is
judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from everfold.plan.canonical import column_texts
from everfold.plan.explain import call_sql, expr_sql
from everfold.plan.expressions import Expr, canonical_text
from everfold.plan.nodes import (
    ChangelogNormalize,
    GroupAggregate,
    OverAggregate,
    Plan,
    Rank,
    SortKey,
    StatefulNode,
    WindowAggregate,
    WindowEmit,
    WindowTableFunction,
    runs_on_arrival,
)
from everfold.plan.windows import Session


@dataclass(frozen=True, slots=True)
class NamedShape:
    """A column or an expression.

    text: its canonical expression. name: its name in the query. type: its SQL type.
    """

    text: str
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class OrderShape:
    """A key of ORDER BY.

    text: its canonical expression.
    """

    text: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSchema:
    """The schema of an operator's state.

    columns: of the rows that are stored whole, in order. expressions: keys, arguments of
    aggregates, orders. order: of the rows of a partition. slice_ms, size_ms: widths of slices and
    windows, 0 for none. frame: of OVER: whether it counts rows, its first and its last bound. zone:
    the time zone in which windows align. on_arrival: whether the clock is processing time. ttl_ms:
    how long a row counts after it was last touched; 0: forever.
    """

    columns: tuple[NamedShape, ...] = ()
    expressions: tuple[NamedShape, ...] = ()
    order: tuple[OrderShape, ...] = ()
    slice_ms: int = 0
    size_ms: int = 0
    frame: tuple[bool, int | None, int | None] | None = None
    zone: str | None = None
    on_arrival: bool = False
    ttl_ms: int = 0


def state_schema_of(node: StatefulNode) -> StateSchema:
    """Return the schema of an operator's state."""
    below, on_arrival = node.input, runs_on_arrival(node)
    match node:
        case GroupAggregate():
            arguments = [arg for call in node.calls for arg in call.args]
            zone = None if node.window is None else node.window.zone
            return StateSchema(
                expressions=_named_shapes([*node.keys, *arguments], below),
                zone=zone,
                on_arrival=on_arrival,
                ttl_ms=node.ttl_ms,
            )
        case WindowAggregate(window=Session()):
            return StateSchema(expressions=_named_shapes(node.keys, below), zone=node.zone, on_arrival=on_arrival)
        case WindowAggregate():
            assert not isinstance(node.window, Session)
            return StateSchema(
                expressions=_named_shapes(node.keys, below),
                slice_ms=node.window.slice_ms,
                size_ms=node.window.size_ms,
                zone=node.zone,
                on_arrival=on_arrival,
            )
        case WindowTableFunction():
            return StateSchema(columns=_columns(below), zone=node.zone, on_arrival=on_arrival)
        case WindowEmit():
            return StateSchema(columns=_columns(below), zone=node.window.zone, on_arrival=on_arrival)
        case OverAggregate():
            frame = node.frame
            return StateSchema(
                columns=_columns(below),
                expressions=_named_shapes([*node.partition, *(key.expression for key in node.order)], below),
                order=_order(node.order, below),
                frame=(frame.rows, frame.first, frame.last),
                on_arrival=on_arrival,
                ttl_ms=node.ttl_ms,
            )
        case Rank():
            return StateSchema(
                columns=_columns(below),
                expressions=_named_shapes([*node.partition, *(key.expression for key in node.order)], below),
                order=_order(node.order, below),
                on_arrival=on_arrival,
                ttl_ms=node.ttl_ms,
            )
        case ChangelogNormalize():
            return StateSchema(columns=_columns(below), ttl_ms=node.ttl_ms)
        case _:
            assert_never(node)


def _columns(plan: Plan) -> tuple[NamedShape, ...]:
    parts = zip(column_texts(plan), _names(plan), plan.schema, strict=True)
    return tuple(NamedShape(text, name, str(of.type)) for text, name, of in parts)


def _named_shapes(expressions: Iterable[Expr], plan: Plan) -> tuple[NamedShape, ...]:
    """Return the expressions, each once."""
    texts, names = column_texts(plan), _names(plan)
    found = (NamedShape(canonical_text(each, texts), expr_sql(each, names), str(each.type)) for each in expressions)
    return tuple({each.text: each for each in found}.values())


def _order(keys: Iterable[SortKey], plan: Plan) -> tuple[OrderShape, ...]:
    texts = column_texts(plan)
    return tuple(OrderShape(canonical_text(key.expression, texts), key.descending, key.nulls_first) for key in keys)


def _names(plan: Plan) -> tuple[str, ...]:
    """Return the names of a plan's columns; a column that an aggregate computes is named by its
    call.
    """
    match plan:
        case OverAggregate():
            below = _names(plan.input)
            return (*below, *(call_sql(call, below) for call in plan.calls))
        case GroupAggregate() | WindowAggregate():
            below = _names(plan.input)
            names = (*(expr_sql(key, below) for key in plan.keys), *(call_sql(call, below) for call in plan.calls))
            return (*names, *plan.schema.names[len(names) :])
        case _:
            return plan.schema.names
