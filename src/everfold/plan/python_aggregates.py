"""Execution of the Python aggregate functions of users in batch.

A batch has whole groups. So it collects the rows of each group with ARRAY_AGG and calls the
function on that list, as a scalar function.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from everfold.plan.expressions import Call, Expr, Literal, PythonCall, column_references
from everfold.plan.nodes import AggCall, GroupAggregate, Project, WindowAggregate
from everfold.types import STRING, ArrayType, RowField, RowType
from everfold.udf.aggregate import RowListFunction, argument_name
from everfold.udf.function import PythonFunction

AggregateNode: TypeAlias = WindowAggregate | GroupAggregate
"""The nodes that call aggregate functions."""


def calls_python_aggregate(node: AggregateNode) -> bool:
    """Return whether one of the calls is a user's function."""
    return any(call.python is not None for call in node.calls)


def collect_rows(node: AggregateNode) -> Project:
    """Replace the calls of user functions by lists of rows.

    A projection on top calls the functions on the lists.
    """
    made = replace(node, calls=tuple(_collect_rows(call) for call in node.calls))
    columns: list[Expr] = [*column_references(made.schema)]
    for at, call in enumerate(node.calls, len(node.keys)):
        if call.python is not None:
            columns[at] = _call_on_list(call, call.python, columns[at])
    return Project(input=made, expressions=tuple(columns), names=node.schema.names, span=node.span)


def _collect_rows(call: AggCall) -> AggCall:
    if call.python is None:
        return call
    fields = tuple(RowField(name=argument_name(at), type=arg.type) for at, arg in enumerate(call.args))
    row = RowType(fields=fields, nullable=False)
    return AggCall(
        function="ARRAY_AGG",
        args=(Call(function="ROW", args=call.args, type=row, span=call.span),),
        constants=(Literal(type=STRING, value="RESPECT"),),
        type=ArrayType(element=row.as_nullable()),
        distinct=call.distinct,
        filter=call.filter,
        span=call.span,
    )


def _call_on_list(call: AggCall, of: PythonFunction, rows: Expr) -> PythonCall:
    over = RowListFunction(of, [arg.type for arg in call.args], call.span)
    python = PythonFunction(name=of.name, identifier=of.identifier, function=over, deterministic=of.deterministic)
    return PythonCall(function=call.function, args=(rows,), type=call.type, of=python, span=call.span)
