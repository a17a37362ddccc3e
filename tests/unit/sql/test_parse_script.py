"""Scripts: the ends of statements, and the variables in option values."""

from __future__ import annotations

import pytest

from everfold.errors import Span, SqlError, UsageError
from everfold.sql.script import parse_script, resolve_variables
from everfold.sql.statements import Insert, Query


@pytest.mark.parametrize(
    "text", ["", ";", " ;\n; ", "-- only a comment", "/* ; */", "-- no line end;", "// also a comment;\n;"]
)
def test_a_script_without_statements_is_empty(text: str) -> None:
    assert parse_script(text) == ()


def test_semicolons_in_strings_and_comments_do_not_end_a_statement() -> None:
    script = """
      SELECT 'a;b''c;' AS `x;y` -- one; 'two
      FROM t /* three; 'four */ ;
      INSERT INTO s SELECT * FROM t /*+ OPTIONS('a;b' = 'c;') */;
      // five; six
      SELECT 2
    """
    first, second, third = parse_script(script)
    assert isinstance(first, Query)
    assert first.text == first.sql == "SELECT 'a;b''c;' AS `x;y` -- one; 'two\n      FROM t"
    assert isinstance(second, Insert)
    assert second.text == "SELECT * FROM t /*+ OPTIONS('a;b' = 'c;') */"
    assert third.sql == "SELECT 2"
    assert third.span.line == 6


def test_crlf_and_a_byte_order_mark_are_accepted() -> None:
    first, second = parse_script("\ufeffSELECT 1; -- x\r\n\r\nSELECT 2\r\n")
    assert (first.sql, second.sql) == ("SELECT 1", "SELECT 2")
    assert second.span.line == 3


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(UsageError) as error:
        parse_script("SELECT 1", dialect="flnk")
    assert error.value.diagnostics[0].help == "did you mean `flink`?"


def test_variables_are_replaced() -> None:
    variables, environment = {"topic": "bids", "odd": "${topic}"}, {"HOME": "/root"}
    assert resolve_variables("plain $x {y}", variables, environment) == "plain $x {y}"
    assert resolve_variables("${topic}-${env:HOME}-${topic}", variables, environment) == "bids-/root-bids"
    assert resolve_variables("${odd}", variables, environment) == "${topic}"


@pytest.mark.parametrize(
    ("value", "message", "help_text"),
    [
        ("${topc}", "no value was given for the variable `topc`", "did you mean `topic`?"),
        ("${zzz}", "no value was given for the variable `zzz`", "give it with --var zzz=…"),
        ("${env:NOPE}", "the environment has no variable `NOPE`", "export NOPE=…"),
    ],
)
def test_an_unknown_variable_is_refused(value: str, message: str, help_text: str) -> None:
    span = Span(1, 2, "a.sql", "abc")
    with pytest.raises(SqlError) as error:
        resolve_variables(value, {"topic": "bids"}, {}, span)
    (found,) = error.value.diagnostics
    assert (found.code, found.message, found.help, found.span) == ("unknown-variable", message, help_text, span)
