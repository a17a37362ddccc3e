"""Flink's answers and everfold's: the data of the function tests.

`answers/<family>.txt` holds expressions over the one row below with the type and the value that
Flink 2.3 returned: `expression => TYPE => value`, or `expression => error`. A first line `#zone Z`
names the session time zone.

`differences.txt` lists where everfold differs, what it does instead, and why:
`expression => engines => ours => why`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from everfold.errors import EverfoldError
from everfold.plan.expressions import Expr
from everfold.plan.nodes import Scan, Table, TableColumn
from everfold.rendering import cells
from everfold.sql.binder.expressions import ExpressionBinder
from everfold.sql.binder.queries import create_context
from everfold.sql.binder.scope import Relation
from everfold.sql.catalog import Catalog
from everfold.sql.dialects.flink import parse_expression, parse_type
from everfold.sql.functions.render import to_duckdb, to_spark
from everfold.sql.functions.writer import RenderContext
from everfold.types import ArrayType, DataType, MapType, RowType

HERE = Path(__file__).parent
ROW: dict[str, tuple[str, str | None]] = {
    "b": ("BOOLEAN", "true"),
    "ti": ("TINYINT", "7"),
    "si": ("SMALLINT", "-300"),
    "i": ("INT", "42"),
    "bi": ("BIGINT", "10000000000"),
    "f": ("FLOAT", "1.5"),
    "d": ("DOUBLE", "-2.25"),
    "de": ("DECIMAL(10,2)", "123.45"),
    "s": ("STRING", "Hello World"),
    "c": ("CHAR(5)", "abc"),
    "v": ("VARCHAR(10)", " trim me "),
    "by": ("BYTES", "48656c6c6f"),
    "dt": ("DATE", "2020-02-29"),
    "tm": ("TIME", "08:05:07"),
    "ts": ("TIMESTAMP(3)", "2020-04-15 08:05:07.123"),
    "ts6": ("TIMESTAMP(6)", "2020-04-15 08:05:07.123456"),
    "ltz": ("TIMESTAMP_LTZ(3)", "2020-04-15 08:05:07.123Z"),
    "ai": ("ARRAY<INT>", "[3,1,null,2,1]"),
    "ast": ("ARRAY<STRING>", '["b","a","b"]'),
    "m": ("MAP<STRING,INT>", '{"k":1,"l":2}'),
    "r": ("ROW<a INT, b STRING>", '{"a":5,"b":"x"}'),
    "ni": ("INT", None),
    "nb": ("BOOLEAN", None),
    "nd": ("DOUBLE", None),
    "ns": ("STRING", None),
    "nde": ("DECIMAL(10,2)", None),
    "nts": ("TIMESTAMP(3)", None),
    "ndt": ("DATE", None),
    "j": ("STRING", '{"a": {"b": 12, "c": [1, "two", null, {"d": true}]}, "s": "text", "n": null, "f": 1.50}'),
    "big": ("BIGINT", "9223372036854775807"),
    "maxi": ("INT", "2147483647"),
    "nan": ("DOUBLE", "NaN"),
    "negz": ("DOUBLE", "-0.0"),
    "neg": ("INT", "-7"),
}
COLUMNS = [f"c{at}" for at in range(len(ROW))]
_TYPE_NAMES = {"INTERVAL DAY TO SECOND(3)": "INTERVAL SECOND(3)", "INTERVAL YEAR TO MONTH": "INTERVAL MONTH"}


@dataclass(frozen=True)
class Answer:
    """An expression, its session time zone, and the outcome: `TYPE => value` or `error`."""

    family: str
    expression: str
    outcome: str
    zone: str = "UTC"


@cache
def types() -> dict[str, DataType]:
    """Return the columns' types."""
    return {name: parse_type(type_) for name, (type_, _) in ROW.items()}


@cache
def row() -> pa.Table:
    """Return the row, in the physical form of every engine."""
    arrays = [pa.array([cells.read(ROW[name][1], type_)], type_.arrow) for name, type_ in types().items()]
    return pa.table(dict(zip(COLUMNS, arrays, strict=True)))


