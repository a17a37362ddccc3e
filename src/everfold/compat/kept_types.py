"""The types of state: which of them a new query changes, and a plan whose operators keep the types
of existing state.

Earlier versions gave `MOD` of whole DECIMALs the type DECIMAL; now it has the type of the divisor.
State with such values stays as it is, because rows are found by the hash of their keys, which
depends on the type. The operators compute with the old type, and a projection above them converts
their results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from everfold.aggregates.registry import Signature, lookup
from everfold.compat.shape import OperatorShape
from everfold.plan.canonical import call_text, expr_text, texts_of
from everfold.plan.expressions import Expr, InputRef, column_references, retype, transform
from everfold.plan.nodes import (
    AggCall,
    GroupAggregate,
    OverAggregate,
    Plan,
    Project,
    StatefulNode,
    WindowAggregate,
)
from everfold.plan.parts import map_expressions
from everfold.sql.dialects.flink import parse_type
from everfold.types import ANY, NULL, AnyType, DataType, NullType

_REMAINDER = "%("
"""A part of the canonical text of every expression whose type may have changed."""


def find_changed_types(old: OperatorShape, new: OperatorShape) -> dict[str, tuple[str, str]]:
    """Return the columns, keys, orders and arguments of aggregates that both operators store in
    different types: the old and the new type, by canonical expression.
    """
    before, now = dict(_types(old)), dict(_types(new))
    both = ((text, before[text], type) for text, type in now.items() if before.get(text, type) != type)
    return {text: (was, type) for text, was, type in both if not _is_same(_type(was), _type(type))}


def can_keep_type(text: str, old: OperatorShape, new: OperatorShape) -> bool:
    """Whether the new operator can compute with the old type."""
    return _REMAINDER in text and not _is_stacked(old) and not _is_stacked(new)


def keep_types(node: StatefulNode, old: OperatorShape, new: OperatorShape) -> Plan:
    """Return a plan in which an operator keeps the types of its state, and whose results have the
    types of the operator.

    The inputs of `node` may differ from those that `new` was made from.
    """
    changed = {
        text: _type(was) for text, (was, _) in find_changed_types(old, new).items() if can_keep_type(text, old, new)
    }
    if not changed:
        return node
    if isinstance(node, GroupAggregate | WindowAggregate | OverAggregate):
        for call in node.calls:
            names = argument_names(call_text(node, call), len(call.args))
            changed |= {
                expr_text(node, arg): changed[name]
                for arg, name in zip(call.args, names, strict=True)
                if name in changed
            }
    converted = (
        _aggregate(node, changed) if isinstance(node, GroupAggregate | WindowAggregate) else _rows(node, changed)
    )
    columns = zip(column_references(converted.schema), node.schema, strict=True)
    expressions = tuple(each if each.type.same_as(of.type) else retype(each, of.type) for each, of in columns)
    return Project(input=converted, expressions=expressions, names=node.schema.names, span=node.span)


def _aggregate(
    node: GroupAggregate | WindowAggregate, changed: dict[str, DataType]
) -> GroupAggregate | WindowAggregate:
    made = map_expressions(node, lambda expr: _in_type(expr, expr_text(node, expr), changed), [node.input])
    return replace(made, calls=tuple(map(_adapt_type, made.calls, node.calls)))


def _rows(node: StatefulNode, changed: dict[str, DataType]) -> StatefulNode:
    """Convert the input of an operator that keeps rows."""
    below = zip(column_references(node.input.schema), texts_of(node).columns, strict=True)
    rows = Project(
        input=node.input,
        expressions=tuple(_in_type(column, text, changed) for column, text in below),
        names=node.input.schema.names,
        span=node.span,
    )
    columns = column_references(rows.schema)

    def converted(expr: Expr) -> Expr | None:
        if not isinstance(expr, InputRef):
            return None
        column = columns[expr.position]
        return expr if column.type.same_as(expr.type) else retype(replace(expr, type=column.type), expr.type)

    def kept(expr: Expr) -> Expr:
        if isinstance(expr, InputRef):
            return replace(expr, type=columns[expr.position].type)
        return _in_type(transform(expr, converted), expr_text(node, expr), changed)

    made = map_expressions(node, kept, [rows])
    if isinstance(made, OverAggregate) and isinstance(node, OverAggregate):
        made = replace(made, calls=tuple(map(_adapt_type, made.calls, node.calls)))
    return made


def _in_type(expr: Expr, text: str, changed: dict[str, DataType]) -> Expr:
    type = changed.get(text)
    return expr if type is None or type.same_as(expr.type) else retype(expr, type)


def _adapt_type(call: AggCall, before: AggCall) -> AggCall:
    """Return the call with the result type of its arguments. before: the call with the old ones."""
    entry = None if call.python is not None or call.args == before.args else lookup(call.function)
    if entry is None:
        return call
    type = entry.result_type(
        Signature(tuple(arg.type for arg in call.args), tuple(each.value for each in call.constants))
    )
    return call if type is None else replace(call, type=type.as_nullable(call.type.nullable))


def _types(shape: OperatorShape) -> Iterator[tuple[str, str]]:
    """Yield what a shape stores and its type.

    Arguments are named after their call, except those of a GROUP BY, which are among its
    expressions.
    """
    for each in (*shape.kept.columns, *shape.kept.expressions):
        yield each.text, each.type.removesuffix(" NOT NULL")
    for call in shape.calls if shape.kind != "GroupAggregate" else ():
        if not call.python:
            names = argument_names(call.text, len(call.args))
            yield from zip(names, (type.removesuffix(" NOT NULL") for type in call.args), strict=True)


def argument_names(call: str, count: int) -> list[str]:
    """Return names for the arguments of a call, whose canonical expressions shapes do not store."""
    return [f"argument {at} of {call}" for at in range(1, count + 1)]


def _type(text: str) -> DataType:
    return next((each for each in (NULL, ANY) if each.sql == text), None) or parse_type(text)


def _is_same(one: DataType, other: DataType) -> bool:
    """Whether state stores values of both types in the same way."""
    if isinstance(one, AnyType) or isinstance(other, AnyType):
        return True
    if isinstance(one, NullType) or isinstance(other, NullType):
        return one.same_as(other)
    return one.spark == other.spark


def _is_stacked(shape: OperatorShape) -> bool:
    """Whether an OVER may be computed over the rows of another OVER, to which it adds columns."""
    return shape.kind == "OverAggregate" and bool(shape.below)
