"""Calls of aggregate functions, typed by Flink's rules.

Constants are split from arguments, and clauses become constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from operator import add, mul, sub, truediv

from everfold.aggregates.registry import Aggregate, Distinct, Signature
from everfold.plan.expressions import Call, Expr, Literal
from everfold.plan.nodes import AggCall
from everfold.sql import syntax
from everfold.sql.binder.context import Context
from everfold.sql.functions import build
from everfold.types import (
    ANY,
    BIGINT,
    DOUBLE,
    STRING,
    AnyType,
    ArrayType,
    BytesType,
    DataType,
    DecimalType,
    FloatingType,
    IntegerType,
    NumericType,
)

_JSON = ("JSON_OBJECT", "JSON_ARRAY")
"""Functions whose result is JSON already."""


def bind_call(
    node: syntax.FunctionCall,
    entry: Aggregate,
    bind: Callable[[syntax.Expression], Expr],
    condition: Callable[[syntax.Expression], Expr],
    context: Context,
    order: Sequence[Expr] = (),
    *,
    varying: bool = False,
) -> AggCall:
    """Bind a call of a registered function.

    `bind` binds an argument, `condition` that of FILTER. `order` are the sort keys, for a function
    of the window's order. If `varying`, an argument that otherwise must be constant is treated as
    an ordinary one.

    Raises SqlError `wrong-arguments`, UnsupportedFeature `unsupported-clause`.
    """
    name = node.name
    if node.order:
        raise context.unsupported("unsupported-clause", f"ORDER BY is not supported in `{name}`", node, "leave it out")
    nodes = list(node.arguments)
    if name == "COUNT" and len(nodes) == 1 and isinstance(nodes[0], syntax.Star) and not node.distinct:
        nodes = []
    elif not nodes and (entry.arity[0] or not entry.is_window_function):
        raise context.error(
            "wrong-arguments", f"`{name}` takes an argument", node, "write COUNT(*)" if name == "COUNT" else None
        )
    given = [bind(each) for each in nodes]
    if entry.takes_order_key and not given:
        given = [*order] if len(order) == 1 else [build("ROW", tuple(order), node.span)]
    least, most = entry.arity
    if nodes and not least <= len(nodes) <= most:
        wanted = str(most) if least in (0, most) else f"{least} or {most}"
        raise context.error(
            "wrong-arguments", f"`{name}` takes {wanted} argument{'s' if most > 1 else ''}, not {len(nodes)}", node
        )
    constants = () if varying else _constants(node, entry, given, context)
    args = tuple(each for at, each in enumerate(given) if varying or at != entry.constant)
    of = Signature(tuple(each.type for each in args), tuple(each.value for each in constants))
    result = ANY if any(isinstance(each, AnyType) for each in of.args) else entry.result_type(of)
    if result is None:
        shown = ", ".join(each.type.sql for each in given)
        raise context.error("wrong-arguments", f"`{name}` does not take {shown}", node)
    if node.distinct and entry.distinct is Distinct.REFUSED:
        raise context.error("wrong-arguments", f"`{name}` does not take DISTINCT", node)
    if node.distinct and any(isinstance(each, BytesType) for each in of.args):
        raise context.error("wrong-arguments", f"`{name}(DISTINCT …)` does not take BYTES", node)
    return AggCall(
        function=entry.name,
        args=tuple(_wrap(arg, wrap) for arg, wrap in zip(args, entry.argument_functions, strict=True))
        if entry.argument_functions
        else args,
        type=result,
        constants=constants,
        distinct=node.distinct and entry.distinct is Distinct.APPLIES,
        filter=None if node.filter is None else condition(node.filter),
        span=node.span,
    )


def _constants(node: syntax.FunctionCall, entry: Aggregate, given: list[Expr], context: Context) -> tuple[Literal, ...]:
    clauses: dict[str, str | None] = {option.name: option.value for option in node.options}
    if node.nulls:
        clauses["NULLS"] = node.nulls
    for clause in clauses:
        if clause != entry.clause:
            what = f"{node.nulls} NULLS" if clause == "NULLS" else clause
            raise context.unsupported(
                "unsupported-clause", f"{what} is not supported in `{node.name}`", node, "leave it out"
            )
    if entry.clause is not None:
        return (_literal(clauses.get(entry.clause) or entry.default),)
    if entry.constant is None:
        return ()
    if len(given) <= entry.constant:
        return () if entry.default is None else (_literal(entry.default),)
    at = given[entry.constant]
    known, value = constant_of(at)
    value = entry.constant_value(value) if known else None
    if value is None:
        what = f"argument {entry.constant + 1} of `{node.name}`"
        message = (
            f"{what} must not be `{context.sql(node.arguments[entry.constant])}`"
            if known
            else f"{what} must be a constant"
        )
        raise context.error("wrong-arguments", message, node.arguments[entry.constant])
    return (_literal(value),)


def constant_of(of: Expr) -> tuple[bool, object]:
    """Return whether an expression is a constant, including arithmetic over numbers, and its value.

    The value of an array is a tuple.
    """
    match of:
        case Literal():
            return True, of.value
        case Call(function="CAST", args=(inner, *_)):
            known, value = constant_of(inner)
            if isinstance(value, str) and isinstance(of.type, FloatingType | DecimalType):
                known, value = _parse_number(value)
            return known and not isinstance(value, str), value
        case Call(function="ARRAY"):
            parts = [constant_of(each) for each in of.args]
            return all(known for known, _ in parts), tuple(value for _, value in parts)
        case Call(function=("+" | "-" | "*" | "/" | "UNARY_MINUS" | "ABS") as operator) if isinstance(
            of.type, NumericType
        ):
            parts = [constant_of(each) for each in of.args]
            values = [_to_fraction(value) for _, value in parts]
            if all(known for known, _ in parts) and None not in values:
                return _compute(operator, [each for each in values if each is not None], of.type)
    return False, None


def _parse_number(text: str) -> tuple[bool, object]:
    try:
        return True, float(text)
    except ValueError:
        return False, None


def _to_fraction(value: object) -> Fraction | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return Fraction(value) if not isinstance(value, float) or isfinite(value) else None


def _compute(operator: str, values: Sequence[Fraction], of: DataType) -> tuple[bool, object]:
    """Return the result of an operation over constants, in its type.

    Integers truncate, decimals round half up.
    """
    match operator, values:
        case "/", (_, divisor) if not divisor:
            return False, None
        case _, (one, other):
            by = {"+": add, "-": sub, "*": mul, "/": truediv}[operator]
            result = by(one, other)
        case "ABS", (one,):
            result = abs(one)
        case _:
            result = -values[0]
    if isinstance(of, IntegerType):
        return True, int(result)
    if isinstance(of, DecimalType):
        unit = 10**of.scale
        rounded = (abs(result) * unit * 2 + 1) // 2
        return True, Decimal(int(rounded) if result >= 0 else -int(rounded)).scaleb(-of.scale)
    return True, float(result)


def _literal(value: object) -> Literal:
    of: DataType
    match value:
        case str():
            of = STRING
        case tuple():
            of = ArrayType(element=DOUBLE)
        case int():
            of = BIGINT
        case _:
            of = DOUBLE
    return Literal(type=of, value=value)


def _wrap(arg: Expr, function: str) -> Expr:
    if function == "JSON_STRING" and isinstance(arg, Call) and arg.function in _JSON:
        return arg
    return build(function, (arg,), arg.span)


def refuse_aggregate_clauses(node: syntax.FunctionCall, context: Context) -> None:
    """Raise SqlError `not-an-aggregate` if a call has a clause of aggregate functions."""
    for clause, present in (
        ("DISTINCT", node.distinct),
        ("FILTER", node.filter),
        ("ORDER BY", node.order),
        ("NULLS", node.nulls),
    ):
        if present:
            raise context.error(
                "not-an-aggregate", f"{clause} belongs to aggregate functions, and `{node.name}` is not one", node
            )
