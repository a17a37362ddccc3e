"""Random calls of every scalar function and operator, over columns with unusual values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

from flink.questions import Question, Row, Table
from flink.tree import Node
from property.test_scalar_calls import OPERATORS, TYPES, UNITS

from everfold.errors import EverfoldError
from everfold.sql.functions import entries
from everfold.sql.planner import Session

COLUMNS = {
    "i": "INT", "b": "BIGINT", "ti": "TINYINT", "d": "DOUBLE", "f": "FLOAT", "dc": "DECIMAL(20, 6)", "s": "STRING",
    "u": "STRING", "c": "CHAR(3)", "bo": "BOOLEAN", "da": "DATE", "tm": "TIME(0)", "ts": "TIMESTAMP(3)",
    "tl": "TIMESTAMP_LTZ(3)", "ai": "ARRAY<INT>", "ax": "ARRAY<STRING>",
}  # fmt: skip
TEXTS = (
    "", "a", " ", "-1", "1.5", "12", "NaN", "true", "2020-02-29", "2020-02-29 12:30:45", "yyyy-MM-dd", "%", "\\", "[", "(",
    "$.a", '{"a": 1}', "{", "a=1,a=2", "UTC", "+08:00", "é\U0001f600", "\n", "12\n", "ab\r\n", "a\u2028b", "a\u0085", "\t1",
    "1 ", "aGk=", "http://a.b/c?d=e#f", "ABC abc", "a,b,,c", "ſK", "İ", "ß", "1e5", "0x1F", "9223372036854775807",
    "99999999999999999999", "_", "a_b%c", "ab", "[a-z]+", "(a)(b)?", "\\d+", "^a$", "12:30:45", "2020-02-30", "0001-01-01",
    "9999-12-31 23:59:59.999",
)  # fmt: skip
VALUES: dict[str, tuple[str, ...]] = {
    "i": ("0", "1", "-1", "7", "2147483647", "-2147483648"),
    "b": ("0", "1", "-1", "1000000000000", "9223372036854775807", "-9223372036854775808"),
    "ti": ("0", "1", "-1", "127", "-128"),
    "d": ("0.0", "-0.0", "1.5", "-1.0", "2.5", "NaN", "Infinity", "-Infinity", "1.0E308", "4.9E-324", "0.1"),
    "f": ("0.0", "1.5", "-1.0", "NaN", "Infinity", "3.0E38", "0.1", "16777217"),
    "dc": ("0", "1.5", "-1", "99999999999999.999999", "-99999999999999.999999", "0.000001", "2.5", "-2.5"),
    "s": TEXTS,
    "u": TEXTS,
    "c": ("abc", "a  ", "   ", "ab "),
    "bo": ("TRUE", "FALSE"),
    "da": ("0001-01-01", "1970-01-01", "2020-02-29", "9999-12-31", "1969-12-31", "2024-12-30"),
    "tm": ("00:00:00", "12:00:01", "23:59:59"),
    # A part of a day before 1970 is rounded otherwise by Flink (docs/differences.md).
    "ts": ("0001-01-03 00:00:00.000", "1969-12-31 00:00:00.000", "2020-02-29 12:30:45.123", "9999-12-30 23:59:59.999"),
    "tl": ("1970-01-01 00:00:00.000Z", "2020-03-08 12:00:00.000Z", "1969-12-31 00:00:00.000Z"),
    "ai": ("[]", "[1]", "[null]", "[3, 1, null, 2147483647]", "[1, 1]"),
    "ax": ("[]", '["a"]', '[null, ""]', '["a", "a", "b"]'),
}
"""Cells of each column."""
CONSTANTS = (
    "0", "1", "-1", "2", "1.5", "2147483647", "TRUE", "''", "'a'", "'%'", "'$.a'", "'UTC'", "'yyyy-MM-dd'", "','", "'\\d'",
    "'a.*'", "DATE '2020-01-01'", "TIMESTAMP '2020-01-01 00:00:00'", "INTERVAL '1' DAY", "INTERVAL '1' MONTH", "ARRAY[1]",
    "MAP['a', 1]", "CAST(s AS BYTES)", "MAP[s, i]",
)  # fmt: skip
VARYING = frozenset(
    {
        "NOW", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIME", "CURRENT_ROW_TIMESTAMP",
        "PROCTIME", "UUID", "RAND", "RAND_INTEGER", "UNIX_TIMESTAMP", "CURRENT_DATABASE",
    }
)  # fmt: skip
"""Functions whose value depends on when or where they are called."""
ROWS, CALLS, OPERATIONS, TRIES = 10, 2, 60, 300
_DDL = f"CREATE TABLE t (id INT, {', '.join(f'{name} {of}' for name, of in COLUMNS.items())})"


def ask_all(seed: int) -> Iterator[Question]:
    """Yield questions about some calls of each function, and some of the operators."""
    choose = Random(seed)
    names = [entry.name for entry in entries() if not entry.operator and entry.name not in VARYING]
    expressions = [call for name in names for call in _make_calls(choose, name)]
    operations: dict[str, None] = {}
    while len(operations) < OPERATIONS:
        expression = choose.choice(OPERATORS).format(
            *_choose_arguments(choose), unit=choose.choice(UNITS), type=choose.choice(TYPES)
        )
        if _is_accepted(expression):
            operations[expression] = None
    for number, expression in enumerate([*expressions, *operations]):
        yield _ask(expression, [_make_row(choose, id) for id in range(ROWS)], number)


def _make_calls(choose: Random, name: str) -> list[str]:
    """Return some calls of a function that everfold accepts: none if it has a syntax of its own."""
    calls: dict[str, None] = {}
    for _ in range(TRIES):
        if len(calls) == CALLS:
            break
        arguments = _choose_arguments(choose)[: choose.choice((0, 1, 1, 1, 2, 2, 2, 3, 3, 4))]
        call = f"{name}({', '.join(arguments)})"
        if call not in calls and _is_accepted(call):
            calls[call] = None
    return list(calls)


def _choose_arguments(choose: Random) -> list[str]:
    return [choose.choice([*COLUMNS]) if choose.random() < 0.75 else choose.choice(CONSTANTS) for _ in range(4)]


def _is_accepted(expression: str) -> bool:
    try:
        list(Session().run(f"{_DDL}; SELECT id, {expression} AS v FROM t"))
    except EverfoldError:
        return False
    return True


def _make_row(choose: Random, id: int) -> Row:
    cells = (None if choose.random() < 0.1 else choose.choice(VALUES[name]) for name in COLUMNS)
    return ("+I", str(id), *cells)


def _ask(expression: str, rows: list[Row], number: int) -> Question:
    columns = (("id", "INT"), *COLUMNS.items())
    words = set(re.findall(r"\w+", re.sub(r"'[^']*'", "", expression)))
    table = Table("t", columns, tuple(rows)).keep(["id", *(name for name in COLUMNS if name in words)])
    return Question(f"call {number}", Node(f"SELECT id, {expression} AS v FROM t"), (table,), ("batch",))
