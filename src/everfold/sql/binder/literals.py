"""Literals and their types, by Flink's rules."""

from __future__ import annotations

import datetime
from decimal import Decimal
from math import isinf

from everfold.plan.expressions import Literal
from everfold.sql import syntax
from everfold.sql.binder.context import Context
from everfold.sql.dialects.literals import WrongLiteral, interval_value
from everfold.sql.functions import type_of_literal
from everfold.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    MAX_DECIMAL_PRECISION,
    NULL,
    BytesType,
    DataType,
    DecimalType,
    IntervalType,
    TimestampType,
    TimeType,
)

_MOST = {INT: 2**31 - 1, BIGINT: 2**63 - 1}


def bind_literal(node: syntax.Expression, context: Context, *, negative: bool = False) -> Literal | None:
    """Return a node as a literal; None if it is not one. Raises SqlError `wrong-literal`."""
    span = node.span
    of: DataType
    value: object
    match node:
        case syntax.StringLiteral():
            of, value = type_of_literal(node.value), node.value
        case syntax.NumberLiteral():
            return _number(node, context, negative=negative)
        case syntax.BooleanLiteral():
            of, value = BOOLEAN, node.value
        case syntax.NullLiteral():
            return Literal(type=NULL, value=None, span=span)
        case syntax.HexLiteral():
            data = bytes.fromhex(node.digits)
            of, value = BytesType(length=len(data), fixed=True), data
        case syntax.TemporalLiteral():
            of, value = _temporal(node)
        case syntax.IntervalLiteral():
            try:
                amount, months = interval_value(node)
            except WrongLiteral as wrong:
                raise context.error("wrong-literal", str(wrong), node) from None
            of, value = IntervalType(months=months), -amount if negative else amount
        case _:
            return None
    return Literal(type=of.as_nullable(False), value=value, span=span)


def _number(node: syntax.NumberLiteral, context: Context, *, negative: bool) -> Literal:
    written = node.text
    of: DataType
    value: object
    if "e" in written.lower():
        of, value = DOUBLE, float(written) * (-1 if negative else 1)
        if isinf(value):
            raise context.error("wrong-literal", f"`{written}` does not fit a DOUBLE", node)
    elif "." in written and not written.endswith("."):
        digits, scale = len(written) - 1, len(written) - written.index(".") - 1
        if digits > MAX_DECIMAL_PRECISION:
            raise context.error("wrong-literal", f"a number has at most {MAX_DECIMAL_PRECISION} digits", node)
        of, value = DecimalType(precision=digits, scale=scale), Decimal(written) * (-1 if negative else 1)
    else:
        amount = int(written.rstrip(".")) * (-1 if negative else 1)
        fitting = [each for each, most in _MOST.items() if -most - 1 <= amount <= most]
        if not fitting:
            raise context.error(
                "wrong-literal",
                f"`{written}` does not fit a BIGINT",
                node,
                "write it as a string and CAST it to DECIMAL",
            )
        of, value = fitting[0], amount
    return Literal(type=of.as_nullable(False), value=value, span=node.span)


def _temporal(node: syntax.TemporalLiteral) -> tuple[DataType, object]:
    match node.kind:
        case "DATE":
            return DATE, datetime.date.fromisoformat(node.text)
        case "TIME":
            at = datetime.time.fromisoformat(_six_digits(node.text))
            ms = (at.hour * 3600 + at.minute * 60 + at.second) * 1000 + at.microsecond // 1000
            return TimeType(precision=node.precision), ms
        case _:
            return TimestampType(precision=node.precision), datetime.datetime.fromisoformat(_six_digits(node.text))


def _six_digits(written: str) -> str:
    """Limit the fraction to microseconds, which all engines support."""
    whole_seconds, dot, fraction = written.partition(".")
    return whole_seconds + (dot + fraction[:6].ljust(6, "0") if dot else "")
