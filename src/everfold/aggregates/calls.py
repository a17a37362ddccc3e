"""Aggregate calls of a plan as their functions see them.

That is their signature, their arguments, the effect of FILTER, and their SQL for the batch engines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from everfold.aggregates.distinct import OverDistinct
from everfold.aggregates.python import OverDistinctRows, PythonAggregate, create_python_entry
from everfold.aggregates.registry import Aggregate, Distinct, NotInBatchEngine, Signature, SqlArguments, lookup
from everfold.errors import UnsupportedFeature
from everfold.plan.expressions import Call, Expr, Literal
from everfold.plan.nodes import AggCall
from everfold.types import BOOLEAN

_KNOWN = BOOLEAN.as_nullable(False)


def entry_of(call: AggCall) -> Aggregate:
    """Return the function of a call."""
    if call.python is not None:
        return create_python_entry(call.python, call.type, call.span)
    entry = lookup(call.function)
    assert entry is not None, call.function
    return entry


def signature_of(call: AggCall, retracting: bool = False) -> Signature:
    """Return the signature of a call."""
    args = tuple(arg.type for arg in call.args)
    return Signature(args, tuple(each.value for each in call.constants), retracting)


def looks_up_row(call: AggCall) -> bool:
    """Return whether a window call is LAG or LEAD with a distance that differs from row to row.

    Its value is that of one other row, and it has no slots.
    """
    return call.function in ("LAG", "LEAD") and not call.constants


def is_distinct(call: AggCall) -> bool:
    """Return whether the call's function sees each value once."""
    return call.distinct and entry_of(call).distinct is Distinct.APPLIES


def make_distinct(entry: Aggregate) -> Aggregate:
    """Return the function over distinct values."""
    return OverDistinctRows(entry) if isinstance(entry, PythonAggregate) else OverDistinct(entry)


def arguments_of(call: AggCall) -> tuple[Expr, ...]:
    """Return the arguments that a call's kernels get.

    An argument is NULL where FILTER excludes the row, unless the function counts NULL (see
    `filter_condition_of`). COUNT(*) with FILTER gets a boolean argument this way.
    """
    if call.filter is None or not entry_of(call).skips_nulls:
        return call.args
    if not call.args:
        return (_guard(call.filter, Literal(type=BOOLEAN, value=True)),)
    return tuple(_guard(call.filter, arg) for arg in call.args)


def filter_condition_of(call: AggCall) -> Expr | None:
    """Return the FILTER condition of a call, None if it is already part of the arguments."""
    return None if call.filter is None or entry_of(call).skips_nulls else call.filter


def argument_columns(
    call: AggCall, arguments: Sequence[Expr], column: Callable[[Expr], str], hash_of: Callable[[Expr], str]
) -> tuple[str, ...]:
    """Return the columns that a call's kernels get.

    `column` returns the column of an expression and `hash_of` that of its hash. A function that
    takes hashes also gets whether each value is not NULL, since NULL has a hash too.
    """
    if not entry_of(call).takes_hashes:
        return tuple(map(column, arguments))
    pairs = ((hash_of(each), column(Call(type=_KNOWN, function="IS NOT NULL", args=(each,)))) for each in arguments)
    return tuple(name for pair in pairs for name in pair)


def write_spark_call(call: AggCall, text: Callable[[Expr], str]) -> str:
    """Return the call in Spark SQL; `text` writes an expression.

    Raises UnsupportedFeature if Spark cannot compute what Flink does.
    """
    return _write_call(call, text, "Spark", entry_of(call).spark_sql)


def write_duckdb_call(call: AggCall, text: Callable[[Expr], str]) -> str:
    """Return the call in DuckDB SQL; `text` writes an expression.

    Raises UnsupportedFeature if DuckDB cannot compute what Flink does.
    """
    return _write_call(call, text, "the memory engine", entry_of(call).duckdb_sql)


def _write_call(
    call: AggCall, text: Callable[[Expr], str], engine: str, write: Callable[[Signature, SqlArguments], str]
) -> str:
    kept = filter_condition_of(call)
    texts = tuple(map(text, arguments_of(call)))
    over = SqlArguments(texts, is_distinct(call), None if kept is None else text(kept))
    try:
        return write(signature_of(call), over)
    except NotInBatchEngine as error:
        what = f"`{call.function}` does not run in batch on {engine}: {error}"
        raise UnsupportedFeature.of("unsupported-aggregate", what, call.span) from None


def _guard(condition: Expr, value: Expr) -> Expr:
    kept = value.type.as_nullable()
    return Call(type=kept, function="CASE", args=(condition, value, Literal(type=kept, value=None)))
