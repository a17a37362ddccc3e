"""The input columns that an operator requires, in Spark SQL."""

from __future__ import annotations

from collections.abc import Sequence

from everfold.operators.protocol import InputColumn
from everfold.spark.scalar import Scalars
from everfold.types import FloatingType, MapType


def input_columns_sql(
    scalars: Scalars, inputs: Sequence[InputColumn], keys: Sequence[str], width: int, guard: str | None = None
) -> list[str]:
    """Return the columns with their names.

    keys: the names of the key columns. width, guard: see `Scalars.render_sql`.
    """
    return [f"{_text(scalars, each, each.name in keys, width, guard)} AS {each.name}" for each in inputs]


def hash_sql(inputs: Sequence[InputColumn], keys: Sequence[str]) -> str:
    """Return the 64-bit hash of the keys over the columns of `input_columns_sql`."""
    types = {each.name: each.type for each in inputs}
    hashed = [f"map_entries({key})" if isinstance(types[key], MapType) else key for key in keys]
    return f"xxhash64({', '.join(hashed)})" if keys else "0L"


def input_type(column: InputColumn) -> str:
    """Return the type of a column in Spark DDL."""
    return "BIGINT" if column.as_ms else column.type.spark


def _text(scalars: Scalars, column: InputColumn, is_key: bool, width: int, guard: str | None) -> str:
    text = scalars.render_sql(column.expression, width, guard)
    of = column.expression.type
    if column.as_ms:
        return scalars.milliseconds(text, of, column.zone)
    if (is_key or column.as_hash) and isinstance(of, FloatingType):  # -0.0 and 0.0 are one key
        text = f"CASE WHEN {text} = 0 THEN CAST(0 AS {of.spark}) ELSE {text} END"
    if column.as_hash:
        return f"xxhash64(array_sort(map_entries({text})))" if isinstance(of, MapType) else f"xxhash64({text})"
    # Maps with the same entries are one key in any order of the entries.
    return f"map_from_entries(array_sort(map_entries({text})))" if is_key and isinstance(of, MapType) else text
