"""Flink's implicit casts, common types and the precisions of decimals.

Flink has two rules for a common type: `least_restrictive` (Calcite's: operators, CASE, set
operations) and `common_type` (Flink's own: COALESCE, GREATEST, ARRAY). They differ for FLOAT and
DOUBLE: the former returns the type that comes first.
Source: asked of Flink 2.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal

from everfold.errors import SqlError
from everfold.plan.expressions import Call, Expr, Literal
from everfold.types import (
    DOUBLE,
    MAX_DECIMAL_PRECISION,
    MAX_VARCHAR,
    NULL,
    AnyType,
    ArrayType,
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatingType,
    FloatType,
    IntegerType,
    IntervalType,
    MapType,
    NullType,
    NumericType,
    RowField,
    RowType,
    StringType,
    TimestampType,
    TimeType,
)

MIN_DIVISION_SCALE = 6
"""Minimum scale of a quotient, and the scale that a product keeps when it must be reduced."""


def kind(type: DataType) -> str:
    """Return the family of a type for casts and comparisons."""
    match type:
        case NullType():
            return "null"
        case BooleanType():
            return "boolean"
        case IntegerType():
            return "integer"
        case DecimalType():
            return "decimal"
        case FloatingType():
            return "floating"
        case StringType():
            return "string"
        case BytesType():
            return "bytes"
        case DateType():
            return "date"
        case TimeType():
            return "time"
        case TimestampType(local_zone=True):
            return "ltz"
        case TimestampType():
            return "timestamp"
        case IntervalType(months=True):
            return "months"
        case IntervalType():
            return "millis"
        case MapType():
            return "map"
        case ArrayType():
            return "array"
        case RowType():
            return "row"
    raise AssertionError(type)


def decimal_of(type: DataType) -> DecimalType | None:
    """Return the DECIMAL that holds every value of an exact numeric type; None for other types."""
    match type:
        case DecimalType():
            return type
        case IntegerType():
            return DecimalType(precision=type.digits, scale=0)
    return None


def _limit_precision(precision: int, scale: int) -> DecimalType:
    """Limit a decimal to 38 digits: the scale is reduced first, but not below 6."""
    if precision <= MAX_DECIMAL_PRECISION:
        return DecimalType(precision=precision, scale=scale)
    before = precision - scale
    kept = max(MAX_DECIMAL_PRECISION - before, min(scale, MIN_DIVISION_SCALE))
    return DecimalType(precision=MAX_DECIMAL_PRECISION, scale=kept)


def sum_type(a: DecimalType, b: DecimalType) -> DecimalType:
    """Return the type of a + b and a - b."""
    scale = max(a.scale, b.scale)
    return _limit_precision(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale)


def product_type(a: DecimalType, b: DecimalType) -> DecimalType:
    """Return the type of a * b."""
    return _limit_precision(a.precision + b.precision + 1, a.scale + b.scale)


def quotient_type(a: DecimalType, b: DecimalType) -> DecimalType:
    """Return the type of a / b."""
    scale = max(MIN_DIVISION_SCALE, a.scale + b.precision + 1)
    return _limit_precision(a.precision - a.scale + b.scale + scale, scale)


def remainder_type(a: DecimalType, b: DecimalType) -> DecimalType:
    """Return the type of a % b."""
    scale = max(a.scale, b.scale)
    return _limit_precision(max(min(a.precision - a.scale, b.precision - b.scale) + scale, 1), scale)


def _wider_decimal(a: DecimalType, b: DecimalType) -> DecimalType:
    before = min(max(a.precision - a.scale, b.precision - b.scale), MAX_DECIMAL_PRECISION)
    scale = min(max(a.scale, b.scale), MAX_DECIMAL_PRECISION - before)
    return DecimalType(precision=max(before + scale, 1), scale=scale)


def _common_of_two(a: DataType, b: DataType, calcite: bool) -> DataType | None:
    """Return the common type of two types."""
    if a.same_as(b) and not isinstance(a, ArrayType | MapType | RowType):
        return a
    match a, b:
        case (NullType(), _):
            return b
        case (_, NullType()):
            return a
        case (IntegerType(), IntegerType()):
            return a if a.bits >= b.bits else b
        case (FloatingType(), FloatingType()):
            return a if calcite else DOUBLE
        case (FloatingType(), IntegerType()):
            return a
        case (IntegerType(), FloatingType()):
            return b
        case (FloatingType(), DecimalType()) | (DecimalType(), FloatingType()):
            return DOUBLE
        case (NumericType(), NumericType()):
            left, right = decimal_of(a), decimal_of(b)
            assert left is not None
            assert right is not None
            return _wider_decimal(left, right)
        case (StringType(), StringType()):
            return StringType(length=max(a.length, b.length), fixed=a.fixed and b.fixed and a.length == b.length)
        case (BytesType(), BytesType()):
            return BytesType(length=max(a.length, b.length), fixed=a.fixed and b.fixed and a.length == b.length)
        case (TimestampType(), TimestampType()):
            # Calcite takes the kind of the first type, Flink itself the instant.
            local_zone = a.local_zone if calcite else a.local_zone or b.local_zone
            return TimestampType(precision=max(a.precision, b.precision), local_zone=local_zone)
        case (TimeType(), TimeType()):
            return TimeType(precision=max(a.precision, b.precision))
        case (ArrayType(), ArrayType()):
            element = _common_element(a.element, b.element, calcite)
            return None if element is None else ArrayType(element=element)
        case (MapType(), MapType()) if type(a) is type(b):
            key, value = _common_element(a.key, b.key, calcite), _common_element(a.value, b.value, calcite)
            return None if key is None or value is None else replace(a, key=key, value=value)
        case (RowType(), RowType()) if len(a.fields) == len(b.fields):
            types = [_common_element(one.type, two.type, calcite) for one, two in zip(a.fields, b.fields, strict=True)]
            if all(types):
                names = [field.name for field in a.fields]
                return RowType(
                    fields=tuple(RowField(name=n, type=t) for n, t in zip(names, types, strict=True) if t is not None)
                )
    return None


def _common_element(a: DataType, b: DataType, calcite: bool) -> DataType | None:
    """Return the common type of two element types; it is nullable if either is."""
    common = _common_of_two(a, b, calcite)
    return None if common is None else common.as_nullable(a.nullable or b.nullable)


def _common_of_all(types: Iterable[DataType], calcite: bool) -> DataType | None:
    common: DataType | None = NULL
    nullable = False
    for each in types:
        if isinstance(each, AnyType):
            return each
        nullable = nullable or each.nullable
        common = common and _common_of_two(common, each, calcite)
    return common.as_nullable(nullable) if common is not None else None


def least_restrictive(types: Iterable[DataType]) -> DataType | None:
    """Return the common type of the branches of CASE, or of a column of UNION or VALUES.

    None if there is no such type.
    """
    return _common_of_all(types, calcite=True)


def common_type(types: Iterable[DataType]) -> DataType | None:
    """Return the common type of arguments of COALESCE, GREATEST, ARRAY; None if there is none."""
    types = list(types)
    if {kind(each) for each in types} == {"date", "timestamp"}:
        return None
    return _common_of_all(types, calcite=False)


def fits_implicitly(source: DataType, target: DataType) -> bool:
    """Return whether Flink casts `source` to `target` implicitly, as in INSERT."""
    if source.same_as(target):
        return True
    match source, target:
        case (NullType() | AnyType(), _) | (_, AnyType()):
            return True
        case (IntegerType(), IntegerType()):
            return source.bits <= target.bits
        case (IntegerType(), DecimalType() | FloatingType()) | (DecimalType(), DecimalType() | FloatingType()):
            return True
        case (FloatType(), DoubleType()):
            return True
        case (StringType(), StringType()) | (BytesType(), BytesType()) | (TimeType(), TimeType()):
            return True
        case (DateType(), TimestampType()) | (TimestampType(), TimestampType()):
            return True
        case (ArrayType(), ArrayType()):
            return fits_implicitly(source.element, target.element)
        case (MapType(), MapType()):
            return fits_implicitly(source.key, target.key) and fits_implicitly(source.value, target.value)
        case (RowType(), RowType()):
            return len(source.fields) == len(target.fields) and all(
                fits_implicitly(a.type, b.type) for a, b in zip(source.fields, target.fields, strict=True)
            )
    return False


def convert_to(expr: Expr, type: DataType) -> Expr:
    """Convert an expression to a wider type; constants are folded where that is exact."""
    if expr.type.same_as(type) or isinstance(type, AnyType):
        return expr
    if isinstance(expr, Literal):
        folded = _fold_constant(expr, type)
        if folded is not None:
            return folded
    return Call(function="CAST", args=(expr,), type=type.as_nullable(expr.type.nullable), span=expr.span)


def _fold_constant(expr: Literal, type: DataType) -> Literal | None:
    value = expr.value
    nullable = expr.type.nullable
    if value is None:
        return replace(expr, type=type.as_nullable())
    if isinstance(value, bool) or not isinstance(value, int | Decimal | float | str):
        return None
    match expr.type, type:
        case (IntegerType(), IntegerType()) if (
            isinstance(value, int) and -(1 << type.bits - 1) <= value < 1 << type.bits - 1
        ):
            return replace(expr, type=type.as_nullable(nullable))
        case (IntegerType() | DecimalType(), DecimalType()) if isinstance(value, int | Decimal):
            exact = Decimal(value)
            _, digits, exponent = exact.as_tuple()
            assert isinstance(exponent, int)
            scale = max(-exponent, 0)
            if scale <= type.scale and len(digits) + exponent <= type.precision - type.scale:
                rescaled = Decimal(str(exact)) if scale == type.scale else _rescale(exact, type.scale)
                return replace(expr, value=rescaled, type=type.as_nullable(nullable))
        case (IntegerType() | DecimalType() | FloatingType(), DoubleType()) if isinstance(value, int | Decimal | float):
            return replace(expr, value=float(value), type=type.as_nullable(nullable))
        case (StringType(), StringType(fixed=False)) if isinstance(value, str) and len(value) <= type.length:
            return replace(expr, type=type.as_nullable(nullable))
    return None


def _rescale(value: Decimal, scale: int) -> Decimal:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    return Decimal((sign, (*digits, *[0] * (scale + exponent)), -scale))


def implicit_cast(expr: Expr, type: DataType) -> Expr:
    """Cast an expression implicitly to `type`, as in Flink.

    Raises SqlError `wrong-cast` if Flink has no such implicit cast.
    """
    if not fits_implicitly(expr.type, type):
        raise SqlError.of(
            "wrong-cast",
            f"a value of type {expr.type.sql} is not implicitly cast to {type.sql}",
            expr.span,
            f"write CAST(… AS {type.sql})",
        )
    return convert_to(expr, type)


def type_of_literal(value: object) -> DataType:
    """Return the type of a constant, as in Flink.

    ``'abc'`` is CHAR(3), ``1.50`` DECIMAL(3, 2), ``7`` INT, ``3000000000`` BIGINT. A character
    beyond U+FFFF is two UTF-16 units and counts twice: ``'😀'`` is CHAR(2), although CHAR_LENGTH
    and casts count it once.
    """
    from everfold import types

    match value:
        case None:
            return types.NULL
        case bool():
            return types.BooleanType(nullable=False)
        case int() if -(1 << 31) <= value < 1 << 31:
            return types.IntType(nullable=False)
        case int() if -(1 << 63) <= value < 1 << 63:
            return types.BigIntType(nullable=False)
        case int():
            raise SqlError.of(
                "wrong-literal",
                f"the number {value} is out of range",
                None,
                "write it as a DECIMAL: CAST('…' AS DECIMAL(38, 0))",
            )
        case Decimal():
            _, digits, exponent = value.as_tuple()
            assert isinstance(exponent, int)
            scale = max(-exponent, 0)
            precision = max(len(digits) + max(exponent, 0), scale)
            if precision > MAX_DECIMAL_PRECISION:
                raise SqlError.of("wrong-literal", f"the number {value} has more than {MAX_DECIMAL_PRECISION} digits")
            return DecimalType(precision=max(precision, 1), scale=scale, nullable=False)
        case float():
            return types.DoubleType(nullable=False)
        case str():
            return StringType(length=min(len(value.encode("utf-16-le")) // 2, MAX_VARCHAR), fixed=True, nullable=False)
        case bytes():
            return BytesType(length=len(value), fixed=True, nullable=False)
    raise AssertionError(value)


def types_of(args: Sequence[Expr]) -> list[DataType]:
    """Return the types of the arguments."""
    return [arg.type for arg in args]
