"""The SQL of a map made of its keys and values.

A map has each key once: of equal keys, the last value is kept, as in Flink. Flink's maps may have a
NULL key, but those of Arrow, Spark and DuckDB cannot: such a key fails the job.
"""

from __future__ import annotations

from everfold.sql.functions.writer import Writer


def fail_at_null_key(writer: Writer) -> str:
    """Return SQL that fails the job as a key is NULL."""
    return writer.fail("null-map-key: a key of a MAP is NULL")


def build_map(writer: Writer, keys: str, values: str) -> str:
    """Return the SQL of a map from two arrays of the same length, NULL if one of them is NULL.

    The SQL of both is short, and used several times. A NULL key fails the job with `null-map-key`.
    """
    fail = fail_at_null_key(writer)
    item = writer.new_variable()
    if writer.spark:
        return (
            f"CASE WHEN exists({keys}, {item} -> {item} IS NULL) THEN {fail} ELSE map_from_arrays({keys}, {values}) END"
        )
    first = f"list_filter(range(1, length({keys}) + 1), lambda {item}: list_position({keys}, {keys}[{item}]) = {item})"
    last = f"length({keys}) + 1 - list_position(list_reverse({keys}), {keys}[{item}])"
    kept_keys = f"list_transform({first}, lambda {item}: {keys}[{item}])"
    kept_values = f"list_transform({first}, lambda {item}: {values}[{last}])"
    return (
        f"CASE WHEN {keys} IS NULL OR {values} IS NULL THEN NULL WHEN list_count({keys}) < length({keys}) THEN {fail} "
        f"WHEN list_unique({keys}) = length({keys}) THEN map({keys}, {values}) ELSE map({kept_keys}, {kept_values}) END"
    )
