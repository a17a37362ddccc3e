"""Lists in the SQL of the batch engines.

Functions that need the values of a group in their order use them.
"""

from __future__ import annotations

from everfold.aggregates.registry import SqlArguments


def spark_list(over: SqlArguments, nulls: bool = False) -> str:
    """Return the first argument's values as an array in Spark SQL.

    nulls: include NULL values. The array is empty if there are no values.
    """
    (text, *_) = over.texts
    if not nulls:
        values = f"collect_list({text})"
        return f"array_distinct({values})" if over.distinct else values
    wrapped = f"struct({text} AS v)"
    if over.filter_condition is not None:
        wrapped = f"CASE WHEN {over.filter_condition} THEN {wrapped} END"
    rows = f"collect_list({wrapped})"
    return f"transform({f'array_distinct({rows})' if over.distinct else rows}, __e -> __e.v)"


def duckdb_list(over: SqlArguments, nulls: bool = False) -> str:
    """Return the first argument's values as a list in DuckDB SQL.

    nulls: include NULL values. The list is NULL if there are no values.
    """
    (text, *_) = over.texts
    condition = over.filter_condition if nulls else f"{text} IS NOT NULL"
    values = f"list({text})" if condition is None else f"list({text}) FILTER (WHERE {condition})"
    if not over.distinct:
        return values
    before = f"list_filter(({values})[1:i - 1], lambda o: o IS NOT DISTINCT FROM e)"
    return f"list_filter({values}, lambda e, i: len({before}) = 0)"


def spark_last(array: str) -> str:
    """Return the last element of an array in Spark SQL, NULL if the array is empty."""
    return f"get({array}, size({array}) - 1)"


def spark_percentile(ordered: str, share: object, *, counted: bool) -> str:
    """Return the interpolated percentile of a sorted array of DOUBLE in Spark SQL.

    share: the fraction of the values that lie below it. counted: the elements are structs of a
    value `v` and its number of occurrences `n`.
    """
    count = f"aggregate({ordered}, 0L, (__a, __e) -> __a + __e.n)" if counted else f"size({ordered})"
    low, high = "floor(__p)", "ceil(__p)"
    below, above = (_spark_value(ordered, at, counted) for at in (low, high))
    value = f"IF({low} = {high}, {below}, ({high} - __p) * {below} + (__p - {low}) * {above})"
    # The position is bound to a name: in the lambda of `aggregate` it would be computed again for
    # each element.
    return f"get(transform(array(({count} - 1) * {share!r}D + 1), __p -> {value}), 0)"


def _spark_value(ordered: str, position: str, counted: bool) -> str:
    """Return the value at a position, counted from 1, in Spark SQL."""
    if not counted:
        return f"element_at({ordered}, CAST({position} AS INT))"
    begin = "named_struct('n', 0L, 'v', CAST(NULL AS DOUBLE))"
    step = f"named_struct('n', __a.n + __e.n, 'v', IF(__a.n < {position}, __e.v, __a.v))"
    return f"aggregate({ordered}, {begin}, (__a, __e) -> {step}, __a -> __a.v)"


def duckdb_percentile(values: str, share: object) -> str:
    """Return the interpolated percentile of a list of DOUBLE in DuckDB SQL.

    share: the fraction of the values that lie below it. NULL if there are no values.
    """
    ordered, position = f"list_sort({values})", f"((len({values}) - 1) * {share!r}::DOUBLE + 1)"
    low, high = f"floor({position})", f"ceil({position})"
    below, above = (f"{ordered}[CAST({at} AS BIGINT)]" for at in (low, high))
    between = f"({high} - {position}) * {below} + ({position} - {low}) * {above}"
    return f"CASE WHEN {low} = {high} THEN {below} ELSE {between} END"
