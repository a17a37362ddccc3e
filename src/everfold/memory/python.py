"""Projections with Python functions.

DuckDB computes the arguments of all rows and Python the values; both are combined into one
relation.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from everfold.memory.duck import Duck
from everfold.plan.expressions import Expr, Literal, PythonCall
from everfold.types import INT, Field, Schema
from everfold.udf.running import open_function
from everfold.udf.scalar import ScalarRun

_ROWS = Literal(type=INT.as_nullable(False), value=0)
"""A column that is always selected, so that the number of rows is known without other columns."""


def project(duck: Duck, below: str, expressions: Sequence[Expr], width: int, hidden: Sequence[str] = ()) -> str:
    """Project to one column per expression, which may be a Python call, and the hidden columns.

    Raises FunctionError.
    """
    if not any(isinstance(each, PythonCall) for each in expressions):
        return duck.project(below, expressions, width, hidden)
    wanted: list[Expr] = [_ROWS]
    for each in expressions:
        wanted += each.args if isinstance(each, PythonCall) else [each]
    inputs = duck.project(below, wanted, width, hidden)
    table = duck.rows(inputs, _schema(wanted), hidden)
    columns: list[pa.ChunkedArray] = []
    at = 1
    for each in expressions:
        if isinstance(each, PythonCall):
            arguments = table.columns[at : at + len(each.args)]
            columns.append(pa.chunked_array([_values(each, arguments, table.num_rows)]))
            at += len(each.args)
        else:
            columns.append(table.column(at))
            at += 1
    schema = _schema(expressions)
    projected = pa.table([*columns, *(table[name] for name in hidden)], names=[*schema.arrow.names, *hidden])
    return duck.register_table(projected, schema, hidden)


def _values(call: PythonCall, arguments: Sequence[pa.ChunkedArray], rows: int) -> pa.Array:
    run = ScalarRun(call.of, [arg.type for arg in call.args], call.type, call.span)
    with open_function(call.of, call.span):
        return run([column.combine_chunks() for column in arguments], rows)


def _schema(expressions: Sequence[Expr]) -> Schema:
    return Schema(tuple(Field(name="", type=each.type) for each in expressions))
