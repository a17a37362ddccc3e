"""Spark SQL over values of nested types."""

from __future__ import annotations

from collections.abc import Callable

from everfold.engine_literals import spark_identifier, spark_string
from everfold.types import ArrayType, DataType, MapType, RowType


def rewrite_scalars(value: str, of: DataType, rewrite: Callable[[str, DataType], str], depth: int = 0) -> str:
    """Return Spark SQL that applies `rewrite` to every scalar of a value of any type.

    Keys of a MAP are unchanged.
    """
    item = f"x{depth}"
    match of:
        case ArrayType():
            return f"transform({value}, {item} -> {rewrite_scalars(item, of.element, rewrite, depth + 1)})"
        case MapType():
            inner = rewrite_scalars(item, of.value, rewrite, depth + 1)
            return f"transform_values({value}, (k{depth}, {item}) -> {inner})"
        case RowType():
            fields = ((part.name, f"{value}.{spark_identifier(part.name)}", part.type) for part in of.fields)
            parts = ", ".join(
                f"{spark_string(name)}, {rewrite_scalars(field, type_, rewrite, depth)}"
                for name, field, type_ in fields
            )
            return f"IF({value} IS NULL, NULL, named_struct({parts}))"
        case _:
            return rewrite(value, of)
