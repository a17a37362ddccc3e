"""Spark SQL over values of nested types."""

from __future__ import annotations

from collections.abc import Callable

from everfold.engine_literals import spark_identifier, spark_string
from everfold.types import ArrayType, DataType, MapType, RowType


def rewrite_scalars(
    value: str,
    of: DataType,
    rewrite: Callable[[str, DataType, str], str],
    path: str = "",
    *,
    last_entries: bool = False,
    depth: int = 0,
) -> str:
    """Return Spark SQL that applies `rewrite` to every scalar of a value of any type.

    rewrite: from the SQL, the type and the path of a scalar to SQL. path: of the value, such as
    `a.b[]`. Keys of a MAP are unchanged; last_entries: a MAP may have a key several times, and
    keeps the last entry.
    """

    def below(value: str, of: DataType, step: str) -> str:
        return rewrite_scalars(value, of, rewrite, path + step, last_entries=last_entries, depth=depth + 1)

    item = f"x{depth}"
    match of:
        case ArrayType():
            return f"transform({value}, {item} -> {below(item, of.element, '[]')})"
        case MapType():
            single = f"map_from_entries(map_entries({value}))" if last_entries else value
            return f"transform_values({single}, (k{depth}, {item}) -> {below(item, of.value, '{}')})"
        case RowType():
            parts = ", ".join(
                f"{spark_string(part.name)}, "
                + below(f"{value}.{spark_identifier(part.name)}", part.type, f".{part.name}")
                for part in of.fields
            )
            return f"IF({value} IS NULL, NULL, named_struct({parts}))"
        case _:
            return rewrite(value, of, path)
