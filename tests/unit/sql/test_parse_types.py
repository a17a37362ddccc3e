"""Types of DDL and CAST."""

from __future__ import annotations

import pytest

from everfold.errors import SqlError, UnsupportedFeature
from everfold.sql import syntax
from everfold.sql.dialects.flink import parse_expression
from everfold.sql.script import parse_script
from everfold.sql.statements import CreateTable, PhysicalColumn


@pytest.mark.parametrize(
    ("sql", "canonical"),
    [
        ("CHAR", "CHAR(1)"),
        ("CHAR(5)", "CHAR(5)"),
        ("CHARACTER VARYING(5)", "VARCHAR(5)"),
        ("VARCHAR", "VARCHAR(1)"),
        ("VARCHAR(2147483647)", "STRING"),
        ("STRING", "STRING"),
        ("BOOLEAN", "BOOLEAN"),
        ("BINARY", "BINARY(1)"),
        ("BINARY(3)", "BINARY(3)"),
        ("VARBINARY", "VARBINARY(1)"),
        ("BINARY VARYING(4)", "VARBINARY(4)"),
        ("BYTES", "BYTES"),
        ("DECIMAL", "DECIMAL(10, 0)"),
        ("DEC(5)", "DECIMAL(5, 0)"),
        ("NUMERIC(38, 18)", "DECIMAL(38, 18)"),
        ("TINYINT", "TINYINT"),
        ("SMALLINT", "SMALLINT"),
        ("INT", "INT"),
        ("INTEGER", "INT"),
        ("bigint", "BIGINT"),
        ("FLOAT", "FLOAT"),
        ("DOUBLE", "DOUBLE"),
        ("DOUBLE PRECISION", "DOUBLE"),
        ("DATE", "DATE"),
        ("TIME", "TIME(0)"),
        ("TIME(3) WITHOUT TIME ZONE", "TIME(3)"),
        ("TIMESTAMP", "TIMESTAMP(6)"),
        ("TIMESTAMP(3)", "TIMESTAMP(3)"),
        ("TIMESTAMP(0) WITHOUT TIME ZONE", "TIMESTAMP(0)"),
        ("TIMESTAMP_LTZ", "TIMESTAMP_LTZ(6)"),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(3)"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP_LTZ(3)"),
        ("INTERVAL YEAR", "INTERVAL YEAR TO MONTH"),
        ("INTERVAL YEAR(4) TO MONTH", "INTERVAL YEAR TO MONTH"),
        ("INTERVAL DAY(3) TO SECOND(3)", "INTERVAL DAY TO SECOND(3)"),
        ("INTERVAL MINUTE TO SECOND", "INTERVAL DAY TO SECOND(3)"),
        ("ARRAY<INT NOT NULL>", "ARRAY<INT NOT NULL>"),
        ("INT ARRAY", "ARRAY<INT>"),
        ("INT ARRAY NOT NULL ARRAY", "ARRAY<ARRAY<INT> NOT NULL>"),
        ("MULTISET<STRING>", "MULTISET<STRING>"),
        ("STRING MULTISET", "MULTISET<STRING>"),
        ("MAP<STRING, ARRAY<MAP<INT, DOUBLE>>>", "MAP<STRING, ARRAY<MAP<INT, DOUBLE>>>"),
        (
            "ROW<a INT, `b c` STRING NOT NULL 'a comment', user ROW<x DATE>>",
            "ROW<`a` INT, `b c` STRING NOT NULL, `user` ROW<`x` DATE>>",
        ),
        ("ROW(a INT, b STRING)", "ROW<`a` INT, `b` STRING>"),
        ("INT NULL", "INT"),
        ("INT NOT NULL", "INT NOT NULL"),
    ],
)
def test_a_type_has_a_canonical_string(sql: str, canonical: str) -> None:
    cast = parse_expression(f"CAST(x AS {sql})")
    assert isinstance(cast, syntax.Cast)
    assert str(cast.type) == canonical
    (table,) = parse_script(f"CREATE TABLE t (a {sql}, b INT)")
    assert isinstance(table, CreateTable)
    column = table.columns[0]
    assert isinstance(column, PhysicalColumn)
    assert column.type == cast.type
    assert column.type_span.text[column.type_span.start : column.type_span.end] == sql
    again = parse_expression(f"CAST(x AS {cast.type})")
    assert isinstance(again, syntax.Cast)
    assert again.type == cast.type


@pytest.mark.parametrize(
    ("sql", "code", "message", "position"),
    [
        ("STRNG", "unknown-type", "no data type is named `STRNG`", "STRNG"),
        ("`my`.`type`", "unknown-type", "no data type is named `my.type`", "`my`.`type`"),
        ("ARRAY<INTT>", "unknown-type", "no data type is named `INTT`", "INTT"),
        ("DECIMAL(39, 2)", "wrong-type", "the precision is between 1 and 38, found 39", "39"),
        ("DECIMAL(5, 6)", "wrong-type", "the scale is between 0 and 5, found 6", "6"),
        ("CHAR(0)", "wrong-type", "the length is between 1 and 2147483647, found 0", "0"),
        ("TIME(10)", "wrong-type", "the precision is between 0 and 9, found 10", "10"),
        ("TIMESTAMP(10)", "wrong-type", "the precision is between 0 and 9, found 10", "10"),
        (
            "TIMESTAMP(9)",
            "timestamp-precision",
            "a precision of 9 is not supported: everfold keeps microseconds",
            "TIMESTAMP(9)",
        ),
        (
            "TIMESTAMP_LTZ(7)",
            "timestamp-precision",
            "a precision of 7 is not supported: everfold keeps microseconds",
            "TIMESTAMP_LTZ(7)",
        ),
        (
            "TIMESTAMP(3) WITH TIME ZONE",
            "unsupported-type",
            "the type TIMESTAMP WITH TIME ZONE is not supported",
            "TIMESTAMP(3) WITH TIME ZONE",
        ),
        ("RAW('a', 'b')", "unsupported-type", "the type RAW is not supported", "RAW"),
        ("ROW<a INT, a STRING>", "wrong-type", "the ROW has two fields named `a`", "a"),
        ("ROW<INT, STRING>", "syntax", "expected the type of the field `INT`, found `,`", ","),
        ("INTERVAL SECOND TO DAY", "wrong-type", "there is no INTERVAL SECOND TO DAY", "INTERVAL SECOND TO DAY"),
        ("MAP<INT>", "syntax", "expected `,`, found `>`", ">"),
        ("DECIMAL(x)", "syntax", "expected a precision, which is a whole number, found `x`", "x"),
        ("'INT'", "syntax", "expected a data type, found the string 'INT'", "'INT'"),
    ],
)
def test_wrong_types_are_refused(sql: str, code: str, message: str, position: str) -> None:
    with pytest.raises(SqlError) as error:
        parse_expression(f"CAST(y AS {sql})")
    (found,) = error.value.diagnostics
    assert (found.code, found.message) == (code, message)
    assert found.span is not None
    assert found.span.text[found.span.start : found.span.end] == position
    assert isinstance(error.value, UnsupportedFeature) == (code in ("unsupported-type", "timestamp-precision"))


def test_an_unknown_type_names_the_nearest() -> None:
    with pytest.raises(SqlError) as error:
        parse_expression("CAST(y AS STRNG)")
    assert error.value.diagnostics[0].help == "did you mean `STRING`?"
