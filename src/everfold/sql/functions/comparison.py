"""Comparisons: which types can be compared, and in which type.

NaN is as in Java: not equal to anything, not even to itself, and neither less nor greater. In Spark
and DuckDB it is the greatest number. A string is compared with a number in the type of the number,
and with a point in time in the type of the point; a string that is not a point in time is NULL.
As in Flink, `=` and `<>` between a string and a number are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from everfold.plan.expressions import Call, Expr, Literal
from everfold.sql.functions.coercion import convert_to, kind, least_restrictive
from everfold.sql.functions.entry import Args, Function, Rule, Typed
from everfold.sql.functions.writer import Writer
from everfold.types import BOOLEAN, DataType, DecimalType, FloatingType

ORDERED = (
    "boolean",
    "integer",
    "decimal",
    "floating",
    "string",
    "bytes",
    "date",
    "time",
    "timestamp",
    "ltz",
    "millis",
    "months",
)
_NUMBERS = ("integer", "decimal", "floating")
_POINTS = ("date", "time", "timestamp", "ltz")
_NAN_SIDE = {"=": 0, "<>": 0, ">": 0, ">=": 0, "<": 1, "<=": 1, "IS DISTINCT FROM": 0, "IS NOT DISTINCT FROM": 0}
"""The operand (0 or 1) that, if NaN, makes the result of the engines differ from Java's."""


def convert_operands(a: Expr, b: Expr, equality: bool) -> tuple[Expr, Expr] | None:
    """Convert both operands to the type in which they are compared; None if not comparable."""
    left, right = kind(a.type), kind(b.type)
    if left == "null" or right == "null":
        return (convert_to(a, b.type) if left == "null" else a), (convert_to(b, a.type) if left != "null" else b)
    if left == "string" and right != "string":
        other = _from_text(a, b.type, equality)
        return None if other is None else (other, b)
    if right == "string" and left != "string":
        other = _from_text(b, a.type, equality)
        return None if other is None else (a, other)
    if {left, right} == {"timestamp", "ltz"}:
        # An instant and a wall-clock time are compared as instants.
        target = a.type if left == "ltz" else b.type
        return convert_to(a, target), convert_to(b, target)
    if left == right == "string":
        return a, b
    common = least_restrictive([a.type, b.type])
    if common is None or (left in _POINTS and left != right):
        return None
    if isinstance(common, DecimalType) and common.precision == 38:
        # Widening could lose digits; the engines can compare decimals of different scales.
        return a, b
    if left in ("timestamp", "ltz", "time", "bytes"):
        return a, b
    return convert_to(a, common), convert_to(b, common)


def _from_text(text: Expr, other: DataType, equality: bool) -> Expr | None:
    if kind(other) in _NUMBERS and not equality:
        return Call(function="CAST", args=(text,), type=other.as_nullable(), span=text.span)
    if kind(other) in _POINTS:
        return Call(function="TRY_CAST", args=(text,), type=other.as_nullable(), span=text.span)
    return None


def _rule(operator: str) -> Rule:
    equality = operator in ("=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")

    def rule(args: Args) -> Typed | None:
        if len(args) != 2:
            return None
        met = convert_operands(*args, equality=equality)
        if met is None or (not equality and kind(met[0].type) not in (*ORDERED, "null")):
            return None
        return met, BOOLEAN

    return rule


def _may_be_nan(arg: Expr) -> bool:
    return isinstance(arg.type, FloatingType) and not (isinstance(arg, Literal) and arg.value == arg.value)


def _render_comparison(operator: str) -> Callable[[Writer, Call, Sequence[str]], str]:
    def write(writer: Writer, call: Call, texts: Sequence[str]) -> str:
        a, b = texts
        if writer.spark and kind(call.args[0].type) == "map":
            a, b = f"sort_array(map_entries({a}))", f"sort_array(map_entries({b}))"
        # Flink simplifies a comparison of an expression with itself, so NaN is equal there, as
        # in the engines.
        itself = call.args[0] == call.args[1]
        if operator.startswith("IS"):
            distinct = operator == "IS DISTINCT FROM"
            text = f"(NOT ({a} <=> {b}))" if distinct else f"({a} <=> {b})"
            if not writer.spark:
                text = f"({a} {operator} {b})"
            if _may_be_nan(call.args[0]) and _may_be_nan(call.args[1]) and not itself:
                return f"CASE WHEN isnan({a}) THEN {'true' if distinct else 'false'} ELSE {text} END"
            return text
        text = f"({a} {operator} {b})"
        side = _NAN_SIDE[operator]
        if itself or not _may_be_nan(call.args[side]):
            return text
        if operator in ("=", "<>") and not _may_be_nan(call.args[1]):
            return text
        doubtful, other = (a, b) if side == 0 else (b, a)
        answer = f"nullif({other} IS NOT NULL, false)" if operator == "<>" else f"nullif({other} IS NULL, true)"
        return f"CASE WHEN isnan({doubtful}) THEN {answer} ELSE {text} END"

    return write


