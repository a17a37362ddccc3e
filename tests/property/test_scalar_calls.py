"""A scalar expression over any values returns a value, or fails with an error that has a code.

The calls are random: functions of the registry and operators, with columns and constants as their
arguments. Calls that the binder refuses do not count.
"""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from everfold.errors import EverfoldError
from everfold.memory.pipeline import MemoryPipeline
from everfold.plan.nodes import Collect
from everfold.sql.functions import entries
from everfold.sql.planner import Session, Submit

TABLE = """CREATE TABLE t (
  i INT, b BIGINT, ti TINYINT, d DOUBLE, f FLOAT, dc DECIMAL(38, 10), s STRING, c CHAR(3), bo BOOLEAN, bs BYTES,
  da DATE, tm TIME(3), ts TIMESTAMP(6), tl TIMESTAMP_LTZ(3), ai ARRAY<INT>, texts ARRAY<STRING>, m MAP<STRING, INT>,
  r ROW<x INT, y STRING>
)"""
LARGE = "9" * 28 + "." + "9" * 10
VALUES: dict[str, list[Any]] = {
    "i": [0, 1, -1, 7, 2**31 - 1, -(2**31)],
    "b": [0, 1, -1, 10**12, 2**63 - 1, -(2**63)],
    "ti": [0, 1, -1, 127, -128],
    "d": [0.0, -0.0, 1.5, -1.0, float("nan"), float("inf"), float("-inf"), 1e308, 1e-320],
    "f": [0.0, 1.5, -1.0, float("nan"), float("inf"), 3e38],
    "dc": [Decimal(0), Decimal("1.5"), Decimal(-1), Decimal(LARGE), Decimal(f"-{LARGE}"), Decimal("0.0000000001")],
    "s": ["", "a", " ", "-1", "1.5", "NaN", "true", "2020-02-29", "2020-02-29 12:30:45", "yyyy-MM-dd", "%", "\\", "[",
          "(", "a(?=b)", "$.a", '{"a": 1}', "{", "a=1,a=2", "UTC", "+08:00", "Nowhere", "é\U0001f600", "\0", "\n",
          "aGk=", "http://a.b/c?d=e"],
    "c": ["abc", "a  ", "   "],
    "bo": [True, False],
    "bs": [b"", b"a", b"\xff\xfe"],
    "da": [date(1, 1, 1), date(1970, 1, 1), date(2020, 2, 29), date(9999, 12, 31)],
    "tm": [0, 43_200_001, 86_399_999],
    "ts": [datetime(1, 1, 1), datetime(2020, 2, 29, 12, 30, 45, 123456), datetime(9999, 12, 31, 23, 59, 59, 999999)],
    "tl": [datetime(1970, 1, 1, tzinfo=UTC), datetime(2020, 3, 8, 12, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)],
    "ai": [[], [1], [None], [3, 1, None, 2**31 - 1], [1, 1]],
    "texts": [[], ["a"], [None, ""], ["a", "a", "b"]],
    "m": [[], [("a", 1)], [("", None), ("b", 2)]],
    "r": [{"x": None, "y": None}, {"x": 1, "y": "a"}],
}  # fmt: skip
CONSTANTS = (
    "NULL", "0", "1", "-1", "1.5", "2147483647", "9223372036854775807", "CAST('NaN' AS DOUBLE)", "TRUE",
    "''", "'a'", "'%'", "'['", "'$.a'", "'UTC'", "'yyyy'",
    "DATE '2020-01-01'", "TIMESTAMP '2020-01-01 00:00:00'", "INTERVAL '1' DAY", "INTERVAL '1' MONTH", "ARRAY[1]",
)  # fmt: skip
UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND")
TYPES = (
    "TINYINT", "INT", "BIGINT", "DOUBLE", "FLOAT", "DECIMAL(5, 2)", "DECIMAL(38, 18)", "STRING", "CHAR(2)", "VARCHAR(3)",
    "BOOLEAN", "BYTES", "BINARY(2)", "DATE", "TIME", "TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", "ARRAY<STRING>",
    "ARRAY<BIGINT>", "MAP<STRING, STRING>", "MAP<INT, INT>", "ROW<a STRING, b STRING>", "ROW<a INT, b INT>",
)  # fmt: skip
OPERATORS = (
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / {1}", "{0} % {1}", "-{0}", "{0} || {1}", "{0} = {1}", "{0} < {1}",
    "{0} IS DISTINCT FROM {1}", "{0} BETWEEN {1} AND {2}", "{0} BETWEEN SYMMETRIC {1} AND {2}", "{0} IN ({1}, {2})",
    "{0} AND {1}", "{0} OR NOT {1}", "{0} IS TRUE", "{0} LIKE {1}", "{0} LIKE {1} ESCAPE '!'", "{0} IS JSON ARRAY",
    "CASE WHEN {0} THEN {1} ELSE {2} END", "CASE {0} WHEN {1} THEN {2} END", "({0}, {1}) OVERLAPS ({2}, {3})",
    "EXTRACT({unit} FROM {0})", "FLOOR({0} TO {unit})", "CEIL({0} TO {unit})", "TIMESTAMPADD({unit}, {0}, {1})",
    "TIMESTAMPDIFF({unit}, {0}, {1})", "CAST({0} AS {type})", "TRY_CAST({0} AS {type})", "POSITION({0} IN {1})",
    "SUBSTRING({0} FROM {1} FOR {2})", "OVERLAY({0} PLACING {1} FROM {2} FOR {3})", "TRIM(BOTH {0} FROM {1})",
    "JSON_VALUE({0}, '$.a' RETURNING DOUBLE)", "JSON_QUERY({0}, 'lax $.a')", "JSON_EXISTS({0}, 'strict $.a')",
    "ARRAY[{0}, {1}]", "MAP[{0}, {1}, {2}, {3}]", "ROW({0}, {1})", "{0}[{1}]",
)  # fmt: skip
ROWS = 5


