"""Scalar expressions over Arrow columns in Spark's Python workers.

A column alone is passed on as it is. Everything else is computed by DuckDB, and must be allowed
there (`plan.worker_expressions`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from everfold.plan.expressions import Expr, InputRef, inputs_of, move_references
from everfold.types import Field, Schema

if TYPE_CHECKING:
    import pyarrow as pa

_ZONE = "UTC"
"""The time zone of the session in DuckDB: no allowed expression depends on it."""


def evaluate_expressions(
    column: Callable[[int], pa.ChunkedArray], schema: Schema, expressions: Sequence[Expr]
) -> list[pa.ChunkedArray]:
    """Return the values of expressions, in their Arrow types.

    column: returns a column of the input by its position; it is called only for columns that are
    needed. schema: of the input.
    """
    computed = [each for each in expressions if not isinstance(each, InputRef)]
    values = iter(_compute(column, schema, computed) if computed else ())
    return [column(each.position) if isinstance(each, InputRef) else next(values) for each in expressions]


def _compute(
    column: Callable[[int], pa.ChunkedArray], schema: Schema, expressions: Sequence[Expr]
) -> list[pa.ChunkedArray]:
    import pyarrow as pa

    from everfold.memory.duck import Duck

    # A relation has at least one column, which carries the number of rows.
    used = sorted(frozenset[int]().union(*map(inputs_of, expressions))) or [0]
    positions = {position: at for at, position in enumerate(used)}
    rows = pa.table({str(position): column(position) for position in used})
    duck = Duck(_ZONE, 0)
    relation = duck.register_table(rows, Schema(tuple(schema[position] for position in used)))
    relation = duck.project(relation, [move_references(each, positions) for each in expressions], len(used))
    found = duck.rows(relation, Schema(tuple(Field(name="", type=each.type) for each in expressions)))
    duck.connection.close()
    return list(found.columns)
