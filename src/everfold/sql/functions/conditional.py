"""Conditional functions: CASE, COALESCE, IF and others return one of several values.

The result has the common type of the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from everfold.plan.expressions import Call, Expr
from everfold.sql.functions.coercion import common_type, convert_to, kind, least_restrictive, types_of
from everfold.sql.functions.comparison import build_comparison
from everfold.sql.functions.entry import Args, Function, Typed
from everfold.sql.functions.writer import Writer
from everfold.types import BOOLEAN, NULL, FloatingType


def _case(args: Args) -> Typed | None:
    if len(args) < 3:
        return None
    *pairs, otherwise = args if len(args) % 2 else (*args, _null())
    conditions, values = pairs[::2], [*pairs[1::2], otherwise]
    if any(kind(condition.type) not in ("boolean", "null") for condition in conditions):
        return None
    common = least_restrictive(types_of(values))
    if common is None or common.same_as(NULL):
        return None
    cast = [convert_to(value, common) for value in values]
    flat: list[Expr] = []
    for condition, value in zip(conditions, cast, strict=False):
        flat += [convert_to(condition, BOOLEAN), value]
    return (*flat, cast[-1]), common


def _null() -> Expr:
    from everfold.plan.expressions import Literal

    return Literal(value=None, type=NULL)


def _case_text(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    arms = " ".join(
        f"WHEN {condition} THEN {value}" for condition, value in zip(texts[:-1:2], texts[1::2], strict=True)
    )
    return f"CASE {arms} ELSE {texts[-1]} END"


def _common_rule(args: Args) -> Typed | None:
    common = common_type(types_of(args)) if args else None
    if common is None or common.same_as(NULL):
        return None
    if all(not arg.type.nullable for arg in args[-1:]):
        common = common.as_nullable(False)
    return tuple(convert_to(arg, common) for arg in args), common


def _comparable_rule(args: Args) -> Typed | None:
    typed = _common_rule(args)
    if typed is None or kind(typed[1]) in ("array", "map", "row"):
        return None
    return typed[0], typed[1].as_nullable()


def _if(args: Args) -> Typed | Expr | None:
    if len(args) != 3 or kind(args[0].type) != "boolean" or any(kind(arg.type) == "null" for arg in args):
        return None
    typed = _case(args)
    return None if typed is None else Call(function="CASE", args=typed[0], type=typed[1])


def _nullif(args: Args) -> Expr | None:
    if len(args) != 2:
        return None
    equal = build_comparison("=", *args)
    if equal is None or kind(args[0].type) == "null":
        return None
    value = args[0]
    none = convert_to(_null(), value.type)
    return Call(function="CASE", args=(equal, none, value), type=value.type.as_nullable())


def _extreme(word: str) -> Callable[[Writer, Call, Sequence[str]], str]:
    def write(writer: Writer, call: Call, texts: Sequence[str]) -> str:
        inside = ", ".join(texts)
        if len(texts) == 1:
            return texts[0]
        known = " OR ".join(f"{text} IS NULL" for text in texts)
        if isinstance(call.type, FloatingType) and word == "least":
            # NaN is the greatest number in both engines, and here in Flink too.
            return f"CASE WHEN {known} THEN NULL ELSE least({inside}) END"
        return f"CASE WHEN {known} THEN NULL ELSE {word}({inside}) END"

    return write


FUNCTIONS = (
    Function(
        name="CASE",
        rule=_case,
        spark=_case_text,
        duckdb=_case_text,
        doc="Value of the first condition that is TRUE, or else the last value.",
        usage="CASE WHEN <BOOLEAN> THEN <ANY> … ELSE <ANY> END",
        operator=True,
    ),
    Function(
        name="COALESCE",
        rule=_common_rule,
        spark="coalesce({*})",
        duckdb="coalesce({*})",
        doc="First value that is not NULL.",
        usage="COALESCE(<ANY>, …)",
    ),
    Function(
        name="IFNULL",
        rule=lambda args: _common_rule(args) if len(args) == 2 else None,
        spark="coalesce({*})",
        duckdb="coalesce({*})",
        doc="First value, or the second if the first is NULL.",
        usage="IFNULL(<ANY>, <ANY>)",
    ),
    Function(
        name="NULLIF",
        rule=_nullif,
        spark="",
        duckdb="",
        doc="NULL if both values are equal, otherwise the first.",
        usage="NULLIF(<COMPARABLE>, <COMPARABLE>)",
    ),
    Function(
        name="IF",
        rule=_if,
        spark="",
        duckdb="",
        doc="Second argument if the condition is TRUE, otherwise the third.",
        usage="IF(<BOOLEAN>, <ANY>, <ANY>)",
    ),
    Function(
        name="GREATEST",
        rule=_comparable_rule,
        spark=_extreme("greatest"),
        duckdb=_extreme("greatest"),
        doc="Greatest value; NULL if any is NULL.",
        usage="GREATEST(<COMPARABLE>, …)",
    ),
    Function(
        name="LEAST",
        rule=_comparable_rule,
        spark=_extreme("least"),
        duckdb=_extreme("least"),
        doc="Least value; NULL if any is NULL.",
        usage="LEAST(<COMPARABLE>, …)",
    ),
)