def make_expression(choose: random.Random) -> str:
    """Return a random expression, which may have wrong types."""
    arguments = [choose.choice([*VALUES] if choose.random() < 0.8 else CONSTANTS) for _ in range(4)]
    if choose.random() < 0.4:
        return choose.choice(OPERATORS).format(*arguments, unit=choose.choice(UNITS), type=choose.choice(TYPES))
    name = choose.choice([entry.name for entry in entries() if not entry.operator])
    return f"{name}({', '.join(arguments[: choose.choice((0, 1, 1, 1, 2, 2, 2, 3, 3, 4))])})"


def bind(expression: str) -> MemoryPipeline | None:
    """Return a pipeline that computes the expression, None if it is refused."""
    try:
        (query,) = (
            each for each in Session().run(f"{TABLE}; SELECT {expression}, t.* FROM t") if isinstance(each, Submit)
        )
        return MemoryPipeline(query.roots[0], query.settings)
    except EverfoldError:
        return None


def make_row(choose: random.Random, types: list[pa.DataType]) -> pa.Table:
    values = [None if choose.random() < 0.2 else choose.choice(found) for found in VALUES.values()]
    return pa.table({f"c{at}": pa.array([value], types[at]) for at, value in enumerate(values)})


def check(seed: int, calls: int) -> None:
    choose = random.Random(seed)
    (every,) = (each for each in Session().run(f"{TABLE}; SELECT * FROM t") if isinstance(each, Submit))
    root = every.roots[0]
    assert isinstance(root, Collect)
    types = [each.type for each in root.input.schema.arrow]
    computed = 0
    while computed < calls:
        expression = make_expression(choose)
        pipeline = bind(expression)
        if pipeline is None:
            continue
        computed += 1
        for _ in range(ROWS):
            row = make_row(choose, types)
            try:
                pipeline.feed({"t": row}, now_ms=0)
            except EverfoldError:
                pipeline = bind(expression)
                assert pipeline is not None
            except Exception as error:
                raise AssertionError(f"{expression} over {row.to_pylist()[0]}: {error}") from error


def test_any_values() -> None:
    check(seed=1, calls=60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 10))
def test_many_values(seed: int) -> None:
    check(seed, calls=200)