def bind(expression: str) -> Expr:
    """Return the typed expression over the row. Raises SqlError."""
    table = Table(name="t", columns=tuple(TableColumn(name=name, type=type_) for name, type_ in types().items()))
    binder = ExpressionBinder(Relation.of(Scan(table=table), "t"), create_context(Catalog({})), "SELECT")
    return binder.bind(parse_expression(expression))


@cache
def answers() -> tuple[Answer, ...]:
    """Return all of Flink's answers."""
    found = []
    for file in sorted((HERE / "answers").glob("*.txt")):
        zone = "UTC"
        for line in file.read_text().splitlines():
            if line.startswith("#zone "):
                zone = line.split()[1]
                continue
            expression, _, outcome = line.partition(" => ")
            found.append(Answer(file.stem, expression, outcome, zone))
    return tuple(found)


@cache
def differences() -> dict[tuple[str, str], str]:
    """Map (expression, engine) to what everfold does instead."""
    found = {}
    for line in (HERE / "differences.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            expression, engines, ours, _ = line.split(" => ", 3)
            for engine in engines.split(", "):
                found[expression, engine] = ours.replace(" -> ", " => ")
    return found


def expected_outcome(answer: Answer, engine: str) -> str:
    """Return the outcome that is expected of the engine: Flink's, except for a
    listed difference.
    """
    return differences().get((answer.expression, engine), answer.outcome)


def is_outcome(expected: str, outcome: str) -> bool:
    """Return whether an outcome is the expected one.

    Where Flink fails, everfold may refuse the expression or fail at run time.
    """
    if expected == "error":
        return outcome.startswith(("refused", "fails"))
    return outcome == expected


def format_value(value: Any, type_: DataType) -> str:
    """Return `TYPE => value`."""
    name = _TYPE_NAMES.get(type_.sql, type_.sql)
    text = value if isinstance(value, str) else cells.write(value, type_)
    if text is not None and isinstance(type_, ArrayType | MapType | RowType):
        text = " ".join(text.split())
    return f"{name} => {'NULL' if text is None else text}"


def format_refusal(error: EverfoldError) -> str:
    """Return the outcome of a refused expression, with its code."""
    return f"refused {error.code}"


def format_failure(error: Exception) -> str:
    """Return the outcome of a failure at run time, with the code that everfold assigned."""
    code = re.search(r"everfold\[([\w-]+)\]", str(error))
    return f"fails {code.group(1)}" if code else f"engine error: {error}"


Evaluate = Callable[[Sequence[str]], Sequence[Any]]
"""Map SQL strings of expressions to their values; raises what the engine raises."""


def outcomes_of(family: str, engine: str, evaluate: Evaluate) -> dict[str, str]:
    """Return everfold's outcome for each expression of a family."""
    asked = [answer for answer in answers() if answer.family == family]
    return dict(zip((each.expression for each in asked), outcomes(asked, engine, evaluate), strict=True))


def outcomes(asked: Sequence[Answer], engine: str, evaluate: Evaluate) -> list[str]:
    """Return everfold's outcome for each expression.

    Expressions with an expected value are evaluated together, and in halves if the engine raises.
    """
    found: list[str] = [""] * len(asked)
    ready: list[tuple[int, str, DataType, bool]] = []
    for at, answer in enumerate(asked):
        context = RenderContext(zone=answer.zone)
        try:
            expr = bind(answer.expression)
            text = (to_spark if engine == "spark" else to_duckdb)(expr, COLUMNS, context)
        except EverfoldError as error:
            found[at] = format_refusal(error)
            continue
        ready.append((at, text, expr.type, "=>" in expected_outcome(answer, engine)))

    def run(part: Sequence[tuple[int, str, DataType, bool]]) -> None:
        if not part:
            return
        try:
            values = evaluate([text for _, text, _, _ in part])
        except Exception as error:
            if len(part) == 1:
                found[part[0][0]] = format_failure(error)
                return
            run(part[: len(part) // 2])
            run(part[len(part) // 2 :])
            return
        for (at, _, type_, _), value in zip(part, values, strict=True):
            found[at] = format_value(value, type_)

    run([each for each in ready if each[3]])
    for each in ready:
        if not each[3]:
            run([each])
    return found
