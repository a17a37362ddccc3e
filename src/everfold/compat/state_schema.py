"""The schema of an operator's state that its pages do not contain: column names and types,
slice widths and expiry.

It is stored with the shape of a query, so that state can be read without its plan. Nothing of it is
judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from everfold.plan.canonical import expr_texts, texts_of
from everfold.plan.explain import call_sql, expr_sql
from everfold.plan.expressions import Expr
from everfold.plan.nodes import (
    ChangelogNormalize,
    GroupAggregate,
    OverAggregate,
    Plan,
    Rank,
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
    on_arrival = runs_on_arrival(node)
    match node:
        case GroupAggregate():
            arguments = [arg for call in node.calls for arg in call.args]
            zone = None if node.window is None else node.window.zone
            return StateSchema(
                expressions=_named_shapes(node, [*node.keys, *arguments]),
                zone=zone,
                on_arrival=on_arrival,
                ttl_ms=node.ttl_ms,
            )
        case WindowAggregate(window=Session()):
            return StateSchema(expressions=_named_shapes(node, node.keys), zone=node.zone, on_arrival=on_arrival)
        case WindowAggregate():
            assert not isinstance(node.window, Session)
            return StateSchema(
                expressions=_named_shapes(node, node.keys),
                slice_ms=node.window.slice_ms,
                size_ms=node.window.size_ms,
                zone=node.zone,
                on_arrival=on_arrival,
            )
        case WindowTableFunction():
            return StateSchema(columns=_columns(node), zone=node.zone, on_arrival=on_arrival)
        case WindowEmit():
            return StateSchema(columns=_columns(node), zone=node.window.zone, on_arrival=on_arrival)
        case OverAggregate():
            frame = node.frame
            return StateSchema(
                columns=_columns(node),
                expressions=_named_shapes(node, [*node.partition, *(key.expression for key in node.order)]),
                order=_order(node),
                frame=(frame.rows, frame.first, frame.last),
                on_arrival=on_arrival,
                ttl_ms=node.ttl_ms,
            )
        case Rank():
            return StateSchema(
                columns=_columns(node),
                expressions=_named_shapes(node, [*node.partition, *(key.expression for key in node.order)]),
                order=_order(node),
                on_arrival=on_arrival,
                ttl_ms=node.ttl_ms,
            )
        case ChangelogNormalize():
            return StateSchema(columns=_columns(node), ttl_ms=node.ttl_ms)
        case _:
            assert_never(node)


def _columns(node: StatefulNode) -> tuple[NamedShape, ...]:
    parts = zip(texts_of(node).columns, _names(node.input), node.input.schema, strict=True)
    return tuple(NamedShape(text, name, str(column.type)) for text, name, column in parts)


def _named_shapes(node: StatefulNode, expressions: Sequence[Expr]) -> tuple[NamedShape, ...]:
    """Return the expressions, each once."""
    names = _names(node.input)
    parts = zip(expr_texts(node, expressions), expressions, strict=True)
    shapes = (NamedShape(text, expr_sql(expression, names), str(expression.type)) for text, expression in parts)
    return tuple({shape.text: shape for shape in shapes}.values())


def _order(node: OverAggregate | Rank) -> tuple[OrderShape, ...]:
    texts = expr_texts(node, [key.expression for key in node.order])
    pairs = zip(texts, node.order, strict=True)
    return tuple(OrderShape(text, key.descending, key.nulls_first) for text, key in pairs)


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