def _comparison(operator: str, doc: str, *aliases: str) -> Function:
    return Function(
        name=operator,
        aliases=aliases,
        rule=_rule(operator),
        spark=_render_comparison(operator),
        duckdb=_render_comparison(operator),
        doc=doc,
        usage=f"<COMPARABLE> {operator} <COMPARABLE>",
        operator=True,
    )


def build_comparison(operator: str, a: Expr, b: Expr) -> Expr | None:
    """Build a comparison; None if the operands are not comparable."""
    typed = _rule(operator)((a, b))
    return None if typed is None else Call(function=operator, args=typed[0], type=BOOLEAN)  # type: ignore[index]


def join_conditions(operator: str, parts: Sequence[Expr]) -> Expr:
    """Join conditions by AND or OR."""
    whole = parts[0]
    for part in parts[1:]:
        whole = Call(function=operator, args=(whole, part), type=BOOLEAN)
    return whole


def _between(symmetric: bool) -> Rule:
    def rule(args: Args) -> Expr | None:
        if len(args) != 3:
            return None
        value, low, high = args
        ranges = [(low, high), (high, low)] if symmetric else [(low, high)]
        sides: list[Expr] = []
        for least, most in ranges:
            above, below = build_comparison(">=", value, least), build_comparison("<=", value, most)
            if above is None or below is None:
                return None
            sides.append(join_conditions("AND", [above, below]))
        return join_conditions("OR", sides)

    return rule


def _in(args: Args) -> Typed | Expr | None:
    if len(args) < 2:
        return None
    value, *items = args
    if kind(value.type) != "string" and any(kind(item.type) == "string" for item in items):
        typed = [_from_text(item, value.type, False) if kind(item.type) == "string" else item for item in items]
        if any(each is None for each in typed):
            return None
        items = [each for each in typed if each is not None]
    equal = [build_comparison("=", value, item) for item in items]
    if any(each is None for each in equal):
        return None
    common = least_restrictive([value.type, *(item.type for item in items)])
    simple = common is not None and kind(common) not in ("array", "map", "row", "floating", "ltz", "timestamp")
    if common is None or not simple:
        return join_conditions("OR", [each for each in equal if each is not None])
    if kind(common) in ("string", "bytes"):
        return (
            value,
            *(convert_to(item, value.type) if kind(item.type) == "null" else item for item in items),
        ), BOOLEAN
    return tuple(convert_to(each, common) for each in (value, *items)), BOOLEAN


FUNCTIONS = (
    _comparison("=", "Whether the operands are equal."),
    _comparison("<>", "Whether the operands differ.", "!="),
    _comparison("<", "Whether the first operand is less than the second."),
    _comparison("<=", "Whether the first operand is less than or equal to the second."),
    _comparison(">", "Whether the first operand is greater than the second."),
    _comparison(">=", "Whether the first operand is greater than or equal to the second."),
    _comparison("IS DISTINCT FROM", "Whether the operands differ; NULL is compared like any other value."),
    _comparison("IS NOT DISTINCT FROM", "Whether the operands are equal; NULL is compared like any other value."),
    Function(
        name="BETWEEN",
        rule=_between(symmetric=False),
        spark="",
        duckdb="",
        doc="Whether the value is in a range, bounds included.",
        usage="<COMPARABLE> BETWEEN <COMPARABLE> AND <COMPARABLE>",
        operator=True,
    ),
    Function(
        name="BETWEEN SYMMETRIC",
        rule=_between(symmetric=True),
        spark="",
        duckdb="",
        doc="Whether the value is in a range, bounds included and in any order.",
        usage="<COMPARABLE> BETWEEN SYMMETRIC <COMPARABLE> AND <COMPARABLE>",
        operator=True,
    ),
    Function(
        name="IN",
        rule=_in,
        spark="({0} IN ({1*}))",
        duckdb="({0} IN ({1*}))",
        doc="Whether the value is in a list; NULL if it is not and the list contains NULL.",
        usage="<COMPARABLE> IN (<COMPARABLE>, …)",
        operator=True,
    ),
)
