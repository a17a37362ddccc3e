"""A scalar expression has the same values in memory and on Spark.

The expressions are those of `property.test_scalar_calls`, over rows of the same values without the
largest numbers and the first and last years: there the engines overflow differently. A row that
fails in memory is not compared.
"""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isnan
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from property.test_scalar_calls import TABLE, VALUES, make_expression
from spark.test_worker_expressions import evaluate_in_duckdb

from everfold.errors import EverfoldError
from everfold.plan.expressions import Expr
from everfold.plan.nodes import Scan
from everfold.plan.walk import scans_of
from everfold.sql.binder.expressions import ExpressionBinder
from everfold.sql.binder.queries import create_context
from everfold.sql.binder.scope import Relation
from everfold.sql.catalog import Catalog
from everfold.sql.dialects.flink import parse_expression
from everfold.sql.functions.render import to_spark
from everfold.sql.functions.writer import RenderContext
from everfold.sql.planner import Session, Submit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 60
VARYING = ("RAND", "UUID", "NOW", "CURRENT", "LOCALTIME", "PROCTIME", "UNIX_TIMESTAMP()")
"""Values that differ each time."""
UNEQUAL = ("UNHEX", "STR_TO_MAP")
"""Documented differences between the engines, and patterns that only one of them accepts (`{`)."""


def is_moderate(value: Any) -> bool:
    """Return whether the value is far from the ends of its type."""
    if isinstance(value, float):
        return not abs(value) > 1e30 and not 0 < abs(value) < 1e-30
    if isinstance(value, list):
        return all(is_moderate(each) for each in value)
    if isinstance(value, int | Decimal):
        return -1_000_000 < value < 1_000_000
    if isinstance(value, date):
        return value.year not in (1, 9999)
    return bool(value != "\0")


def read_scan() -> Scan:
    (every,) = (each for each in Session().run(f"{TABLE}; SELECT * FROM t") if isinstance(each, Submit))
    (found,) = scans_of(every.roots)
    return found


SCAN = read_scan()


def make_rows(choose: random.Random) -> pa.Table:
    columns = {}
    for at, (field, values) in enumerate(zip(SCAN.schema, VALUES.values(), strict=True)):
        some = [value for value in values if is_moderate(value)]
        chosen = [None if choose.random() < 0.1 else choose.choice(some) for _ in range(ROWS)]
        columns[f"c{at}"] = pa.array(chosen, field.type.arrow)
    return pa.table(columns)


def bind(text: str) -> Expr | None:
    """Return the expression over the columns of the table, None if it is refused."""
    binder = ExpressionBinder(Relation.of(SCAN, "t"), create_context(Catalog({})), "SELECT")
    try:
        return binder.bind(parse_expression(text))
    except EverfoldError:
        return None


def evaluate_in_memory(rows: pa.Table, expression: Expr) -> dict[int, Any]:
    """Return the values of the rows that do not fail."""

    def evaluate(some: pa.Table) -> list[Any]:
        return [*evaluate_in_duckdb(some, SCAN.schema, [expression]).column(0).to_pylist()]

    try:
        return dict(enumerate(evaluate(rows)))
    except EverfoldError:
        found = {}
        for at in range(rows.num_rows):
            try:
                (found[at],) = evaluate(rows.slice(at, 1))
            except EverfoldError:
                continue
        return found


def normalize(value: Any) -> Any:
    """Return the value so that equal ones compare as equal: NaN, -0.0, instants, maps and rows."""
    match value:
        case float():
            return "NaN" if isnan(value) else float(f"{value + 0.0:.12g}")
        case datetime(tzinfo=zone) if zone is not None:
            return value.astimezone(UTC)
        case list():
            return [normalize(each) for each in value]
        case tuple():
            return tuple(normalize(each) for each in value)
        case dict():
            return {key: normalize(each) for key, each in value.items()}
    return value


def compare(text: str, expression: Expr, rows: pa.Table, frame: DataFrame) -> str | None:
    """Return how the values of an expression differ, None if they do not."""
    from everfold.spark.regex_functions import add_regex_functions

    in_memory = evaluate_in_memory(rows, expression)
    if not in_memory:
        return None
    rendered = to_spark(expression, rows.column_names, RenderContext())
    wanted = frame.where(f"row IN ({', '.join(map(str, in_memory))})")
    add_regex_functions(wanted.sparkSession, rendered)
    found = wanted.selectExpr("row", f"{rendered} AS x").toArrow()
    values = found.column("x").cast(expression.type.arrow).to_pylist()
    for at, value in zip(found.column("row").to_pylist(), values, strict=True):
        if normalize(value) != normalize(in_memory[at]):
            (row,) = rows.slice(at, 1).to_pylist()
            used = {name: row[f"c{nth}"] for nth, name in enumerate(VALUES) if name in text}
            return f"{text} of {used}: {in_memory[at]!r} in memory, {value!r} on Spark"
    return None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_both_engines_return_the_same_values(spark: SparkSession, seed: int) -> None:
    from everfold.spark.session import create_session

    choose = random.Random(seed)
    rows = make_rows(choose)
    session = create_session(spark, 1)
    frame = session.createDataFrame(rows.append_column("row", pa.array(range(ROWS)))).coalesce(1).cache()
    wrong: list[str] = []
    compared = 0
    while compared < 250:
        text = make_expression(choose)
        expression = None if any(name in text for name in (*VARYING, *UNEQUAL)) else bind(text)
        if expression is None:
            continue
        compared += 1
        try:
            wrong += filter(None, [compare(text, expression, rows, frame)])
        except Exception as error:
            wrong.append(f"{text}: {str(error).splitlines()[0][:200]}")
    assert not wrong, "\n".join(wrong)
