"""Which expressions Spark's Python workers may evaluate with DuckDB instead of Catalyst.

An expression is allowed if both engines return exactly the same value for every input and neither
can fail. `tests/spark/test_worker_expressions.py` evaluates each allowed form in both engines over
edge values. Everything else is evaluated by Catalyst.

Columns are allowed in every type, because a column alone is passed on without any engine.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from everfold.plan.expressions import Call, Expr, InputRef, Literal, PythonCall
from everfold.types import (
    MAX_DECIMAL_PRECISION,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FloatingType,
    IntegerType,
    IntervalType,
    StringType,
    TimestampType,
    TimeType,
)

_MAX_EXACT_DIGITS = 34
"""Digits of a decimal that Spark negates exactly."""
_FIELDS = frozenset(("yyyy", "MM", "dd", "HH", "mm", "ss", "SSS"))
"""Fields of a pattern for points in time that both engines write with the same digits."""
_PUNCTUATION = frozenset(" -:/.,_")
"""Characters of such a pattern that stand for themselves."""
_MAX_SHIFT_MS = 100 * 366 * 86_400_000
"""Longest interval that is added to a point in time: results of real times stay in range."""


def reason_not_in_worker(expression: Expr) -> str | None:
    """Return why a worker must not evaluate the expression, None if it may."""
    if isinstance(expression, InputRef):
        return None
    return _reason(expression)


def _reason(expression: Expr) -> str | None:
    match expression:
        case PythonCall():
            return f"`{expression.function}` is a Python function"
        case InputRef() | Literal():
            return None if _is_simple(expression.type) else f"type {expression.type.sql}"
        case Call():
            allowed = _ALLOWED.get(expression.function)
            if allowed is None:
                return f"function `{expression.function}`"
            for arg in expression.args:
                reason = _reason(arg)
                if reason is not None:
                    return reason
            return (
                None if _is_simple(expression.type) and allowed(expression) else f"this form of `{expression.function}`"
            )
    raise AssertionError(expression)


def _is_simple(of: DataType) -> bool:
    """Return whether values of a type are the same in Arrow, DuckDB and Spark."""
    match of:
        case TimestampType(local_zone=local_zone):
            return not local_zone
        case BooleanType() | IntegerType() | DecimalType() | FloatingType():
            return True
        case StringType() | DateType() | TimeType() | IntervalType():
            return True
    return False


def _always(call: Call) -> bool:
    return True


def _is_same_type(*types: DataType) -> bool:
    """Return whether types are equal, except for nullability and the length of strings."""
    first, *others = types
    if isinstance(first, StringType):
        return all(isinstance(other, StringType) for other in others)
    if isinstance(first, TimestampType | TimeType):
        return all(type(other) is type(first) for other in others)
    return all(other.same_as(first) for other in others)


def _compares_equal_types(call: Call) -> bool:
    return _is_same_type(*(arg.type for arg in call.args))


def _is_list_of_equal_types(call: Call) -> bool:
    # NaN is rendered for comparisons, not for IN.
    return _compares_equal_types(call) and not isinstance(call.args[0].type, FloatingType)


def _returns_equal_types(call: Call) -> bool:
    return all(_is_same_type(call.type, arg.type) for arg in call.args)


def _is_case_of_equal_types(call: Call) -> bool:
    values = (*call.args[1:-1:2], call.args[-1])
    return all(_is_same_type(call.type, value.type) for value in values)


def _is_exact_arithmetic(call: Call) -> bool:
    """Return whether a sum, difference or product wraps (integers) or always fits (decimals)."""
    match call.type:
        case IntegerType():
            return _returns_equal_types(call)
        case DecimalType(precision=precision):
            return precision < MAX_DECIMAL_PRECISION and _has_decimals(call)
    return False


def _has_decimals(call: Call) -> bool:
    return all(isinstance(arg.type, DecimalType) for arg in call.args)


def _is_division_by_constant(call: Call) -> bool:
    divisor = call.args[1]
    known = isinstance(divisor, Literal) and bool(divisor.value)
    return known and isinstance(call.type, IntegerType) and _is_same_type(*(arg.type for arg in call.args))


def _is_exact_negation(call: Call) -> bool:
    match call.type:
        case IntegerType():
            return True
        case DecimalType(precision=precision):
            return precision <= _MAX_EXACT_DIGITS
    return False


def _is_lossless_cast(call: Call) -> bool:
    match call.args[0].type, call.type:
        case IntegerType(), IntegerType():
            return True
        case IntegerType(digits=digits), DecimalType() as to:
            return to.precision - to.scale >= digits
        case DecimalType() as of, DecimalType() as to:
            return to.scale >= of.scale and to.precision - to.scale >= of.precision - of.scale
        case StringType() as of, StringType() as to:
            return not to.fixed and to.length >= of.length
        case TimestampType() as of, TimestampType() as to:
            return to.precision >= of.precision
    return call.args[0].type.same_as(call.type)


def _is_constant_shift(call: Call) -> bool:
    """Return whether a constant time is added to a TIMESTAMP."""
    point, interval = call.args
    return (
        isinstance(point.type, TimestampType)
        and isinstance(interval, Literal)
        and isinstance(interval.value, int)
        and isinstance(interval.type, IntervalType)
        and not interval.type.months
        and abs(interval.value) <= _MAX_SHIFT_MS
    )


def _has_constant_pattern(call: Call) -> bool:
    """Return whether the pattern of a LIKE is a constant, without ESCAPE."""
    pattern = call.args[1]
    return len(call.args) == 2 and isinstance(pattern, Literal) and "\x01" not in str(pattern.value)


def _is_of_point(call: Call) -> bool:
    """Return whether all arguments are DATEs, TIMESTAMPs or constants."""
    return all(isinstance(arg, Literal) or isinstance(arg.type, DateType | TimestampType) for arg in call.args)


def _formats_digits(call: Call) -> bool:
    """Return whether a TIMESTAMP is formatted by a constant pattern of fields and punctuation."""
    point, pattern = call.args
    if not isinstance(point.type, TimestampType) or not isinstance(pattern, Literal):
        return False
    runs = {letter * len([*run]) for letter, run in groupby(str(pattern.value)) if letter not in _PUNCTUATION}
    return bool(runs) and runs <= _FIELDS


_ALLOWED: dict[str, Callable[[Call], bool]] = {
    **dict.fromkeys(
        ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"), _compares_equal_types
    ),
    **dict.fromkeys(("AND", "OR", "NOT", "IS NULL", "IS NOT NULL"), _always),
    **dict.fromkeys(("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS UNKNOWN", "IS NOT UNKNOWN"), _always),
    "IN": _is_list_of_equal_types,
    "CASE": _is_case_of_equal_types,
    **dict.fromkeys(("COALESCE", "IFNULL"), _returns_equal_types),
    **dict.fromkeys(("+", "-", "*"), _is_exact_arithmetic),
    **dict.fromkeys(("/", "%"), _is_division_by_constant),
    "UNARY_MINUS": _is_exact_negation,
    "CAST": _is_lossless_cast,
    "SHIFT": _is_constant_shift,
    **dict.fromkeys(("||", "CONCAT"), _always),
    "LIKE": _has_constant_pattern,
    **dict.fromkeys(("EXTRACT", "FLOOR_TO", "CEIL_TO", "TIMESTAMPDIFF"), _is_of_point),
    "DATE_FORMAT": _formats_digits,
}
"""The allowed functions; each checks the form of a call whose arguments are allowed."""
