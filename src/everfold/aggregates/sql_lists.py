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


def spark_percentile(ordered: str, share: object, *, counted: bool) -> str:
    """Return the value below which such a share of a sorted array of DOUBLE lies, interpolated. counted: its elements are structs of a value `v` and how often it counts, `n`."""
    count = f"aggregate({ordered}, 0L, (__a, __e) -> __a + __e.n)" if counted else f"size({ordered})"
    low, high = "floor(__p)", "ceil(__p)"
    below, above = (_spark_value(ordered, at, counted) for at in (low, high))
    value = f"IF({low} = {high}, {below}, ({high} - __p) * {below} + (__p - {low}) * {above})"
    # The position is bound to a name: in the lambda of `aggregate` it would be computed again for each element.
    return f"get(transform(array(({count} - 1) * {share!r}D + 1), __p -> {value}), 0)"


def _spark_value(ordered: str, position: str, counted: bool) -> str:
    """Return the value at a position, from 1."""
    if not counted:
        return f"element_at({ordered}, CAST({position} AS INT))"
    begin = "named_struct('n', 0L, 'v', CAST(NULL AS DOUBLE))"
    step = f"named_struct('n', __a.n + __e.n, 'v', IF(__a.n < {position}, __e.v, __a.v))"
    return f"aggregate({ordered}, {begin}, (__a, __e) -> {step}, __a -> __a.v)"


def duckdb_percentile(values: str, share: object) -> str:
    """The value below which such a share of a list of DOUBLE lies, interpolated; NULL of no values."""
    ordered, position = f"list_sort({values})", f"((len({values}) - 1) * {share!r}::DOUBLE + 1)"
    low, high = f"floor({position})", f"ceil({position})"
    below, above = (f"{ordered}[CAST({at} AS BIGINT)]" for at in (low, high))
    return f"CASE WHEN {low} = {high} THEN {below} ELSE ({high} - {position}) * {below} + ({position} - {low}) * {above} END"
