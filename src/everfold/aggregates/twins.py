"""Lists in the batch twins: what both engines write where a function needs the values of a group in their order."""

from __future__ import annotations

from everfold.aggregates.registry import Over


def spark_list(over: Over, nulls: bool = False) -> str:
    """The first argument's values as an array in Spark; with `nulls` also those that are NULL. Empty if there is none."""
    (text, *_) = over.texts
    if not nulls:
        values = f"collect_list({text})"
        return f"array_distinct({values})" if over.distinct else values
    wrapped = f"struct({text} AS v)"
    rows = f"collect_list({wrapped if over.kept is None else f'CASE WHEN {over.kept} THEN {wrapped} END'})"
    return f"transform({f'array_distinct({rows})' if over.distinct else rows}, __e -> __e.v)"


def duckdb_list(over: Over, nulls: bool = False) -> str:
    """The first argument's values as a list in DuckDB; with `nulls` also those that are NULL. NULL if there is none."""
    (text, *_) = over.texts
    condition = over.kept if nulls else f"{text} IS NOT NULL"
    values = f"list({text})" if condition is None else f"list({text}) FILTER (WHERE {condition})"
    if not over.distinct:
        return values
    before = f"list_filter(({values})[1:i - 1], lambda o: o IS NOT DISTINCT FROM e)"
    return f"list_filter({values}, lambda e, i: len({before}) = 0)"


def spark_last(array: str) -> str:
    """The last element, NULL of an empty array."""
    return f"get({array}, size({array}) - 1)"


def spark_text(text: str) -> str:
    """A text literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def duckdb_text(text: str) -> str:
    """A text literal."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def duckdb_percentile(values: str, share: object) -> str:
    """The value below which such a share of a list of DOUBLE lies, interpolated; NULL of no values."""
    ordered, position = f"list_sort({values})", f"((len({values}) - 1) * {share!r}::DOUBLE + 1)"
    low, high = f"floor({position})", f"ceil({position})"
    below, above = (f"{ordered}[CAST({at} AS BIGINT)]" for at in (low, high))
    return f"CASE WHEN {low} = {high} THEN {below} ELSE ({high} - {position}) * {below} + ({position} - {low}) * {above} END"
