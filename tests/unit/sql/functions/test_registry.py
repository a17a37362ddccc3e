"""Calls are found, typed and refused; constants survive both engines; long expressions have short
SQL.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pytest

from everfold.errors import Span, SqlError, UnsupportedFeature
from everfold.plan.expression_text import canonical_text
from everfold.plan.expressions import Call, Expr, InputRef, Literal
from everfold.sql.functions import (
    build,
    cast,
    common_type,
    entries,
    implicit_cast,
    is_deterministic,
    least_restrictive,
    lookup,
    names,
    type_of_literal,
)
from everfold.sql.functions.render import to_duckdb, to_spark
from everfold.sql.functions.writer import RenderContext, fixed_offset_minutes, is_utc
from everfold.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    NULL,
    SMALLINT,
    STRING,
    TIMESTAMP3,
    TIMESTAMP_LTZ3,
    TINYINT,
    ArrayType,
    DataType,
    DecimalType,
    StringType,
    TimestampType,
)

MONEY = DecimalType(precision=10, scale=2)
TEXTS = [
    "",
    "it's",
    "back\\slash",
    "\\'",
    "a\nb\tc\r",
    '"quoted"',
    "日本 😀",
    "$1 {0} %s {zone} {t}",
    "\\u0041",
    "--;/*",
    "\x01\x02",
]
CONSTANTS: list[tuple[object, DataType]] = [
    (None, INT),
    (None, ArrayType(element=STRING)),
    (True, BOOLEAN),
    (-128, TINYINT),
    (-32768, SMALLINT),
    (-(1 << 31), INT),
    ((1 << 63) - 1, BIGINT),
    (-(1 << 63), BIGINT),
    (Decimal("-12345678.90"), MONEY),
    (Decimal("1E-10"), DecimalType(precision=38, scale=10)),
    (0.1, DOUBLE),
    (1e300, DOUBLE),
    (-1.5e-7, DOUBLE),
    (float("inf"), DOUBLE),
    (float("-inf"), DOUBLE),
    (1.5, FLOAT),
    (b"\x00'\\\xff", BYTES),
    (b"", BYTES),
    (date(1, 1, 1), DATE),
    (date(9999, 12, 31), DATE),
    (datetime(2020, 4, 15, 8, 5, 7, 123456), TimestampType(precision=6)),
    (datetime(99, 1, 1), TIMESTAMP3),
    *((text, STRING) for text in TEXTS),
]


def column(type_: DataType, position: int = 0) -> Expr:
    return InputRef(type=type_, position=position)


def value(of: object) -> Expr:
    return Literal(value=of, type=type_of_literal(of))


@cache
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def run_in_duckdb(expr: Expr) -> Any:
    found = connection().execute(f"SELECT {to_duckdb(expr, [])}").fetchone()
    assert found is not None
    return found[0]


@pytest.mark.parametrize(("constant", "type_"), CONSTANTS, ids=repr)
def test_constants_are_evaluated_unchanged_in_duckdb(constant: object, type_: DataType) -> None:
    assert run_in_duckdb(Literal(value=constant, type=type_)) == constant


def test_nan_is_nan_in_duckdb() -> None:
    found = run_in_duckdb(Literal(value=float("nan"), type=DOUBLE))
    assert found != found


def test_a_string_may_contain_nul() -> None:
    assert run_in_duckdb(value("a\0b")) == "a\0b"


def test_constants_are_rendered_for_spark() -> None:
    assert to_spark(value("a'b\\c\n"), []) == "'a\\'b\\\\c\\n'"
    assert to_spark(Literal(value=-(1 << 63), type=BIGINT), []) == "(-9223372036854775807L - 1L)"
    assert (
        to_spark(Literal(value=datetime(2020, 4, 15), type=TIMESTAMP_LTZ3), [])
        == "TIMESTAMP_LTZ'2020-04-15 00:00:00.000000'"
    )


@pytest.mark.parametrize(
    ("constant", "name"),
    [
        ("abc", "CHAR(3)"),
        ("", "CHAR(0)"),
        ("😀", "CHAR(2)"),
        (7, "INT"),
        (-(1 << 31), "INT"),
        (1 << 31, "BIGINT"),
        (Decimal("1.50"), "DECIMAL(3, 2)"),
        (Decimal("0.5"), "DECIMAL(1, 1)"),
        (1e3, "DOUBLE"),
        (True, "BOOLEAN"),
        (b"ab", "BINARY(2)"),
        (None, "NULL"),
    ],
)
def test_types_of_constants(constant: object, name: str) -> None:
    assert type_of_literal(constant).sql == name
    assert type_of_literal(constant).nullable is (constant is None)


def test_a_number_too_large_is_refused() -> None:
    with pytest.raises(SqlError) as caught:
        type_of_literal(1 << 63)
    assert caught.value.code == "wrong-literal"


def test_an_unknown_function_names_the_nearest() -> None:
    with pytest.raises(SqlError) as caught:
        build("UPER", (value("a"),))
    assert caught.value.code == "unknown-function"
    assert caught.value.diagnostics[0].help == "did you mean `UPPER`?"


def test_wrong_arguments_show_types_and_usage() -> None:
    with pytest.raises(SqlError) as caught:
        build("SUBSTRING", (value(1), value("a")))
    assert caught.value.code == "wrong-arguments"
    assert "`SUBSTRING` does not take (INT, CHAR(1))" in caught.value.diagnostics[0].message
    assert caught.value.diagnostics[0].help == "it takes SUBSTRING(<STRING> FROM <INT> [FOR <INT>])"


def test_equality_of_string_and_number_is_refused() -> None:
    with pytest.raises(SqlError) as caught:
        build("=", (column(INT), value("42")))
    assert caught.value.code == "wrong-arguments"


def test_a_wrong_cast_suggests_an_alternative() -> None:
    with pytest.raises(SqlError) as caught:
        cast(column(BIGINT), TIMESTAMP_LTZ3)
    assert caught.value.code == "wrong-cast"
    assert caught.value.diagnostics[0].help is not None
    assert "TO_TIMESTAMP_LTZ" in caught.value.diagnostics[0].help


def test_a_cast_to_the_same_type_is_removed() -> None:
    assert cast(column(INT), INT) == column(INT)
    assert canonical_text(cast(column(INT), STRING), ["t.x"]) == "CAST(t.x AS STRING)"


def test_implicit_casts() -> None:
    assert canonical_text(implicit_cast(column(INT), BIGINT), ["t.x"]) == "CAST(t.x AS BIGINT)"
    assert implicit_cast(value(7), MONEY) == Literal(value=Decimal("7.00"), type=MONEY.as_nullable(False))
    assert implicit_cast(Literal(value=None, type=NULL), STRING) == Literal(value=None, type=STRING)
    with pytest.raises(SqlError) as caught:
        implicit_cast(column(STRING), INT)
    assert caught.value.code == "wrong-cast"


def test_common_types() -> None:
    assert common_type([INT, BIGINT, TINYINT]) == BIGINT
    assert common_type([INT, DecimalType(precision=3, scale=1)]) == DecimalType(precision=11, scale=1)
    assert common_type([StringType(length=2, fixed=True), StringType(length=2, fixed=True)]) == StringType(
        length=2, fixed=True
    )
    assert common_type([StringType(length=2, fixed=True), StringType(length=5)]) == StringType(length=5)
    assert common_type([FLOAT, DOUBLE]) == DOUBLE
    assert least_restrictive([FLOAT, DOUBLE]) == FLOAT
    assert common_type([INT, STRING]) is None
    assert common_type([DATE, TIMESTAMP3]) is None
    assert common_type([]) == NULL.as_nullable(False)


def test_a_function_that_an_engine_lacks_is_refused() -> None:
    call = build("SHA512", (column(STRING),))
    assert to_spark(call, ["c0"]) == "sha2(c0, 512)"
    with pytest.raises(UnsupportedFeature) as caught:
        to_duckdb(call, ["c0"])
    assert "`SHA512` is not supported on DuckDB" in str(caught.value)


@pytest.mark.parametrize("pattern", ["a(?=b)", "a(?<!b)", r"(a)\1", "a++", r"\p{Alpha}"])
def test_a_regular_expression_that_re2_lacks_is_refused_in_memory(pattern: str) -> None:
    call = build("REGEXP", (column(STRING), value(pattern)))
    assert re.search("RLIKE|everfold_regexp_find", to_spark(call, ["c0"]))
    with pytest.raises(UnsupportedFeature, match="DuckDB does not know the pattern: "):
        to_duckdb(call, ["c0"])


def test_every_entry_has_documentation_and_usage() -> None:
    assert len(names()) > 150
    for entry in entries():
        assert entry.doc.endswith("."), entry.name
        assert entry.usage, entry.name
        assert lookup(entry.name) is entry


def test_random_functions_are_not_deterministic() -> None:
    assert not is_deterministic("UUID")
    assert is_deterministic("UPPER")


def test_nested_calls_have_short_sql() -> None:
    expr = column(MONEY)
    for _ in range(12):
        expr = cast(build("/", (expr, column(MONEY))), MONEY)
    for text in (to_spark(expr, ["c0"]), to_duckdb(expr, ["c0"])):
        assert len(text) < 40_000
    found = connection().execute(f"SELECT {to_duckdb(expr, ['c0'])} FROM (SELECT CAST(2 AS DECIMAL(10,2)) AS c0)")
    assert found.fetchone() == (Decimal("0.01"),)
    expr = Literal(value=Decimal(2), type=MONEY)
    for _ in range(6):
        expr = cast(build("/", (value(Decimal("1.00")), cast(cast(expr, STRING), MONEY))), MONEY)
    assert run_in_duckdb(expr) == Decimal("2.00")


def test_failures_at_run_time_carry_a_code() -> None:
    with pytest.raises(duckdb.InvalidInputException, match=r"everfold\[cast-failed\]: 'x' is not a valid INT"):
        run_in_duckdb(cast(value("x"), INT))
    with pytest.raises(duckdb.InvalidInputException, match=r"everfold\[division-by-zero\]"):
        run_in_duckdb(build("/", (value(1), value(0))))


def test_failures_at_run_time_name_the_expression_and_its_position() -> None:
    script = "SELECT 1,\n  a /\n    (b - 5) FROM t"
    span = Span(script.index("a /"), script.index(" FROM"), "q.sql", script)
    quotient = replace(build("/", (column(INT), build("-", (column(INT), value(5))))), span=span)
    for text in (to_spark(quotient, ["c0"]), to_duckdb(quotient, ["c0"])):
        assert "everfold[division-by-zero]: Division by zero in `a / (b - 5)` at q.sql:2:3" in text
    # An expression without a position has that of the one around it.
    inner = replace(build("+", (build("/", (column(INT), column(INT))), value(1))), span=span)
    assert "in `a / (b - 5)` at q.sql:2:3" in to_duckdb(inner, ["c0"])


def test_a_long_expression_is_shortened_in_a_failure() -> None:
    script = "a / " + "b" * 100
    found = to_duckdb(replace(build("/", (column(INT), column(INT))), span=Span(0, 104, "q.sql", script)), ["c0"])
    assert f"in `a / {'b' * 55}…` at q.sql:1:1" in found


def test_the_string_that_a_cast_fails_on_is_quoted() -> None:
    for text, shown in (("", "''"), ("it's", "'it's'"), ("a\nb", "'a b'"), ("x" * 80, f"'{'x' * 60}'")):
        with pytest.raises(duckdb.InvalidInputException, match=rf"everfold\[cast-failed\]: {shown} is not a valid INT"):
            run_in_duckdb(cast(value(text), INT))


def test_a_branch_not_taken_does_not_fail() -> None:
    guarded = build("CASE", (build("<>", (column(INT), value(0))), build("/", (value(10), column(INT))), value(-1)))
    text = to_duckdb(guarded, ["c0"])
    found = connection().execute(f"SELECT {text} FROM (VALUES (0), (3), (NULL)) AS t(c0) ORDER BY c0").fetchall()
    assert found == [(-1,), (3,), (-1,)]


def test_now_comes_from_the_context() -> None:
    call = build("CURRENT_TIMESTAMP", ())
    assert "current_timestamp()" in to_spark(call, [])
    at = RenderContext(now="TIMESTAMP '2020-04-15 20:05:07.123456'", zone="Asia/Shanghai")
    (instant, day) = (to_duckdb(build(name, ()), [], at) for name in ("CURRENT_TIMESTAMP", "CURRENT_DATE"))
    found = connection().execute(f"SELECT {instant}, {day}").fetchone()
    assert found == (datetime(2020, 4, 15, 20, 5, 7, 123000), date(2020, 4, 16))


def test_utc_and_fixed_offsets_are_recognized() -> None:
    assert is_utc("UTC")
    assert is_utc("+00:00")
    assert fixed_offset_minutes("GMT-8") == -480
    assert fixed_offset_minutes("+05:30") == 330
    assert fixed_offset_minutes("Europe/Berlin") is None


def test_types_that_differ_only_in_nullability_need_no_cast() -> None:
    assert build("COALESCE", (column(INT), value(1))) == Call(
        function="COALESCE", args=(column(INT), value(1)), type=INT.as_nullable(False)
    )
