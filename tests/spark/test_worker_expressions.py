"""Expressions that workers may evaluate have exactly the same values in DuckDB and in Spark SQL.

Each allowed form is evaluated by both engines over all pairs of edge values of its types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from everfold.errors import SqlError
from everfold.memory.duck import Duck
from everfold.plan.expressions import Call, Expr, InputRef, Literal
from everfold.plan.worker_expressions import reason_not_in_worker
from everfold.spark.scalar import Scalars
from everfold.sql.functions import build, cast
from everfold.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    STRING,
    DataType,
    DateType,
    DecimalType,
    Field,
    FloatType,
    IntegerType,
    IntervalType,
    Schema,
    SmallIntType,
    StringType,
    TimestampType,
    TimeType,
    TinyIntType,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
TESTS = ("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS UNKNOWN", "IS NOT UNKNOWN")
NAN, INFINITY = float("nan"), float("inf")


def decimal(precision: int, scale: int) -> DecimalType:
    return DecimalType(precision=precision, scale=scale)


def edges_of(of: DataType) -> list[Any]:
    """Return the edge values of a type, None among them."""
    match of:
        case IntegerType(bits=bits):
            half = 1 << bits - 1
            return [None, -half, -half + 1, -7, -1, 0, 1, 2, 7, half - 2, half - 1]
        case DecimalType(precision=precision, scale=scale):
            units = {0, 1, 5, 15, 10**scale, 10**precision - 1, 10 ** (precision - 1)}
            texts = [f"{sign}{unit}E-{scale}" for unit in sorted(units) if unit < 10**precision for sign in ("", "-")]
            return [None, *map(Decimal, texts)]
        case StringType():
            texts = [
                "",
                " ",
                "a",
                "a ",
                "A",
                "ab",
                "%",
                "_",
                "\\",
                "a\0b",
                "\x01",
                "é",
                "e\u0301",
                "ß",
                "\U0001f926\u200d",
                "\ufffd",
                "a\nb",
            ]
            return [None, *texts]
        case DateType():
            return [
                None,
                *map(
                    date.fromisoformat,
                    ("0001-01-01", "1582-10-04", "1582-10-15", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31"),
                ),
            ]
        case TimeType():
            return [None, 0, 1, 86_399_999]
        case IntervalType():
            return [None, -(1 << 31), -1, 0, 1, (1 << 31) - 1]
        case TimestampType():
            times = (
                "0001-01-01",
                "1582-10-04T12:00:00",
                "1582-10-15",
                "1969-12-31T23:59:59.999999",
                "1969-12-31T23:59:59.999",
                "1970-01-01",
                "1970-01-01T00:00:00.000001",
                "2024-02-29T23:59:59.999",
                "9999-12-31T23:59:59.999999",
            )
            return [None, *map(datetime.fromisoformat, times)]
    others: dict[str, list[Any]] = {
        "BOOLEAN": [None, True, False],
        "DOUBLE": [None, NAN, -INFINITY, INFINITY, -0.0, 0.0, 5e-324, -1.5, 0.1, 1.7976931348623157e308, 2.0**53 + 2],
        "FLOAT": [None, NAN, -INFINITY, INFINITY, -0.0, 0.0, 1.5, -2.0**-149, 3.4028234663852886e38],
    }  # fmt: skip
    return others[of.sql]


def constants_of(of: DataType) -> list[Expr]:
    return [Literal(value=value, type=of) for value in edges_of(of)]


EDGED: tuple[DataType, ...] = (
    BOOLEAN, TinyIntType(), SmallIntType(), INT, BIGINT, FloatType(), DOUBLE, decimal(1, 0), decimal(5, 5), decimal(9, 2),
    decimal(18, 4), decimal(18, 18), decimal(30, 10), decimal(38, 0), decimal(38, 38), STRING, StringType(length=3), DateType(), TimeType(precision=3),
    TimestampType(precision=3), TimestampType(precision=6), IntervalType(), IntervalType(months=True),
)  # fmt: skip


UNITS = (
    *("MILLENNIUM", "CENTURY", "DECADE", "YEAR", "ISOYEAR", "QUARTER", "MONTH", "WEEK", "DOY", "DAY", "DOW", "ISODOW"),
    *("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND", "NANOSECOND", "EPOCH"),
)
OF_POINTS = {"EXTRACT", "FLOOR_TO", "CEIL_TO", "TIMESTAMPDIFF"}
"""Functions of points in time that workers may evaluate."""
DATE_PATTERNS = (
    *("yyyy", "MM", "dd", "HH", "mm", "ss", "SSS", "yyyyMMddHHmmssSSS", "yyyy-MM-dd HH:mm:ss.SSS", "dd.MM.yyyy, HH_mm"),
    *(
        "y",
        "yy",
        "M",
        "MMM",
        "d",
        "D",
        "H",
        "h",
        "m",
        "s",
        "S",
        "SS",
        "SSSSSS",
        "a",
        "E",
        "EEEE",
        "Q",
        "",
        "-",
        "/",
        "'T'",
    ),
)
"""Patterns of DATE_FORMAT; those that workers may not evaluate are left out by the test."""


def forms_of(of: DataType) -> Iterator[Expr]:
    """Yield the forms over two columns of a type, a condition among them."""
    a, b = InputRef(type=of, position=0), InputRef(type=of, position=1)
    constants = constants_of(of)
    yield from constants
    for operator in COMPARISONS:
        yield build(operator, (a, b))
        yield build(operator, (a, a))
        yield from (build(operator, (a, each)) for each in constants)
        yield from (build(operator, (each, a)) for each in constants)
    yield build("IS NULL", (a,))
    yield build("IS NOT NULL", (a,))
    less, same = build("<", (a, b)), build("=", (a, b))
    for operator in ("AND", "OR"):
        yield build(operator, (less, same))
        yield build(operator, (build("IS NULL", (a,)), less))
    yield build("NOT", (less,))
    yield from (build(each, (less,)) for each in TESTS)
    yield build("IN", (a, *constants))
    yield build("IN", (a, *constants[1:3]))
    yield build("IN", (a, b, *constants[1:2]))
    yield build("CASE", (less, a, same, constants[1], b))
    yield build("NULLIF", (a, b))
    yield build("COALESCE", (a, b))
    yield build("IFNULL", (a, constants[1]))
    yield build("BETWEEN", (a, constants[1], b))
    for operator in ("+", "-", "*", "/", "%"):
        yield from try_build(operator, (a, b))
        for constant in constants:
            yield from try_build(operator, (a, constant))
            yield from try_build(operator, (constant, a))
    yield from try_build("UNARY_MINUS", (a,))
    yield from try_build("||", (a, b))
    if isinstance(of, StringType):
        yield build("CONCAT", (a, b, a))
        for pattern in ("", "a", "a%", "%b", "_", "%_%", "a_b", "\\%", "%\\", ".", "%\n%", "e_", "(", "[ab]"):
            yield build("LIKE", (a, Literal(value=pattern, type=STRING)))
            yield build("NOT", (build("LIKE", (a, Literal(value=pattern, type=STRING))),))
    if isinstance(of, TimestampType):
        for millis in (0, 1, -1, 1000, -86_400_000, 100 * 366 * 86_400_000):
            interval = Literal(value=millis, type=IntervalType())
            safe = build("CASE", (build("BETWEEN", (a, constants[2], constants[-2])), a, constants[0]))
            yield build("+", (safe, interval))
            yield build("-", (safe, interval))
    if isinstance(of, TimestampType | DateType | TimeType | IntervalType):
        for unit in UNITS:
            yield from try_build("EXTRACT", (Literal(value=unit, type=STRING), a))
            yield from try_build("FLOOR_TO", (a, Literal(value=unit, type=STRING)))
            yield from try_build("CEIL_TO", (a, Literal(value=unit, type=STRING)))
            yield from try_build("TIMESTAMPDIFF", (Literal(value=unit, type=STRING), a, b))
    if isinstance(of, TimestampType):
        for pattern in DATE_PATTERNS:
            yield build("DATE_FORMAT", (a, Literal(value=pattern, type=STRING)))
    for other in EDGED:
        if other.sql != of.sql:
            with suppress(SqlError):
                yield cast(a, other)
        if isinstance(of, DecimalType | IntegerType) and isinstance(other, DecimalType | IntegerType):
            one = Literal(value=1, type=other)
            if isinstance(other, DecimalType):
                one = Literal(value=Decimal(1).scaleb(-other.scale), type=other)
            for operator in ("=", "<", "+", "-", "*", "COALESCE"):
                yield from try_build(operator, (a, one))


def try_build(name: str, args: tuple[Expr, ...]) -> Iterator[Expr]:
    """Yield the call if the function takes such arguments."""
    with suppress(SqlError):
        yield build(name, args)


def evaluate_in_duckdb(rows: pa.Table, schema: Schema, expressions: Sequence[Expr]) -> pa.Table:
    duck = Duck("UTC", 0)
    relation = duck.project(duck.register_table(rows, schema), expressions, len(schema))
    return duck.rows(relation, Schema(tuple(Field(name="x", type=each.type) for each in expressions)))


def describe(values: pa.ChunkedArray) -> list[str]:
    """Return values as strings that tell -0.0 from 0.0, and compare NaN as equal.

    Points in time are numbers, since Python has no year 10000.
    """
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    elif pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    return [repr(value) for value in values.to_pylist()]


QUICK = ("INT", "STRING", "DOUBLE", "TIMESTAMP(3)")
"""The types whose values are compared in `make test`; all are in `make test-all`."""


@pytest.mark.parametrize(
    "of", [pytest.param(of, id=of.sql, marks=[] if of.sql in QUICK else [pytest.mark.slow]) for of in EDGED]
)
def test_both_engines_return_the_same_values(spark: SparkSession, of: DataType) -> None:
    from everfold.spark.session import create_session

    session = create_session(spark, 1)
    edges = edges_of(of)
    pairs = list(product(edges, edges))
    rows = pa.table(
        {"c0": pa.array([one for one, _ in pairs], of.arrow), "c1": pa.array([two for _, two in pairs], of.arrow)}
    )
    schema = Schema((Field(name="a", type=of), Field(name="b", type=of)))
    expressions = [each for each in forms_of(of) if reason_not_in_worker(each) is None]
    assert {"=", "IN", "CASE", "COALESCE", "IS NULL", "NOT"} - {"IN"} <= {
        each.function for each in expressions if isinstance(each, Call)
    }
    if isinstance(of, TimestampType | DateType):
        assert {each.function for each in expressions if isinstance(each, Call)} >= OF_POINTS
    frame = session.createDataFrame(rows).coalesce(1)
    wrong: list[str] = []
    for some in (expressions[at : at + 50] for at in range(0, len(expressions), 50)):
        in_duckdb = evaluate_in_duckdb(rows, schema, some)
        texts = [Scalars(session, "UTC").render_sql(each, 2) for each in some]
        in_spark = frame.selectExpr(*texts).toArrow()
        for at, each in enumerate(some):
            found, expected = describe(in_duckdb.column(at)), describe(in_spark.column(at).cast(each.type.arrow))
            differ = [nth for nth in range(len(pairs)) if found[nth] != expected[nth]]
            wrong += [f"{texts[at]} of {pairs[nth]}: {found[nth]}, not {expected[nth]}" for nth in differ[:3]]
    assert not wrong, "\n".join(wrong)


CALLS_OF_OTHER_ENGINES = (
    build("/", (InputRef(type=INT, position=0), InputRef(type=INT, position=1))),
    build("+", (InputRef(type=DOUBLE, position=0), InputRef(type=DOUBLE, position=1))),
    build("/", (InputRef(type=decimal(9, 2), position=0), Literal(value=Decimal(3), type=decimal(1, 0)))),
    cast(InputRef(type=STRING, position=0), INT),
    cast(InputRef(type=DOUBLE, position=0), INT),
    build("UPPER", (InputRef(type=STRING, position=0),)),
    build("DATE_FORMAT", (InputRef(type=STRING, position=0), Literal(value="yyyy", type=STRING))),
    build(
        "DATE_FORMAT", (InputRef(type=TimestampType(local_zone=True), position=0), Literal(value="yyyy", type=STRING))
    ),
    *(
        build("DATE_FORMAT", (InputRef(type=TimestampType(), position=0), Literal(value=each, type=STRING)))
        for each in ("", "-", "yyyy-MMM", "yyyyy", "'at' HH", "[HH]", "h a")
    ),
    build("CURRENT_TIMESTAMP", ()),
    build("IS NULL", (InputRef(type=TimestampType(local_zone=True), position=0),)),
)


@pytest.mark.parametrize("expression", CALLS_OF_OTHER_ENGINES, ids=lambda each: each.function)
def test_what_is_not_proven_has_a_reason(expression: Call) -> None:
    assert reason_not_in_worker(expression) is not None
